"""Prints the progress: as a bar on a terminal, else as lines."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Collection
from types import TracebackType

_HEARTBEAT_SECONDS = 60.0


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def minutes(seconds: float) -> str:
    """Formats a duration: 45 s, or 3 min 05 s."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def roughly(seconds: float) -> str:
    return "a minute" if seconds < 90 else f"{round(seconds / 60)} min"


class Progress:
    """The progress of all parts. One thread calls it; its own thread redraws the bar."""

    def __init__(self, total: int) -> None:
        self._total, self._completed, self._ends = total, 0, 0.0
        self._running: dict[str, float] = {}
        self._start = self._printed = time.monotonic()
        self._bar = sys.stderr.isatty()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._redraw, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self._clear()

    def elapsed(self, name: str) -> float:
        return time.monotonic() - self._running[name]

    def running(self) -> dict[str, float]:
        """Returns the seconds since the start of each running part."""
        now = time.monotonic()
        return {name: now - start for name, start in self._running.items()}

    def started(self, names: Collection[str], left: float) -> None:
        with self._lock:
            now = time.monotonic()
            self._running.update(dict.fromkeys(names, now))
            self._ends = now + left
            if not self._bar and names:
                self._line()

    def done(self, name: str, left: float) -> float:
        """Marks the part as done and returns the seconds that it took."""
        with self._lock:
            took = time.monotonic() - self._running.pop(name)
            self._completed += 1
            self._ends = time.monotonic() + left
            self._clear()
            say(f"  made {name} in {minutes(took)}")
            return took

    def _redraw(self) -> None:
        while not self._ended.wait(0.5):
            with self._lock:
                if self._bar:
                    self._draw()
                elif time.monotonic() - self._printed > _HEARTBEAT_SECONDS:
                    self._line()

    def _line(self) -> None:
        self._printed = time.monotonic()
        say(f"  {self._text()}")

    def _left(self) -> float:
        return max(self._ends - time.monotonic(), 0.0)

    def _text(self) -> str:
        parts = ", ".join(f"{n} ({minutes(s)})" if s >= 1 else n for n, s in self.running().items())
        spent = minutes(time.monotonic() - self._start)
        return f"{self._completed} of {self._total} parts, {spent}, about {roughly(self._left())} to go; making {parts}"

    def _draw(self) -> None:
        width = shutil.get_terminal_size().columns - 1
        filled = round(12 * self._completed / max(self._total, 1))
        bar = f"[{'#' * filled}{'.' * (12 - filled)}] {self._completed}/{self._total}"
        spent = minutes(time.monotonic() - self._start)
        text = f"{bar} {spent}, ~{roughly(self._left())} to go: {', '.join(self._running)}"
        sys.stderr.write(f"\r\033[K{text[:width]}")
        sys.stderr.flush()

    def _clear(self) -> None:
        if self._bar:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
