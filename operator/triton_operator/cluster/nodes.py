"""Reads the cluster's version, and detects whether it supports image volumes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Literal

from triton_operator.api import kubernetes_versions
from triton_operator.api.kinds import Kind

from .api import KubernetesApi
from .errors import ApiError

NODES = Kind("", "v1", "Node", "nodes")
FRESH_SECONDS = 10.0
"""How long the answer is cached, for the case that many TritonModels are created at once."""
_RUNTIMES = {"containerd": (2, 1), "cri-o": (1, 33)}


class Nodes:
    """What the cluster's nodes support. Safe to use from several threads."""

    def __init__(self, api: KubernetesApi, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock, self._lock = api, clock, threading.Lock()
        self._delivery: Literal["Copy", "ImageVolume"] = "Copy"
        self._at = float("-inf")

    def delivery(self) -> Literal["Copy", "ImageVolume"]:
        """Returns the delivery for a new Deployment with `delivery: Auto`. Asks the API server; raises ApiError."""
        with self._lock:
            if self._clock() - self._at > FRESH_SECONDS:
                self._delivery, self._at = best_delivery(self._api), self._clock()
            return self._delivery


def best_delivery(api: KubernetesApi) -> Literal["Copy", "ImageVolume"]:
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
