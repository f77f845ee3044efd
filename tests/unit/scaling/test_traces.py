"""The engine Direct against the HorizontalPodAutoscaler alone, in a simulation with recorded requests."""

from __future__ import annotations

import pytest

from unit.scaling import simulation
from unit.scaling.simulation import Outcome

PHASES = (0, 4, 8, 12)
"""Places of the HorizontalPodAutoscaler's interval at which the trace begins."""


def mean(load: list[float], capacity: float, *, direct: bool, since: int = 0) -> Outcome:
    runs = [simulation.run(load, capacity, direct=direct, phase=p, since=since) for p in PHASES]
    firsts = [r.first for r in runs if r.first is not None]
    return Outcome(
        sum(r.late_seconds for r in runs) // len(runs), sum(r.late_part for r in runs) / len(runs),
        sum(r.replicas for r in runs) / len(runs), max(r.changes for r in runs), max(firsts) if firsts else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "late_vs_hpa", "replicas_vs_hpa", "changes"), [("conv", 0.1, 1.15, 40), ("code", 0.5, 1.9, 80)]
)
def test_azure_traces(name: str, late_vs_hpa: float, replicas_vs_hpa: float, changes: int) -> None:
    load = simulation.trace(name)
    capacity = simulation.peak(load) / 8
    hpa, direct = (mean(load, capacity, direct=direct) for direct in (False, True))
    assert direct.late_seconds <= late_vs_hpa * hpa.late_seconds, (hpa, direct)
    assert direct.replicas <= replicas_vs_hpa * hpa.replicas, (hpa, direct)
    assert direct.changes <= changes, direct


def test_a_step() -> None:
    load = [750.0 if 900 <= second < 2400 else 200.0 for second in range(3600)]
    hpa, direct = (mean(load, 100, direct=direct, since=900) for direct in (False, True))
    assert hpa.first is not None
    assert direct.first is not None
    assert hpa.first >= 15
    assert direct.first <= 5
    assert direct.late_seconds <= 0.5 * hpa.late_seconds, (hpa, direct)
    assert direct.replicas <= 1.3 * hpa.replicas, (hpa, direct)
    assert direct.changes <= 25, direct
