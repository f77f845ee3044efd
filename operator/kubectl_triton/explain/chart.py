"""The chart of a value and its limit in the hour before now. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kubectl_triton.charts import BLUE, COLUMN, DASHES, LINE, RED, Chart, Points, Series, round_up
from kubectl_triton.top.fleet import figure

Curve = Sequence[tuple[float, float]]
MINUTES = 60
_GAP_SECONDS = 150
"""After this time without a value the line is interrupted."""
_LEAST, _MOST = 1e-9, 1e15
"""The top of a chart is between these, or 1 if all values are lower."""


@dataclass(frozen=True)
class Hour:
    """A value in the hour before `now` (Unix time).

    - `name`, `unit`: of the value, such as "demand" and "requests/s"
    - `value`, `limit`: (Unix time, value), in order of time
    - `since`: since when the condition of the alert holds; None if that isn't known or was before this hour
    """

    title: str
    name: str
    unit: str
    now: float
    value: Curve = ()
    limit: Curve = ()
    limit_name: str = ""
    since: float | None = None


def clock(at: float) -> str:
    """Returns the time of day in UTC, such as 23:05Z."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M}Z"


def chart(hour: Hour) -> Chart:
    """Returns the chart. Its x are minutes, from -60 to 0."""
    highest = max((value for _, value in (*hour.value, *hour.limit)), default=0.0)
    top = round_up(min(1.05 * highest, _MOST)) if highest > _LEAST else 1.0
    series = []
    if hour.limit:
        series.append(Series(f"{hour.limit_name} {figure(hour.limit[-1][1])}", DASHES, RED, _points(hour, hour.limit)))
    if hour.value:
        series.append(Series(f"{hour.name} {figure(hour.value[-1][1])}", LINE, BLUE, _points(hour, hour.value)))
    if hour.since is not None:
        x = (hour.since - hour.now) / 60
        series.append(Series(f"{clock(hour.since)} its condition begins", COLUMN, RED, [(x, 0), (x, top)]))
    name = f"{hour.name[:1].upper()}{hour.name[1:]}{f' in {hour.unit}' if hour.unit else ''}, the last hour"
    day = f"{datetime.fromtimestamp(hour.now, UTC):%Y-%m-%d}"
    return Chart(
        hour.title, f"UTC, {day}", name, -MINUTES, 0, top, series,
        lambda minute: clock(hour.now + 60 * minute), figure,
    )  # fmt: skip


def _points(hour: Hour, curve: Curve) -> Points:
    """Returns the points of a curve. Prometheus' times are whole seconds, so the last one may be after `now`."""
    points: list[tuple[float, float | None]] = []
    for at, value in curve:
        x = min(max(-MINUTES, (at - hour.now) / 60), 0.0)
        if points and 60 * (x - points[-1][0]) > _GAP_SECONDS:
            points.append((x, None))
        points.append((x, value))
    return points
