"""Talking to Kubernetes and Triton: I/O only, no decisions."""
