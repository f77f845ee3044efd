"""Calls servers that aren't Triton, or that say too much."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import hpack
import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

from support import bad_servers
from support.fake_triton import FakeTriton, serving
from triton_operator.probe import grpc_call
from triton_operator.probe.fetch import FetchError
from triton_operator.probe.grpc_call import Channel, StatusError

HOST = f"127.96.{os.getpid() % 250}.1"
LOAD = "/inference.GRPCInferenceService/RepositoryModelLoad"
CONFIG = "/inference.GRPCInferenceService/ModelConfig"
NEW = b"\x12\x03new"
SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 4, 5, 6, 7, 8, 9
DATA, HEADERS, PRIORITY, RST_STREAM = 0, 1, 2, 3
END_STREAM, END_HEADERS = 1, 4


def call(seconds: float = 2.0, message: bytes = NEW) -> None:
    asyncio.run(grpc_call.call(f"{HOST}:8001", LOAD, message, seconds))


def frame(kind: int, body: bytes = b"", flags: int = 0, stream: int = 1) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def headers(*pairs: tuple[str, str], flags: int = END_HEADERS, kind: int = HEADERS) -> bytes:
    return frame(kind, hpack.Encoder().encode(pairs), flags)


def first(*frames: bytes) -> bytes:
    """Returns what a server sends: the first frame, which every server sends, and these."""
    return frame(SETTINGS, stream=0) + b"".join(frames)


DONE = headers((":status", "200"), ("grpc-status", "0"), flags=END_HEADERS | END_STREAM)


def sends(data: bytes, *, endless: bytes = b"", sent: list[int] | None = None) -> bad_servers.Behaviour:
    """Sends this, then `endless` until the client closes the connection. Appends to `sent` how many bytes it could."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(data)
        number = len(data)
        try:
            while endless and not over.is_set():
                number += connection.send(endless)
            over.wait(5)
        finally:
            if sent is not None:
                sent.append(number)

    return behave


FLOODS = {
    "priorities": frame(PRIORITY, bytes(5)),
    "window updates": frame(WINDOW_UPDATE, b"\0\0\0\1", stream=0),
    "unknown frames": frame(200, b"x"),
    "empty frames": frame(DATA),
    "settings": frame(SETTINGS, b"\0\3\0\0\0\1" * 100, stream=0),
    "pings": frame(PING, bytes(8), stream=0),
    "headers": headers(("a", "b")),
    "continuations": frame(CONTINUATION),
    "large frames": frame(200, bytes(1 << 16)),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_reads_little_of_a_flood(kind: str) -> None:
    sent: list[int] = []
    begin = first(frame(HEADERS, b"", flags=0)) if kind == "continuations" else first()
    with bad_servers.server(HOST, sends(begin, endless=FLOODS[kind] * 1000, sent=sent), 8001):
        tracemalloc.start()
        with pytest.raises((FetchError, StatusError), match=r"is larger than 64 KiB|doesn't speak gRPC"):
            call(20)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        deadline = time.monotonic() + 20
        while not sent and time.monotonic() < deadline:
            time.sleep(0.01)
    # What the sockets' buffers hold isn't read.
    assert sent[0] < 16 << 20
    assert peak < 2 << 20


def test_a_small_answer_that_decodes_to_much_is_no_answer() -> None:
    """The table of HPACK repeats a long value in one byte."""
    encoder = hpack.Encoder()
    block = encoder.encode([("a", "x" * 4000)]) + b"\xbe" * 16_000
    with bad_servers.server(HOST, sends(first(frame(HEADERS, block, END_HEADERS))), 8001):
        tracemalloc.start()
        with pytest.raises(FetchError, match="doesn't speak gRPC"):
            call()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2 << 20


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no complete answer|closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "doesn't speak gRPC"),
        (DONE, "doesn't speak gRPC"),
        (first(frame(HEADERS, b"\xff\xff\xff", END_HEADERS)), "doesn't speak gRPC"),
        (first(frame(PING, b"x", stream=0)), "doesn't speak gRPC"),
        (first(frame(RST_STREAM, b"\0\0\0\2")), "error 2 of HTTP/2"),
        (first(frame(GOAWAY, bytes(4) + b"\0\0\0\2", stream=0)), "ends the connection"),
        (first(frame(GOAWAY, bytes(8), stream=0)), "ends the connection"),
        (first(headers((":status", "503"))), "has the HTTP status 503"),
        (first(headers((":status", "200")), frame(DATA, b"", END_STREAM)), "no gRPC status"),
        (first(headers((":status", "200"), flags=END_HEADERS | END_STREAM)), "no gRPC status"),
        (first(headers(("grpc-status", "14"), ("grpc-message", "shutting%20down"))), "no answer from port 8001: shutt"),
    ],
)
def test_says_why_there_is_no_answer(data: bytes, words: str) -> None:
    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(1 << 16)
        connection.sendall(data)
        if data:
            over.wait(5)

    with bad_servers.server(HOST, behave, 8001), pytest.raises(FetchError, match=words):
        call()


def test_nobody_listens() -> None:
    with pytest.raises(FetchError, match="no connection to port 8001: "):
        call()


@pytest.mark.parametrize("frames", [
    [DONE],
    [headers((":status", "200")), frame(DATA, bytes(5)), headers(("grpc-status", "0"), flags=END_HEADERS | END_STREAM)],
    [frame(GOAWAY, b"\x7f\xff\xff\xff" + bytes(4), stream=0), frame(PING, bytes(8), stream=0), DONE],
    [frame(WINDOW_UPDATE, b"\0\0\0\1", stream=0), frame(200, b"anything"), DONE],
    # Triton's words may be longer than a frame.
    [headers((":status", "200"), flags=END_STREAM), headers(("grpc-status", "0"), kind=CONTINUATION)],
])  # fmt: skip
def test_is_done_when_the_server_says_so(frames: list[bytes]) -> None:
    with bad_servers.server(HOST, sends(first(*frames)), 8001):
        call()


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("grpc-status", "13"), ("grpc-message", "na%C3%AFve%0Awords")], "naïve\nwords"),
        ([("grpc-status", "5")], "gRPC status 5"),
        ([("grpc-status", "x")], "gRPC status x"),
    ],
)
def test_has_the_words_of_an_error(pairs: list[tuple[str, str]], words: str) -> None:
    answer = sends(first(headers((":status", "200"), *pairs)))
    with bad_servers.server(HOST, answer, 8001), pytest.raises(StatusError) as error:
        call()
    assert str(error.value) == words


@pytest.mark.parametrize("answer", [
    lambda: sends(first()),
    lambda: sends(first(headers((":status", "200")))),
    lambda: sends(first(headers(("grpc-status", "4")))),
    lambda: bad_servers.hangs,
])  # fmt: skip
def test_a_server_that_never_says_more_takes_the_time(answer: Callable[[], bad_servers.Behaviour]) -> None:
    with bad_servers.server(HOST, answer(), 8001), pytest.raises(TimeoutError):
        call(0.3)


def test_grpcs_own_server_understands_it() -> None:
    triton = FakeTriton(delay=1)
    with serving(triton, f"{HOST}:8001"):
        call()
    assert triton.calls == ["load new"]


@pytest.mark.parametrize("length", [1 << 14, 65_530, 65_531, 300_000, 3 << 20])
def test_a_large_request_waits_until_the_server_takes_more(length: int) -> None:
    """A server allows 64 KiB at first."""
    triton = FakeTriton()
    request = service_pb2.RepositoryModelLoadRequest(model_name="new")
    config = json.dumps({"cc_model_filenames": {"a": "x" * length}})
    request.parameters["config"].string_param = config
    with serving(triton, f"{HOST}:8001"):
        call(20, request.SerializeToString())
    assert triton.calls == ["load new with a"]


def test_an_error_comes_before_the_whole_request_is_sent() -> None:
    answer = sends(first(headers((":status", "200"), ("grpc-status", "8"), ("grpc-message", "too large"))))
    with bad_servers.server(HOST, answer, 8001), pytest.raises(StatusError, match="too large"):
        call(message=bytes(1 << 20))


def calls(*messages: bytes, max_bytes: int = 1 << 20, seconds: float = 20.0) -> list[bytes]:
    """Asks for the configuration of these models, one after the other, on one channel."""

    async def ask() -> list[bytes]:
        async with contextlib.aclosing(Channel(f"{HOST}:8001", max_bytes)) as channel:
            return [await channel.call(CONFIG, message, seconds) for message in messages]

    return asyncio.run(ask())


def config(length: int) -> Any:
    return model_config_pb2.ModelConfig(name="a", parameters={"k": {"string_value": "x" * length}})


def test_answers_of_any_size_come_on_one_connection() -> None:
    """Together they are larger than what the server may send at first."""
    sizes = {f"m{length}": config(length) for length in (0, 70_000, 900_000, 900_001, 1)}
    names = [*sizes] * 3
    triton = FakeTriton(configs=sizes)
    with serving(triton, f"{HOST}:8001"):
        bodies = calls(*(service_pb2.ModelConfigRequest(name=name).SerializeToString() for name in names))
    answers = [service_pb2.ModelConfigResponse.FromString(body).config for body in bodies]
    assert answers == [sizes[name] for name in names]
    assert len(triton.peers) == 1


def test_an_error_ends_no_connection() -> None:
    triton = FakeTriton(configs={"a": config(1)})

    async def ask() -> bytes:
        async with contextlib.aclosing(Channel(f"{HOST}:8001", 1 << 20)) as channel:
            with pytest.raises(StatusError, match="unknown model: 'b'"):
                await channel.call(CONFIG, b"\x0a\x01b", 5)
            return await channel.call(CONFIG, b"\x0a\x01a", 5)

    with serving(triton, f"{HOST}:8001"):
        assert service_pb2.ModelConfigResponse.FromString(asyncio.run(ask())).config == config(1)
    assert len(triton.peers) == 1


def test_a_call_after_one_that_took_too_long_gets_its_own_answer() -> None:
    triton = FakeTriton(configs={"a": config(1)}, delay=1)

    async def ask() -> bytes:
        async with contextlib.aclosing(Channel(f"{HOST}:8001", 1 << 20)) as channel:
            with pytest.raises(TimeoutError):
                await channel.call(LOAD, NEW, 0.1)
            return await channel.call(CONFIG, b"\x0a\x01a", 5)

    with serving(triton, f"{HOST}:8001"):
        assert service_pb2.ModelConfigResponse.FromString(asyncio.run(ask())).config == config(1)


def test_a_large_answer_is_none() -> None:
    triton = FakeTriton(configs={"a": config(1 << 20)})
    with serving(triton, f"{HOST}:8001"), pytest.raises(FetchError, match="is larger than 1 MiB"):
        calls(b"\x0a\x01a")


ENDS = frame(GOAWAY, b"\x7f\xff\xff\xff" + bytes(4), stream=0)
ENDED = frame(GOAWAY, b"\0\0\0\1" + bytes(4), stream=0)


@pytest.mark.parametrize("end", [ENDS + DONE, DONE + ENDS + ENDED, DONE + ENDED, ENDS + DONE + ENDED])
def test_opens_a_new_connection_when_the_server_has_ended_one_of_some_age(end: bytes) -> None:
    """As Triton does with --grpc-max-connection-age."""
    clients: list[int] = []

    def behave(connection: socket.socket, over: threading.Event) -> None:
        clients.append(1)
        connection.recv(1 << 16)
        connection.sendall(first(end))
        over.wait(5)

    with bad_servers.server(HOST, behave, 8001):
        assert calls(b"", b"", b"") == [b"", b"", b""]
    assert len(clients) == 3


@pytest.mark.parametrize("body", [b"\1\0\0\0\1x", b"\0\0\0\0\2x", b"\0\0\0\0\1xx", b"\0\0", b"\0\0\0\0\1x\0\0\0\0\1x"])
def test_an_answer_is_one_message(body: bytes) -> None:
    data = first(headers((":status", "200")), frame(DATA, body))
    with (
        bad_servers.server(HOST, sends(data + headers(("grpc-status", "0"))), 8001),
        pytest.raises(FetchError, match="isn't one message without compression"),
    ):
        call()
