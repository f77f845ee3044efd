"""Log records stay on one line, even if a message contains line breaks or control characters."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from triton_operator.runtime import logs

FORGED = "2026-01-01 00:00:00,000 INFO    forged: all is well"
HOSTILE = f"said \x1b[2J\x1b]0;title\x07\r\x9b31m \u202etxet\n{FORGED}\x0b{FORGED}\u2028{FORGED}\x85"


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root, kopf, access = (logging.getLogger(name) for name in (None, "kopf", "aiohttp.access"))
    before = root.handlers[:], root.level, kopf.level, access.level
    yield
    root.handlers[:] = before[0]
    for logger, level in zip((root, kopf, access), before[1:], strict=True):
        logger.setLevel(level)


def written(form: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Returns the log of one message and one exception."""
    logs.configure(form, "INFO")
    logging.getLogger("operator").warning("a server %s", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("operator").exception("the pass failed: %s", HOSTILE)
    return capsys.readouterr().err


def test_plain_record_is_one_line_followed_by_an_indented_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    text = written("plain", capsys)
    assert all(line.isprintable() for line in text.split("\n"))
    lines = text.split("\n")
    records = [line for line in lines if line and not line.startswith("    ")]
    assert [line.split()[2:4] for line in records] == [["WARNING", "operator:"], ["ERROR", "operator:"]]
    assert any("ValueError: said" in line for line in lines)
    assert not any(line.startswith(FORGED) for line in lines)


def test_json_record_is_one_line_of_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    text = written("json", capsys)
    assert text.isascii()
    assert all(line.isprintable() for line in text.split("\n"))
    first, second = map(json.loads, text.splitlines())
    assert first["message"] == f"a server {HOSTILE}"
    assert "ValueError: said" in second["exc_info"]
