"""`kubectl triton status`: shows one TritonModel, and follows a start or a rollout."""
