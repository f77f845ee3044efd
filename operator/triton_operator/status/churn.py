"""Suspends the scraping of a TritonModel whose servers replace their series, which would fill Prometheus' memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from triton_operator.api.status import TritonModelStatus

SUSPENDED = timedelta(hours=1)
"""How long the scraping stays suspended. Prometheus keeps the series in memory for up to three hours."""


def seconds_left(before: TritonModelStatus, now: datetime) -> float:
    """Returns for how many seconds the scraping stays suspended; 0 if it isn't.

    It depends only on the status, which users can't write. A change of the spec or a new leader doesn't end it.
    """
    try:
        left = datetime.fromisoformat(before.scraping_suspended_until or "") - now
    except (ValueError, TypeError):
        return 0.0
    # If the clock was set back, the suspension ends.
    return left.total_seconds() if timedelta() < left <= SUSPENDED else 0.0


def since(until: str) -> str:
    """Returns since when the scraping has been suspended."""
    return _text(datetime.fromisoformat(until) - SUSPENDED)


def suspended_until(before: TritonModelStatus, churning: bool, now: str) -> str | None:
    """Returns until when the scraping is suspended; None if it isn't. `churning`: whether Prometheus reports it now."""
    time = datetime.fromisoformat(now)
    if seconds_left(before, time):
        return before.scraping_suspended_until
    return _text(time + SUSPENDED) if churning else None


def _text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
