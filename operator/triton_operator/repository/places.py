"""Where in a config.pbtxt a value was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Place = Callable[[int], tuple[int, int]]
"""Gives the line and column of an offset."""


class Row:
    """The values of a field, in the order of the text. A long list of numbers is kept as its text: the place of one is
    found when somebody asks for it."""

    __slots__ = ("_nodes", "_texts")

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._texts: list[tuple[str, int, int, int, Place]] = []

    def append(self, node: Node) -> None:
        """Add one value."""
        if self._texts:
            self._unfold()
        self._nodes.append(node)

    def add_text(self, text: str, start: int, end: int, count: int, place: Place) -> None:
        """Add `count` numbers, which stand between two offsets with a comma after each but the last."""
        if self._nodes or self._texts:
            self._unfold()
            self._nodes += _nodes(text, start, end, place)
        else:
            self._texts.append((text, start, end, count, place))

    def __len__(self) -> int:
        return self._texts[0][3] if self._texts else len(self._nodes)

    def __getitem__(self, index: int) -> Node:
        self._unfold()
        return self._nodes[index]

    def __iter__(self) -> Iterator[Node]:
        self._unfold()
        return iter(self._nodes)

    def _unfold(self) -> None:
        for text, start, end, _, place in self._texts:
            self._nodes += _nodes(text, start, end, place)
        self._texts.clear()


def _nodes(text: str, start: int, end: int, place: Place) -> Iterator[Node]:
    at = start
    for part in text[start:end].split(","):
        lead = len(part) - len(part.lstrip())
        yield Node(*place(at + lead), part.strip())
        at += len(part) + 1


@dataclass(slots=True)
class Node:
    """A value and its place. `fields` maps a field's name to its values in the order of the text."""

    line: int
    column: int
    text: str = ""
    """The scalar as text, strings decoded; empty for a message."""
    fields: dict[str, Row] = field(default_factory=dict)

    def find(self, *path: str | int) -> Node:
        """The node at `path`, or the nearest one above it that was written.

        A path alternates field names with positions: `find("input", 0, "dims", 2)`. After a map's name comes a key:
        `find("output_map", "OUT")`. A name alone means the first value.
        """
        node = self
        steps = list(path)
        while steps:
            values: Row | tuple[()] = node.fields.get(str(steps.pop(0)), ())
            wanted = steps[0] if steps else 0
            if isinstance(wanted, int):
                if steps:
                    steps.pop(0)
                chosen = values[wanted] if wanted < len(values) else None
            else:
                keyed = (v for v in values if any(k.text == wanted for k in v.fields.get("key", ())))
                chosen = next(keyed, None)
                if chosen is not None:
                    steps.pop(0)
                elif values and steps[0] in values[0].fields:
                    chosen = values[0]
            if chosen is None:
                return node
            node = chosen
        return node


def written(message: Any, node: Node) -> Iterator[tuple[Any, Any, Node]]:
    """Each field that the text sets: its descriptor, its value, and its place. `node` is where `message` was written;
    maps are told without what is in them, and of a list of numbers the first alone."""
    for known in message.DESCRIPTOR.fields:
        found = node.fields.get(known.name)
        if not found:
            continue
        value = getattr(message, known.name)
        is_map = known.message_type is not None and known.message_type.GetOptions().map_entry
        if known.is_repeated and known.message_type is None and known.enum_type is None:
            yield known, value[0], found[0]
            continue
        values = [value] * len(found) if is_map or not known.is_repeated else list(value)
        for one, place in zip(values, found, strict=False):
            yield known, one, place
            if known.message_type is not None and not is_map:
                yield from written(one, place)
