"""HTTP requests with limits, for servers that may be slow, broken or hostile."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import aiohttp

_NEXT_ADDRESS_SECONDS = 0.25
"""After this time without a connection to the first address of a name, the next one is tried beside it."""
_READ_BYTES = 64 << 10


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


def session() -> aiohttp.ClientSession:
    """Returns a session that uses no proxy, keeps no connection and no cookie, and decompresses nothing."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True, use_dns_cache=False),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity"},
        auto_decompress=False,
        trust_env=False,
        read_bufsize=32 << 10,
    )


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


async def fetch(
    client: aiohttp.ClientSession, method: str, url: str, limits: Limits, headers: Mapping[str, str] | None = None
) -> bytes:
    """Returns the body of an answer with status 200. Follows no redirect. Raises FetchError."""
    timeout = aiohttp.ClientTimeout(total=limits.total_seconds, connect=limits.connect_seconds)
    body = bytearray()
    try:
        # aiohttp's own timeout isn't enough, because each interim response (100 Continue) restarts it.
        async with asyncio.timeout(limits.total_seconds):
            async with client.request(method, url, allow_redirects=False, timeout=timeout, headers=headers) as response:
                if response.status != 200:
                    raise UnusableError(f"has the HTTP status {response.status}", response.status)
                async for part in response.content.iter_any():
                    body += part
                    if len(body) > limits.body_bytes:
                        raise UnusableError(f"is larger than {limits.body_bytes >> 10} KiB")
    except TimeoutError:
        raise FetchError(f"no complete answer within {limits.total_seconds:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise FetchError(str(error)[:300] or type(error).__name__) from None
    return bytes(body)


Get = Callable[[str, Mapping[str, str]], bytes]
"""Returns the body at a URL; the second argument are additional headers. Raises FetchError."""


def blocking(client: aiohttp.ClientSession, limits: Limits) -> Get:
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
