"""An HTTPS server in place of prometheus-adapter, behind a real API server."""

from __future__ import annotations

import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from triton_operator.api import names

from . import ports
from .controlplane import ControlPlane

_GROUP, _VERSION = "custom.metrics.k8s.io", "v1beta2"
_SERVED = f"{_GROUP}/{_VERSION}"
_ROOT = f"/apis/{_SERVED}"


class FakeAdapter:
    """Answers each query of a metric with `value`, a quantity."""

    def __init__(self, plane: ControlPlane) -> None:
        self.value = "0"
        [port] = ports.free()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                answer = json.dumps(fake._answer(path)).encode() if path.startswith(_ROOT) else b""
                self.send_response(200 if answer else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(plane.folder / "certs" / "apiserver.crt", plane.folder / "certs" / "apiserver.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        _register(plane, port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str) -> dict[str, Any]:
        place = path.removeprefix(_ROOT).strip("/").split("/")
        if len(place) < 5:
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _SERVED, "resources": []}
        _, namespace, _, name, metric = place
        described = {"apiVersion": names.API_VERSION, "kind": names.KIND, "namespace": namespace, "name": name}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        item = {"describedObject": described, "metric": {"name": metric}, "timestamp": now, "value": self.value}
        return {"kind": "MetricValueList", "apiVersion": _SERVED, "metadata": {}, "items": [item]}


def _register(plane: ControlPlane, port: int) -> None:
    """Makes the API server forward the requests for custom metrics to this port."""
    service = {"namespace": "kube-system", "name": "fake-adapter"}
    spec = {"group": _GROUP, "version": _VERSION, "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": True, "service": {**service, "port": port}}  # fmt: skip
    plane.api.request("POST", "/api/v1/namespaces/kube-system/services", {
        "apiVersion": "v1", "kind": "Service", "metadata": service,
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    })  # fmt: skip
    plane.api.request("POST", "/apis/apiregistration.k8s.io/v1/apiservices", {
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": f"{_VERSION}.{_GROUP}"}, "spec": spec,
    })  # fmt: skip
