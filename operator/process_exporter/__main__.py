"""`python -m process_exporter FILE PORT METRICS_PORT`: runs until it gets SIGTERM."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from metrics_page import serve

from . import series
from .look import Look, parse
from .models import loaded
from .server_memory import Models, ServerMemory
from .usage import Usage

_log = logging.getLogger(__name__)
_STEP_SECONDS = 5.0
_FRESH_SECONDS = 60.0
"""From this age on, a file is of a server that has ended."""
_MAX_BYTES = 8 << 20


class Exporter(Collector):
    """The page.

    - `file`: what the start script of the server writes every 15 seconds.
    - `models`: returns the models that the server has loaded; None if it doesn't answer.
    """

    def __init__(self, file: Path, models: Callable[[], Models | None]) -> None:
        self._file, self._models = file, models
        self._usage, self._memory = Usage(), ServerMemory()
        self._written = 0
        # So a time in the future stays the same when the node's clock is set.
        self._clock = time.time() - time.monotonic()
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
            self._memory = ServerMemory()
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
                self._add(look)
                self._written = found.st_mtime_ns
        return True

    def _add(self, look: Look) -> None:
        self._usage.add(look)
        self._memory.add(time.monotonic() + self._clock, look, self._models())

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
        yield from self._of_container()
        yield GaugeMetricFamily(series.WORKS, "Whether the server shows its processes.", value=float(bool(self._works)))

    def _of_container(self) -> Iterator[Metric]:
        memory, full_time = self._memory.now, self._memory.full_time
        if memory is None:
            return
        yield GaugeMetricFamily(
            series.MEMORY_USED, "Memory of the server that can't be reclaimed, in bytes.", value=memory.used
        )
        if memory.limit is not None:
            yield GaugeMetricFamily(series.MEMORY_LIMIT, "Its limit.", value=memory.limit)
        if full_time is not None:
            yield GaugeMetricFamily(
                series.MEMORY_FULL,
                "When it will reach the limit, in seconds since 1970. Only if it grows steadily.",
                value=full_time,
            )


def main() -> None:
    """Reads and serves until SIGTERM."""
    parser = argparse.ArgumentParser(prog="process_exporter", description="Exposes what a server's processes use.")
    parser.add_argument("file", type=Path, help="what the server's start script writes")
    parser.add_argument("port", type=int, help="port of the metrics page")
    parser.add_argument("metrics_port", type=int, help="port of Triton's metrics")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    ended = threading.Event()
    # The first process of a container ignores signals that it doesn't handle.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    exporter, registry = Exporter(given.file, lambda: loaded(given.metrics_port)), CollectorRegistry()
    registry.register(exporter)
    serve(given.port, registry)
    while True:
        exporter.step()
        if ended.wait(_STEP_SECONDS):
            return


if __name__ == "__main__":
    main()
