"""The progress output of hack/world."""

from __future__ import annotations

import io
import re
import sys

import pytest

from hack.world.progress import Progress, minutes
from support.api import eventually


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def bars(terminal: Terminal) -> list[str]:
    """Returns the bars that were drawn after the end of the first of four parts."""
    return [text for text in terminal.getvalue().split("\r\033[K") if "1/4" in text]


def test_prints_a_line_for_each_start_and_end_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(2) as progress:
        progress.started(["node"], 240)
        progress.done("node", 20)
    lines = [line.split("  ", 1)[1].strip() for line in capsys.readouterr().err.splitlines()]
    # On a busy machine some seconds may pass between two lines.
    assert len(lines) == 2, lines
    assert re.fullmatch(r"0 of 2 parts, \d+ s, about 4 min to go; making node( \(\d+ s\))?", lines[0])
    assert re.fullmatch(r"made node in \d+ s", lines[1])


def test_draws_a_bar_on_a_terminal_and_clears_it_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress(4) as progress:
        progress.started(["a", "b"], 100)
        progress.done("a", 30)
        eventually(lambda: bars(terminal), 60, "a bar")
    assert re.fullmatch(r"\[###\.{9}\] 1/4 \d+ s, ~a minute to go: b", bars(terminal)[-1])
    assert terminal.getvalue().endswith("\r\033[K")


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0 s"), (59.4, "59 s"), (185, "3 min 05 s")])
def test_formats_durations(seconds: float, words: str) -> None:
    assert minutes(seconds) == words
