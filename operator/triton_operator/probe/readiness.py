"""Asks Triton whether it is ready, after its readiness probe has failed."""

from __future__ import annotations

from .fetch import FetchError, HttpClient, Limits, UnusableError, fetch

LIMITS = Limits(connect_seconds=1.0, total_seconds=2.0, body_bytes=64 << 10)
"""Since 26.03 Triton waits 5 s for a process that hangs, and then says that the model isn't ready."""
_NOT_READY = (400, 404)
"""It is loaded and says no, or it isn't loaded; older versions say 400 for both."""


async def says_not_ready(client: HttpClient, address: str, path: str) -> bool:
    """Returns whether the server at `address` (host:port) says at once that it isn't ready.

    Then a model is being loaded, or its `is_ready` says no, and no request has failed. `path`: that of the readiness.
    """
    try:
        await fetch(client, "GET", f"http://{address}{path}", LIMITS)
    except UnusableError as error:
        return error.status in _NOT_READY
    except FetchError:
        pass
    return False
