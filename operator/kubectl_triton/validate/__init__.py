"""`kubectl triton validate`: checks a model repository in a folder, an image or a tar file."""
