"""A simulated Triton server whose metrics count requests at a rate that the test sets."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8002


class CountingServer:
    """The counters of one model. `polls` is the number of answers.

    - `hangs`: while it is set, requests get no answer. `delay`: seconds before each answer.
    - `gauges`: further series, with their labels, and their values.
    - `lie`: this text replaces the counter of served requests; "" means the truth.
    """

    def __init__(self, model: str) -> None:
        self.model, self.polls, self.hangs = model, 0, False
        self.lie, self.delay = "", 0.0
        self.gauges: dict[str, str] = {}
        self._rate, self._count, self._since = 0.0, 1000.0, time.monotonic()
        self._lock = threading.Lock()

    def serve(self, rate: float) -> None:
        """From now on the counter grows by `rate` requests per second."""
        with self._lock:
            self._count, self._since, self._rate = self._now(), time.monotonic(), rate

    def page(self) -> str:
        """Returns the metrics as Triton writes them."""
        with self._lock:
            self.polls += 1
            labels = f'{{model="{self.model}",version="1"}}'
            count = self.lie or f"{self._now():.0f}"
            return (
                f"nv_inference_request_success{labels} {count}\n"
                f'nv_inference_request_failure{{model="{self.model}",reason="OTHER",version="1"}} 0\n'
                f"nv_inference_pending_request_count{labels} 0\n"
                + "".join(f"{series} {value}\n" for series, value in self.gauges.items())
            )

    def _now(self) -> float:
        return self._count + self._rate * (time.monotonic() - self._since)


@contextlib.contextmanager
def running(host: str, model: str) -> Iterator[CountingServer]:
    """Runs a server on Triton's metrics port of `host`."""
    counter, over = CountingServer(model), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            while counter.hangs and not over.wait(0.05):
                continue
            over.wait(counter.delay)
            body = counter.page().encode()
            with contextlib.suppress(OSError):
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer((host, PORT), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield counter
    finally:
        over.set()
        server.shutdown()
        server.server_close()
