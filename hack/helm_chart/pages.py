"""The README of each chart."""

from __future__ import annotations

_HEAD = "<!-- Made by `make generate` from hack/helm_chart; change that instead. -->\n"
_OPERATOR = """\
# Chart triton-operator

For cluster operators: installs the operator of TritonModels. Install the chart
[triton-operator-crds](../triton-operator-crds/README.md) first.

```console
helm install triton-operator-crds charts/triton-operator-crds -n triton-operator --create-namespace
helm install triton-operator charts/triton-operator -n triton-operator
```

[docs/operations.md](../../docs/operations.md#with-helm) describes installation, upgrade, rollback and removal. The
names of the objects are fixed, so a namespace can have one operator.

## Values

Unknown values are refused. Each value also has a description in `values.yaml`.

"""
_CRDS = """\
# Chart triton-operator-crds

For cluster operators: installs and upgrades the CustomResourceDefinition of TritonModels. Install and upgrade it before
the chart [triton-operator](../triton-operator/README.md).

`helm uninstall` keeps the CRD and all TritonModels, unless `keep` is `false`. To delete the CRD with all TritonModels
and their servers: `kubectl delete crd tritonmodels.tritonoperator.io`.

## Values

"""


def operator(table: str) -> str:
    """Returns the README of the chart triton-operator."""
    return _HEAD + _OPERATOR + table


def crds(table: str) -> str:
    """Returns the README of the chart triton-operator-crds."""
    return _HEAD + _CRDS + table
