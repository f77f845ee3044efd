"""Tables as lines of text."""

from __future__ import annotations


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Returns the lines of a table with aligned columns, indented by two."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]]
