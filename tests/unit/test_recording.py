"""Recordings of a terminal as pictures: which pictures there are, and when the animation shows each."""

from __future__ import annotations

import json
import re

from hack import recording

CLEAR = "\r\x1b[2K\x1b[1A\x1b[2K"


def cast(*events: tuple[float, str]) -> str:
    header = {"version": 2, "width": 40, "height": 8}
    return "\n".join([json.dumps(header), *(json.dumps([at, "o", data]) for at, data in events)])


def lines(*events: tuple[float, str]) -> list[tuple[float, list[str]]]:
    return [(frame.at, [row.plain for row in frame.rows]) for frame in recording.frames(cast(*events))[1]]


def test_lines_that_are_drawn_again_replace_the_former_ones() -> None:
    assert lines((0, "$ watch\r\n"), (0.5, "… rollout\r\n… servers"), (1.5, f"{CLEAR}✓ rollout\r\n✓ servers")) == [
        (0, ["$ watch", "", ""]),
        (0.5, ["$ watch", "… rollout", "… servers"]),
        (1.5, ["$ watch", "✓ rollout", "✓ servers"]),
    ]


def test_a_half_drawn_picture_is_not_shown() -> None:
    assert lines((0, "one\r\n"), (0.02, "two"), (1, CLEAR), (1.01, "three\r\nfour")) == [
        (0, ["one", "two"]),
        (0.98, ["three", "four"]),
    ]


def test_a_long_pause_is_shortened_and_an_equal_picture_left_out() -> None:
    assert [at for at, _ in lines((0, "a"), (60, "\rb"), (61, "\rb"), (62, "\rc"))] == [0, 2, 4]


def test_the_animation_moves_each_picture_into_the_window_at_its_time() -> None:
    svg = recording.svg(cast((0, "a <b>"), (1, "\r\x1b[32m✓\x1b[0m done"), (3, "\r\nend")))
    assert re.findall(r"([\d.]+)% \{ transform: translateY\((-?[\d.]+)px\)", svg) == [
        ("0.000", "0"), ("9.091", "-48.8"), ("27.273", "-97.6")
    ]  # fmt: skip
    assert "animation: film 11s" in svg
    texts = re.findall(r"<text[^>]*>(.*?)</text>", svg)
    assert texts == ["a&#160;&lt;b&gt;", "✓", "&#160;done", "✓", "&#160;done", "end"]
