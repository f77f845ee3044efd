"""`kubectl triton calibrate`: finds the highest request rate that one server answers within a latency target."""
