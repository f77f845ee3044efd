"""Misbehaving HTTP servers in place of Triton."""

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
    """Accepts connections and never answers."""
    over.wait()


def trickles(connection: socket.socket, over: threading.Event) -> None:
    """Sends a body byte by byte without an end. No pause is long enough for a read timeout."""
    _request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
    while not over.wait(0.3):
        connection.sendall(b"[")


def trickles_a_head(connection: socket.socket, over: threading.Event) -> None:
    """Sends header lines slowly without an end."""
    _request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not over.wait(0.3):
        connection.sendall(b"X-Line: 1\r\n")


def trickles_without_a_length(connection: socket.socket, over: threading.Event) -> None:
    """Sends an HTTP/1.0 response slowly. Its body ends with the connection, which never closes."""
    _request(connection)
    connection.sendall(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n")
    while not over.wait(0.3):
        connection.sendall(b"[")


def floods_a_head(connection: socket.socket, over: threading.Event) -> None:
    """Sends header lines without an end, as fast as the client reads them."""
    _request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not over.is_set():
        connection.sendall(b"X-Line: 1\r\n" * 5000)


def always_continues(connection: socket.socket, over: threading.Event) -> None:
    """Sends interim responses (100 Continue) without an end."""
    _request(connection)
    while not over.wait(0.01):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def compresses(connection: socket.socket, _: threading.Event) -> None:
    """Sends a compressed body of few bytes that expands to 64 MiB."""
    _request(connection)
    body = gzip.compress(b"[" + b" " * (64 << 20) + b"]")
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)


def bomb(times: int) -> bytes:
    """Returns 64 MiB of spaces, compressed `times` times."""
    body = b" " * (64 << 20)
    for _ in range(times):
        body = gzip.compress(body)
    return body


def bombs(times: int) -> Behaviour:
    """Sends a small body that is large after decoding."""
    body = bomb(times)

    def behave(connection: socket.socket, _: threading.Event) -> None:
        _request(connection)
        encoding = ", ".join(["gzip"] * times)
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)

    return behave


def redirects(to: str) -> Behaviour:
    """Redirects to another address, with a body without an end."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        _request(connection)
        head = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        while not over.is_set():
            connection.sendall(b"10000\r\n" + b"[" * 0x10000 + b"\r\n")

    return behave


def floods(connection: socket.socket, over: threading.Event) -> None:
    """Sends a body without an end, as fast as the client reads it."""
    _request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b"[" * 0x10000 + b"\r\n"
    while not over.is_set():
        connection.sendall(chunk)


def answers(body: bytes, status: str = "200 OK") -> Behaviour:
    """Always sends this response."""
    return answers_with(lambda: body, status)


def answers_with(read: Callable[[], bytes], status: str = "200 OK") -> Behaviour:
    """Sends what `read` returns at that moment."""

    def behave(connection: socket.socket, _: threading.Event) -> None:
        _request(connection)
        body = read()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)

    return behave


def speaks_no_http(connection: socket.socket, _: threading.Event) -> None:
    connection.sendall(b"\x00\xff\x16\x03 hello\r\n\r\n" * 100)


def closes(connection: socket.socket, _: threading.Event) -> None:
    """Closes the connection immediately."""


@dataclass
class Served:
    """A running server. `connections` is the number of connections."""

    address: str
    connections: int = 0


@contextlib.contextmanager
def server(host: str, behave: Behaviour, port: int = PORT) -> Iterator[Served]:
    """Runs a server on `host`, by default on Triton's HTTP port. Port 0 means any free port."""
    over = threading.Event()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    name = f"[{host}]" if ":" in host else host
    instance = Served(f"{name}:{listener.getsockname()[1]}")

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            instance.connections += 1
            threading.Thread(target=handle, args=(connection,), daemon=True).start()

    def handle(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            behave(connection, over)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield instance
    finally:
        over.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _request(connection: socket.socket) -> None:
    """Reads the head of a request."""
    head = b""
    while b"\r\n\r\n" not in head:
        chunk = connection.recv(4096)
        if not chunk:
            return
        head += chunk
