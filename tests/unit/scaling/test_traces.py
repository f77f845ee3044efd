"""The engine Direct against the HorizontalPodAutoscaler alone, in a simulation with recorded requests."""

from __future__ import annotations

import pytest

from unit.scaling import simulation


@pytest.mark.parametrize(
    ("name", "late_vs_hpa", "replicas_vs_hpa", "changes"), [("conv", 0.1, 1.2, 40), ("code", 0.5, 2.6, 80)]
)
def test_azure_traces(name: str, late_vs_hpa: float, replicas_vs_hpa: float, changes: int) -> None:
    load = simulation.trace(name)
    capacity = simulation.peak(load) / 8
    hpa, direct = (simulation.mean(load, capacity, direct=direct) for direct in (False, True))
    assert direct.late_seconds <= late_vs_hpa * hpa.late_seconds, (hpa, direct)
    assert direct.replicas <= replicas_vs_hpa * hpa.replicas, (hpa, direct)
    assert direct.changes <= changes, direct


def test_a_step() -> None:
    load = simulation.step()
    hpa, direct = (simulation.mean(load, 100, direct=direct, since=900) for direct in (False, True))
    assert hpa.first is not None
    assert direct.first is not None
    assert hpa.first >= 15
    assert direct.first <= 5
    assert direct.late_seconds <= 0.5 * hpa.late_seconds, (hpa, direct)
    assert direct.replicas <= 1.35 * hpa.replicas, (hpa, direct)
    assert direct.changes <= 25, direct
