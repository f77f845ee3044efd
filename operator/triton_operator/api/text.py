"""Text of strangers: of servers, components and model images."""

from __future__ import annotations


def one_line(text: str) -> str:
    """`text` as one line that a terminal shows as it is. Each line break and each other space but U+0020 becomes a
    space, and each other character that isn't printable a `?`: control characters, of which escape sequences are made;
    overrides of the writing direction; halves of surrogate pairs. The length stays the same."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)
