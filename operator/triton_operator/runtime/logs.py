"""Logging: one JSON object per line, with the TritonModel's key and generation if it has one; or plain text."""

from __future__ import annotations

import logging
import sys
from types import TracebackType

from pythonjsonlogger.json import JsonFormatter

from triton_repository_check.text import one_line

_Error = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class _PlainFormatter(logging.Formatter):
    """Formats a record as one line, and its traceback as indented lines.

    So no text in a record can look like another record.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return one_line(super().formatMessage(record))

    def formatException(self, ei: _Error) -> str:  # noqa: N802
        return "\n".join(f"    {one_line(line)}" for line in super().formatException(ei).splitlines())


def configure(form: str, level: str) -> None:
    """Sends all logs to stderr; `form` is json or plain."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(
            JsonFormatter(
                "{levelname}{name}{message}",
                style="{",
                rename_fields={"levelname": "level", "name": "logger"},
                timestamp="time",
            )
        )
    else:
        handler.setFormatter(_PlainFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # kopf logs every event, each retry of a request, and an error that ends it several times. ModelWatch logs it once.
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
