"""So many workers, each with its next image as soon as the last one is answered; prints what came of it as JSON."""

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
"""By process: CPU seconds, and how often the kernel had to find it a page."""


def usage() -> Usage:
    """What Triton's processes have used, by the model that a stub serves, and what this one has."""
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
    """Who starts and who stops is not in the figures: what counts is answered between two moments."""

    def __init__(self, warm_up: float, seconds: float) -> None:
        self.start = time.monotonic() + warm_up
        self.end = self.start + seconds
        self.total = 0
        self.errors: list[Exception] = []
        self._answers: list[tuple[float, float]] = []

    def work(self, task: Callable[[bytes], bytes], images: list[bytes], first: int) -> None:
        """Until the end of the window; workers start at different images."""
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
        """Latencies, and the seconds in which they were answered: from the window's first answer to the next one after
        its end, so that slow images are not counted in part. Raises what a worker met.
        """
        if self.errors:
            raise self.errors[0]
        self.total = len(self._answers)
        counted = sorted(answer for answer in self._answers if answer[0] >= self.start)
        within = sum(ended < self.end for ended, _ in counted)
        counted = counted[: within + 1]
        if len(counted) < 2:
            raise RuntimeError("less than two images were answered: measure for longer")
        return [latency for _, latency in counted[1:]], counted[-1][0] - counted[0][0]


def tasks(arguments: argparse.Namespace, connections: list[Connection]) -> list[Callable[[bytes], bytes]]:
    """A task for each worker."""
    if arguments.way == "limit":
        import onnxruntime
        from stages import Limit

        options = onnxruntime.SessionOptions()
        # As many images at once as there are cores; a lone one has all of them.
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
    """One measurement."""
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
    # A second's, not the window's: the answers that are counted took slightly longer than it.
    rates = {
        name: [(now - then) / arguments.seconds for now, then in zip(after[name], before[name], strict=True)]
        for name in after
    }
    return {
        "latencies_ms": [round(latency * 1e3, 2) for latency in latencies],
        "seconds": seconds,
        "usage": {name: rate for name, rate in rates.items() if any(rate)},
        # Bytes of all the images, those before the window and after it too, so that none is counted in part.
        "total": window.total,
        "sent": sum(connection.sent for connection in connections),
        "received": sum(connection.received for connection in connections),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="load", description=__doc__)
    parser.add_argument("way", help="limit, client_side, or the name of a model that takes images")
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("--cores", type=int, default=1, help="of the machine, for the limit")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
