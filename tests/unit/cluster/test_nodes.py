"""How model images are delivered, by what the nodes can do."""

from __future__ import annotations

from typing import Any

import pytest

from triton_operator.cluster import nodes
from triton_operator.cluster.api import ApiError


class Cluster:
    def __init__(self, minor: str, *runtimes: str, forbidden: bool = False) -> None:
        self._minor, self._runtimes, self._forbidden = minor, runtimes, forbidden

    def version(self) -> dict[str, Any]:
        return {"major": "1", "minor": self._minor}

    def list(self, kind: object) -> Any:
        if self._forbidden:
            raise ApiError(403, "Forbidden", "no")
        return [{"status": {"nodeInfo": {"containerRuntimeVersion": r}}} for r in self._runtimes]


@pytest.mark.parametrize(
    ("cluster", "delivery"),
    [
        (Cluster("36", "containerd://2.1.0"), "ImageVolume"),
        (Cluster("35+", "containerd://2.2.1", "cri-o://1.33.0"), "ImageVolume"),
        (Cluster("34", "containerd://2.1.0"), "Copy"),
        (Cluster("36", "containerd://2.1.0", "containerd://1.7.27"), "Copy"),
        (Cluster("36", "docker://28.0.0"), "Copy"),
        (Cluster("36"), "Copy"),
        (Cluster("36", forbidden=True), "Copy"),
    ],
)
def test_what_auto_means(cluster: Any, delivery: str) -> None:
    assert nodes.best_delivery(cluster) == delivery
