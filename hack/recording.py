"""Draws a recording of a terminal as an animated SVG.

The recordings are docs/recordings/*.cast, in asciinema's format asciicast v2. `make recordings` makes them.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from string import Template

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

FOLDER = Path("docs/recordings")
_REDRAW_SECONDS = 0.1
"""Output within this time belongs to the same picture, because a program draws its lines one after another."""
_PAUSE_SECONDS, _END_SECONDS = 2.0, 8.0
"""The longest time between two pictures, and the time of the last one."""
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
# Rich draws the pictures below each other. The animation moves one after another into the window.
_PICTURE = Template("""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $width $height" role="img">
<style>
text { font: 20px $font; white-space: pre; }
.film { animation: film ${seconds}s step-end infinite; transform: translateY(${last}px); }
@keyframes film { $keyframes }
@media (prefers-reduced-motion: reduce) { .film { animation: none; } }
$styles
</style>
<rect width="100%" height="100%" rx="8" fill="#292929"/>
<svg x="8" y="8" width="$inner_width" height="$inner_height" overflow="hidden">
<g class="film">$text</g>
</svg>
</svg>
""")
_MARK = "<!-- -->"
_LINE = 24.4
"""Height of a line in Rich's SVG, in pixels."""


@dataclass(frozen=True)
class Frame:
    """What the terminal shows from `at` seconds on."""

    at: float
    rows: tuple[Text, ...]


def frames(cast: str) -> tuple[int, list[Frame]]:
    """Returns the terminal's number of columns and the pictures, without two equal ones in a row.

    `cast`: a header and one event per line. The pictures have the same number of rows, without those that stay empty.
    """
    header, *events = (json.loads(line) for line in cast.splitlines())
    screen = pyte.Screen(header["width"], header["height"])
    stream = pyte.Stream(screen)
    output = [(at, data) for at, kind, data in events if kind == "o"]
    pictures: list[Frame] = []
    now = 0.0
    for (at, data), (following, _) in zip(output, [*output[1:], (float("inf"), "")], strict=True):
        stream.feed(data)
        if following - at < _REDRAW_SECONDS:
            continue
        rows = tuple(_row(screen, y) for y in range(screen.lines))
        if not pictures or rows != pictures[-1].rows:
            pictures.append(Frame(now, rows))
        now += min(following - at, _PAUSE_SECONDS)
    used = max((y for frame in pictures for y, row in enumerate(frame.rows, 1) if row.plain.strip()), default=1)
    return header["width"], [Frame(f.at, f.rows[:used]) for f in pictures]


def _row(screen: pyte.Screen, y: int) -> Text:
    cells = [screen.buffer[y][x] for x in range(screen.columns)]
    runs = groupby(cells, key=lambda cell: Style(color=_color(cell.fg), bold=cell.bold))
    row = Text.assemble(*(("".join(cell.data for cell in run), style) for style, run in runs))
    row.rstrip()
    return row


def _color(name: str) -> str | None:
    return {"default": None, "brown": "yellow"}.get(name, name)


def svg(cast: str) -> str:
    """Returns the SVG. It loads nothing. With `prefers-reduced-motion`, it shows only the last picture."""
    columns, pictures = frames(cast)
    console = Console(
        # Rich asks the terminal unless it has both sizes.
        width=columns, height=25, record=True, file=io.StringIO(), color_system="truecolor", force_terminal=True,
    )  # fmt: skip
    for frame in pictures:
        for row in frame.rows:
            console.print(row, no_wrap=True, crop=True)
    export = _MARK.join(["{styles}", "{backgrounds}{matrix}", "{terminal_width}"])
    styles, text, width = console.export_svg(title="", code_format=export, unique_id="film").split(_MARK)
    # No row needs clipping, because none is longer than the terminal. Rich also draws the end of each row.
    text = re.sub(r"<text[^>]*>\n</text>|\sclip-path=\"[^\"]*\"", "", text)
    height, seconds = len(pictures[0].rows) * _LINE, pictures[-1].at + _END_SECONDS
    moves = [(100 * frame.at / seconds, -k * height) for k, frame in enumerate(pictures)]
    return _PICTURE.substitute(
        width=round(float(width) + 17), height=round(height + 16), inner_width=width, inner_height=f"{height:g}",
        font=_FONT, seconds=f"{seconds:g}", last=f"{moves[-1][1]:g}", styles=styles, text=text,
        keyframes=" ".join(f"{at:.3f}% {{ transform: translateY({y:g}px); }}" for at, y in moves),
    )  # fmt: skip


def files() -> dict[Path, str]:
    """Returns the SVG of each recording, by path."""
    casts = sorted((Path(__file__).resolve().parent.parent / FOLDER).glob("*.cast"))
    return {Path("docs/images") / f"{cast.stem}.svg": svg(cast.read_text()) for cast in casts}
