"""`python -m process_exporter FILE PORT`: runs until it gets SIGTERM."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from metrics_page import serve

from . import series
from .look import parse
from .usage import Usage

_log = logging.getLogger(__name__)
_STEP_SECONDS = 5.0
_FRESH_SECONDS = 60.0
"""From this age on, a file is of a server that has ended."""
_MAX_BYTES = 8 << 20


class Exporter(Collector):
    """The page. `file`: what the start script of the server writes every 15 seconds."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._usage = Usage()
        self._written = 0
        self._works: bool | None = None

    def step(self) -> None:
        """Reads the file if it is another one than before."""
        try:
            works = self._read()
        except OSError as error:
            _log.debug("%s", error)
            works = False
        if not works:
            self._usage.forget()
        if works != self._works:
            _log.info(
                "the server shows its processes"
                if works
                else f"no new file {self._file}: the server is starting or has ended, or spec.podTemplate has replaced "
                "the command of its container"
            )
        self._works = works

    def _read(self) -> bool:
        """Returns whether there is a file that is new enough. Raises OSError."""
        # A model may put anything into the folder.
        handle = os.open(self._file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as opened:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or time.time() - found.st_mtime > _FRESH_SECONDS:
                return False
            if found.st_mtime_ns != self._written:
                look = parse(opened.read(_MAX_BYTES))
                if look is None:
                    return False
                self._usage.add(look)
                self._written = found.st_mtime_ns
        return True

    def collect(self) -> Iterator[Metric]:
        """Returns the metrics of the page."""
        labels, lines = series.LABELS, dict(self._usage.lines)
        cpu = CounterMetricFamily(series.CPU, "CPU time of a process and of those that it has started.", labels=labels)
        memory = GaugeMetricFamily(
            series.MEMORY, "Memory of a process. What it shares with others counts for each.", labels=(*labels, "kind")
        )
        threads = GaugeMetricFamily(series.THREADS, "Number of threads.", labels=labels)
        started = GaugeMetricFamily(series.STARTED, "When the process started, in seconds since 1970.", labels=labels)
        for line, use in lines.items():
            cpu.add_metric(line, use.cpu)
            threads.add_metric(line, use.threads)
            for kind, size in use.memory.items():
                memory.add_metric((*line, kind), size)
            if use.started:
                started.add_metric(line, use.started)
        yield from (cpu, memory, threads, started)
        yield GaugeMetricFamily(series.WORKS, "Whether the server shows its processes.", value=float(bool(self._works)))


def main() -> None:
    """Reads and serves until SIGTERM."""
    parser = argparse.ArgumentParser(prog="process_exporter", description="Exposes what a server's processes use.")
    parser.add_argument("file", type=Path, help="what the server's start script writes")
    parser.add_argument("port", type=int, help="port of the metrics page")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    ended = threading.Event()
    # The first process of a container ignores signals that it doesn't handle.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    exporter, registry = Exporter(given.file), CollectorRegistry()
    registry.register(exporter)
    serve(given.port, registry)
    while True:
        exporter.step()
        if ended.wait(_STEP_SECONDS):
            return


if __name__ == "__main__":
    main()
