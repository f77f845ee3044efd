"""An API server behind an HTTP proxy: the operator sends every request and every watch through it."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from support import gen, operator_process
from support.api import Api, eventually
from support.controlplane import ControlPlane
from support.people import make

pytestmark = pytest.mark.integration

# No resolver knows this name, so a request that bypasses the proxy fails.
UNRESOLVABLE = "kubernetes.invalid:6443"


@contextlib.contextmanager
def proxy(target: str) -> Iterator[str]:
    """Runs an HTTP proxy that connects every CONNECT to `target`. Yields its URL."""

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request_line = self.rfile.readline().decode()
            while self.rfile.readline().strip():
                pass
            assert request_line.startswith(f"CONNECT {UNRESOLVABLE} ")
            with socket.create_connection((urlsplit(target).hostname, urlsplit(target).port)) as upstream:
                self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_pass_on, args=(upstream, self.connection), daemon=True)
                back.start()
                _pass_on(self.connection, upstream)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Tunnel) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_uses_the_proxy_for_all_requests(control_plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    config = yaml.safe_load(operator_process.install(control_plane).read_text())
    (cluster,) = (entry["cluster"] for entry in config["clusters"])
    cluster.pop("certificate-authority", None)
    cluster |= {"server": f"https://{UNRESOLVABLE}", "insecure-skip-tls-verify": True}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    with (
        proxy(control_plane.url) as url,
        operator_process.running(kubeconfig, tmp_path, HTTPS_PROXY=url) as operator,
    ):
        make(api)
        eventually(lambda: api.find("Deployment", gen.NAME), 20, lambda: operator.log)
