"""An HTTP server in place of Prometheus."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

from triton_operator.render.rules.alerts import AT_MAX_QPS, FAILS, HANGS, NOT_COUNTED

THRESHOLDS = 'tritonmodel:threshold:effective{tritonmodel!=""}'
"""The query of an operator that watches all namespaces."""
ALERTS = f'ALERTS{{alertname=~"{NOT_COUNTED}|{FAILS}|{HANGS}|{AT_MAX_QPS}",alertstate="firing",tritonmodel!=""}}'


def sample(value: str, **labels: str) -> dict[str, Any]:
    """Returns one series of a query result."""
    return {"metric": {"__name__": "tritonmodel:threshold:effective", **labels}, "value": [1767225600.0, value]}


def _of(series: dict[str, Any]) -> tuple[str, str]:
    return series["metric"]["namespace"], series["metric"]["tritonmodel"]


class FakePrometheus:
    """An HTTP server in place of Prometheus.

    - `series`: the result of each query
    - `status`, `body`: the response instead
    - `authorization`: the header that requests must have; empty for none, and then none may have it
    - `hang`: seconds before the response
    - `trickle`: seconds between two bytes of the response

    After `close` it refuses connections; `start` starts it again on the same port.
    """

    def __init__(self) -> None:
        self.series: dict[str, list[dict[str, Any]]] = {}
        self.status, self.body, self.hang, self.trickle = 200, "", 0.0, 0.0
        self.authorization = ""
        self.queries: list[str] = []
        self._over = threading.Event()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlparse(self.path).query)["query"][0]
                fake.queries.append(query)
                fake._over.wait(fake.hang)
                body = fake.body or json.dumps(
                    {"status": "success", "data": {"resultType": "vector", "result": fake.series.get(query, [])}}
                )
                allowed = self.headers.get("Authorization", "") == fake.authorization
                with contextlib.suppress(OSError):
                    self.send_response(fake.status if allowed else 401)
                    self.end_headers()
                    for part in body if fake.trickle else (body,):
                        self.wfile.write(part.encode())
                        if fake._over.wait(fake.trickle):
                            return

            def log_message(self, *_: Any) -> None:
                pass

        self._handler, self._port = Handler, 0
        self.start()
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._over.clear()
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def set_thresholds(self, namespace: str, name: str, **values: object) -> None:
        """Sets the live thresholds of a TritonModel. The names are in snake case."""
        limits = {"max_qps": "+Inf", **values}
        samples = [entry for entry in self.series.get(THRESHOLDS, []) if _of(entry) != (namespace, name)]
        self.series[THRESHOLDS] = samples + [
            sample(str(value), namespace=namespace, tritonmodel=name, kind=kind.replace("_", "-"))
            for kind, value in limits.items()
        ]

    def set_uncounted(self, *keys: tuple[str, str]) -> None:
        """Sets the TritonModels (namespace, name) whose model `net` isn't counted."""
        self.series[ALERTS] = [
            sample("1", alertname=NOT_COUNTED, namespace=ns, tritonmodel=name, model="net") for ns, name in keys
        ]

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
