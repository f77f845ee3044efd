"""Computes the status of a TritonModel from the state of the cluster, of Triton and of Prometheus. Pure."""
