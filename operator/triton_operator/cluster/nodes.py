"""Detects whether the cluster supports image volumes."""

from __future__ import annotations

import re
from typing import Literal

from triton_operator.api.kinds import Kind

from .api import ApiError, KubernetesApi

NODES = Kind("", "v1", "Node", "nodes")
_API_SERVER = (1, 35)
"""The first Kubernetes version with ImageVolume enabled by default."""
_RUNTIMES = {"containerd": (2, 1), "cri-o": (1, 33)}


def best_delivery(api: KubernetesApi) -> Literal["Copy", "ImageVolume"]:
    """Returns the delivery for `delivery: Auto`.

    It is Copy if the API server or a node doesn't support image volumes, or if the operator may not list nodes (a
    namespaced installation). Raises ApiError.
    """
    version = api.version()
    if _number(f"{version['major']}.{version['minor']}") < _API_SERVER:
        return "Copy"
    try:
        runtimes = [n["status"]["nodeInfo"]["containerRuntimeVersion"] for n in api.list(NODES)]
    except ApiError as error:
        if error.code == 403:
            return "Copy"
        raise
    return "ImageVolume" if runtimes and all(_mounts_images(r) for r in runtimes) else "Copy"


def _mounts_images(runtime: str) -> bool:
    """`runtime`: e.g. containerd://2.2.1."""
    name, _, version = runtime.partition("://")
    return name in _RUNTIMES and _number(version) >= _RUNTIMES[name]


def _number(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
