"""For how long the scraping of a TritonModel is suspended."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from triton_operator.api.status import TritonModelStatus
from triton_operator.status.churn import seconds_left, suspended_until

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
UNTIL = "2026-06-01T12:30:00Z"


def status(until: str | None) -> TritonModelStatus:
    return TritonModelStatus(scraping_suspended_until=until)


@pytest.mark.parametrize(
    ("until", "seconds"),
    [
        (None, 0),
        (UNTIL, 1800),
        ("2026-06-01T14:30:00+02:00", 1800),
        ("2026-06-01T12:00:00Z", 0),
        ("2026-06-01T11:00:00Z", 0),
        ("2026-06-01T13:00:00Z", 3600),
        # The clock was set back, or another client wrote it.
        ("2026-06-01T13:00:01Z", 0),
        ("2026-06-01T12:30:00", 0),
        ("soon", 0),
    ],
)
def test_suspension_lasts_until_the_time_in_the_status(until: str | None, seconds: float) -> None:
    assert seconds_left(status(until), NOW) == seconds


@pytest.mark.parametrize("churning", [False, True])
def test_suspension_is_neither_extended_nor_ended_early(churning: bool) -> None:
    assert suspended_until(status(UNTIL), churning, "2026-06-01T12:29:59.500Z") == UNTIL


@pytest.mark.parametrize(("churning", "expected"), [(False, None), (True, "2026-06-01T13:30:00Z")])
def test_a_server_that_replaces_its_series_suspends_the_scraping_for_an_hour(
    churning: bool, expected: str | None
) -> None:
    for before in (None, UNTIL):
        assert suspended_until(status(before), churning, "2026-06-01T12:30:00.900Z") == expected
