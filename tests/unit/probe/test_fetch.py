"""What an answer may take of the operator's time and memory. Other limits: test_triton.py, test_prometheus.py."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from support import bad_servers
from support.probing import until
from triton_operator.probe.fetch import FetchError, HttpClient, Limits, UnusableError, fetch
from triton_operator.shares import Shares

HOST = f"127.95.{os.getpid() % 250}.1"
LIMITS = Limits(total_seconds=20.0, body_bytes=1 << 20)
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def get(address: str, limits: Limits = LIMITS) -> bytes:
    return asyncio.run(fetch(HttpClient(), "GET", f"http://{address}/metrics", limits))


def repeats(head: bytes, part: bytes, *, nodelay: bool = False) -> bad_servers.Behaviour:
    """Sends this part again and again, as fast as the client reads it."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(1 << 16)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
        connection.sendall(head)
        while not over.is_set():
            connection.sendall(part)

    return behave


@pytest.mark.parametrize("behave", [
    repeats(HEAD, b"1\r\n#\r\n" * 5000),
    repeats(HEAD, b"1;" + b"x" * 1000 + b"\r\n#\r\n"),
    repeats(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    repeats(b"HTTP/1.1 200 OK\r\n\r\n", b"#", nodelay=True),
], ids=["chunks of one byte", "long heads of chunks", "interim responses", "segments of one byte"])  # fmt: skip
def test_an_answer_in_small_pieces_is_not_read_to_its_end(behave: bad_servers.Behaviour) -> None:
    limited = pytest.raises(UnusableError, match="comes in too many small pieces")
    with bad_servers.server(HOST, behave, 0) as served, limited:
        get(served.address)


@pytest.mark.parametrize("size", [1, 1 << 10, 1 << 20])
@pytest.mark.parametrize("chunk", [2 << 10, 32 << 10, 1 << 20], ids=["2 KiB", "32 KiB", "1 MiB"])
def test_reads_a_body_in_chunks_as_servers_send_them(size: int, chunk: int) -> None:
    body = os.urandom(size)

    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(1 << 16)
        connection.sendall(HEAD)
        for begin in range(0, size, chunk):
            part = body[begin : begin + chunk]
            connection.sendall(b"%x\r\n%b\r\n" % (len(part), part))
        connection.sendall(b"0\r\n\r\n")

    with bad_servers.server(HOST, behave, 0) as served:
        assert get(served.address) == body


@pytest.mark.parametrize("head", [
    b"HTTP/1.0 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
])  # fmt: skip
def test_reads_a_body_up_to_its_end(head: bytes) -> None:
    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(1 << 16)
        connection.sendall(head + b"hello")

    with bad_servers.server(HOST, behave, 0) as served:
        assert get(served.address) == b"hello"


@pytest.mark.parametrize("head", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", HEAD + b"5\r\nhello\r\n", HEAD + b"x\r\n", b"HTTP/1.1 200",
])  # fmt: skip
def test_half_an_answer_is_none(head: bytes) -> None:
    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(1 << 16)
        connection.sendall(head)

    with bad_servers.server(HOST, behave, 0) as served, pytest.raises(FetchError):
        get(served.address)


class Counted(Shares):
    """Counts what all namespaces have taken."""

    taken = 0

    def take(self, namespace: str, size: int) -> None:
        super().take(namespace, size)
        self.taken += size


def test_bodies_share_the_memory() -> None:
    """As `Shares` does: a namespace with many unfinished bodies is refused, and another one isn't."""
    sent, over = bytes(60_000), threading.Event()

    def behave(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 60001\r\n\r\n" + sent)
        over.wait(20)
        connection.sendall(b"x")

    async def main(address: str) -> None:
        shares = Counted(300_000)
        client = HttpClient("a", bodies=shares)

        def asking(namespace: str) -> asyncio.Task[bytes]:
            return asyncio.create_task(fetch(client.of(namespace), "GET", f"http://{address}/", LIMITS))

        tasks = [asking("a") for _ in range(5)]
        await until(lambda: shares.taken == 300_000)
        with pytest.raises(UnusableError, match="has no room"):
            await asking("a")
        other = asking("b")
        await until(lambda: shares.taken == 360_000)
        over.set()
        assert len(await other) == 60_001
        await asyncio.wait(tasks)
        assert shares.taken == 0

    with bad_servers.server(HOST, behave, 0) as served:
        asyncio.run(main(served.address))


def test_sends_what_triton_needs() -> None:
    seen: list[bytes] = []

    def behave(connection: socket.socket, over: threading.Event) -> None:
        seen.append(connection.recv(1 << 16))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with bad_servers.server(HOST, behave, 0) as served:
        url = f"http://{served.address}/v2/models/a%2Fb/config?a=1"
        asyncio.run(fetch(HttpClient(), "POST", url, LIMITS, {"Authorization": "Bearer abc"}))
    lines = seen[0].decode().split("\r\n")
    assert lines[0] == "POST /v2/models/a%2Fb/config?a=1 HTTP/1.1"
    assert {f"host: {served.address}", "content-length: 0", "authorization: bearer abc", "connection: close"} <= {
        line.lower() for line in lines
    }


def test_tls_needs_a_certificate_that_is_trusted(tmp_path: Path) -> None:
    """As of a Prometheus whose certificate SSL_CERT_FILE names."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(certificate, key)

    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            await writer.drain()
            await reader.read()

        async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server_side) as server:
            port = server.sockets[0].getsockname()[1]
            trusting = HttpClient(tls=ssl.create_default_context(cafile=str(certificate)))
            assert await fetch(trusting, "GET", f"https://localhost:{port}/", LIMITS) == b"hello"
            with pytest.raises(FetchError, match="CERTIFICATE_VERIFY_FAILED"):
                await fetch(HttpClient(), "GET", f"https://localhost:{port}/", LIMITS)
            with pytest.raises(FetchError, match="not valid for '127"):
                await fetch(trusting, "GET", f"https://127.0.0.1:{port}/", LIMITS)

    asyncio.run(main())


def test_a_url_may_have_a_password() -> None:
    seen: list[bytes] = []

    def behave(connection: socket.socket, over: threading.Event) -> None:
        seen.append(connection.recv(1 << 16))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with bad_servers.server(HOST, behave, 0) as served:
        asyncio.run(fetch(HttpClient(), "GET", f"http://Aladdin:open%20sesame@{served.address}", LIMITS))
    lines = seen[0].decode().split("\r\n")
    assert lines[0] == "GET / HTTP/1.1"
    # The example of RFC 7617.
    assert {f"Host: {served.address}", "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="} <= {*lines}


@pytest.mark.parametrize("url", ["http://user:sec/ret@host:9090/", "http://user:sec#ret@host", "http://[sec]ret"])
def test_words_about_a_malformed_url_have_nothing_of_it(url: str) -> None:
    with pytest.raises(FetchError) as error:
        asyncio.run(fetch(HttpClient(), "GET", url, LIMITS))
    assert "sec" not in str(error.value)
    assert "ret" not in str(error.value)
