"""Reads the cluster's version, and detects whether it supports image volumes."""

from __future__ import annotations

import re

from triton_operator.api import kubernetes_versions
from triton_operator.api.kinds import Kind
from triton_operator.render.facts import Delivery

from .api import KubernetesApi
from .errors import ApiError

NODES = Kind("", "v1", "Node", "nodes")
_RUNTIMES = {"containerd": (2, 1), "cri-o": (1, 33)}


class Nodes:
    """What the cluster's nodes supported at the last `refresh`.

    `delivery`: the delivery for a new Deployment with `delivery: Auto`.
    """

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self.delivery: Delivery = "Copy"

    def refresh(self) -> None:
        """Lists the nodes. Raises ApiError."""
        self.delivery = best_delivery(self._api)


def best_delivery(api: KubernetesApi) -> Delivery:
    """Returns the delivery for `delivery: Auto`.

    It is Copy if the API server or a node doesn't support image volumes, or if the operator may not read that (a
    namespaced installation may not list nodes). Raises ApiError.
    """
    try:
        if kubernetes_version(api) < kubernetes_versions.IMAGE_VOLUMES:
            return "Copy"
        runtimes = [n["status"]["nodeInfo"]["containerRuntimeVersion"] for n in api.list(NODES)]
    except ApiError as error:
        if error.code == 403:
            return "Copy"
        raise
    return "ImageVolume" if runtimes and all(_mounts_images(r) for r in runtimes) else "Copy"


def kubernetes_version(api: KubernetesApi) -> tuple[int, int]:
    """Returns the API server's major and minor version; (0, 0) if it doesn't say it. Raises ApiError."""
    version = api.version()
    return kubernetes_versions.minor(f"{version.get('major', '')}.{version.get('minor', '')}")


def _mounts_images(runtime: str) -> bool:
    """`runtime`: e.g. containerd://2.2.1."""
    name, _, version = runtime.partition("://")
    return name in _RUNTIMES and _number(version) >= _RUNTIMES[name]


def _number(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
