"""Good and faulty model repositories, to compare the repository check with tritonserver."""
