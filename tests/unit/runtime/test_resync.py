"""When the process tries again."""

from __future__ import annotations

import pytest

from triton_operator.cluster.errors import ApiError
from triton_operator.runtime.resync import _retry_seconds

FAILURES = [1, 2, 5, 6, 100, 1024, 100_000]


@pytest.mark.parametrize("failures", FAILURES)
def test_a_listing_that_fails_for_days_is_tried_every_minute(failures: int) -> None:
    assert _retry_seconds(ApiError(0, "NoAnswer", ""), failures, 20) == min(60, 2 ** min(failures, 10))
    assert _retry_seconds(RuntimeError(), failures, 0) <= 60
    assert 2 <= _retry_seconds(ApiError(403, "Forbidden", ""), failures, 0) <= 5
