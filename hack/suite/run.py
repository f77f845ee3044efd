"""Runs the lanes at the same time, then the tests that failed once more, and reports the progress."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from .parts import Part
from .process import Run
from .report import Result, has_second_round, read

TOLD_SECONDS = 60


def take_signals() -> None:
    """Makes SIGTERM, which make passes on, and SIGHUP end a run as Ctrl-C does.

    A shell's background jobs ignore SIGINT, and pytest would inherit that: then Suite couldn't end it. nohup ignores
    SIGHUP, and so does the run.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


class Suite:
    """The parts of one run."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts = list(parts)
        self._runs: dict[str, Run] = {}
        self._stopped = threading.Event()

    def run(self) -> list[Result]:
        """Runs all parts, also after one has failed. Returns their results, in the order of the parts.

        Few failures may be chance on a busy machine: these tests run a second time at the end.

        After Ctrl-C, ends the running parts, starts no other, and raises KeyboardInterrupt.
        """
        first = self._first_round()
        if not has_second_round(first):
            return first
        say("the tests that failed run a second time, alone")
        return [self._second_round(part, result) for part, result in zip(self._parts, first, strict=True)]

    def _first_round(self) -> list[Result]:
        machine, cluster = (deque(p for p in self._parts if p.lane == lane) for lane in ("machine", "cluster"))
        threads = [threading.Thread(target=self._run_lane, args=lanes) for lanes in ((machine,), (cluster, machine))]
        for thread in threads:
            thread.start()
        try:
            told = time.monotonic()
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.5)
                if time.monotonic() - told >= TOLD_SECONDS:
                    told = time.monotonic()
                    self._tell()
        except KeyboardInterrupt:
            self._stopped.set()
            for run in list(self._runs.values()):
                run.interrupt()
            for thread in threads:
                thread.join()
            raise
        return [_result(self._runs[part.name]) for part in self._parts]

    def _second_round(self, part: Part, first: Result) -> Result:
        if not first.failed:
            return first
        run = Run(part, lambda part, test: say(f"{part.name}: FAILED again {test}"), again=True)
        try:
            run.wait()
        except KeyboardInterrupt:
            run.interrupt()
            run.wait()
            raise
        return replace(first, again=_result(run))

    def _run_lane(self, *lanes: deque[Part]) -> None:
        """Runs the first part that no other thread has taken, until there is none."""
        while not self._stopped.is_set() and (part := _taken(lanes)):
            say(f"{part.name}: {part.what}")
            run = self._runs[part.name] = Run(part, lambda part, test: say(f"{part.name}: FAILED {test}"))
            run.wait()
            say(f"{part.name}: {'passed' if run.code == 0 else 'FAILED'} after {run.seconds:.0f} s")

    def _tell(self) -> None:
        running = [run for run in self._runs.values() if run.code is None]
        if running:
            say("; ".join(f"{run.part.name} {run.percent} %, {run.seconds:.0f} s" for run in running))


def _result(run: Run) -> Result:
    assert run.code is not None
    return Result(run.part.name, run.seconds, run.code, read(run.report), run.log)


def _taken(lanes: Iterable[deque[Part]]) -> Part | None:
    for lane in lanes:
        with contextlib.suppress(IndexError):
            return lane.popleft()
    return None


def say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {words}", file=sys.stderr, flush=True)
