"""How clients reach the servers."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.types import TritonModel

from .child import Child
from .common import obj

HEADLESS = "-headless"


def services(model: TritonModel) -> list[dict[str, Any]]:
    """The Service with one address, and a headless one for gRPC clients that balance over the pods themselves:
    a gRPC channel through the first sends everything to one pod."""
    spec = {
        "selector": names.selector(model.name),
        "ports": [
            {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
            | ({"appProtocol": "kubernetes.io/h2c"} if name == "grpc" else {})
            for name, port in names.PORTS.items()
        ],
    }
    return [
        obj(model, kinds.SERVICE, spec={"type": "ClusterIP", **spec}),
        obj(model, kinds.SERVICE, HEADLESS, spec={"type": "ClusterIP", "clusterIP": "None", **spec}),
    ]


def endpoint(model: TritonModel) -> str:
    """The HTTP address inside the cluster."""
    return f"http://{model.name}.{model.namespace}.svc:{names.PORTS['http']}"


CHILD = Child(kinds.SERVICE, lambda model, _: services(model), always=True)
