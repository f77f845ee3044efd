"""Runs pytest for one part, with its output in a file.

A part runs once, and its failed tests may run a second time: then pytest reads their names from the part's cache.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hack.world import settings

from .parts import Part

ROOT = settings.ROOT
LOGS, REPORTS = ROOT / ".cache" / "log", ROOT / ".cache" / "reports"
# tests/support/evidence.py writes what failed tests leave.
EVIDENCE = ROOT / ".cache" / "failures"
EVIDENCE_OF_SECOND_ROUND = EVIDENCE / "second-round"
NICE = 10
TEST_SECONDS = 1200
"""The timeout of one test, so that a test that hangs is named. The longest takes five minutes on two cores."""
_GARBAGE_PERCENT = "400"
"""By how much the heap of a program in Go grows before it collects garbage; Go's default is 100. An API server takes a
third less CPU until it serves the CRDs, and 230 MiB more memory."""
_PERCENT = re.compile(r"\[ *(\d+)%\]")
# Of one process: "tests/a.py::test_b FAILED [ 50%]"; of pytest-xdist: "[gw0] [ 50%] FAILED tests/a.py::test_b".
_FAILED = re.compile(r"\] (?:FAILED|ERROR) (\S+::\S+)|^(\S+::\S+) (?:FAILED|ERROR)\b")


class Run:
    """One part's pytest. `again`: only the tests that failed, one after another, when nothing else runs.

    Attributes:
        seconds: its duration so far, or as a whole.
        code: pytest's exit code; None while it runs.
        percent: the share of its tests that have run, by pytest.
    """

    def __init__(self, part: Part, on_failure: Callable[[Part, str], None], *, again: bool = False) -> None:
        self.part, self.percent = part, 0
        self.code: int | None = None
        name = f"{part.name}-again" if again else part.name
        self.log, self.report = LOGS / f"tests-{name}", REPORTS / f"{name}.xml"
        self._on_failure, self._failures = on_failure, set[str]()
        self._start, self._end = time.monotonic(), 0.0
        self.report.unlink(missing_ok=True)
        if not again:
            shutil.rmtree(_cache(part), ignore_errors=True)
        # Tests that use the kind cluster set KUBECONFIG themselves.
        environ = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        environ.setdefault("GOGC", _GARBAGE_PERCENT)
        if part.kubernetes:
            environ["KUBEBUILDER_ASSETS"] = str(settings.control_plane(part.kubernetes))
        if again:
            environ["EVIDENCE_FOLDER"] = str(EVIDENCE_OF_SECOND_ROUND)
        # A session of its own, because pytest ends normally after Ctrl-C, and this program ends all parts in order.
        self._process = subprocess.Popen(
            command(part, self.report, again=again), cwd=ROOT, env=environ, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        if part.lane == "machine" and not again:
            _let_others_first(self._process.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def seconds(self) -> float:
        return (self._end or time.monotonic()) - self._start

    def wait(self) -> None:
        """Waits until the part ends, and ends what its tests have left."""
        code = self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._reader.join()
        self._end = time.monotonic()
        self.code = code

    def interrupt(self) -> None:
        """Ends the part as Ctrl-C does: fixtures remove what they made."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self.log.open("w") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                if percent := _PERCENT.search(line):
                    self.percent = int(percent[1])
                if (failed := _FAILED.search(line)) and (name := failed[1] or failed[2]) not in self._failures:
                    self._failures.add(name)
                    self._on_failure(self.part, name)


def _let_others_first(session: int) -> None:
    """Gives the session a tenth of the weight of others, for a cluster that answers in time.

    A lower weight would stop the session's own API servers for longer than a Lease lasts.
    Linux may group processes by their session: then each session weighs as much as one process, whatever its processes
    are, and all containers together weigh as much as one process, too.
    """
    os.setpriority(os.PRIO_PGRP, session, min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICE))
    with contextlib.suppress(OSError):
        Path(f"/proc/{session}/autogroup").write_text(str(NICE))


def _cache(part: Part) -> Path:
    """Returns the folder in which pytest keeps the names of the part's failed tests."""
    return REPORTS / "pytest" / part.name


def command(part: Part, report: Path, *, again: bool = False) -> list[str]:
    """Returns the command line of the part's pytest."""
    words = [str(ROOT / ".venv/bin/pytest"), "-v", "-m", part.select, f"--junitxml={report}"]
    words += ["-o", f"cache_dir={_cache(part)}", *part.paths]
    if os.environ.get("SOAK") != "1":
        words.append(f"--timeout={TEST_SECONDS}")
    if again:
        return [*words, "--last-failed", "--last-failed-no-failures=none"]
    if part.workers:
        workers = os.environ.get("TEST_WORKERS") or str(part.workers)
        words += ["-n", workers, "--dist", "loadfile", "--no-loadscope-reorder"]
    return words
