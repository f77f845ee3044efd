"""The positions of values in a config.pbtxt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Place = Callable[[int], tuple[int, int]]
"""Returns the line and column of an offset."""


class Row:
    """The values of a field, in the order of the text.

    Keeps a list of numbers or words as text, and finds their positions only on access.
    """

    __slots__ = ("_nodes", "_text")

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._text: tuple[str, int, int, Place] | None = None

    def append(self, node: Node) -> None:
        """Adds one value."""
        if self._text is not None:
            self._unfold()
        self._nodes.append(node)

    def add_text(self, text: str, start: int, count: int, place: Place) -> None:
        """Adds the `count` numbers or words in `text`, separated by commas. `start` is the offset of `text`."""
        if self._nodes or self._text is not None:
            self._unfold()
            self._nodes += _nodes(text, start, place)
        else:
            self._text = text, start, count, place

    def __len__(self) -> int:
        return self._text[2] if self._text is not None else len(self._nodes)

    def __getitem__(self, index: int) -> Node:
        self._unfold()
        return self._nodes[index]

    def __iter__(self) -> Iterator[Node]:
        self._unfold()
        return iter(self._nodes)

    def _unfold(self) -> None:
        if self._text is not None:
            text, start, _, place = self._text
            self._text = None
            self._nodes += _nodes(text, start, place)


def _nodes(text: str, start: int, place: Place) -> Iterator[Node]:
    at = start
    for part in text.split(","):
        lead = len(part) - len(part.lstrip())
        yield Node(*place(at + lead), "".join(part.split()), NO_FIELDS)
        at += len(part) + 1


NO_FIELDS: dict[str, Row] = {}
"""The fields of every scalar. Never written to: a new dict for each takes a fifth of the time of parsing."""


@dataclass(slots=True)
class Node:
    """A value and its position. `fields` maps a field's name to its values in the order of the text."""

    line: int
    column: int
    text: str = ""
    """The scalar as text, with decoded strings; empty for a message."""
    fields: dict[str, Row] = field(default_factory=dict)

    def find(self, *path: str | int) -> Node:
        """Returns the node at `path`, or its nearest ancestor that the text contains.

        A path alternates field names and indexes: `find("input", 0, "dims", 2)`. For a map, use a key as the index:
        `find("output_map", "OUT")`. A name without an index means the first value.
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
    """Returns the descriptor, the value and the position of each field that the text sets.

    `node` is the position of `message`. Leaves out the content of maps, and all but the first number of a list.
    """
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
