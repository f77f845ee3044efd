"""The operator's HTTP server."""

from __future__ import annotations

import asyncio
import http.client
import socket
import time
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, Gauge

from support import ports
from triton_operator.runtime import health


def get_all(*paths: str, wrong: str = "") -> list[tuple[int, str, str]]:
    """Returns (status, text, Connection header) for each path. The client asks to keep its connections."""
    registry = CollectorRegistry()
    Gauge("test_gauge", "A gauge.", registry=registry).set(7)
    [port] = ports.free()

    def get(path: str) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers={"Connection": "keep-alive"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get("Connection", "")

    async def run() -> list[tuple[int, str, str]]:
        server = await health.serve(port, lambda: "", lambda: wrong, registry)
        try:
            return [await asyncio.to_thread(get, path) for path in paths]
        finally:
            server.close()

    return asyncio.run(run())


def test_readyz_reports_why_the_operator_is_not_ready() -> None:
    healthy, ready = get_all("/healthz", "/readyz", wrong="the watches have not started")
    assert healthy[:2] == (200, "ok")
    assert ready[:2] == (503, "the watches have not started")


def test_serves_metrics() -> None:
    ((status, text, _),) = get_all("/metrics")
    assert status == 200
    assert "test_gauge 7.0" in text


def test_closes_every_connection() -> None:
    """kopf waits 5 s for each open connection's task when it stops, at a handover or when the watched kinds change."""
    assert {connection for _, _, connection in get_all("/healthz", "/readyz", "/metrics", wrong="x")} == {"close"}


def call_during_server(port: int, registry: CollectorRegistry, call: Callable[[], float]) -> tuple[float, float]:
    """Calls `call` while the server runs. Returns its result and the seconds that closing the server takes."""

    async def run() -> tuple[float, float]:
        server = await health.serve(port, lambda: "", lambda: "", registry)
        try:
            found = await asyncio.to_thread(call)
        finally:
            started = time.monotonic()
            server.close()
        return found, time.monotonic() - started

    return asyncio.run(run())


def large_registry() -> CollectorRegistry:
    """Metrics that don't fit into the buffers of a socket."""
    registry = CollectorRegistry()
    gauge = Gauge("test_gauge", "A gauge.", ["name"], registry=registry)
    for number in range(5000):
        gauge.labels(f"{number:04}" + "x" * 2000).set(7)
    return registry


def small_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("test_gauge", "A gauge.", registry=registry).set(7)
    return registry


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    return connection.getresponse().status


def test_close_does_not_wait_for_clients_that_never_read() -> None:
    [port] = ports.free()
    clients = []

    def request_and_never_read() -> float:
        for _ in range(3):
            clients.append(socket.create_connection(("127.0.0.1", port)))
            clients[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(1)
        return get(port, "/healthz")

    status, took = call_during_server(port, large_registry(), request_and_never_read)
    assert status == 200
    assert took < 1


def test_limits_the_number_of_silent_connections() -> None:
    [port] = ports.free()
    clients = []

    def count_open() -> float:
        for _ in range(300):
            clients.append(socket.create_connection(("127.0.0.1", port)))
            clients[-1].setblocking(False)
        assert get(port, "/healthz") == 200
        assert get(port, "/metrics") == 200
        return sum(is_open(client) for client in clients)

    still, _ = call_during_server(port, small_registry(), count_open)
    assert 0 < still < 100
    for client in clients:
        client.close()


def is_open(client: socket.socket) -> bool:
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: "])
def test_closes_a_connection_whose_request_is_incomplete(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_SECONDS", 0.5)
    [port] = ports.free()

    def wait() -> float:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(sent)
            started = time.monotonic()
            assert not is_open(client)
            return time.monotonic() - started

    took, _ = call_during_server(port, small_registry(), wait)
    assert 0.3 < took < 3


@pytest.mark.parametrize(
    ("line", "status"),
    [("GET /metrics?a=b HTTP/1.0", 200), ("HEAD /healthz HTTP/1.1", 200), ("GET /nothing HTTP/1.1", 404),
     ("POST /metrics HTTP/1.1", 405), ("nonsense", 400), ("GET /" + "x" * 20_000 + " HTTP/1.1", 400)],
)  # fmt: skip
def test_answers_unusual_requests_with_the_right_status(line: str, status: int) -> None:
    [port] = ports.free()

    def request_raw() -> float:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(f"{line}\r\nHost: a\r\n\r\n".encode())
            answer = b""
            while chunk := client.recv(65536):
                answer += chunk
        head, _, body = answer.partition(b"\r\n\r\n")
        assert (body == b"") == line.startswith("HEAD")
        return int(head.split()[1])

    assert call_during_server(port, small_registry(), request_raw)[0] == status


def test_failing_gauge_does_not_stop_the_server() -> None:
    [port] = ports.free()
    registry = CollectorRegistry()

    def fail() -> float:
        raise ValueError

    Gauge("test_gauge", "A gauge.", registry=registry).set_function(fail)

    def get_twice() -> float:
        assert get(port, "/metrics") == 500
        return get(port, "/healthz")

    assert call_during_server(port, registry, get_twice)[0] == 200
