"""When a pass is due that no event asks for."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from triton_operator.api.status import Condition, ThresholdStatus, TritonModelStatus
from triton_operator.status.again import look_again

SET, SOON, LATE = "2026-01-01T00:00:00.250Z", "2026-01-01T00:02:59.000Z", "2026-01-01T00:03:01.000Z"
EXPLICIT = {"server": {"modelControl": "explicit", "loadModels": ["detection"]}}


def status(reason: str, *since: str) -> TritonModelStatus:
    live = Condition(type="ThresholdLive", status="False", reason=reason, message="", last_transition_time=SET)
    thresholds = [ThresholdStatus(kind="max-qps", value="80", source="max_qps", since=s) for s in since]
    return TritonModelStatus(conditions=[live], thresholds=thresholds)


@pytest.mark.parametrize(
    ("spec", "found", "now", "expected"),
    [
        ({}, status("Live"), LATE, None),
        (EXPLICIT, status("Live"), LATE, 60),
        ({}, status("Propagating", SET), SET, 2),
        ({}, status("Propagating", SET), SOON, 2),
        ({}, status("Propagating", SET), LATE, 60),
        # One more value begins the wait anew.
        ({}, status("Propagating", SET, SOON), LATE, 2),
        (EXPLICIT, status("Propagating", SET), SOON, 2),
        ({}, status("PrometheusUnreachable"), SET, 60),
        ({}, status("TokenCounterMissing"), SET, 60),
        ({}, status("NoPrometheus"), SET, None),
    ],
)
def test_when_to_look_again(spec: dict[str, Any], found: TritonModelStatus, now: str, expected: float | None) -> None:
    assert look_again(gen.model(**spec), found, now) == expected
