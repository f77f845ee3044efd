"""When a pass is due that no event asks for."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from triton_operator.api.status import Condition, TritonModelStatus
from triton_operator.status.again import look_again

EXPLICIT = {"server": {"modelControl": "explicit", "loadModels": ["detection"]}}


def status(reason: str) -> TritonModelStatus:
    return TritonModelStatus(conditions=[Condition(type="ThresholdLive", status="False", reason=reason, message="")])


@pytest.mark.parametrize(
    ("spec", "found", "expected"),
    [
        ({}, status("Live"), None),
        (EXPLICIT, status("Live"), 60),
        ({}, status("Propagating"), 60),
        ({}, status("PrometheusUnreachable"), 60),
        ({}, status("TokenCounterMissing"), 60),
        ({}, status("NoPrometheus"), None),
    ],
)
def test_when_to_look_again(spec: dict[str, Any], found: TritonModelStatus, expected: float | None) -> None:
    assert look_again(gen.model(**spec), found) == expected
