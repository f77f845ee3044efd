"""Servers in the place of Triton that don't do what Triton does."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

PORT = 8000
Behaviour = Callable[[socket.socket, threading.Event], None]


def hangs(connection: socket.socket, over: threading.Event) -> None:
    """Accepts, and never answers."""
    over.wait()


def trickles(connection: socket.socket, over: threading.Event) -> None:
    """A byte now and then, for ever: no pause is long enough to be taken for silence."""
    _request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
    while not over.wait(0.3):
        connection.sendall(b"[")


def trickles_a_head(connection: socket.socket, over: threading.Event) -> None:
    """The same before the answer has begun."""
    _request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not over.wait(0.3):
        connection.sendall(b"X-Line: 1\r\n")


def trickles_without_a_length(connection: socket.socket, over: threading.Event) -> None:
    """As HTTP/1.0 has it: the body ends with the connection, which never does."""
    _request(connection)
    connection.sendall(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n")
    while not over.wait(0.3):
        connection.sendall(b"[")


def floods_a_head(connection: socket.socket, over: threading.Event) -> None:
    """Header lines without an end, as fast as they are taken."""
    _request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not over.is_set():
        connection.sendall(b"X-Line: 1\r\n" * 5000)


def always_continues(connection: socket.socket, over: threading.Event) -> None:
    """Interim answers without an end."""
    _request(connection)
    while not over.wait(0.01):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def compresses(connection: socket.socket, _: threading.Event) -> None:
    """A few bytes that would be many."""
    _request(connection)
    body = gzip.compress(b"[" + b" " * (64 << 20) + b"]")
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)


def redirects(to: str) -> Behaviour:
    """To another address, with a body that has no end."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        _request(connection)
        head = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        while not over.is_set():
            connection.sendall(b"10000\r\n" + b"[" * 0x10000 + b"\r\n")

    return behave


def floods(connection: socket.socket, over: threading.Event) -> None:
    """An answer without an end."""
    _request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b"[" * 0x10000 + b"\r\n"
    while not over.is_set():
        connection.sendall(chunk)


def answers(body: bytes, status: str = "200 OK") -> Behaviour:
    """Always the same."""

    def behave(connection: socket.socket, _: threading.Event) -> None:
        _request(connection)
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)

    return behave


def speaks_no_http(connection: socket.socket, _: threading.Event) -> None:
    connection.sendall(b"\x00\xff\x16\x03 hello\r\n\r\n" * 100)


def closes(connection: socket.socket, _: threading.Event) -> None:
    """As soon as it is connected to."""


@dataclass
class Served:
    """`asked`: how often it was connected to."""

    address: str
    asked: int = 0


@contextlib.contextmanager
def server(host: str, behave: Behaviour, port: int = PORT) -> Iterator[Served]:
    """A server on `host`, by default on Triton's port for HTTP; 0 means any."""
    over = threading.Event()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    name = f"[{host}]" if ":" in host else host
    served = Served(f"{name}:{listener.getsockname()[1]}")

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            served.asked += 1
            threading.Thread(target=handle, args=(connection,), daemon=True).start()

    def handle(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            behave(connection, over)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield served
    finally:
        over.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _request(connection: socket.socket) -> None:
    """Reads the head of one."""
    got = b""
    while b"\r\n\r\n" not in got:
        more = connection.recv(4096)
        if not more:
            return
        got += more
