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


def cpu_seconds() -> tuple[float, float]:
    """What Triton's processes have used, and what this one has."""
    triton = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            if name.startswith("triton"):
                triton += sum(int(ticks) for ticks in rest.split()[11:13])
    own = resource.getrusage(resource.RUSAGE_SELF)
    return triton / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


class Window:
    """Counts what is answered between two moments: who starts and who stops is not in the figures."""

    def __init__(self, warm_up: float, seconds: float) -> None:
        self.start = time.monotonic() + warm_up
        self.end = self.start + seconds
        self.latencies: list[float] = []
        self.total = 0
        self.errors: list[Exception] = []

    def work(self, task: Callable[[bytes], bytes], images: list[bytes], first: int) -> None:
        """Until the end of the window; workers start at different images."""
        at = first
        while (began := time.monotonic()) < self.end:
            try:
                task(images[at % len(images)])
            except Exception as error:
                self.errors.append(error)
                return
            self.total += 1
            ended = time.monotonic()
            if self.start <= ended < self.end:
                self.latencies.append(ended - began)
            at += 1


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
        marks.append(cpu_seconds())
    for thread in threads:
        thread.join()
    if window.errors:
        raise window.errors[0]
    (server, client), (server_end, client_end) = marks
    return {
        "latencies_ms": [round(latency * 1e3, 2) for latency in window.latencies],
        "seconds": arguments.seconds,
        "server_cpu": server_end - server,
        "client_cpu": client_end - client,
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
