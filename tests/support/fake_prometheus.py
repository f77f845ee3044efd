"""An HTTP server in place of Prometheus."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

from triton_operator.api import names
from triton_operator.render.rules.churn import series_churn

THRESHOLDS = 'tritonmodel:threshold:effective{tritonmodel!=""}'
"""The query of an operator that watches all namespaces."""
CHURN = series_churn(names.SAMPLE_LIMIT)


def sample(value: str, **labels: str) -> dict[str, Any]:
    """Returns one series of a query result."""
    return {"metric": {"__name__": "tritonmodel:threshold:effective", **labels}, "value": [1767225600.0, value]}


def _of(series: dict[str, Any]) -> tuple[str, str]:
    return series["metric"]["namespace"], series["metric"]["tritonmodel"]


class FakePrometheus:
    """An HTTP server in place of Prometheus.

    - `series`: the result of each query
    - `status`, `body`: the response instead
    - `hang`: seconds before the response
    - `trickle`: seconds between two bytes of the response

    After `close` it refuses connections; `start` starts it again on the same port.
    """

    def __init__(self) -> None:
        self.series: dict[str, list[dict[str, Any]]] = {}
        self.status, self.body, self.hang, self.trickle = 200, "", 0.0, 0.0
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
                with contextlib.suppress(OSError):
                    self.send_response(fake.status)
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
        known = {"max_qps": "+Inf", **values}
        others = [one for one in self.series.get(THRESHOLDS, []) if _of(one) != (namespace, name)]
        self.series[THRESHOLDS] = others + [
            sample(str(value), namespace=namespace, tritonmodel=name, kind=kind.replace("_", "-"))
            for kind, value in known.items()
        ]

    def set_churning(self, *keys: tuple[str, str]) -> None:
        """Sets the TritonModels (namespace, name) with a server that replaces its series."""
        self.series[CHURN] = [sample("9000", namespace=namespace, tritonmodel=name) for namespace, name in keys]

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
