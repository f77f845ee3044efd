"""Chooses the delivery of model images by the nodes' container runtimes."""

from __future__ import annotations

from typing import Any, cast

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


def test_sees_a_node_that_is_added_later_and_keeps_the_last_answer() -> None:
    cluster: Any = SimulatedApi("36", "containerd://2.1.0")
    seen = nodes.Nodes(cluster)
    seen.refresh()
    assert seen.delivery == "ImageVolume"
    cluster.version = lambda: (_ for _ in ()).throw(ApiError(500, "", "no"))
    with pytest.raises(ApiError):
        seen.refresh()
    assert seen.delivery == "ImageVolume"
    seen = nodes.Nodes(cast(Any, SimulatedApi("36", "containerd://2.1.0", "containerd://1.7.27")))
    seen.refresh()
    assert seen.delivery == "Copy"
