"""The operator's HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest
from prometheus_client import CollectorRegistry, Gauge

from support import clock, ports
from triton_operator.runtime import health


@contextlib.asynccontextmanager
async def serving(registry: CollectorRegistry, wrong: str = "", seconds: float = 0.0) -> AsyncIterator[dict[str, int]]:
    """Serves both ports; yields the port of each path."""
    probes, metrics = ports.free(2)
    server = await health.serve_probes(probes, lambda: "", lambda: wrong)
    end = health.serve_metrics(metrics, registry, seconds)
    try:
        yield {"/healthz": probes, "/readyz": probes, "/metrics": metrics}
    finally:
        server.close()
        end()


def get_all(*paths: str, wrong: str = "") -> list[tuple[int, str, str]]:
    """Returns (status, text, Connection header) for each path. The client asks to keep its connections."""
    registry = CollectorRegistry()
    Gauge("test_gauge", "A gauge.", registry=registry).set(7)

    def get(port: int, path: str) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers={"Connection": "keep-alive"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get("Connection", "")

    async def run() -> list[tuple[int, str, str]]:
        async with serving(registry, wrong) as at:
            return [await asyncio.to_thread(get, at[path], path) for path in paths]

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


def call_during_server(registry: CollectorRegistry, call: Callable[[dict[str, int]], float]) -> tuple[float, float]:
    """Calls `call` with the ports while both run. Returns its result and the seconds that closing them takes."""

    async def run() -> tuple[float, float]:
        async with serving(registry) as at:
            result = await asyncio.to_thread(call, at)
            started = clock.of_an_idle_machine()
        return result, clock.of_an_idle_machine() - started

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
    clients = []

    def request_and_never_read(at: dict[str, int]) -> float:
        for _ in range(3):
            clients.append(socket.create_connection(("127.0.0.1", at["/metrics"])))
            clients[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(1)
        return get(at["/healthz"], "/healthz")

    status, took = call_during_server(large_registry(), request_and_never_read)
    assert status == 200
    assert took < health._SECONDS / 2  # after which the server closes such connections itself


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
def test_silent_connections_take_no_place_of_a_request(path: str) -> None:
    def flood(at: dict[str, int]) -> float:
        clients = [socket.create_connection(("127.0.0.1", at[path])) for _ in range(300)]
        try:
            assert [get(at[p], p) for p in (path, path, "/metrics", "/healthz")] == [200] * 4
            for client in clients:
                client.setblocking(False)
            return sum(is_open(client) for client in clients)
        finally:
            for client in clients:
                client.close()

    still_open, _ = call_during_server(small_registry(), flood)
    assert 0 < still_open < health._CONNECTIONS


def test_a_client_that_reads_its_response_keeps_its_place() -> None:
    def flood(at: dict[str, int]) -> float:
        with socket.create_connection(("127.0.0.1", at["/metrics"]), timeout=30) as reader:
            reader.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            size = len(reader.recv(1))
            clients = [socket.create_connection(("127.0.0.1", at["/metrics"])) for _ in range(100)]
            assert get(at["/metrics"], "/nothing") == 404  # the server has seen the flood
            while chunk := reader.recv(1 << 20):
                size += len(chunk)
            for client in clients:
                client.close()
        return size

    size, _ = call_during_server(large_registry(), flood)
    assert size > 5000 * 2000


def test_a_flood_of_requests_for_metrics_neither_renders_nor_delays_more() -> None:
    registry, rendered = CollectorRegistry(), list[float]()
    Gauge("test_gauge", "A gauge.", registry=registry).set_function(lambda: rendered.append(0) or 0.0)

    async def run() -> None:
        async with serving(registry, seconds=3600) as at:
            for _ in range(50):
                assert await asyncio.to_thread(get, at["/metrics"], "/metrics") == 200
            assert await asyncio.to_thread(get, at["/healthz"], "/healthz") == 200

    asyncio.run(run())
    assert len(rendered) == 1


def test_a_page_that_takes_long_does_not_delay_a_probe() -> None:
    registry, rendering, over = CollectorRegistry(), threading.Event(), threading.Event()

    def slow() -> float:
        rendering.set()
        over.wait(30)
        return 1

    Gauge("test_gauge", "A gauge.", registry=registry).set_function(slow)

    def probe(at: dict[str, int]) -> float:
        with socket.create_connection(("127.0.0.1", at["/metrics"])) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            assert rendering.wait(30)
            status = get(at["/healthz"], "/healthz")
            assert not over.is_set()
            over.set()
        return status

    assert call_during_server(registry, probe)[0] == 200


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

    def wait(at: dict[str, int]) -> float:
        with socket.create_connection(("127.0.0.1", at["/metrics"]), timeout=60) as client:
            client.sendall(sent)
            started = time.monotonic()
            assert not is_open(client)
            return time.monotonic() - started

    took, _ = call_during_server(small_registry(), wait)
    assert took > 0.3


@pytest.mark.parametrize(
    ("line", "status"),
    [("GET /metrics?a=b HTTP/1.0", 200), ("HEAD /healthz HTTP/1.1", 200), ("GET /nothing HTTP/1.1", 404),
     ("POST /metrics HTTP/1.1", 405), ("nonsense", 400), ("GET /" + "x" * 20_000 + " HTTP/1.1", 400)],
)  # fmt: skip
def test_answers_unusual_requests_with_the_right_status(line: str, status: int) -> None:
    def request_raw(at: dict[str, int]) -> float:
        port = at["/healthz"] if "healthz" in line else at["/metrics"]
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(f"{line}\r\nHost: a\r\n\r\n".encode())
            answer = b""
            while chunk := client.recv(65536):
                answer += chunk
        head, _, body = answer.partition(b"\r\n\r\n")
        assert (body == b"") == line.startswith("HEAD")
        return int(head.split()[1])

    assert call_during_server(small_registry(), request_raw)[0] == status


def test_failing_gauge_does_not_stop_the_server() -> None:
    registry = CollectorRegistry()

    def fail() -> float:
        raise ValueError

    Gauge("test_gauge", "A gauge.", registry=registry).set_function(fail)

    def get_twice(at: dict[str, int]) -> float:
        assert get(at["/metrics"], "/metrics") == 500
        return get(at["/metrics"], "/metrics")

    assert call_during_server(registry, get_twice)[0] == 500
