"""Chooses the delivery of model images by the nodes' container runtimes."""

from __future__ import annotations

from typing import Any

import pytest

from triton_operator.cluster import nodes
from triton_operator.cluster.errors import ApiError


class SimulatedApi:
    """An API server of this version whose nodes have these container runtimes."""

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
        (SimulatedApi("36", "containerd://2.1.0"), "ImageVolume"),
        (SimulatedApi("35+", "containerd://2.2.1", "cri-o://1.33.0"), "ImageVolume"),
        (SimulatedApi("34", "containerd://2.1.0"), "Copy"),
        (SimulatedApi("36", "containerd://2.1.0", "containerd://1.7.27"), "Copy"),
        (SimulatedApi("36", "docker://28.0.0"), "Copy"),
        (SimulatedApi("36"), "Copy"),
        (SimulatedApi("36", forbidden=True), "Copy"),
    ],
)
def test_auto_selects_image_volume_only_if_every_node_supports_it(cluster: Any, delivery: str) -> None:
    assert nodes.best_delivery(cluster) == delivery


class Cluster(SimulatedApi):
    """A cluster whose nodes change. Counts the listings."""

    listings = 0

    def list(self, kind: object) -> Any:
        self.listings += 1
        return super().list(kind)

    def add(self, runtime: str) -> None:
        self._runtimes = (*self._runtimes, runtime)


def test_sees_a_node_that_is_added_later_and_lists_seldom() -> None:
    cluster, now = Cluster("36", "containerd://2.1.0"), [1000.0]
    api: Any = cluster
    delivery = nodes.Nodes(api, lambda: now[0])
    assert {delivery.delivery() for _ in range(100)} == {"ImageVolume"}
    assert cluster.listings == 1
    cluster.add("containerd://1.7.27")
    now[0] += nodes.FRESH_SECONDS + 0.1
    assert delivery.delivery() == "Copy"


def test_reports_a_failed_listing_and_asks_again() -> None:
    cluster: Any = Cluster("36", "containerd://2.1.0")
    listed, cluster.version = cluster.version, lambda: (_ for _ in ()).throw(ApiError(500, "", "no"))
    delivery = nodes.Nodes(cluster)
    with pytest.raises(ApiError):
        delivery.delivery()
    cluster.version = listed
    assert delivery.delivery() == "ImageVolume"
