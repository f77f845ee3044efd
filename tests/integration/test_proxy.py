"""HTTP proxies between the API server and the operator or the plugin: one rule for all of their HTTP libraries."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import kubernetes
import pytest
import yaml

from kubectl_triton.cluster import Cluster
from kubectl_triton.pod_session import Purpose, Session, SessionError
from support import gen, operator_process, ports
from support.api import Api, eventually
from support.controlplane import ControlPlane
from support.people import make
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.proxy import choose

pytestmark = pytest.mark.integration

# No resolver knows this name, so a request that bypasses the proxy fails.
UNRESOLVABLE = "kubernetes.invalid:6443"
USER, USER_BASE64 = "user:p%40ss", "dXNlcjpwQHNz"


@contextlib.contextmanager
def proxy(target: str) -> Iterator[str]:
    """Runs an HTTP proxy that connects every CONNECT of USER to `target`. Yields its URL."""

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request_line = self.rfile.readline().decode()
            headers = list(iter(lambda: self.rfile.readline().decode().strip(), ""))
            assert request_line.startswith(f"CONNECT {UNRESOLVABLE} ")
            if f"Proxy-Authorization: Basic {USER_BASE64}".lower() not in map(str.lower, headers):
                self.wfile.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                return
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
        yield f"http://{USER}@127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


class Way:
    """A kubeconfig and an environment with which the API server can be reached in one way only."""

    def __init__(self, plane: ControlPlane, folder: Path, server: str, env: dict[str, str], **more: str) -> None:
        config = yaml.safe_load(operator_process.install(plane).read_text())
        (cluster,) = (entry["cluster"] for entry in config["clusters"])
        cluster.pop("certificate-authority", None)
        cluster |= {"server": f"https://{server}", "insecure-skip-tls-verify": True, **more}
        self.kubeconfig, self.env = folder / "kubeconfig", env
        self.kubeconfig.write_text(yaml.safe_dump(config))


@pytest.fixture(params=["environment", "kubeconfig"])
def through_proxy(request: pytest.FixtureRequest, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Way]:
    with proxy(control_plane.url) as url:
        if request.param == "kubeconfig":
            yield Way(control_plane, tmp_path, UNRESOLVABLE, {"NO_PROXY": "*"}, **{"proxy-url": url})
        else:
            env = {"HTTPS_PROXY": url, "NO_PROXY": "10.0.0.0/8,127.0.0.0/8,.svc"}
            yield Way(control_plane, tmp_path, UNRESOLVABLE, env)


@pytest.fixture
def around_proxy(control_plane: ControlPlane, tmp_path: Path) -> Way:
    """0.0.0.0 is this machine, too, but isn't loopback, which never uses a proxy. No proxy listens."""
    env = {"HTTPS_PROXY": f"http://127.0.0.1:{ports.free(1)[0]}", "NO_PROXY": ".svc,0.0.0.0/8"}
    return Way(control_plane, tmp_path, f"0.0.0.0:{urlsplit(control_plane.url).port}", env)


def works(way: Way, api: Api, folder: Path) -> str:
    """Waits until the operator has seen a new TritonModel and made its Deployment. Returns the operator's log."""
    with operator_process.running(way.kubeconfig, folder, **way.env) as operator:
        make(api)
        eventually(lambda: api.find("Deployment", gen.NAME), 20, lambda: operator.log)
        return operator.log


def test_operator_uses_the_proxy_for_all_requests(through_proxy: Way, api: Api, tmp_path: Path) -> None:
    log = works(through_proxy, api, tmp_path)
    assert f"connections to the API server https://{UNRESOLVABLE} use the proxy http://127.0.0.1:" in log
    assert USER not in log


def test_operator_uses_no_proxy_for_a_network_in_no_proxy(around_proxy: Way, api: Api, tmp_path: Path) -> None:
    assert "use no proxy" in works(around_proxy, api, tmp_path)


def plugin_works(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests a command of the plugin, and the WebSocket of `calibrate`."""
    env = {k: os.environ[k] for k in ("PATH", "PYTHONPATH") if k in os.environ}
    command = [Path(sys.executable).parent / "kubectl-triton", "status", "absent", "-n", operator_process.NAMESPACE]
    environment = {**env, **way.env, "KUBECONFIG": str(way.kubeconfig)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert '"absent" not found' in result.stderr
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in way.env.items():
        monkeypatch.setenv(name, value)
    configuration = kubernetes.client.Configuration()
    configuration.proxy = None
    kubernetes.config.load_kube_config(str(way.kubeconfig), client_configuration=configuration)
    choose(configuration, os.environ)
    cluster = Cluster(KubernetesApi(kubernetes.client.ApiClient(configuration)), "default", configuration)
    with pytest.raises(SessionError, match="Handshake status 40"):
        Session(cluster, "default", "absent", Purpose("calibration", "load", "")).run(["true"], 5)


def test_plugin_uses_the_proxy(through_proxy: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin_works(through_proxy, monkeypatch)


def test_plugin_uses_no_proxy_for_a_network_in_no_proxy(around_proxy: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin_works(around_proxy, monkeypatch)
