"""Where in a config.pbtxt a value was written: the parser of protobuf for Python keeps no places."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\n\f\v]+|\#[^\n]*)
      |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      |(?P<word>[-+.\w]+)
      |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_OPEN = {"{": "}", "<": ">"}


@dataclass(slots=True)
class Node:
    """A value and its place. `fields` maps a field's name to its values in the order of the text."""

    line: int
    column: int
    text: str = ""
    """The scalar as text, strings decoded; empty for a message."""
    fields: dict[str, list[Node]] = field(default_factory=dict)

    def find(self, *path: str | int) -> Node:
        """The node at `path`, or the nearest one above it that was written.

        A path alternates field names with positions: `find("input", 0, "dims", 2)`. After a map's name comes a key:
        `find("output_map", "OUT")`. A name alone means the first value.
        """
        node = self
        steps = list(path)
        while steps:
            values = node.fields.get(str(steps.pop(0)), [])
            wanted = steps[0] if steps else 0
            if isinstance(wanted, int):
                if steps:
                    steps.pop(0)
                chosen = values[wanted] if wanted < len(values) else None
            else:
                keyed = (v for v in values if any(k.text == wanted for k in v.fields.get("key", [])))
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
    maps are told without what is in them."""
    for known in message.DESCRIPTOR.fields:
        found = node.fields.get(known.name, [])
        value = getattr(message, known.name)
        is_map = known.message_type is not None and known.message_type.GetOptions().map_entry
        values = [value] * len(found) if is_map or not known.is_repeated else list(value)
        for one, place in zip(values, found, strict=False):
            yield known, one, place
            if known.message_type is not None and not is_map:
                yield from written(one, place)


@dataclass(slots=True)
class _Token:
    kind: str
    text: str
    line: int
    column: int


def places(text: str) -> Node:
    """The tree of what `text` says, each node with its line and column (from 1). `text` must be valid text format:
    on other text the tree is of no use, yet it comes without an exception."""
    root = Node(1, 1)
    tokens = list(_tokens(text))
    tokens.reverse()  # popping from the end is cheap
    while tokens:
        _message(tokens, root, None)
    return root


def _tokens(text: str) -> Iterator[_Token]:
    line, start = 1, 0
    for match in _TOKEN.finditer(text):
        kind, piece = str(match.lastgroup), match.group()
        if kind != "skip":
            yield _Token(kind, piece, line, match.start() - start + 1)
        if "\n" in piece:
            line += piece.count("\n")
            start = match.start() + piece.rindex("\n") + 1


def _message(tokens: list[_Token], into: Node, end: str | None) -> None:
    while tokens:
        name = tokens.pop()
        if name.text == end:
            return
        if name.kind != "word":
            continue
        if tokens and tokens[-1].text == ":":
            tokens.pop()
        if tokens and tokens[-1].text == "[":
            tokens.pop()
            while tokens and tokens[-1].text != "]":
                if tokens[-1].text == ",":
                    tokens.pop()
                else:
                    into.fields.setdefault(name.text, []).append(_value(tokens, None))
            if tokens:
                tokens.pop()
        elif tokens:
            into.fields.setdefault(name.text, []).append(_value(tokens, name))


def _value(tokens: list[_Token], name: _Token | None) -> Node:
    token = tokens.pop()
    if token.text in _OPEN:
        # A message's place is where its field is named; in a list, its bracket.
        at = name or token
        node = Node(at.line, at.column)
        _message(tokens, node, _OPEN[token.text])
        return node
    text = _decoded(token)
    while token.kind == "string" and tokens and tokens[-1].kind == "string":
        text += _decoded(tokens.pop())
    return Node(token.line, token.column, text)


def _decoded(token: _Token) -> str:
    if token.kind != "string":
        return token.text
    try:
        return str(ast.literal_eval(token.text))
    except (SyntaxError, ValueError):
        return token.text[1:-1]
