"""The page of metrics that containers of a server's pod serve: strangers can't end it."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry

from metrics_page import serve


@contextmanager
def served(seconds: float) -> Iterator[int]:
    """Gives the port of a page."""
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    server = serve(port, CollectorRegistry(), seconds=seconds)
    try:
        yield port
    finally:
        server.shutdown()
        server.server_close()


def get(host: str, port: int) -> tuple[int, str]:
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=60) as answer:
        return answer.status, answer.headers["Content-Type"].partition(";")[0]


def test_the_page_is_on_both_families_of_addresses() -> None:
    with served(5) as port:
        assert get("127.0.0.1", port) == (200, "text/plain")
        assert get("[::1]", port) == (200, "text/plain")


def test_clients_that_send_nothing_delay_the_page_and_take_no_threads() -> None:
    with served(0.2) as port:
        before = threading.active_count()
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
        for connection in idle:
            connection.send(b"GET /metrics HTTP/1.1\r\n")
        assert get("127.0.0.1", port) == (200, "text/plain")
        # The page's own thread was there before; one timer may end just now.
        assert threading.active_count() <= before + 1
        for connection in idle:
            connection.close()


def test_a_client_that_sends_one_byte_after_the_other_is_closed() -> None:
    with served(0.3) as port, socket.create_connection(("127.0.0.1", port)) as slow:
        slow.settimeout(30)
        closed = threading.Event()

        def send() -> None:
            try:
                while not closed.wait(0.05):
                    slow.send(b"x")
            except OSError:
                closed.set()

        thread = threading.Thread(target=send)
        thread.start()
        assert get("127.0.0.1", port) == (200, "text/plain")
        assert closed.wait(30)
        thread.join()


def test_a_port_that_is_taken_is_an_error() -> None:
    with served(5) as port, pytest.raises(OSError, match="in use"):
        serve(port, CollectorRegistry())
