"""Creates pods with the status of a kubelet, because these tests run no kubelet."""

from __future__ import annotations

from . import gen
from .api import Api, Object


def add_pod(api: Api, *modifiers: gen.Modifier, name: str = "detection-abc-1", model: str = gen.NAME) -> Object:
    """Creates a pod from the Deployment's current template, or updates it, with the status of a kubelet."""
    template = api.get("Deployment", model)["spec"]["template"]
    status = gen.pod(*modifiers, name=name)["status"]
    pod = api.find("Pod", name)
    if pod is None:
        metadata = {**template["metadata"], "name": name, "namespace": api.namespace}
        spec = {**template["spec"], "nodeName": "node-1"}
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    # One request, as from a kubelet, so that no intermediate state exists.
    body = {**api.get("Pod", name), "status": status}
    return api.request("PUT", api.path("Pod", name) + "/status", body)
