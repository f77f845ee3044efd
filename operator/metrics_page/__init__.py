"""Serves a page of metrics from a container of a server's pod. Its clients are strangers."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app


class _Handler(WSGIRequestHandler):
    """Answers one request, or closes the connection in the middle of it.

    - `seconds`: the longest time of a connection.
    """

    seconds: float

    def handle(self) -> None:
        timer = threading.Timer(self.seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            super().handle()
        except OSError:
            self.close_connection = True
        finally:
            timer.cancel()

    def finish(self) -> None:
        # The client may be gone.
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: there is a request every few seconds."""

    def _end(self) -> None:
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class _OnIPv6(WSGIServer):
    """Listens on all addresses, also those of IPv4."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def serve(port: int, registry: CollectorRegistry, *, seconds: float = 5.0) -> WSGIServer:
    """Serves the page in a thread, on all addresses of the pod, whose node may have no IPv6. Raises OSError.

    One connection at a time, each for at most `seconds`: many of them delay the page, and take neither memory nor
    threads.
    """
    app, handler = make_wsgi_app(registry), type("Handler", (_Handler,), {"seconds": seconds})
    server: WSGIServer
    try:
        server = make_server("::", port, app, _OnIPv6, handler)
    except OSError:
        server = make_server("0.0.0.0", port, app, WSGIServer, handler)  # noqa: S104
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
