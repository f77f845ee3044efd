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


def ask(*paths: str, wrong: str = "") -> list[tuple[int, str, str]]:
    """(status, text, header Connection) of each path, asked by a client that would keep its connection."""
    registry = CollectorRegistry()
    Gauge("of_the_test", "A gauge.", registry=registry).set(7)
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


def test_what_is_wrong_is_said_in_words() -> None:
    healthy, ready = ask("/healthz", "/readyz", wrong="the watches have not started")
    assert healthy[:2] == (200, "ok")
    assert ready[:2] == (503, "the watches have not started")


def test_metrics() -> None:
    ((status, text, _),) = ask("/metrics")
    assert status == 200
    assert "of_the_test 7.0" in text


def test_no_connection_is_kept_open() -> None:
    """Each would be a task, for which kopf waits 5 s at its end: of a hand-over, or when the kinds change."""
    assert {connection for _, _, connection in ask("/healthz", "/readyz", "/metrics", wrong="x")} == {"close"}


def beside(port: int, registry: CollectorRegistry, what: Callable[[], float]) -> tuple[float, float]:
    """What `what` returns while the server runs, and how many seconds the server's end then took."""

    async def run() -> tuple[float, float]:
        server = await health.serve(port, lambda: "", lambda: "", registry)
        try:
            found = await asyncio.to_thread(what)
        finally:
            started = time.monotonic()
            server.close()
        return found, time.monotonic() - started

    return asyncio.run(run())


def large() -> CollectorRegistry:
    """Metrics that no socket's buffers can take."""
    registry = CollectorRegistry()
    gauge = Gauge("of_the_test", "A gauge.", ["name"], registry=registry)
    for number in range(5000):
        gauge.labels(f"{number:04}" + "x" * 2000).set(7)
    return registry


def small() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("of_the_test", "A gauge.", registry=registry).set(7)
    return registry


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    return connection.getresponse().status


def test_the_end_waits_for_no_client_that_does_not_read() -> None:
    [port] = ports.free()
    clients = []

    def ask_and_never_read() -> float:
        for _ in range(3):
            clients.append(socket.create_connection(("127.0.0.1", port)))
            clients[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(1)
        return get(port, "/healthz")

    status, took = beside(port, large(), ask_and_never_read)
    assert status == 200
    assert took < 1


def test_connections_that_say_nothing_do_not_fill_the_process() -> None:
    [port] = ports.free()
    clients = []

    def count_open() -> float:
        for _ in range(300):
            clients.append(socket.create_connection(("127.0.0.1", port)))
            clients[-1].setblocking(False)
        assert get(port, "/healthz") == 200
        assert get(port, "/metrics") == 200
        return sum(is_open(client) for client in clients)

    still, _ = beside(port, small(), count_open)
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
def test_a_request_that_does_not_come_is_not_waited_for(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_SECONDS", 0.5)
    [port] = ports.free()

    def wait() -> float:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(sent)
            started = time.monotonic()
            assert not is_open(client)
            return time.monotonic() - started

    took, _ = beside(port, small(), wait)
    assert 0.3 < took < 3


@pytest.mark.parametrize(
    ("line", "status"),
    [("GET /metrics?a=b HTTP/1.0", 200), ("HEAD /healthz HTTP/1.1", 200), ("GET /nothing HTTP/1.1", 404),
     ("POST /metrics HTTP/1.1", 405), ("nonsense", 400), ("GET /" + "x" * 20_000 + " HTTP/1.1", 400)],
)  # fmt: skip
def test_other_requests(line: str, status: int) -> None:
    [port] = ports.free()

    def ask_raw() -> float:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(f"{line}\r\nHost: a\r\n\r\n".encode())
            answer = b""
            while chunk := client.recv(65536):
                answer += chunk
        head, _, body = answer.partition(b"\r\n\r\n")
        assert (body == b"") == line.startswith("HEAD")
        return int(head.split()[1])

    assert beside(port, small(), ask_raw)[0] == status


def test_metrics_that_cannot_be_told_do_not_end_the_server() -> None:
    [port] = ports.free()
    registry = CollectorRegistry()

    def fail() -> float:
        raise ValueError

    Gauge("of_the_test", "A gauge.", registry=registry).set_function(fail)

    def ask_twice() -> float:
        assert get(port, "/metrics") == 500
        return get(port, "/healthz")

    assert beside(port, registry, ask_twice)[0] == 200
