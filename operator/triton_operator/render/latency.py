"""The container that measures how long requests take, from traces that Triton writes.

docs/decisions/0060-latency-from-traces.md
"""

from __future__ import annotations

from typing import Any

from triton_operator.api import names
from triton_operator.api.types import TritonModel

from .delivery import CONTAINER_SECURITY
from .facts import Facts

_FOLDER = "/.triton-operator/traces"
_VOLUME = "latency-traces"
_SIZE = "16Mi"
"""Ten times what the files of one batch take. The folder is in memory: a full one fails to take more files, while
Kubernetes would evict a pod whose folder on disk is too large."""
_RESOURCES = {"cpu": "100m", "memory": "96Mi"}
"""Requests and limits, so that pods keep the QoS class that the server's resources give them."""


def containers(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    """Returns the container if the spec wants it."""
    if not model.measures_latency:
        return []
    own = f"http://localhost:{names.PORTS['http']}"
    return [
        {
            "name": names.CONTAINER_LATENCY,
            "image": facts.tools_image,
            "command": ["python", "-m", "latency_sampler", own, _FOLDER, str(names.LATENCY_PORT)],
            "ports": [{"name": names.LATENCY, "containerPort": names.LATENCY_PORT, "protocol": "TCP"}],
            "resources": {"requests": _RESOURCES, "limits": _RESOURCES},
            "volumeMounts": mounts(model),
            "securityContext": CONTAINER_SECURITY,
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
    ]


def mounts(model: TritonModel) -> list[dict[str, Any]]:
    """Returns the mount of the folder with the traces, for both containers."""
    return [{"name": _VOLUME, "mountPath": _FOLDER}] if model.measures_latency else []


def volumes(model: TritonModel) -> list[dict[str, Any]]:
    folder = {"name": _VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": _SIZE}}
    return [folder] if model.measures_latency else []


def flags(model: TritonModel) -> list[str]:
    """Returns the flags of tritonserver. It traces nothing until the container asks for it.

    It takes the file from a flag only. Each file has the trace of one request, so that it can be read at once.
    """
    if not model.measures_latency:
        return []
    return [f"--trace-config=triton,file={_FOLDER}/trace", "--trace-config=triton,log-frequency=1"]
