"""The Services."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.types import TritonModel

from .child_type import Child
from .common import obj
from .facts import Facts

HEADLESS = "-headless"


def services(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    """Returns a Service with a cluster IP and a headless one; for a named group one for routes, if there is a route.

    gRPC clients need the headless Service to balance over the pods: a channel through the cluster IP sends all requests
    to one pod. Clients of stateful models need it to choose one pod for each sequence.
    """
    spec: dict[str, Any] = {
        "selector": names.selector(model.name) if facts.serves_all else names.selector_without_groups(model.name),
        "ports": [
            {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
            | ({"appProtocol": "kubernetes.io/h2c"} if name == "grpc" else {})
            for name, port in names.PORTS.items()
        ],
    }
    if facts.group:
        return [_of_group(model, facts.group, spec)] if model.spec.route else []
    mode = model.spec.service.session_affinity
    affinity = {"sessionAffinity": mode} if mode != "None" else {}
    return [
        obj(model, kinds.SERVICE, spec={"type": "ClusterIP", **affinity, **spec}),
        obj(model, kinds.SERVICE, model.name + HEADLESS, spec={"type": "ClusterIP", "clusterIP": "None", **spec}),
    ]


def _of_group(model: TritonModel, group: str, spec: dict[str, Any]) -> dict[str, Any]:
    answers = {"name": names.ANSWERS, "port": names.ANSWERS_PORT, "targetPort": names.ANSWERS, "protocol": "TCP"}
    ports = [*spec["ports"], *([answers] if model.compares and group == names.CANARY else [])]
    spec = {"type": "ClusterIP", **spec, "selector": names.selector(model.name, group), "ports": ports}
    return obj(model, kinds.SERVICE, names.deployment(model.name, group), labels=names.of_group(group), spec=spec)


def endpoint(model: TritonModel) -> str:
    """Returns the HTTP address inside the cluster."""
    return f"http://{model.name}.{model.namespace}.svc:{names.PORTS['http']}"


CHILD = Child(kinds.SERVICE, services, always=True, of_each_group=True)
