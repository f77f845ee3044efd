"""/healthz, /readyz and /metrics.

Uses a small server of its own. Web frameworks wait for slow clients during shutdown, and limit neither the number of
connections nor their idle time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import CollectorRegistry

Check = Callable[[], str]
"""Returns an error message, "" if there is no error."""
_CONNECTIONS = 32
"""Maximum number of open connections. A new one closes the oldest, so that idle clients can't block the kubelet."""
_SECONDS = 10.0
"""Maximum duration of a connection."""
_REQUEST_BYTES = 16_384
_TEXT = "text/plain; charset=utf-8"
_log = logging.getLogger(__name__)


class Server:
    """An HTTP server. It runs in the main event loop, so a blocked loop fails the liveness probe too."""

    def __init__(self, healthy: Check, ready: Check, registry: CollectorRegistry) -> None:
        self._checks, self._registry = {"/healthz": healthy, "/readyz": ready}, registry
        self._open: dict[_Connection, None] = {}
        self._listener: asyncio.Server | None = None

    async def listen(self, port: int) -> None:
        self._listener = await asyncio.get_running_loop().create_server(lambda: _Connection(self), port=port)

    def close(self) -> None:
        """Closes all connections at once."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._open):
            connection.abort()

    def opened(self, connection: _Connection) -> None:
        self._open[connection] = None
        if len(self._open) > _CONNECTIONS:
            oldest = next(iter(self._open))
            self.closed(oldest)
            oldest.abort()

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
        try:
            found = self._check(target.partition("?")[0])
        except Exception:
            _log.exception("could not answer %s", target)
            found = _answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the log")
        return found if method == "GET" else found.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"

    def _check(self, path: str) -> bytes:
        if path == "/metrics":
            return _answer(HTTPStatus.OK, generate_latest(self._registry), CONTENT_TYPE_LATEST)
        if path not in self._checks:
            return _answer(HTTPStatus.NOT_FOUND, b"not found; use /healthz, /readyz or /metrics")
        wrong = self._checks[path]()
        return _answer(HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK, (wrong or "ok").encode())


class _Connection(asyncio.Protocol):
    """One request and its response. Uses no task, because kopf waits for tasks when it ends."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._end: asyncio.TimerHandle | None = None
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._end = asyncio.get_running_loop().call_later(_SECONDS, self.abort)
        self._server.opened(self)

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
            self._transport.write(self._server.answer(b"" if too_long else self._request))
            # Closes when everything is written. If the client doesn't read, the timer aborts the connection.
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def serve(port: int, healthy: Check, ready: Check, registry: CollectorRegistry) -> Server:
    """Serves until the returned server is closed."""
    server = Server(healthy, ready, registry)
    await server.listen(port)
    return server


def _answer(status: HTTPStatus, body: bytes, content_type: str = _TEXT) -> bytes:
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
