"""The status as another client, or another version of the operator, may have written it."""

from __future__ import annotations

from typing import Any

import pytest

from triton_operator.api.status import TritonModelStatus, status_of

EVICTED = ["2026-01-01T00:00:00Z"]


@pytest.mark.parametrize(
    "wrong",
    [{"conditions": 5}, {"conditions": [{"type": "Ready"}]}, {"lastRepair": {}}, {"replicas": "x"}, {"image": [1]}],
)
def test_a_field_that_cannot_be_read_takes_no_other_with_it(wrong: dict[str, Any]) -> None:
    """So the limit of evictions holds."""
    status = status_of({"status": {"evictions": EVICTED, "observedGeneration": 3, **wrong}})
    assert status == TritonModelStatus(evictions=EVICTED, observed_generation=3)


@pytest.mark.parametrize("wrong", [None, 7, [], "x"])
def test_a_status_that_is_no_object_is_empty(wrong: Any) -> None:
    assert status_of({"status": wrong}) == status_of({}) == TritonModelStatus()


def test_the_default_of_the_crd_is_no_generation() -> None:
    assert status_of({"status": {"observedGeneration": -1}}).observed_generation == 0
