"""`kubectl triton models`, `config`, `load`, `unload` and `reload`: the models of running servers."""
