"""`kubectl triton top`: a live view of TritonModels, or one table."""
