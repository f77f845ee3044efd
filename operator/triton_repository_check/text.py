"""Untrusted text from servers, Kubernetes components and model images."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Returns `text` as one line of printable characters, with the same length.

    Line breaks and other white space become U+0020. Other characters that aren't printable become `?`: control
    characters (escape sequences), overrides of the writing direction, and halves of surrogate pairs.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def is_utf_16(content: bytes) -> bool:
    """Returns whether a text is UTF-16, which has a byte order mark or a null byte in each ASCII character."""
    return content.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in content[:2]
