"""Pictures of a value and its limit over time: for the terminal, and as SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from kubectl_triton.calibrate.plot import document, line, text
from kubectl_triton.top.fleet import figure

Curve = Sequence[tuple[float, float]]
_WIDTH, _LEAST_HEIGHT = 60, 8
_GAP = 150
"""Seconds without a value after which the curve is interrupted."""
_LEAST, _MOST = 1e-9, 1e15
"""A lower value is drawn as 0, a higher one as this."""
_TICKS = 5
_VALUE, _LIMIT = "#36c", "#c33"
_LINE = 14
"""Pixels between two lines of text."""


@dataclass(frozen=True)
class Picture:
    """What a picture shows, from `start` to `end` (Unix time).

    - `title`: the first line; `name`, `unit`: of the value, such as "demand" and "requests/s"
    - `value`, `limit`: (Unix time, value)
    - `since`: since when the condition of the alert holds; None if that isn't known or is before `start`
    """

    title: str
    name: str
    unit: str
    start: float
    end: float
    value: Curve = ()
    limit: Curve = ()
    limit_name: str = ""
    since: float | None = None

    @property
    def heading(self) -> str:
        """Returns what the vertical axis shows."""
        return f"{self.name[:1].upper()}{self.name[1:]}{f' in {self.unit}' if self.unit else ''}"

    @property
    def ticks(self) -> list[float]:
        """Returns the numbers at the vertical axis: round ones, from 0 to above every value."""
        highest = max((_drawn(v) for _, v in (*self.value, *self.limit)), default=0.0)
        highest = highest if highest > _LEAST else 1.0
        least = 10.0 ** math.floor(math.log10(highest / _TICKS))
        step = next(least * k for k in (1, 2, 2.5, 5, 10) if highest * 1.05 <= least * k * _TICKS)
        if not self.unit:  # a number of servers
            step = max(step, 1.0) if step != 2.5 else 5.0
        return [step * k for k in range(math.ceil(highest * 1.05 / step) + 1)]


def clock(at: float) -> str:
    """Returns the time of day in UTC, such as 23:05Z."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M}Z"


def _drawn(value: float) -> float:
    return min(max(value, 0.0), _MOST)


def terminal(picture: Picture) -> list[str]:
    """Returns the lines of the picture: the value as `o`, the limit as `-`, and `^` below the start of the alert."""
    if not picture.value:
        return []
    ticks = picture.ticks
    intervals = len(ticks) - 1
    height = intervals * math.ceil(_LEAST_HEIGHT / intervals)  # so that each tick is at a line
    rows = [[" "] * (_WIDTH + 1) for _ in range(height + 1)]

    def column(at: float) -> int:
        return round((at - picture.start) / (picture.end - picture.start) * _WIDTH)

    def row(value: float) -> int:
        return height - round(_drawn(value) / ticks[-1] * height)

    for mark, curve in (("-", picture.limit), ("o", picture.value)):
        for at, value in curve:
            if 0 <= column(at) <= _WIDTH:
                rows[row(value)][column(at)] = mark
    labels = {row(tick): figure(tick) for tick in ticks}
    lines = [f"{labels.get(k, ''):>8} |{''.join(marks).rstrip()}" for k, marks in enumerate(rows)]
    axis, legend = ["-"] * (_WIDTH + 1), f"o {picture.name}"
    if picture.limit:
        legend += f"   - {picture.limit_name} {figure(picture.limit[-1][1])}"
    if picture.since is not None:
        axis[column(picture.since)] = "^"
        legend += f"   ^ {clock(picture.since)} its condition begins"
    middle, end = clock((picture.start + picture.end) / 2), f"{clock(picture.end)} now"
    times = f"{clock(picture.start):<{_WIDTH // 2 - 2}}{middle:<{_WIDTH // 2 + 3 - len(end)}}{end}"
    return [*lines, f"{'':>8} +{''.join(axis)}", f"{'':>10}{times}", f"{'':>10}{legend}"]


def svg(picture: Picture) -> str:
    """Returns the picture as an SVG document."""
    width, height, left, upper, right = 640, 260, 70, 76, 160
    start, end, ticks = picture.start, picture.end, picture.ticks

    def x(at: float) -> str:
        return f"{left + (at - start) / (end - start) * width:.1f}"

    def y(value: float) -> str:
        return f"{upper + (1 - _drawn(value) / ticks[-1]) * height:.1f}"

    def path(curve: Curve, style: str, *, stepped: bool = False) -> str:
        """Draws a line from value to value, or with `stepped` a horizontal one up to the next value."""
        steps = []
        for k, (at, value) in enumerate(curve):
            begins = k == 0 or at - curve[k - 1][0] > _GAP
            steps.append(f"M{x(at)},{y(value)}" if begins else f"{f'H{x(at)} ' if stepped else ''}L{x(at)},{y(value)}")
        return f'<path d="{" ".join(steps)}" fill="none" {style}/>'

    floor, quarters = upper + height, [start + (end - start) * k / 4 for k in range(5)]
    day = f"{datetime.fromtimestamp(end, UTC):%Y-%m-%d}"
    parts = [
        f'<text x="{left}" y="24" font-size="16" font-weight="bold">{escape(picture.title)}</text>',
        text(str(left), "46", f"{picture.heading}, {clock(start)} to {clock(end)} on {day}", "start"),
        *(line(x(start), y(tick), x(end), y(tick), 'stroke="#ddd"') for tick in ticks[1:]),
        *(text(str(left - 8), f"{float(y(tick)) + 4:.1f}", figure(tick), "end") for tick in ticks),
        *(text(x(at), str(floor + 18), clock(at)) for at in quarters),
        text(x(end), str(floor + 18 + _LINE), "now"),
    ]
    if picture.since is not None:
        at = x(picture.since)
        parts += [
            f'<rect x="{at}" y="{upper}" width="{float(x(end)) - float(at):.1f}" height="{height}" '
            f'fill="{_LIMIT}" fill-opacity="0.08"/>',
            line(at, str(upper), at, str(floor), f'stroke="{_LIMIT}"'),
            text(at, str(upper - 8), f"{clock(picture.since)} its condition begins", _anchor(float(at) - left, width)),
        ]
    parts.append(line(x(start), str(floor), x(end), str(floor), 'stroke="#333"'))
    names = []
    if picture.limit:
        parts.append(path(picture.limit, f'stroke="{_LIMIT}" stroke-width="1.5" stroke-dasharray="6 4"', stepped=True))
        names.append((picture.limit[-1][1], picture.limit_name, _LIMIT))
    if picture.value:
        parts.append(path(picture.value, f'stroke="{_VALUE}" stroke-width="2"'))
        names.append((picture.value[-1][1], picture.name, _VALUE))
    else:
        parts.append(text(x((start + end) / 2), str(upper + height / 2), "Prometheus has no values of this hour"))
    parts += _names(names, float(x(end)) + 8, [float(y(value)) + 4 for value, _, _ in names])
    return document(left + width + right, floor + 18 + 2 * _LINE, parts)


def _anchor(at: float, width: float) -> str:
    """Returns on which side of `at` a text has room, in a picture of this width."""
    return "start" if at < 0.2 * width else "end" if at > 0.8 * width else "middle"


def _names(names: Sequence[tuple[float, str, str]], left: float, heights: list[float]) -> list[str]:
    """Returns the names of the curves with their last values, beside their ends but not over each other."""
    if len(heights) == 2 and abs(heights[0] - heights[1]) < _LINE:
        upper = min((0, 1), key=lambda k: (heights[k], k))
        heights[1 - upper] = heights[upper] + _LINE
    return [
        f'<text x="{left:.1f}" y="{at:.1f}" fill="{color}">{escape(name)} {figure(value)}</text>'
        for (value, name, color), at in zip(names, heights, strict=True)
    ]
