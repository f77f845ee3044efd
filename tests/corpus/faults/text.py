"""Texts that protobuf's Python parser accepts, but Triton's doesn't."""

from __future__ import annotations

from corpus.faults.fault import Fault
from support.mutations import Change, add, edit

SLOW = "slow/config.pbtxt"


def size(text: str) -> Change:
    return edit(SLOW, "max_batch_size: 8", f"max_batch_size: {text}")


FAULTS = (
    Fault("number with a plus", "cache", size("+8"), "TR101", "error", "slow/config.pbtxt:2"),
    Fault("binary number", "cache", size("0b1000"), "TR101", "error", "slow/config.pbtxt:2"),
    Fault("octal number of Python", "cache", size("0o10"), "TR101", "error", "slow/config.pbtxt:2"),
    Fault("number with an underscore", "cache", size("1_0"), "TR101", "error", "slow/config.pbtxt:2"),
    Fault("full-width digit", "cache", size("８"), "TR101", "error", "slow/config.pbtxt:2"),
    Fault("space that doesn't break", "cache", size("\u00a08"), "TR101", "error", "slow/config.pbtxt:2"),
    Fault(
        "line separator of Unicode",
        "cache",
        edit(SLOW, "\noutput", "\u2028output"),
        "TR101",
        "error",
        "slow/config.pbtxt:5",
    ),
    Fault("file separator", "cache", edit(SLOW, "\noutput", "\x1coutput"), "TR101", "error", "slow/config.pbtxt:5"),
    Fault("zero in a comment", "cache", add(SLOW, "# a\0b\n"), "TR101", "error", "slow/config.pbtxt:11"),
    Fault(
        "escape of Python",
        "cache",
        edit(SLOW, '"python"', '"p\\N{LATIN SMALL LETTER Y}thon"'),
        "TR101",
        "error",
        "slow/config.pbtxt:1",
    ),
    Fault(
        "escape that nobody knows",
        "cache",
        edit(SLOW, '"python"', '"\\python"'),
        "TR101",
        "error",
        "slow/config.pbtxt:1",
    ),
)
