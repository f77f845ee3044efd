"""HTTP requests with limits, for servers that may be slow, broken or hostile.

A library for clients reads whatever comes between two pieces of a body, such as interim responses and the heads of
chunks, and counts only the body. This module reads the bytes itself, and stops at a number of them. h11 parses them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, unquote, urlsplit

import h11

from triton_operator.shares import Shares

from .turns import Turns

_TOTAL_BYTES = 32 << 20
"""If all bodies that are being read take more, each namespace is limited to its share."""
_NEXT_ADDRESS_SECONDS = 0.25
"""After this time without a connection to the first address of a name, the next one is tried beside it."""
_READ_BYTES = 64 << 10
_HEAD_BYTES = 16 << 10
"""Maximum size of the status line and the headers."""
_PIECE_BYTES, _PIECES = 512, 1000
"""The body may come in pieces of at least so many bytes on average, and so many smaller ones: each takes time. Go's
servers send 2 KiB at a time, and Triton nearly all at once. An interim response is a piece, too."""


class FetchError(Exception):
    """There is no usable answer. The message gives the reason."""


class UnusableError(FetchError):
    """There is an answer, but it can't be used.

    The message begins with a verb, such as "is larger than 256 KiB", and is the same each time for the same reason.
    `status`: the HTTP status if that is the reason; otherwise 0.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """Limits of one request.

    `total_seconds` includes DNS and the last byte of the body. `body_bytes`: maximum size of the body.
    """

    connect_seconds: float = 2.0
    total_seconds: float = 4.0
    body_bytes: int = 256 << 10


@dataclass(frozen=True)
class HttpClient:
    """Sends the requests for one namespace, whose answers take time and memory that all namespaces share.

    It uses no proxy, keeps no connection and no cookie, and decompresses nothing. For one event loop.
    """

    namespace: str = ""
    turns: Turns = field(default_factory=Turns)
    bodies: Shares = field(default_factory=lambda: Shares(_TOTAL_BYTES))
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)

    def of(self, namespace: str) -> HttpClient:
        """Returns the client for another namespace."""
        return replace(self, namespace=namespace)

    def taking_time(self) -> AbstractContextManager[None]:
        """Returns a context for computing with an answer, in which nothing else may run."""
        return self.turns.taking(self.namespace)


async def fetch(
    client: HttpClient, method: str, url: str, limits: Limits, headers: Mapping[str, str] | None = None
) -> bytes:
    """Returns the body of an answer with status 200. Follows no redirect. Raises FetchError.

    `url`: may have a user name and a password.
    """
    try:
        parts = urlsplit(url)
        tls = client.tls if parts.scheme == "https" else None
        port = parts.port or (443 if tls else 80)
    except ValueError:
        # Its words may have a part of the password.
        raise FetchError("the URL is malformed") from None
    opened = connection(parts.hostname or "", port, limits.connect_seconds, tls)
    try:
        async with asyncio.timeout(limits.total_seconds), opened as (reader, writer):
            request = h11.Request(
                method=method,
                target=parts._replace(scheme="", netloc="", fragment="").geturl() or "/",
                headers=[
                    ("Host", parts.netloc.rpartition("@")[2]),
                    *_HEADERS,
                    *_EMPTY.get(method, ()),
                    *_credentials(parts),
                    *(headers or {}).items(),
                ],
            )
            with contextlib.closing(_Answer(client, request, limits.body_bytes)) as answer:
                writer.write(answer.request)
                complete = False
                while not complete:
                    data = await reader.read(_READ_BYTES)
                    with client.taking_time():
                        complete = answer.add(data)
                return bytes(answer.body)
    except TimeoutError:
        raise FetchError(f"no complete answer within {limits.total_seconds:g} s") from None
    except (OSError, ValueError, h11.ProtocolError) as error:
        raise FetchError(str(error)[:300] or type(error).__name__) from None


_HEADERS = (
    ("Connection", "close"),
    ("Accept", "*/*"),
    ("Accept-Encoding", "identity"),
    ("User-Agent", "triton-operator"),
)
_EMPTY = {"POST": (("Content-Length", "0"),)}


def _credentials(parts: SplitResult) -> list[tuple[str, str]]:
    if parts.username is None:
        return []
    words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return [("Authorization", f"Basic {base64.b64encode(words.encode()).decode()}")]


@contextlib.asynccontextmanager
async def connection(
    host: str, port: int, seconds: float, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yields a connection, for which there are `seconds`, and ends it. Raises FetchError."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=tls, limit=_READ_BYTES, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS
            )
    except TimeoutError:
        raise FetchError(f"no connection to port {port} within {seconds:g} s") from None
    except OSError as error:
        raise FetchError(f"no connection to port {port}: {error}"[:300]) from None
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        # Otherwise asyncio logs the error with which the connection ended.
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class _Answer:
    """An answer that is read piece by piece. `request`: what is to be sent; `body`: what has come of the body."""

    def __init__(self, client: HttpClient, request: h11.Request, max_bytes: int) -> None:
        self._client, self._max_bytes = client, max_bytes
        self._left, self._pieces = max_bytes + max_bytes // 8 + _HEAD_BYTES, _PIECES + max_bytes // _PIECE_BYTES
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self.request = (self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        self.body = bytearray()

    def add(self, data: bytes) -> bool:
        """Returns whether the answer is complete with these bytes; none mean the end of the connection.

        Raises FetchError or h11.ProtocolError.
        """
        if not data and self._http.their_state is h11.SEND_RESPONSE:
            raise FetchError("the connection was closed without an answer")
        self._left, self._pieces = self._left - len(data), self._pieces - 1
        self._http.receive_data(data)
        while (event := self._http.next_event()) is not h11.NEED_DATA:
            self._pieces -= 1
            match event:
                case h11.EndOfMessage():
                    return True
                case h11.Response() if event.status_code != 200:
                    raise UnusableError(f"has the HTTP status {event.status_code}", event.status_code)
                case h11.Data():
                    self._take(event.data)
            if self._pieces < 0:
                break
        if self._left < 0 or self._pieces < 0:
            raise UnusableError("comes in too many small pieces")
        return False

    def _take(self, data: bytes) -> None:
        client = self._client
        if len(self.body) + len(data) > self._max_bytes:
            raise UnusableError(f"is larger than {self._max_bytes >> 10} KiB")
        if not client.bodies.may_take(client.namespace, len(data)):
            raise UnusableError("has no room: other answers of this namespace use its share of the operator's memory")
        client.bodies.take(client.namespace, len(data))
        self.body += data

    def close(self) -> None:
        """Gives the memory back."""
        self._client.bodies.give_back(self._client.namespace, len(self.body))


Get = Callable[[str, Mapping[str, str]], bytes]
"""Returns the body at a URL; the second argument are additional headers. Raises FetchError."""


def blocking(client: HttpClient, limits: Limits) -> Get:
    """Returns a blocking GET for other threads. The running event loop does the work."""
    loop = asyncio.get_running_loop()

    async def answer(url: str, headers: Mapping[str, str]) -> bytes | FetchError:
        # An error that is raised after the thread has given up would be logged as one that nobody has seen.
        try:
            return await fetch(client, "GET", url, limits, headers)
        except FetchError as error:
            return error

    def get(url: str, headers: Mapping[str, str]) -> bytes:
        future = asyncio.run_coroutine_threadsafe(answer(url, headers), loop)
        try:
            body = future.result(limits.total_seconds + 1)
        except TimeoutError:
            future.cancel()
            raise FetchError(f"no complete answer within {limits.total_seconds:g} s") from None
        if isinstance(body, FetchError):
            raise body
        return body

    return get
