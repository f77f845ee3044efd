"""All parts, and the parts of each goal. To add a part, add a file here and a line below."""

from __future__ import annotations

from hack.world import settings
from hack.world.part import Part

from . import (
    base_images,
    checkout,
    control_plane,
    cosign,
    docker_daemon,
    envoy_gateway,
    go,
    helm,
    keda,
    kind,
    kstatus,
    kubectl,
    monitoring,
    node,
    prometheus,
    registry,
    tritonserver,
)

ALL: dict[str, Part] = {
    part.name: part
    for part in (
        *docker_daemon.PARTS,
        *go.PARTS,
        *kind.PARTS,
        *kubectl.PARTS,
        *kstatus.PARTS,
        *helm.PARTS,
        *control_plane.PARTS,
        *base_images.PARTS,
        *registry.PARTS,
        *node.PARTS,
        *tritonserver.PARTS,
        *prometheus.PARTS,
        *monitoring.PARTS,
        *keda.PARTS,
        *envoy_gateway.PARTS,
        *cosign.PARTS,
        *checkout.PARTS,
    )
}

_CLUSTER = ("venv", "cluster", "operator-image", "server-image", "detection-image")
_MONITORING = ("prometheus-image", "alertmanager", "prometheus-operator", "prometheus-config-reloader", "adapter")

# Images that the cluster's pods pull from a public registry, or from the local one if that can't be reached.
MIRRORED = (
    base_images.PYTHON,
    base_images.BUSYBOX,
    tritonserver.IMAGE,
    *monitoring.IMAGES,
    *keda.IMAGES,
    *envoy_gateway.IMAGES,
)

# The parts of each target of the Makefile, and of other goals.
GOALS: dict[str, tuple[str, ...]] = {
    "demo": _CLUSTER,
    "cluster": _CLUSTER,
    "monitoring": (*_CLUSTER, *_MONITORING),
    "unit": ("venv",),
    "rules": ("venv", "prometheus"),
    "images": ("venv", "server-image", "python"),
    "server": ("venv", "server-image", "python"),
    "security": ("venv", "control-plane"),
    "integration": ("venv", "control-plane", "kstatus"),
    "releases": ("venv", "control-plane", "helm", "cosign"),
    "oldest": ("venv", "control-plane", "helm", control_plane.release(settings.SUPPORTED[0])),
    "newest": ("venv", "control-plane", "helm", control_plane.release(settings.SUPPORTED[-1])),
    "faults": ("venv", "control-plane", "keda-programs"),
    "properties": ("venv", "control-plane", "prometheus"),
    "path": (*_CLUSTER, *_MONITORING, "busybox"),
    "uninstall": (*_CLUSTER, *_MONITORING, "busybox"),
    "shared": (*_CLUSTER, *_MONITORING, "busybox"),
    "operations": (*_CLUSTER, *_MONITORING, "busybox"),
    "installations": (*_CLUSTER, *_MONITORING, "busybox", "helm", "keda", "gateway"),
    "bench": (*_CLUSTER, *_MONITORING, "control-plane", "prometheus"),
    "keda": ("keda",),
    "gateway": ("gateway",),
    "cosign": ("cosign",),
}


def _together(*goals: str) -> tuple[str, ...]:
    return tuple(sorted({name for goal in goals for name in GOALS[goal]}))


GOALS["test"] = _together("unit", "rules", "images", "integration", "path")
GOALS["e2e"] = _together("shared", "operations", "installations")
GOALS["compat-triton"] = _together("images", "server")
GOALS["compat"] = _together("integration", "security", "faults", "properties")
GOALS["compat"] += tuple(map(control_plane.release, settings.COMPARED))
GOALS["test-all"] = _together("test", "server", "releases", "faults", "properties", "oldest", "newest", "e2e")
