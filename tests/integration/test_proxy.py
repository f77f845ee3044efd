"""An API server that is only reached through a proxy: every request and every watch takes that way."""

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

# No resolver knows it: whoever asks for it without the proxy gets no answer.
BEYOND = "kubernetes.invalid:6443"


@contextlib.contextmanager
def proxy(target: str) -> Iterator[str]:
    """An HTTP proxy that takes every CONNECT to `target`; its URL."""

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked = self.rfile.readline().decode()
            while self.rfile.readline().strip():
                pass
            assert asked.startswith(f"CONNECT {BEYOND} ")
            with socket.create_connection((urlsplit(target).hostname, urlsplit(target).port)) as there:
                self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_pass_on, args=(there, self.connection), daemon=True)
                back.start()
                _pass_on(self.connection, there)
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


def test_everything_goes_through_the_proxy(control_plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    config = yaml.safe_load(operator_process.install(control_plane).read_text())
    (cluster,) = (entry["cluster"] for entry in config["clusters"])
    cluster.pop("certificate-authority", None)
    cluster |= {"server": f"https://{BEYOND}", "insecure-skip-tls-verify": True}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    with (
        proxy(control_plane.url) as url,
        operator_process.running(kubeconfig, tmp_path, HTTPS_PROXY=url) as operator,
    ):
        make(api)
        eventually(lambda: api.find("Deployment", gen.NAME), 20, lambda: operator.log)
