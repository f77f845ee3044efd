"""Thresholds over time: since when each is in force, and what changed."""

from __future__ import annotations

import pytest

from triton_operator.api import thresholds
from triton_operator.api.status import ThresholdStatus
from triton_operator.status.thresholds import changes, states

P = thresholds.PREFIX
THEN, NOW = "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"


def state(kind: str, value: str, version: str = "", source: str = "", since: str = THEN) -> ThresholdStatus:
    return ThresholdStatus(kind=kind, version=version, value=value, source=source or f"{P}{kind}", since=since)


def after(annotations: dict[str, str], *before: ThresholdStatus) -> list[ThresholdStatus]:
    return states(thresholds.parse(annotations), before, NOW)


def test_a_value_that_stays_keeps_its_time_and_one_that_changes_begins_anew() -> None:
    before = [state("max-qps", "80"), state("spike-factor", "5")]
    found = after({f"{P}max-qps": "80.0", f"{P}spike-factor": "6"}, *before)
    assert found == [before[0], state("spike-factor", "6", since=NOW)]


def test_another_name_for_the_same_value_is_no_change() -> None:
    (found,) = after({"max_qps": "80"}, state("max-qps", "80"))
    assert found == state("max-qps", "80", source="max_qps")
    assert changes([state("max-qps", "80")], [found]) == []


def test_nonsense_keeps_the_last_good_value_with_its_source() -> None:
    before = state("max-qps", "80", source="max_qps")
    assert after({f"{P}max-qps": "x"}, before) == [before]
    assert after({f"{P}max-qps": "80", "max_qps": "90"}, before) == [before]
    assert after({f"{P}max-qps": "x"}) == []
    assert after({}, before) == []


def test_what_others_wrote_into_the_status_goes() -> None:
    assert after({f"{P}max-qps": "x"}, state("max-qps", "many")) == []
    assert after({f"{P}max-qps": "5"}, state("max-qps", "many")) == [state("max-qps", "5", since=NOW)]


def test_the_order_is_always_the_same() -> None:
    annotations = {f"{P}spike-factor": "5", f"{P}max-qps.2": "1", f"{P}max-qps": "8", f"{P}ensemble-coefficient": "2"}
    found = after(annotations)
    assert found == after(dict(reversed(annotations.items())))
    assert [(t.kind, t.version) for t in found] == [
        ("ensemble-coefficient", ""), ("max-qps", ""), ("max-qps", "2"), ("spike-factor", "")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ([], [], []),
        ([state("max-qps", "80")], [state("max-qps", "80", since=NOW)], []),
        ([], [state("max-qps", "80")], [f"max-qps: none → 80 (annotation {P}max-qps)"]),
        ([state("max-qps", "80")], [state("max-qps", "60")], [f"max-qps: 80 → 60 (annotation {P}max-qps)"]),
        ([state("max-qps", "80")], [], [f"max-qps: 80 → none (annotation {P}max-qps)"]),
        ([state("max-qps", "80")], [state("max-qps", "80", "2", "max_qps.2")],
         [f"max-qps: 80 → none (annotation {P}max-qps)", "max-qps.v2: none → 80 (annotation max_qps.2)"]),
    ],
)  # fmt: skip
def test_changes(before: list[ThresholdStatus], now: list[ThresholdStatus], told: list[str]) -> None:
    assert [str(c) for c in changes(before, now)] == told
