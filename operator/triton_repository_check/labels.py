"""Reads label files as Triton does: it splits the bytes at line feeds, and copies each line into the answers."""

from __future__ import annotations

from triton_repository_check.model import Labels
from triton_repository_check.text import is_utf_16

_AS_UTF_8 = "save the file as UTF-8 without a byte order mark"


def read(content: bytes, *, whole: bool) -> Labels:
    """Returns the labels of a file. `whole`: whether `content` is all of it."""
    count = content.count(b"\n") + (not content.endswith(b"\n") and content != b"") if whole else None
    if is_utf_16(content):
        return Labels(count, "the file is UTF-16, so that answers have the bytes of a label up to the first null byte",
                      _AS_UTF_8)  # fmt: skip
    if content.startswith(b"\xef\xbb\xbf"):
        return Labels(count, "the file begins with a byte order mark, which is part of the first label in answers",
                      _AS_UTF_8)  # fmt: skip
    if (line := _not_utf_8(content, whole)) is not None:
        return Labels(count, f"line {line} isn't UTF-8, so that an answer in JSON with this label can't be read",
                      _AS_UTF_8)  # fmt: skip
    if b"\r\n" in content:
        return Labels(count, "the lines end with CRLF, so that each label ends with a carriage return",
                      "save the file with the line ends of Unix, e.g. with dos2unix")  # fmt: skip
    return Labels(count)


def _not_utf_8(content: bytes, whole: bool) -> int | None:
    """Returns the number of the first line that isn't UTF-8; None if all are."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        is_cut = not whole and error.reason == "unexpected end of data"
        return None if is_cut else content.count(b"\n", 0, error.start) + 1
    return None
