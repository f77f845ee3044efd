"""Pictures of the latency over the rate: for the terminal, and as SVG. Pure.

Each kind of latency with a target has a picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from .search import LATENCY, NAMES, Point

_WIDTH, _HEIGHT = 64, 12
_PANEL = 410
"""The height of one picture in the SVG document."""
_ABOVE = 2.0
"""The pictures end at this multiple of the target. Higher latencies are drawn at the upper border."""


def _scaled(points: Sequence[Point], kind: str, target: float) -> tuple[float, list[tuple[float, float, float]]]:
    """Returns the highest rate, and (rate, p50, p99) of each point, with latencies as parts of the picture's height."""
    top = _ABOVE * target
    quantiles = ((p.rate, p.latency(kind)) for p in points)
    rows = [(rate, *(min(1.0, v / top) if v > 0 else 1.0 for v in (q.p50, q.p99))) for rate, q in quantiles]
    return max((r for r, _, _ in rows), default=1.0), rows  # type: ignore[return-value]


def milliseconds(seconds: float) -> str:
    """Returns a latency as text."""
    if not math.isfinite(seconds):
        return "no answer"
    return f"{seconds * 1000:.3g} ms" if seconds < 0.0995 else f"{seconds * 1000:.0f} ms"


def terminal(points: Sequence[Point], targets: Mapping[str, float], rate: float | None) -> list[str]:
    """Returns the lines of a picture for each target.

    It has p99 as `o`, P50 as `.`, the target as a line, and the found rate as a column.
    """
    pictures = [_lines(points, kind, target, rate) for kind, target in targets.items()] if points else []
    return [line for picture in pictures for line in picture]


def _lines(points: Sequence[Point], kind: str, target: float, rate: float | None) -> list[str]:
    end, rows = _scaled(points, kind, target)
    grid = [[" "] * (_WIDTH + 1) for _ in range(_HEIGHT + 1)]

    def place(rate: float, part: float) -> tuple[int, int]:
        return _HEIGHT - round(part * _HEIGHT), round(rate / end * _WIDTH)

    grid[place(0, 1 / _ABOVE)[0]] = ["-"] * (_WIDTH + 1)
    if rate is not None and rate <= end:
        for row in grid:
            row[place(rate, 0)[1]] = "|"
    for mark, column in ((".", 1), ("o", 2)):
        for values in rows:
            line, at = place(values[0], values[column])
            grid[line][at] = mark
    labels = {0: milliseconds(_ABOVE * target), _HEIGHT // 2: milliseconds(target), _HEIGHT: "0"}
    lines = [f"{labels.get(number, ''):>10} |{''.join(row).rstrip()}" for number, row in enumerate(grid)]
    name = "" if kind == LATENCY else f"{NAMES[kind]}: "
    return [*lines, f"{'':>10} +{'-' * (_WIDTH + 1)}", f"{'':>12}0{f'{end:.4g} requests/s':>{_WIDTH}}",
            f"{'':>12}{name}o p99   . P50   --- target" + ("   | result" if rate else "")]  # fmt: skip


def svg(title: str, points: Sequence[Point], targets: Mapping[str, float], rate: float | None) -> str:
    """Returns the pictures as an SVG document, one below the other."""
    parts = [
        part
        for k, (kind, target) in enumerate(targets.items())
        for part in _panel(title if kind == LATENCY else f"{title}, {NAMES[kind]}", points, kind, target, rate, k)
    ]
    return document(740, _PANEL * len(targets), parts)


def _panel(title: str, points: Sequence[Point], kind: str, target: float, rate: float | None, number: int) -> list[str]:
    """Returns the elements of the picture of one kind of latency. `number`: how many pictures are above it."""
    width, height, left, top = 640, 320, 70, 40 + number * _PANEL
    end, rows = _scaled(points, kind, target)
    end *= 1.05

    def x(rate: float) -> str:
        return f"{left + rate / end * width:.1f}"

    def y(part: float) -> str:
        return f"{top + (1 - part) * height:.1f}"

    axis, floor = 'stroke="#333"', y(0)
    parts = [
        text(x(end / 2), str(top - 18), title),
        line(x(0), y(0), x(end), y(0), axis),
        line(x(0), y(0), x(0), y(1), axis),
        line(x(0), y(1 / _ABOVE), x(end), y(1 / _ABOVE), 'stroke="#c33" stroke-dasharray="6 4"'),
        text(x(end), str(float(y(1 / _ABOVE)) - 6), f"target {milliseconds(target)}", "end"),
        *(
            text(str(left - 6), str(float(y(part)) + 4), milliseconds(part * _ABOVE * target) if part else "0", "end")
            for part in (0, 0.25, 0.5, 0.75, 1)
        ),
        *(text(x(end * k / 4), str(float(floor) + 18), f"{end * k / 4:.3g}") for k in range(5)),
        text(x(end / 2), str(float(floor) + 36), "requests per second"),
    ]
    if rate is not None:
        parts += [line(x(rate), y(0), x(rate), y(1), 'stroke="#393"'), text(x(rate), str(top - 4), f"{rate:.4g}")]
    for name, color, column in (("P50", "#999", 1), ("p99", "#36c", 2)):
        ordered = sorted(rows)
        path = " ".join(f"{x(row[0])},{y(row[column])}" for row in ordered)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-opacity="0.5"/>')
        parts += [
            f'<circle cx="{x(row[0])}" cy="{y(row[column])}" r="3" fill="{color}"><title>{name}</title></circle>'
            for row in ordered
        ]
    return parts


def line(x1: str, y1: str, x2: str, y2: str, style: str) -> str:
    """Returns a line of an SVG document."""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" {style}/>'


def text(at: str, y: str, words: str, anchor: str = "middle") -> str:
    """Returns a text of an SVG document."""
    return f'<text x="{at}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


def document(width: int, height: int, parts: Sequence[str]) -> str:
    """Returns an SVG document of these elements."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )
