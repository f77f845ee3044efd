"""`kubectl triton`: the plugin for users of TritonModels. Each command with several modules is a folder."""
