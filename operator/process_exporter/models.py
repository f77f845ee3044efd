"""Reads from Triton's metrics which models a server has loaded."""

from __future__ import annotations

import contextlib
import http.client
import time

from .server_memory import Models

_METRIC = b"nv_inference_request_success{"
"""Triton has this counter from the time at which a model is loaded until it is unloaded."""
_SECONDS = 3.0
_MAX_BYTES = 8 << 20
_PART = 1 << 16


def loaded(port: int) -> Models | None:
    """Returns the models of the server on this port of the pod; None if it doesn't answer, e.g. while it loads them.

    A server is the code of a tenant, so an answer has limits of size and time.
    """
    page, end = bytearray(), time.monotonic() + _SECONDS
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            while part := answer.read1(_PART):
                page += part
                if len(page) > _MAX_BYTES or time.monotonic() > end:
                    return None
        except (OSError, http.client.HTTPException):
            return None
    # `read1` doesn't tell that the end is missing.
    if answer.status != http.client.OK or answer.getheader("Content-Length", str(len(page))) != str(len(page)):
        return None
    return frozenset(line.rpartition(b" ")[0] for line in bytes(page).splitlines() if line.startswith(_METRIC))
