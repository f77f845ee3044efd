"""/healthz and /readyz on one port, and /metrics on another.

Uses a small server of its own. Web frameworks wait for slow clients during shutdown, and limit neither the number of
connections nor their idle time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from typing import cast

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import CollectorRegistry

Check = Callable[[], str]
"""Returns an error message, "" if there is no error."""
Page = Callable[[], bytes]
"""Returns a complete response."""
_CONNECTIONS = 32
"""Maximum number of open connections. See `Server.opened` for what a further one gets."""
_SECONDS = 10.0
"""Maximum duration of a connection."""
_REQUEST_BYTES = 16_384
_TEXT = "text/plain; charset=utf-8"
_log = logging.getLogger(__name__)


class Server:
    """An HTTP server with these pages, for the event loop in which `listen` is called."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._open: dict[_Connection, None] = {}  # the oldest first
        self._listener: asyncio.Server | None = None

    async def listen(self, port: int) -> None:
        self._listener = await asyncio.get_running_loop().create_server(lambda: _Connection(self), port=port)

    def close(self) -> None:
        """Closes all connections at once."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._open):
            connection.abort()

    def opened(self, connection: _Connection) -> bool:
        """Returns whether there is a place for the connection.

        When all places are taken, the oldest client that hasn't sent its request loses its place: an honest client
        sends it at once, so silent connections can't keep the kubelet or Prometheus out. A client that reads its
        response keeps its place.
        """
        if len(self._open) >= _CONNECTIONS:
            silent = next((c for c in self._open if not c.answered), None)
            if silent is None:
                return False
            silent.abort()
            self.closed(silent)
        self._open[connection] = None
        return True

    def closed(self, connection: _Connection) -> None:
        self._open.pop(connection, None)

    def answer(self, request: bytes) -> bytes:
        """Returns the complete response to a request head."""
        try:
            method, target, _ = request.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        except ValueError:
            return _answer(HTTPStatus.BAD_REQUEST, b"not an HTTP request")
        if method not in ("GET", "HEAD"):
            return _answer(HTTPStatus.METHOD_NOT_ALLOWED, b"use GET or HEAD")
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            return _answer(HTTPStatus.NOT_FOUND, f"not found; use {' or '.join(self._pages)}".encode())
        try:
            response = page()
        except Exception:
            _log.exception("could not answer %s", target)
            response = _answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the log")
        return response if method == "GET" else response.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


class _Connection(asyncio.Protocol):
    """One request and its response.

    `answered`: whether the request was complete, so that the response is on its way.
    """

    def __init__(self, server: Server) -> None:
        self.answered = False
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._end: asyncio.TimerHandle | None = None
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._server.opened(self):
            self._end = asyncio.get_running_loop().call_later(_SECONDS, self.abort)
        else:
            self.abort()

    def connection_lost(self, _: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        self._server.closed(self)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._request += data
        too_long = len(self._request) > _REQUEST_BYTES
        if too_long or b"\r\n\r\n" in self._request:
            self.answered = True
            self._transport.write(self._server.answer(b"" if too_long else self._request))
            # Closes when everything is written. If the client doesn't read, the timer aborts the connection.
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def serve_probes(port: int, healthy: Check, ready: Check) -> Server:
    """Serves the kubelet's probes in this event loop, so that a blocked loop fails them, until the server is closed."""

    def page(check: Check) -> Page:
        def response() -> bytes:
            error = check()
            return _answer(HTTPStatus.SERVICE_UNAVAILABLE if error else HTTPStatus.OK, (error or "ok").encode())

        return response

    server = Server({"/healthz": page(healthy), "/readyz": page(ready)})
    await server.listen(port)
    return server


def serve_metrics(port: int, registry: CollectorRegistry, seconds: float) -> Callable[[], None]:
    """Serves the metrics in a thread of its own, so that no request delays the event loop that renews the Lease.

    Renders the page at most once every `seconds`. Returns a function that ends the server. Raises OSError if the port
    isn't free.
    """
    ended = asyncio.Event()
    future: Future[asyncio.AbstractEventLoop] = Future()

    async def run() -> None:
        server = Server({"/metrics": _Metrics(registry, seconds)})
        try:
            await server.listen(port)
        except OSError as error:
            future.set_exception(error)
            return
        future.set_result(asyncio.get_running_loop())
        await ended.wait()
        server.close()

    threading.Thread(target=lambda: asyncio.run(run()), name="metrics", daemon=True).start()
    loop = future.result()

    def end() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(ended.set)

    return end


class _Metrics:
    """The response with all metrics."""

    def __init__(self, registry: CollectorRegistry, seconds: float) -> None:
        self._registry, self._seconds = registry, seconds
        self._response, self._at = b"", float("-inf")

    def __call__(self) -> bytes:
        if time.monotonic() - self._at >= self._seconds:
            self._response = _answer(HTTPStatus.OK, generate_latest(self._registry), CONTENT_TYPE_LATEST)
            self._at = time.monotonic()
        return self._response


def _answer(status: HTTPStatus, body: bytes, content_type: str = _TEXT) -> bytes:
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
