"""Errors of the API server."""

from __future__ import annotations

import orjson

MESSAGE_MAX = 4096
"""Characters of an error message. The API server may quote the request in it."""
_LASTING = (
    # apimachinery's managedfields uses code 500 if a body doesn't match the schema or types of the kind.
    "failed to create typed patch object",
    "failed to convert new object",
    # etcd's limits.
    "etcdserver: request is too large",
    "trying to send message larger than max",
)
"""Parts of the messages of errors with code 500 that no retry can fix."""


class ApiError(Exception):
    """An error from the API server. `code` is the HTTP status; 0 if there was no answer.

    `retry_after`: the seconds that a busy API server asks to wait.
    """

    def __init__(self, code: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after

    @property
    def transient(self) -> bool:
        """Returns whether the same request may succeed later without any change."""
        return self.unanswered or (self.code >= 500 and not any(w in self.message for w in _LASTING))

    @property
    def unanswered(self) -> bool:
        """Returns whether there is no answer, or the API server asks to wait, so that other requests would fail too."""
        return self.code in (0, 408, 429)


def no_answer(error: Exception) -> ApiError:
    """Returns the error of a request without an answer."""
    return ApiError(0, "NoAnswer", f"no answer from the API server: {error}")


def garbled(what: str) -> ApiError:
    """Returns the error of an answer that can't be read."""
    return ApiError(0, "Garbled", what)


def refusal(code: int, data: bytes, retry_after: str = "") -> ApiError:
    """Returns the error in an answer. `data`: its body; `retry_after`: its header Retry-After."""
    wait = float(retry_after[:9]) if retry_after.isascii() and retry_after.isdigit() else 0.0
    try:
        status = orjson.loads(data)
        return ApiError(code, status.get("reason", ""), status.get("message", "")[:MESSAGE_MAX], wait)
    except (ValueError, AttributeError):
        return ApiError(code, "", data[:500].decode(errors="replace"), wait)
