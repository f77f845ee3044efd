"""A closed-loop load generator: each worker sends its next image after the last answer. Prints the results as JSON."""

import argparse
import json
import os
import resource
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from wire import Connection

IMAGES = Path("/images")


Usage = dict[str, tuple[float, int]]
"""CPU seconds and minor page faults, by process."""


def usage() -> Usage:
    """Returns the usage of Triton's processes, by the model of the stub process, and of this process."""
    out: Usage = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, _, rest = (process / "stat").read_text().partition("(")[2].rpartition(")")
            if not name.startswith("triton"):
                continue
            _, path, *_ = (process / "cmdline").read_text().split("\0")
            model = Path(path).parts[2] if path.startswith("/models/") else "tritonserver"
            fields = rest.split()
            seconds, faults = out.get(model, (0.0, 0))
            ticks = sum(int(field) for field in fields[11:13])
            out[model] = seconds + ticks / os.sysconf("SC_CLK_TCK"), faults + int(fields[7])
    own = resource.getrusage(resource.RUSAGE_SELF)
    out["client"] = own.ru_utime + own.ru_stime, own.ru_minflt
    return out


class Window:
    """The measured time between warm-up and end. Only answers within it count."""

    def __init__(self, warm_up: float, seconds: float) -> None:
        self.start = time.monotonic() + warm_up
        self.end = self.start + seconds
        self.total = 0
        self.errors: list[Exception] = []
        self._answers: list[tuple[float, float]] = []

    def work(self, task: Callable[[bytes], bytes], images: list[bytes], first: int) -> None:
        """Sends images until the end of the window. Workers start at different images."""
        at = first
        while (began := time.monotonic()) < self.end:
            try:
                task(images[at % len(images)])
            except Exception as error:
                self.errors.append(error)
                return
            ended = time.monotonic()
            self._answers.append((ended, ended - began))
            at += 1

    def close(self) -> tuple[list[float], float]:
        """Returns the latencies, and the seconds from the window's first answer to the first answer after its end.

        So no image counts in part. Raises the first error of a worker.
        """
        if self.errors:
            raise self.errors[0]
        self.total = len(self._answers)
        counted = sorted(answer for answer in self._answers if answer[0] >= self.start)
        within = sum(ended < self.end for ended, _ in counted)
        counted = counted[: within + 1]
        if len(counted) < 2:
            raise RuntimeError("fewer than two images were answered: increase --seconds")
        return [latency for _, latency in counted[1:]], counted[-1][0] - counted[0][0]


def tasks(arguments: argparse.Namespace, connections: list[Connection]) -> list[Callable[[bytes], bytes]]:
    """Returns a task for each worker."""
    if arguments.way == "limit":
        import onnxruntime
        from stages import Limit

        options = onnxruntime.SessionOptions()
        # One worker for each core at most; a single worker uses all cores.
        workers = min(arguments.concurrency, arguments.cores)
        options.intra_op_num_threads = max(1, arguments.cores // workers)
        session = onnxruntime.InferenceSession(
            "/models/yolov5s/1/model.onnx", options, providers=["CPUExecutionProvider"]
        )
        return [Limit(session) for _ in range(workers)]
    host, port = arguments.url.split(":")
    connections += [Connection(host, int(port)) for _ in range(arguments.concurrency)]
    if arguments.way == "client_side":
        from stages import ClientSide

        return [ClientSide(connection) for connection in connections]
    from stages import ServerSide

    return [ServerSide(connection, arguments.way) for connection in connections]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs one measurement and returns its results."""
    images = [path.read_bytes() for path in sorted(IMAGES.glob("*.jpg"))]
    connections: list[Connection] = []
    workers = tasks(arguments, connections)
    window = Window(arguments.warm_up, arguments.seconds)
    threads = [
        threading.Thread(target=window.work, args=(task, images, k * len(images) // len(workers)), daemon=True)
        for k, task in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    marks = []
    for moment in (window.start, window.end):
        time.sleep(max(0.0, moment - time.monotonic()))
        marks.append(usage())
    for thread in threads:
        thread.join()
    latencies, seconds = window.close()
    before, after = marks
    # Rates, because the counted answers span slightly more time than the window.
    rates = {
        name: [(now - then) / arguments.seconds for now, then in zip(after[name], before[name], strict=True)]
        for name in after
    }
    return {
        "latencies_ms": [round(latency * 1e3, 2) for latency in latencies],
        "seconds": seconds,
        "usage": {name: rate for name, rate in rates.items() if any(rate)},
        # Bytes of all images, including those outside the window, so that no image counts in part.
        "total": window.total,
        "sent": sum(connection.sent for connection in connections),
        "received": sum(connection.received for connection in connections),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="load", description=__doc__)
    parser.add_argument("way", help="limit, client_side, or the name of a model that takes images")
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("--cores", type=int, default=1, help="cores for the way limit")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
