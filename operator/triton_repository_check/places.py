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

    def within(self, file: str) -> tuple[str, int | None, int | None]:
        """Returns the place of the value for a finding: `file`, which has the text, with line and column."""
        return file, self.line, self.column

    def add(self, name: str, value: Node) -> None:
        """Adds a value of the field `name`."""
        values = self.fields.get(name)
        if values is None:
            self.fields[name] = [value]
        elif isinstance(values, list):
            values.append(value)
        else:
            self.fields[name] = [*values, value]

    def add_row(self, name: str, row: TextRow) -> None:
        """Adds the values in `row` to the field `name`."""
        values = self.fields.get(name)
        if isinstance(values, list) and values:
            values.extend(row)
        else:
            self.fields[name] = [*values, *row] if values else row

    def find(self, *path: str | int) -> Node:
        """Returns the node at `path`, or its nearest ancestor that the text contains.

        A path alternates field names and indexes: `find("input", 0, "dims", 2)`. For a map, use a key as the index:
        `find("output_map", "OUT")`. A name without an index means the first value.
        """
        node = self
        steps = list(path)
        while steps:
            values: Sequence[Node] = node.fields.get(str(steps.pop(0)), ())
            key = steps[0] if steps else 0
            if isinstance(key, int):
                if steps:
                    steps.pop(0)
                child = values[key] if key < len(values) else None
            else:
                entries = (v for v in values if any(k.text == key for k in v.fields.get("key", ())))
                child = next(entries, None)
                if child is not None:
                    steps.pop(0)
                elif values and steps[0] in values[0].fields:
                    child = values[0]
            if child is None:
                return node
            node = child
        return node


class SpecNode(Node):
    """A value in a TritonModel's spec. `spec` is its path there, such as spec.models[a].config.max_batch_size."""

    __slots__ = ("spec",)

    def __init__(self, spec: str, text: str = "") -> None:
        super().__init__(0, lambda _: (1, 1), text)
        self.spec = spec

    def within(self, file: str) -> tuple[str, int | None, int | None]:  # noqa: ARG002 - no file has it
        return self.spec, None, None


def strings(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Returns the fields' names above each scalar, and its position. Leaves out lists of numbers and words."""
    for name, values in node.fields.items():
        for value in () if isinstance(values, TextRow) else values:
            yield (*path, name), value
            yield from strings(value, (*path, name))


def at(line: int, column: int) -> Node:
    """Returns a node at a known position."""
    return Node(0, lambda _: (line, column))


def written(message: Any, node: Node) -> Iterator[tuple[Any, Any, Node]]:
    """Returns the descriptor, the value and the position of each field that the text sets.

    `node` is the position of `message`. Leaves out the content of maps, and all but the first number of a list.
    """
    for field in message.DESCRIPTOR.fields:
        nodes = node.fields.get(field.name)
        if not nodes:
            continue
        value = getattr(message, field.name)
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.is_repeated and field.message_type is None and field.enum_type is None:
            yield field, value[0], nodes[0]
            continue
        values = [value] * len(nodes) if is_map or not field.is_repeated else list(value)
        for item, place in zip(values, nodes, strict=False):
            yield field, item, place
            if field.message_type is not None and not is_map:
                yield from written(item, place)
