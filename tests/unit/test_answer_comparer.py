"""The program that compares answers, in front of servers whose answers a test chooses."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread

import pytest
from aiohttp import web

from answer_comparison.comparer import REQUEST_BYTES
from support.api import eventually

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 256 << 20
INFER = "/v2/models/m/infer"
HEADER = "Inference-Header-Content-Length"
Answer = tuple[bytes, dict[str, str]]


class Servers:
    """Two servers, own and others, on free ports. `answers`: of own, and of the others. `seen`: what they received."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {name: (b'{"text_output": "a"}', {}) for name in ("own", "others")}
        self.ports: dict[str, int] = {}
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self._started, self._end = Event(), asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_until_complete, args=[self._serve()], daemon=True)
        self._thread.start()
        assert self._started.wait(10)

    async def _serve(self) -> None:
        runners = []
        for name in self.answers:
            app = web.Application(client_max_size=2 * REQUEST_BYTES)
            app.router.add_route("*", "/{path:.*}", functools.partial(self._answer, name))
            runners.append(web.AppRunner(app, access_log=None, auto_decompress=False))
            await runners[-1].setup()
            await web.TCPSite(runners[-1], "127.0.0.1", 0).start()
            self.ports[name] = runners[-1].addresses[0][1]
        self._started.set()
        await self._end.wait()
        for runner in runners:
            await runner.cleanup()

    async def _answer(self, name: str, request: web.Request) -> web.Response:
        await request.read()
        self.seen.append((name, request.path_qs, {key.lower(): value for key, value in request.headers.items()}))
        body, headers = self.answers[name]
        return web.Response(body=body, headers=headers)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)


class Program:
    """`python -m answer_comparison` between these servers."""

    def __init__(self, servers: Servers) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        urls = [f"http://127.0.0.1:{servers.ports[name]}" for name in ("own", "others")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "answer_comparison", *urls, str(self.port)],
            cwd=ROOT / "operator",
            stdout=subprocess.DEVNULL,
        )

    def listens(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    def send(self, body: bytes = b"{}", path: str = INFER, method: str = "POST", **headers: str) -> int:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        return connection.getresponse().status

    def counts(self) -> dict[str, float]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.status == 200
        page = answer.read().decode()
        return {found[1]: float(found[2]) for found in re.finditer(r'_total\{\w+="([^"]*)"\} (\S+)', page)}

    def after(self, body: bytes = b"{}", **headers: str) -> dict[str, float]:
        """Sends one request, and returns what was counted because of it."""
        before = self.counts()
        assert self.send(body, **headers) == 204
        now = eventually(lambda: found if (found := self.counts()) != before else None, 90)
        # Then it pauses for a second at least.
        time.sleep(1.1)
        return {key: now[key] - before.get(key, 0) for key in now if now[key] != before.get(key, 0)}

    def peak(self) -> int:
        """Returns the most memory that the process has had, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10  # type: ignore[index]


@pytest.fixture
def servers() -> Iterator[Servers]:
    running = Servers()
    yield running
    running.stop()


@pytest.fixture
def program(servers: Servers) -> Iterator[Program]:
    running = Program(servers)
    try:
        eventually(running.listens, 30, "the program to listen")
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def tensor(datatype: str, data: bytes) -> Answer:
    described = {"name": "Y", "datatype": datatype, "shape": [1], "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"outputs": [described]}).encode()
    return head + data, {HEADER: str(len(head))}


def rows(texts: Callable[[int], str], number: int) -> bytes:
    parts = (texts(n).encode() for n in range(number))
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


MOST = (4 << 20) - 4096
LARGE = {
    "BF16": tensor("BF16", bytes(MOST)), "FP16": tensor("FP16", bytes(MOST)), "INT8": tensor("INT8", bytes(MOST)),
    "short texts": tensor("BYTES", rows(lambda n: "é", MOST // 6)),
    "a long text": tensor("BYTES", rows(lambda n: json.dumps([[]] * (MOST // 4 - 8)), 1)),
    "JSON": (json.dumps({"a": [[]] * ((1 << 18) - 8)}).encode(), {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGE)
def test_the_largest_request_and_answers_stay_far_below_the_memory_limit(
    program: Program, servers: Servers, kind: str
) -> None:
    body, headers = LARGE[kind]
    changed = body[:-2] + b"EE" if kind != "JSON" else body.replace(b"[], ", b"[1],", 1)
    servers.answers = {"own": (changed, headers), "others": (body, headers)}
    found = program.after(bytes(REQUEST_BYTES - 1024), Inference_Header_Content_Length="0")
    assert found == {"different": 1, "a" if kind == "JSON" else "Y": 1}
    print(f"{kind}: {program.peak() >> 20} MiB")
    assert program.peak() < 0.7 * LIMIT


def test_forwards_what_the_client_sent_but_not_how(program: Program, servers: Servers) -> None:
    found = program.after(b'{"a": 1}', X_Tenant="blue", Connection="close", Accept_Encoding="gzip", TE="trailers")
    assert found == {"exact": 1}
    assert [name for name, _, _ in servers.seen] == ["others", "own", "others"]
    for _, path, headers in servers.seen:
        assert path == INFER
        assert headers["x-tenant"] == "blue"
        assert headers["accept-encoding"] == "identity"
        assert "te" not in headers
        assert headers["host"].startswith("127.0.0.1:")


def test_what_can_not_be_compared_has_its_reason(program: Program, servers: Servers) -> None:
    sequence = b'{"parameters": {"sequence_id": 7}}'
    assert program.after(sequence) == {"a request is of a sequence or has shared memory": 1}
    assert program.after(gzip.compress(sequence), Content_Encoding="gzip") == {"a request is compressed": 1}
    assert servers.seen == []
    assert program.after(bytes(REQUEST_BYTES + 1)) == {"a request is larger than 32 MiB": 1}
    for answer, reason in (
        ((bytes(5 << 20), {}), "an answer is larger than 4 MiB"),
        ((b'{"a": "%s"}' % (b"x" * (1 << 20)), {}), "an answer has more than 1 MiB of JSON"),
        ((b"[]", {}), "an answer isn't Triton's"),
    ):
        servers.answers["others"] = answer
        assert program.after() == {reason: 1}


def test_names_that_are_no_text_are_counted(program: Program, servers: Servers) -> None:
    servers.answers["own"] = (b'{"o\\ud800": 1}', {})
    assert program.after() == {"different": 1, "o?": 1, "text_output": 1}


def test_what_is_no_inference_is_dropped(program: Program, servers: Servers) -> None:
    for method, path in (
        ("GET", "/v2/health/ready"), ("POST", "/v2/repository/models/m/unload"), ("PUT", INFER),
        ("POST", "/v2/models/m/generate_stream"), ("POST", "/v2/models/../infer/x"),
    ):  # fmt: skip
        assert program.send(path=path, method=method) == 204
    assert (program.counts(), servers.seen) == ({}, [])


def test_an_upload_that_ends_early_or_hangs_stops_nothing_but_itself(program: Program, servers: Servers) -> None:
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", program.port)) as connection:
            connection.sendall(f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc".encode())
    assert program.after() == {"exact": 1}
    with socket.create_connection(("127.0.0.1", program.port)) as connection:
        connection.sendall(f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc".encode())
        began = time.monotonic()
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(30) == 0
        assert time.monotonic() - began < 15
