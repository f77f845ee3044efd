"""The positions of values in a config.pbtxt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Place = Callable[[int], tuple[int, int]]
"""Returns the line and column of an offset."""


class TextRow(Sequence["Node"]):
    """The values of a list of numbers or words. Keeps them as text, and finds their positions only on access."""

    __slots__ = ("_count", "_nodes", "_place", "_start", "_text")

    def __init__(self, text: str, start: int, count: int, place: Place) -> None:
        """`text` has `count` values, separated by commas. `start` is its offset."""
        self._text, self._start, self._count, self._place = text, start, count, place
        self._nodes: list[Node] | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if self._nodes is None:
            self._nodes = list(self._split())
        return self._nodes[index]

    def _split(self) -> Iterator[Node]:
        at = self._start
        for part in self._text.split(","):
            lead = len(part) - len(part.lstrip())
            yield Node(at + lead, self._place, "".join(part.split()), NO_FIELDS)
            at += len(part) + 1


NO_FIELDS: dict[str, Sequence[Node]] = {}
"""The fields of every scalar. Never written to: a new dict for each takes a fifth of the time of parsing."""


class Node:
    """A value and its position.

    - `at`: the offset in the text, from which `place` finds line and column. Few positions are ever read.
    - `text`: the scalar as text, with decoded strings; empty for a message.
    - `fields`: the values of each field by its name, in the order of the text.
    """

    __slots__ = ("at", "fields", "place", "text")

    def __init__(self, at: int, place: Place, text: str = "", fields: dict[str, Sequence[Node]] | None = None) -> None:
        self.at, self.place, self.text = at, place, text
        self.fields: dict[str, Sequence[Node]] = {} if fields is None else fields

    @property
    def line(self) -> int:
        """The line, from 1."""
        return self.place(self.at)[0]

    @property
    def column(self) -> int:
        """The column, from 1."""
        return self.place(self.at)[1]

    def add(self, name: str, value: Node) -> None:
        """Adds a value of the field `name`."""
        held = self.fields.get(name)
        if held is None:
            self.fields[name] = [value]
        elif isinstance(held, list):
            held.append(value)
        else:
            self.fields[name] = [*held, value]

    def add_row(self, name: str, row: TextRow) -> None:
        """Adds the values in `row` to the field `name`."""
        held = self.fields.get(name)
        self.fields[name] = [*held, *row] if held else row

    def find(self, *path: str | int) -> Node:
        """Returns the node at `path`, or its nearest ancestor that the text contains.

        A path alternates field names and indexes: `find("input", 0, "dims", 2)`. For a map, use a key as the index:
        `find("output_map", "OUT")`. A name without an index means the first value.
        """
        node = self
        steps = list(path)
        while steps:
            values: Sequence[Node] = node.fields.get(str(steps.pop(0)), ())
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


def at(line: int, column: int) -> Node:
    """Returns a node at a known position."""
    return Node(0, lambda _: (line, column))


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
