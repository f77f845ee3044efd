"""Renders the CRD, the roles and the admission policies. `make generate` writes them into crds/ and manifests/."""
