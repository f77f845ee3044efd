"""/healthz, /readyz and /metrics.

The server is small on purpose. A web framework waits for slow clients when it ends, and limits neither the number of
its connections nor how long one may say nothing.
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
"""What is wrong, in words; "" where nothing is."""
_CONNECTIONS = 32
"""Open at a time, at most. The oldest is closed for a new one, so that idle clients don't keep the kubelet out."""
_SECONDS = 10.0
"""For one connection, from its first byte to its last."""
_REQUEST_BYTES = 16_384
_TEXT = "text/plain; charset=utf-8"
_log = logging.getLogger(__name__)


class Server:
    """Answers until it is closed. That the loop answers at all is part of the check."""

    def __init__(self, healthy: Check, ready: Check, registry: CollectorRegistry) -> None:
        self._checks, self._registry = {"/healthz": healthy, "/readyz": ready}, registry
        self._open: dict[_Connection, None] = {}
        self._listener: asyncio.Server | None = None

    async def listen(self, port: int) -> None:
        self._listener = await asyncio.get_running_loop().create_server(lambda: _Connection(self), port=port)

    def close(self) -> None:
        """Waits for no client."""
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
        """The whole answer to the head of a request."""
        try:
            method, target, _ = request.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        except ValueError:
            return _answer(HTTPStatus.BAD_REQUEST, b"not an HTTP request")
        if method not in ("GET", "HEAD"):
            return _answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD are answered")
        try:
            found = self._look(target.partition("?")[0])
        except Exception:
            _log.exception("%s could not be answered", target)
            found = _answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the log")
        return found if method == "GET" else found.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"

    def _look(self, path: str) -> bytes:
        if path == "/metrics":
            return _answer(HTTPStatus.OK, generate_latest(self._registry), CONTENT_TYPE_LATEST)
        if path not in self._checks:
            return _answer(HTTPStatus.NOT_FOUND, b"there are /healthz, /readyz and /metrics")
        wrong = self._checks[path]()
        return _answer(HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK, (wrong or "ok").encode())


class _Connection(asyncio.Protocol):
    """One request and its answer. It is no task: at its end kopf would wait for it."""

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
            # Once all is written; `abort` comes before that where the client doesn't read.
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
