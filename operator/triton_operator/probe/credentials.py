"""The credentials for the Prometheus of the settings, from the files of a mounted Secret."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path

from .fetch import FetchError

Headers = Callable[[str], Mapping[str, str]]
"""Returns the additional headers of a request to a Prometheus, by its URL. Raises FetchError."""


def headers(url: str, directory: str) -> Headers:
    """Returns the credentials for the Prometheus at `url` only: others may belong to a tenant.

    `directory` has the file `token`, or the files `username` and `password`. They are read for each request, because
    Kubernetes replaces them when the Secret changes.
    """

    def of(target: str) -> Mapping[str, str]:
        if not directory or target != url.rstrip("/"):
            return {}
        folder = Path(directory)
        try:
            if (token := folder / "token").exists():
                return {"Authorization": f"Bearer {_text(token)}"}
            pair = f"{_text(folder / 'username')}:{_text(folder / 'password')}"
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise FetchError(
                f"the files token, or username and password, in PROMETHEUS_CREDENTIALS can't be read: {why}"
            ) from None
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    return of


def _text(file: Path) -> str:
    """Returns the content without the newline that editors and `kubectl create secret` leave at the end."""
    return file.read_text().rstrip("\r\n")
