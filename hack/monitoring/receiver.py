"""An alert receiver: POST takes alerts from an Alertmanager webhook; GET returns them as a JSON array, oldest first."""

from __future__ import annotations

import json
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ALERTS: deque[dict[str, object]] = deque(maxlen=2000)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(json.dumps(list(ALERTS)).encode())

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for alert in message["alerts"]:
            ALERTS.append({"received": time.time(), **alert})
            print(alert["status"], json.dumps(alert["labels"]), flush=True)
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Disables the request log; do_POST prints each alert."""


if __name__ == "__main__":
    ThreadingHTTPServer(("", 8080), Handler).serve_forever()
