"""Pictures of a value and its limit over the last hour: for the terminal, and as SVG. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .calibrate.plot import document, line, text

Curve = Sequence[tuple[float, float]]
Words = Callable[[float], str]
_WIDTH, _HEIGHT = 60, 8
_GAP = 150
"""Seconds without a value after which the curve is interrupted."""


def _highest(value: Curve, limit: Curve) -> float:
    return max((v for _, v in (*value, *limit)), default=0.0) * 1.1 or 1.0


def terminal(value: Curve, limit: Curve, start: float, end: float, words: Words) -> list[str]:
    """Returns the lines of a picture from `start` to `end` (Unix time): the value as `o`, the limit as `-`."""
    if not value:
        return []
    top = _highest(value, limit)
    grid = [[" "] * (_WIDTH + 1) for _ in range(_HEIGHT + 1)]
    for mark, curve in (("-", limit), ("o", value)):
        for at, height in curve:
            column = round((at - start) / (end - start) * _WIDTH)
            if 0 <= column <= _WIDTH:
                grid[_HEIGHT - round(max(0.0, height) / top * _HEIGHT)][column] = mark
    labels = {0: words(top), _HEIGHT: words(0.0)}
    lines = [f"{labels.get(k, ''):>12} |{''.join(row).rstrip()}" for k, row in enumerate(grid)]
    return [*lines, f"{'':>12} +{'-' * (_WIDTH + 1)}", f"{'':>14}{'an hour ago':<{_WIDTH - 3}}now"]


def svg(title: str, value: Curve, limit: Curve, span: tuple[float, float], words: Words, limit_name: str) -> str:
    """Returns the picture as an SVG document. `span`: its first and last moment as Unix time."""
    width, height, left, upper = 640, 260, 90, 40
    start, end = span
    top = _highest(value, limit)

    def x(at: float) -> str:
        return f"{left + (at - start) / (end - start) * width:.1f}"

    def y(of: float) -> str:
        return f"{upper + (1 - of / top) * height:.1f}"

    def path(curve: Curve, style: str) -> str:
        steps = [
            f"{'M' if k == 0 or at - curve[k - 1][0] > _GAP else 'L'}{x(at)},{y(of)}"
            for k, (at, of) in enumerate(curve)
        ]
        return f'<path d="{" ".join(steps)}" fill="none" {style}/>'

    axis, minutes = 'stroke="#333"', (end - start) / 60
    parts = [
        text(x((start + end) / 2), "22", title),
        line(x(start), y(0), x(end), y(0), axis),
        line(x(start), y(0), x(start), y(top), axis),
        *(text(str(left - 6), str(float(y(top * k / 4)) + 4), words(top * k / 4), "end") for k in range(5)),
        *(
            text(x(start + (end - start) * k / 4), str(float(y(0)) + 18), f"-{minutes * (1 - k / 4):.0f} min")
            for k in range(4)
        ),
        text(x(end), str(float(y(0)) + 18), "now"),
    ]
    if limit:
        parts += [
            path(limit, 'stroke="#c33" stroke-dasharray="6 4"'),
            text(x(end), str(float(y(limit[-1][1])) - 6), f"{limit_name} {words(limit[-1][1])}", "end"),
        ]
    if value:
        parts.append(path(value, 'stroke="#36c" stroke-width="2"'))
    return document(left + width + 30, upper + height + 40, parts)
