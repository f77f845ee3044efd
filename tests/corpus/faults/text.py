"""Texts that protobuf's Python parser accepts, but Triton's doesn't."""

from __future__ import annotations

from corpus.faults.fault import Fault
from support.mutations import Change, add, edit

SLOW = "slow/config.pbtxt"


def size(text: str) -> Change:
    return edit(SLOW, "max_batch_size: 8", f"max_batch_size: {text}")


FAULTS = (
    Fault("number with a plus sign", "cache", size("+8"), "TR101", "error", "slow/config.pbtxt:2"),
    Fault("binary number", "cache", size("0b1000"), "TR101", "error", "slow/config.pbtxt:2"),
    Fault("octal number in Python's notation", "cache", size("0o10"), "TR101", "error", "slow/config.pbtxt:2"),
    Fault("number with an underscore", "cache", size("1_0"), "TR101", "error", "slow/config.pbtxt:2"),
    Fault("full-width digit", "cache", size("８"), "TR101", "error", "slow/config.pbtxt:2"),
    Fault("non-breaking space", "cache", size("\u00a08"), "TR101", "error", "slow/config.pbtxt:2"),
    Fault(
        "Unicode line separator",
        "cache",
        edit(SLOW, "\noutput", "\u2028output"),
        "TR101",
        "error",
        "slow/config.pbtxt:5",
    ),
    Fault(
        "file separator character",
        "cache",
        edit(SLOW, "\noutput", "\x1coutput"),
        "TR101",
        "error",
        "slow/config.pbtxt:5",
    ),
    Fault("NUL character in a comment", "cache", add(SLOW, "# a\0b\n"), "TR101", "error", "slow/config.pbtxt:11"),
    Fault(
        "escape sequence of Python",
        "cache",
        edit(SLOW, '"python"', '"p\\N{LATIN SMALL LETTER Y}thon"'),
        "TR101",
        "error",
        "slow/config.pbtxt:1",
    ),
    Fault(
        "unknown escape sequence",
        "cache",
        edit(SLOW, '"python"', '"\\python"'),
        "TR101",
        "error",
        "slow/config.pbtxt:1",
    ),
)
