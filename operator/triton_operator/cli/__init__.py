"""The commands triton-operator, which runs in the cluster, and kubectl-triton, which users run."""
