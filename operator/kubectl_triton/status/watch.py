"""`kubectl triton status --watch`: follows a start or a rollout until its end."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kubectl_triton.cluster import Cluster, Object, UnreachableError
from triton_operator.pods import Pod
from triton_repository_check.text import one_line

from . import progress
from .progress import Line, RolloutEnd

POLL_SECONDS = 1.0
SETTLE_SECONDS = 15.0
"""A problem ends the watch only after this time: kubelets try a failed pull again."""
READY, FAILED, TIMEOUT = 0, 1, 2
_PODS, _EVENTS, _ASKED = 500, 100, 3
"""Maximum number of pods, of Events of a pod, and of pods whose Events are read, in one round."""
_FINAL = (401, 403, 404)
_COLORS = {"✓": "green", "…": "yellow", "✗": "red"}


class Screen(Protocol):
    """Shows the progress."""

    def show(self, lines: Sequence[Line], seconds: float) -> None: ...


@dataclass
class Log:
    """Prints a line for each change."""

    write: Callable[[str], None]
    _last: dict[str, str] = field(default_factory=dict)

    def show(self, lines: Sequence[Line], seconds: float) -> None:
        for line in lines:
            if self._last.get(line.subject) != str(line):
                self._last[line.subject] = str(line)
                self.write(f"{seconds:5.0f}s {line}")


@dataclass
class Terminal:
    """Draws the lines again in place."""

    live: Live

    def show(self, lines: Sequence[Line], seconds: float) -> None:
        texts = [Text(f"{seconds:.0f} s", style="dim"), *map(_colored, lines)]
        self.live.update(Text("\n", no_wrap=True, overflow="ellipsis").join(texts), refresh=True)


def _colored(line: Line) -> Text:
    text = Text(str(line))
    text.stylize(_COLORS[line.mark], 0, 1)
    return text


def follow(
    connection: Cluster,
    name: str,
    timeout: float,
    screen: Screen,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[int, str]:
    """Returns the exit code and the last message, when the rollout has ended or after `timeout` seconds.

    Tries again while the API server doesn't answer. Raises UnreachableError if it refuses, or has no such TritonModel.
    """
    start, since, failure, state = clock(), 0.0, "", "no answer from the API server"
    while True:
        now, end = clock(), None
        try:
            model, lines = _read(connection, name)
            state, end = progress.state(model), progress.outcome(model)
        except UnreachableError as error:
            if error.code in _FINAL:
                raise
            lines = [Line("API server", "✗", str(error))]
        screen.show(lines, now - start)
        if end and end.ready:
            return READY, f"{name} is Ready: {end.message}"
        reason = end.reason if end else ""
        since, failure = (now if reason != failure else since), reason
        if end and _is_final(end, now - since):
            return FAILED, f"{name} fails: {end}"
        if now - start >= timeout:
            return TIMEOUT, f"{name} isn't Ready after {timeout:g} s: {state}"
        sleep(min(POLL_SECONDS, max(0.0, start + timeout - now)))


def _is_final(end: RolloutEnd, seconds: float) -> bool:
    return end.reason == "ScaledToZero" or (not end.waits and seconds >= SETTLE_SECONDS)


def _read(connection: Cluster, name: str) -> tuple[Object, list[Line]]:
    model = connection.model(name)
    pods: list[Pod] = []
    events: dict[str, list[Object]] = {}
    # Viewers and developers of TritonModels may not read pods and Events. The status contains what matters.
    with contextlib.suppress(UnreachableError):
        pods = connection.pods(model, _PODS)
        for pod in progress.starting(pods, _ASKED):
            events[pod.name] = connection.events(pod.raw, _EVENTS)
    return model, progress.lines(model, pods, events)


def run(connection: Cluster, name: str, timeout: float) -> int:
    """Follows the rollout on standard output. Returns the exit code. Raises UnreachableError."""
    if sys.stdout.isatty():
        console = Console(highlight=False)
        with Live(console=console, auto_refresh=False, transient=False) as live:
            code, message = follow(connection, name, timeout, Terminal(live))
    else:
        code, message = follow(connection, name, timeout, Log(lambda text: print(text, flush=True)))
    print(one_line(message), flush=True)
    return code
