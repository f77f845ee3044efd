"""Pods with the status that a kubelet would write: none runs in these tests."""

from __future__ import annotations

from . import gen
from .api import Api, Object


def add_pod(api: Api, *modifiers: gen.Modifier, name: str = "detection-abc-1", model: str = gen.NAME) -> Object:
    """A pod of the Deployment as it is now, with the status that a kubelet would write."""
    template = api.get("Deployment", model)["spec"]["template"]
    status = gen.pod(*modifiers, name=name)["status"]
    existing = api.find("Pod", name)
    if existing is None:
        metadata = {**template["metadata"], "name": name, "namespace": api.namespace}
        spec = {**template["spec"], "nodeName": "node-1"}
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    # All at once, as a kubelet does it: what lies between two states is none.
    now = {**api.get("Pod", name), "status": status}
    return api.request("PUT", api.path("Pod", name) + "/status", now)
