"""The exporters, and what they add to the pods."""

from __future__ import annotations

from typing import Any

from triton_operator.api.types import TritonModel

from . import latency, processes
from .common import CONTAINER_SECURITY
from .exporter import Exporter
from .facts import Facts

EXPORTERS: tuple[Exporter, ...] = (latency.EXPORTER, processes.EXPORTER)


def of(model: TritonModel) -> list[Exporter]:
    """Returns the exporters that the pods of this TritonModel have."""
    return [exporter for exporter in EXPORTERS if exporter.is_on(model)]


def containers(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    return [
        {
            "name": exporter.container,
            "image": facts.tools_image,
            "command": list(exporter.command),
            "ports": [{"name": exporter.port_name, "containerPort": exporter.port, "protocol": "TCP"}],
            "resources": {"requests": exporter.resources, "limits": exporter.resources},
            "volumeMounts": [_mount(exporter)],
            "securityContext": CONTAINER_SECURITY,
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        for exporter in of(model)
    ]


def mounts(model: TritonModel) -> list[dict[str, Any]]:
    """Returns the mounts of the server's container."""
    return [_mount(exporter) for exporter in of(model)]


def volumes(model: TritonModel) -> list[dict[str, Any]]:
    return [
        {"name": exporter.volume, "emptyDir": {"medium": "Memory", "sizeLimit": exporter.size}}
        for exporter in of(model)
    ]


def flags(model: TritonModel) -> list[str]:
    """Returns the flags of tritonserver."""
    return [flag for exporter in of(model) for flag in exporter.flags]


def _mount(exporter: Exporter) -> dict[str, Any]:
    return {"name": exporter.volume, "mountPath": exporter.folder}
