"""The load that a HorizontalPodAutoscaler has read."""

from __future__ import annotations

import pytest

from kubectl_triton import autoscaler_load
from kubectl_triton.samples import Samples
from kubectl_triton.top import fleet as table
from support import fleet, gen

WITHOUT_SERVERS = "-9223372036854775808m"
"""Reported by the controller of Kubernetes 1.36 for a load of 0 and no ready server."""


@pytest.mark.parametrize("kind", ["Object", "External"])
@pytest.mark.parametrize(
    ("average", "load"),
    [("850m", 0.85), ("0", 0.0), ("1e6", 1e6), (WITHOUT_SERVERS, None), ("9223372036854775807m", None), ("2M", None),
     ("-1m", None), ("NaN", None), ("Inf", None), ("", None)],
)  # fmt: skip
def test_nonsense_is_no_load(kind: str, average: str, load: float | None) -> None:
    metric = {"type": kind, kind.lower(): {"current": {"averageValue": average}}}
    other = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 5}}}
    assert autoscaler_load.per_server({"currentMetrics": [other, metric]}) == load


@pytest.mark.parametrize("status", [{}, {"currentMetrics": None}, {"currentMetrics": [{"type": "Object"}]}])
def test_an_autoscaler_without_a_metric_has_no_load(status: fleet.Object) -> None:
    assert autoscaler_load.per_server(status) is None


@pytest.mark.parametrize(("average", "load"), [("850m", 1.7), (WITHOUT_SERVERS, None)])
def test_top_has_the_load_of_all_servers(average: str, load: float | None) -> None:
    [row] = table.rows([gen.raw(fleet.status())], [fleet.autoscaler(gen.NAME, 2, 2, average)], Samples())
    assert row.load == load
