"""The program `triton-operator`, which runs in the cluster."""
