"""A Kubernetes operator for NVIDIA Triton Inference Server."""
