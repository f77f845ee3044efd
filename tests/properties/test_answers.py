"""Whatever strangers' servers send, the prober gets an answer or one of its errors, within its limits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import hpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from support import bad_servers
from support.profiles import examples
from triton_operator.api.monitoring import Series
from triton_operator.api.servers import Counters, Subject
from triton_operator.probe import counters, fetch, grpc_call, model_control, placement, statistics, triton
from triton_operator.probe.fetch import FetchError, HttpClient, Limits

HOST = f"127.94.{os.getpid() % 250}.1"
Sends = Callable[[bytes], str]
"""Makes the server send these bytes to each client; returns its address."""


@pytest.fixture(scope="module")
def sends() -> Iterator[Sends]:
    content = [b""]

    def behave(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(1 << 16)
        connection.sendall(content[0])
        # Reads what is left, so that the answer isn't lost.
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass

    with bad_servers.server(HOST, behave, 0) as served:

        def send(data: bytes) -> str:
            content[0] = data
            return served.address

        yield send


# HTTP

_HTTP = st.sampled_from([
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 204 No\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", b"HTTP/9.9 999 \r\n",
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 5, 5\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n", b"Connection: keep-alive\r\n", b"X: \xff\r\n", b" folded\r\n",
    b"\r\n", b"\n", b"5\r\n", b"hello", b"hello\r\n", b"0\r\n\r\n", b"0\r\nTrailer: x\r\n\r\n",
    b"fffffffffffffffff\r\n",
    b"5;x=y\r\n", b"\0", b"\r",
])  # fmt: skip
_GOOD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@examples(300)
@given(begin=st.sampled_from([b"", _GOOD, b"HTTP/1.1 200 OK\r\n"]), parts=st.lists(_HTTP | st.binary(max_size=20)))
def test_any_bytes_are_a_body_or_an_error(sends: Sends, begin: bytes, parts: list[bytes]) -> None:
    address = sends(begin + b"".join(parts))
    with contextlib.suppress(FetchError):
        limits = Limits(total_seconds=20.0, body_bytes=1000)
        assert len(asyncio.run(fetch.fetch(HttpClient(), "GET", f"http://{address}/", limits))) <= 1000


# Frames of HTTP/2


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Returns a frame, mostly of a known type and with a body that this type could have."""
    kind = draw(st.integers(0, 12) | st.integers(0, 255))
    pairs = draw(st.lists(st.tuples(_HEADER_NAMES, st.sampled_from(["200", "0", "4", "13", "x", "%ff"])), max_size=4))
    body = draw(st.sampled_from([hpack.Encoder().encode(pairs), bytes(8)]) | st.binary(max_size=40))
    flags, stream = draw(st.sampled_from([0, 1, 4, 5, 8, 32, 255])), draw(st.sampled_from([0, 1, 1, 1, 3]))
    length = len(body) if draw(st.integers(0, 20)) else draw(st.integers(0, 1 << 23))
    return length.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


_HEADER_NAMES = st.sampled_from([":status", "grpc-status", "grpc-message", "content-type", "a"])
_SETTINGS = b"\0\0\0\4\0\0\0\0\0"


@examples(300)
@given(begin=st.sampled_from([_SETTINGS, _SETTINGS, b""]), parts=st.lists(frames(), max_size=20))
def test_any_frames_are_an_answer_or_an_error(sends: Sends, begin: bytes, parts: list[bytes]) -> None:
    address = sends(begin + b"".join(parts))

    async def ask() -> None:
        """Two calls on one connection, the second of which is larger than what a server allows at first."""
        async with contextlib.aclosing(grpc_call.Channel(address, 64 << 10)) as channel:
            for size in (0, 100_000):
                with contextlib.suppress(FetchError, grpc_call.StatusError, TimeoutError):
                    await channel.call("/a.B/C", bytes(size), 20)

    asyncio.run(ask())


# Metrics

_METRICS = st.sampled_from([*counters._FIELDS, "tokens", "nv_inference_request_successes"])
_LABELS = st.dictionaries(
    st.sampled_from(["model", "version", "reason", "le"]), st.sampled_from(["a", "b", "", "}", ",", " ", "ä", "a=b"])
)
_VALUES = st.sampled_from(["0", "1", "1e3", "1.5", "0x1", "1_0", "", "NaN", "-1", "+Inf", "1e999"])
_TORN = st.sampled_from(['nv_inference_request_success{model="a', "nv_inference_request_success", "tokens{}", "#", '"'])


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Returns a line of a page, mostly one that is valid."""
    if draw(st.integers(0, 20)) == 0:
        return draw(_TORN | st.text(max_size=10))
    labels = ",".join(f'{name}="{text}"' for name, text in draw(_LABELS).items())
    return f"{draw(_METRICS)}{{{labels}}} {draw(_VALUES)}" if labels else f"{draw(_METRICS)} {draw(_VALUES)}"


_SUBJECT = Subject("a", frozenset({"b"}), tokens=(Series("tokens"),))


@examples(500)
@given(parts=st.lists(lines(), max_size=12))
def test_any_page_is_read_as_prometheus_reads_it_or_not_at_all(parts: list[str]) -> None:
    page = "".join(f"{part}\n" for part in parts)
    try:
        read = counters.parse(page.encode(), _SUBJECT)
    except FetchError:
        return
    expected, tokens = dict[str, dict[str, float]](), 0.0
    wanted = (*counters._FIELDS, "tokens")
    kept = [
        line for line in page.split("\n") if line.startswith(tuple(f"{name}{end}" for name in wanted for end in "{ "))
    ]
    try:
        families = list(text_string_to_metric_families("\n".join(kept) + "\n"))
    except ValueError:
        return
    for sample in (sample for family in families for sample in family.samples):
        model = sample.labels.get("model", "")
        if sample.name in counters._FIELDS and model in ("a", "b"):
            counts = expected.setdefault(model, dict.fromkeys(counters._FIELDS.values(), 0.0))
            counts[counters._FIELDS[sample.name]] += sample.value
        elif sample.name == "tokens":
            tokens = tokens + sample.value if math.isfinite(sample.value) and sample.value >= 0 else math.nan
    assert read.models == {model: Counters(**counts) for model, counts in expected.items()}
    assert read.tokens == tokens or (math.isnan(read.tokens) and math.isnan(tokens))


# JSON

_WORDS = st.sampled_from([
    "name", "version", "state", "reason", "READY", "UNAVAILABLE", "unloaded", "model_stats", "inference_stats",
    "success", "fail", "count", "ensemble_scheduling", "step", "model_name", "instance_group", "kind", "KIND_CPU", "a",
])  # fmt: skip
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=12,
)
_READERS: tuple[Callable[[bytes], object], ...] = (
    triton.parse, statistics.parse, placement.parse, model_control.steps,
)  # fmt: skip


@examples(500)
@given(_JSON)
@example({"model_stats": [{"name": "a", "inference_stats": {"success": {"count": 1e400}, "fail": {"count": 0}}}]})
def test_any_json_is_an_answer_or_an_error(value: Any) -> None:
    for read in _READERS:
        with contextlib.suppress(FetchError, model_control.RefusedError):
            read(json.dumps(value).encode())
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
        statistics.find("a", {"a": 100, "b": 0}, value)


@examples(200)
@given(st.binary(max_size=50))
def test_any_text_is_no_json_or_an_answer(body: bytes) -> None:
    for read in _READERS:
        with contextlib.suppress(FetchError, model_control.RefusedError):
            read(body)
