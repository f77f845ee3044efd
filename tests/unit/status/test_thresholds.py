"""Thresholds in the status: the accepted values, since when they apply, and what changed."""

from __future__ import annotations

import pytest

from triton_operator.api import thresholds
from triton_operator.api.status import ThresholdStatus
from triton_operator.status.thresholds import changes, states

P = thresholds.PREFIX
THEN, NOW = "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"


def state(kind: str, value: str, version: str = "", source: str = "", since: str = THEN) -> ThresholdStatus:
    return ThresholdStatus(kind=kind, version=version, value=value, source=source or f"{P}{kind}", since=since)


def next_states(annotations: dict[str, str], *previous: ThresholdStatus) -> list[ThresholdStatus]:
    return states(thresholds.parse(annotations), previous, NOW)


def test_only_a_changed_value_gets_a_new_time() -> None:
    previous = [state("max-qps", "80"), state("spike-factor", "5")]
    after = next_states({f"{P}max-qps": "80.0", f"{P}spike-factor": "6"}, *previous)
    assert after == [previous[0], state("spike-factor", "6", since=NOW)]


def test_another_annotation_with_the_same_value_is_not_a_change() -> None:
    (after,) = next_states({"max_qps": "80"}, state("max-qps", "80"))
    assert after == state("max-qps", "80", source="max_qps")
    assert changes([state("max-qps", "80")], [after]) == []


def test_invalid_annotation_keeps_the_accepted_value_and_its_source() -> None:
    previous = state("max-qps", "80", source="max_qps")
    assert next_states({f"{P}max-qps": "x"}, previous) == [previous]
    assert next_states({f"{P}max-qps": "80", "max_qps": "90"}, previous) == [previous]
    assert next_states({f"{P}max-qps": "x"}) == []
    assert next_states({}, previous) == []


def test_drops_invalid_values_from_the_status() -> None:
    assert next_states({f"{P}max-qps": "x"}, state("max-qps", "many")) == []
    assert next_states({f"{P}max-qps": "5"}, state("max-qps", "many")) == [state("max-qps", "5", since=NOW)]


def test_sorts_by_kind_and_version() -> None:
    annotations = {f"{P}spike-factor": "5", f"{P}max-qps.2": "1", f"{P}max-qps": "8", f"{P}ensemble-coefficient": "2"}
    after = next_states(annotations)
    assert after == next_states(dict(reversed(annotations.items())))
    assert [(t.kind, t.version) for t in after] == [
        ("ensemble-coefficient", ""), ("max-qps", ""), ("max-qps", "2"), ("spike-factor", "")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("previous", "now", "expected"),
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
def test_describes_each_change(
    previous: list[ThresholdStatus], now: list[ThresholdStatus], expected: list[str]
) -> None:
    assert [str(c) for c in changes(previous, now)] == expected
