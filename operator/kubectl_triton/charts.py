"""Charts for the terminal, drawn by plotille, and as SVG, drawn by leather. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import leather
from plotille import Figure

Points: TypeAlias = Sequence[tuple[float, float | None]]
"""(x, y). None as y interrupts a line."""
BLUE, GREEN, GREY, RED = "#36c", "#393", "#999", "#c33"
LINE, COLUMN, DASHES = "⠤", "⡇", "-"
_WIDTH, _HEIGHT = 60, 10
"""Characters of a chart in the terminal, without the labels of the axes."""
leather.theme.default_chart_height = 400
for _text in ("title", "legend", "axis_title", "tick"):
    setattr(leather.theme, f"{_text}_font_family", "sans-serif")


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    `mark`: the character of a point in the terminal, and of the series in the legend. LINE and COLUMN connect the
    points, DASHES only in the SVG.
    """

    name: str
    mark: str
    color: str
    points: Points


@dataclass(frozen=True)
class Chart:
    """Series in one coordinate system, which goes from `start` to `end` and from 0 to `top`.

    A value above the top is drawn at the top. A point before the start or after the end isn't drawn. `x_text` and
    `y_text` return the label of a number.
    """

    title: str
    x_name: str
    y_name: str
    start: float
    end: float
    top: float
    series: Sequence[Series]
    x_text: Callable[[float], str]
    y_text: Callable[[float], str]

    def inside(self, series: Series) -> Points:
        """Returns the points of a series as they are drawn."""
        return [(x, None if y is None else self._inside(y)) for x, y in series.points if self.start <= x <= self.end]

    def _inside(self, y: float) -> float:
        return min(max(y, 0.0), self.top) if math.isfinite(y) else self.top


def round_up(value: float) -> float:
    """Returns a number from this one up to twice as high, with at most two digits: a top for a chart."""
    magnitude = 10.0 ** math.floor(math.log10(value))
    return next(magnitude * k for k in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 20) if value <= magnitude * k)


def terminal(chart: Chart) -> list[str]:
    """Returns the chart's lines without the title: the name of the vertical axis, the chart, the legend."""
    figure = Figure()
    figure.with_colors = figure.origin = False
    # plotille's area is larger by one column and one row, so that it draws points at the end and at the top, too.
    figure.width, figure.height = _WIDTH + 1, _HEIGHT + 1
    figure.set_x_limits(chart.start, chart.end + (chart.end - chart.start) / _WIDTH)
    figure.set_y_limits(0, chart.top + chart.top / _HEIGHT)
    figure.x_label = chart.x_name
    figure.x_ticks_fkt = lambda low, _: chart.x_text(low)
    figure.y_ticks_fkt = lambda low, _: chart.y_text(low)
    for series in chart.series:
        for missing, points in groupby(chart.inside(series), key=lambda point: point[1] is None):
            if not missing:
                x, y = zip(*points, strict=True)
                connected = series.mark in (LINE, COLUMN)
                figure.plot(x, y, interp="linear" if connected else None, marker=None if connected else series.mark)
    legend = "   ".join(f"{series.mark} {series.name}" for series in chart.series)
    # The first line has only ten characters for the name of the vertical axis, the next one is above the top.
    lines = figure.show().splitlines()[2:]
    return [chart.y_name, *(line.rstrip(" ⠀") for line in lines), f"{'':13}{legend}"]


def svg(charts: Sequence[Chart]) -> str:
    """Returns the charts as one SVG document."""
    grid = leather.Grid()
    grid.add_many([_drawing(chart) for chart in charts])
    return str(grid.to_svg())


def _drawing(chart: Chart) -> leather.Chart:
    drawing = leather.Chart(chart.title)
    drawing.add_x_scale(chart.start, chart.end)
    drawing.add_y_scale(0, chart.top)
    drawing.add_x_axis(name=chart.x_name, tick_formatter=lambda value, *_: chart.x_text(float(value)))
    drawing.add_y_axis(name=chart.y_name, tick_formatter=lambda value, *_: chart.y_text(float(value)))
    for series in chart.series:
        points = chart.inside(series)
        if not points:
            continue  # leather can't draw a series without points
        if series.mark in (LINE, COLUMN, DASHES):
            dashes = "6 4" if series.mark == DASHES else "none"
            drawing.add_line(points, name=series.name, stroke_color=series.color, stroke_dasharray=dashes)
        else:
            drawing.add_dots(points, name=series.name, fill_color=series.color)
    return drawing
