"""The progress output of hack/world."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from hack.world.progress import Progress, minutes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_prints_a_line_for_each_start_and_end_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(2) as progress:
        progress.started(["node"], 240)
        progress.done("node", 20)
    lines = [line.split("  ", 1)[1].strip() for line in capsys.readouterr().err.splitlines()]
    assert lines == ["0 of 2 parts, 0 s, about 4 min to go; making node", "made node in 0 s"]


def test_draws_a_bar_on_a_terminal_and_clears_it_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress(4) as progress:
        progress.started(["a", "b"], 100)
        progress.done("a", 30)
        time.sleep(0.7)
    bars = [text for text in terminal.getvalue().split("\r\033[K") if text.startswith("[")]
    assert bars
    assert re.fullmatch(r"\[###\.{9}\] 1/4 \d s, ~a minute to go: b", bars[-1])
    assert terminal.getvalue().endswith("\r\033[K")


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0 s"), (59.4, "59 s"), (185, "3 min 05 s")])
def test_formats_durations(seconds: float, words: str) -> None:
    assert minutes(seconds) == words
