"""What requests with many keys in their metadata cost the API server."""

from __future__ import annotations

import os
from pathlib import Path

from .api import Object
from .controlplane import ControlPlane
from .people import refusal, tritonmodel

MANY, _REQUESTS = 16_000, 5
_TICKS = os.sysconf("SC_CLK_TCK")


def many(what: str) -> Object:
    """Returns a patch with many keys in this field of the metadata."""
    keys = [f"e.io/k{n}" for n in range(MANY)]
    return {"metadata": {what: keys if what == "finalizers" else dict.fromkeys(keys, "v")}}


def cpu(plane: ControlPlane) -> float:
    """Returns the CPU seconds that the API server has used."""
    fields = Path(f"/proc/{plane.programs['kube-apiserver'].process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def cost(plane: ControlPlane, namespace: str, patch: Object) -> float:
    """Returns the CPU seconds of some dry runs of the patch of a TritonModel in a new namespace."""
    api = plane.api.in_namespace(namespace)
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    api.create(tritonmodel("costly"))
    path = api.path("TritonModel", "costly") + "?dryRun=All"
    start = cpu(plane)
    for _ in range(_REQUESTS):
        answer = refusal(lambda: api.request("PATCH", path, patch, "application/merge-patch+json"))
        assert not answer or "at most 128 annotations" in answer
    return cpu(plane) - start
