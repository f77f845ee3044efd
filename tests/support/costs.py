"""What requests with many keys in their metadata cost the API server."""

from __future__ import annotations

import os
from pathlib import Path

from .api import Api, Object
from .controlplane import ControlPlane
from .people import refusal, tritonmodel

MANY, _REQUESTS = 16_000, 5
OLD = "many-annotations-before"
_TICKS = os.sysconf("SC_CLK_TCK")


def many(what: str) -> Object:
    """Returns a patch with many keys in this field of the metadata."""
    keys = [f"e.io/k{n}" for n in range(MANY)]
    if what == "ownerReferences":
        return {"metadata": {what: [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"k{n}", "uid": key}
                                    for n, key in enumerate(keys)]}}  # fmt: skip
    return {"metadata": {what: keys if what == "finalizers" else dict.fromkeys(keys, "v")}}


def old_tritonmodel() -> Object:
    """Returns a TritonModel with more annotations than the policies allow."""
    return tritonmodel(OLD, many("annotations")["metadata"]["annotations"])


def largest_variables() -> tuple[Object, Object]:
    """Returns two specs with as many variables of Secrets as the schema allows. The policy compares each with each."""

    def env(number: int, prefix: str) -> list[Object]:
        return [{"name": f"{prefix}{n}", "valueFrom": {"secretKeyRef": {"name": "s", "key": prefix}}}
                for n in range(number)]  # fmt: skip

    def spec(containers: int, prefix: str) -> Object:
        servers = [{"name": "triton", "env": env(64, f"{prefix}{n}_")} for n in range(containers)]
        return {"server": {"env": env(128, f"{prefix}_")}, "podTemplate": {"spec": {"containers": servers}}}

    return spec(1, "a"), spec(16, "b")


def cpu(plane: ControlPlane) -> float:
    """Returns the CPU seconds that the API server has used."""
    fields = Path(f"/proc/{plane.programs['kube-apiserver'].process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def cost(plane: ControlPlane, namespace: str, patch: Object) -> float:
    """Returns the CPU seconds of some dry runs of the patch of a TritonModel in a new namespace."""
    api = plane.api.in_namespace(namespace)
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    api.create(tritonmodel("costly"))
    return cost_of_patch(plane, api, "costly", patch)


def cost_of_patch(plane: ControlPlane, user: Api, name: str, patch: Object) -> float:
    """Returns the CPU seconds of some dry runs of the patch by this user."""
    path = user.path("TritonModel", name) + "?dryRun=All"
    start = cpu(plane)
    for _ in range(_REQUESTS):
        answer = refusal(lambda: user.request("PATCH", path, patch, "application/merge-patch+json"))
        assert not answer or "at most 128 annotations" in answer or "need the verb create on pods" in answer, answer
    return cpu(plane) - start
