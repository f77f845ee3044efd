"""An admission webhook that a real API server calls."""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .controlplane import ControlPlane

_PATH = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
Object = dict[str, Any]
Patch = list[Object]
"""A JSON patch (RFC 6902)."""


@contextlib.contextmanager
def slow(plane: ControlPlane, folder: Path, namespace: Mapping[str, str], seconds: float) -> Iterator[None]:
    """Delays each write of a Deployment in namespaces with these labels by `seconds`."""

    def wait(_: Object) -> Patch:
        time.sleep(seconds)
        return []

    with _installed(plane, folder, namespace, "validating", wait):
        yield


@contextlib.contextmanager
def mutating(
    plane: ControlPlane, folder: Path, namespace: Mapping[str, str], patch: Callable[[Object], Patch]
) -> Iterator[None]:
    """Changes each written Deployment in namespaces with these labels by `patch` of it."""
    with _installed(plane, folder, namespace, "mutating", patch):
        yield


@contextlib.contextmanager
def _installed(
    plane: ControlPlane, folder: Path, namespace: Mapping[str, str], kind: str, patch: Callable[[Object], Patch]
) -> Iterator[None]:
    certificate, key = folder / "webhook.crt", folder / "webhook.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(patch))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    webhook = {
        "name": "test.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_port}/",
            "caBundle": b64encode(certificate.read_bytes()).decode(),
        },
        "rules": [
            {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
             "resources": ["deployments"]}
        ],
        "namespaceSelector": {"matchLabels": dict(namespace)},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }  # fmt: skip
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind.capitalize()}WebhookConfiguration",
        "metadata": {"name": f"test-{server.server_port}"},
        "webhooks": [webhook],
    }
    path = _PATH.format(kind)
    plane.api.request("POST", path, body)
    try:
        yield
    finally:
        plane.api.request("DELETE", f"{path}/test-{server.server_port}")
        server.shutdown()
        server.server_close()


def _handler(patch: Callable[[Object], Patch]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = review.pop("request")
            review["response"] = {"uid": request["uid"], "allowed": True}
            if changes := patch(request["object"]):
                encoded = b64encode(json.dumps(changes).encode()).decode()
                review["response"] |= {"patchType": "JSONPatch", "patch": encoded}
            body = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
