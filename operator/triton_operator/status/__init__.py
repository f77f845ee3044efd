"""What the cluster and Triton show → what the TritonModel's status says. Pure."""
