"""Parses config.pbtxt like Triton: protobuf's text format by the rules of its C++ parser.

Protobuf's Python parser accepts other texts: numbers with + or _, other escapes, other white space. It also records no
positions, and takes ten seconds for four megabytes. This parser reads a field with one regular expression.
"""

from __future__ import annotations

import gc
import re
from bisect import bisect_right
from functools import cached_property
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from triton_repository_check import remedies
from triton_repository_check.fields import EscapeError, Field, decoded, table
from triton_repository_check.places import NO_FIELDS, Node, TextRow
from triton_repository_check.schema import ModelConfig

_SPACE = r"(?:[ \t\r\n\f\v]++|\#[^\n]*+)*+"
_STRING = r"""(?:"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+')"""
_NUMBER = r"(?:0[xX][0-9a-fA-F]++|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fF]?)"
_WORD = r"[A-Za-z_][A-Za-z0-9_]*+"
_VALUE = rf"(?P<string>{_STRING})|(?P<minus>-?){_SPACE}(?:(?P<number>{_NUMBER})|(?P<word>{_WORD}))|(?P<open>[{{<\[])"
_NAMED = rf"(?:(?P<name>{_WORD}){_SPACE}(?P<colon>:?){_SPACE}(?:{_VALUE})?|(?P<mark>.))?"
_FIRST_FIELD = re.compile(_SPACE + _NAMED, re.DOTALL)
_FIELD = re.compile(rf"{_SPACE}(?:[,;]{_SPACE})?{_NAMED}", re.DOTALL)
_ITEM = re.compile(rf"{_SPACE}(?:{_VALUE}|(?P<mark>.))?", re.DOTALL)
_MORE = re.compile(rf"{_SPACE}(?P<string>{_STRING})")
_MARK = re.compile(rf"{_SPACE}(?P<mark>.?)", re.DOTALL)
_PLAIN = re.compile(r"[^\[\]{}<>\"'#]*+(?:#[^\n]*+[^\[\]{}<>\"'#]*+)*+\]")
"""Matches the rest of a list of numbers or words, with comments."""
_KEY = re.compile(r"""["']([^"'\\\n]*)["']""")
"""A map's key in quotes, as in JSON."""
_STARTS = re.compile(r"[\w\"'{<.-]")
"""The start of a value."""
_COMMENT = re.compile(r"#[^\n]*")
_BLANK = " \t\r\n\f\v"
_CLOSE = {"{": "}", "<": ">"}
_WORDS = {"true": True, "True": True, "t": True, "false": False, "False": False, "f": False}
_FLOATS = {"inf": "inf", "infinity": "inf", "nan": "nan"}

_F = FieldDescriptor
RANGES = {
    _F.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    _F.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    _F.CPPTYPE_UINT32: (0, 2**32 - 1),
    _F.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_NO_PLAIN = frozenset({_F.CPPTYPE_STRING, _F.CPPTYPE_MESSAGE})
_ENUM_RANGE = RANGES[_F.CPPTYPE_INT32]


MAX_VALUES = 260_000
"""Maximum number of values of a text, to limit the time. A list of numbers or words counts only its different ones.

Triton has no maximum. 4 MiB of a usual configuration have about 250,000.
"""


class TooManyValuesError(ValueError):
    """The text has more than MAX_VALUES values."""


class TextError(ValueError):
    """The text isn't a ModelConfig. `line` and `column` count from 1."""

    def __init__(self, message: str, line: int, column: int, remedy: str, unknown: bool = False) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.remedy = remedy
        """What to do."""
        self.unknown = unknown
        """Whether a field's name is unknown."""


def parse(text: str) -> tuple[Any, Node]:
    """Returns the ModelConfig in `text`, and the positions of its values. Raises TextError or TooManyValuesError."""
    config = ModelConfig()
    reader = _Reader(text)
    root = Node(0, reader.place)
    # The garbage collector would look at all nodes again and again, which takes half of the time of a large text.
    collects = gc.isenabled()
    gc.disable()
    try:
        reader.message(config, root, "")
    finally:
        if collects:
            gc.enable()
    return config, root


class _Reader:
    """A parser of one text. `at` is its position."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._left = MAX_VALUES
        self._plain_values: dict[int, dict[str, Any]] = {}
        """The values of numbers and words in lists, by the field's id and the text."""
        if (zero := text.find("\0")) >= 0:
            raise self.error("Invalid character: U+0000", zero)

    def message(self, into: Any, node: Node, end: str) -> None:
        """Reads fields into `into` up to the closing bracket `end`. An empty `end` is the text's end."""
        fields = table(into.DESCRIPTOR)
        names: dict[str, str] = {}
        text, match_field = self.text, _FIRST_FIELD.match
        while True:
            match = match_field(text, self.at)
            match_field = _FIELD.match
            assert match is not None  # noqa: S101 - the expression also matches empty text
            name = match["name"]
            if name is None:
                mark = match["mark"] or ""
                if mark != end:
                    error = self._unexpected(match.start("mark") if mark else len(text), end)
                    if (key := _KEY.match(text, match.start("mark"))) and into.DESCRIPTOR.GetOptions().map_entry:
                        error.remedy = remedies.of_entry(into.DESCRIPTOR, key[1])
                    raise error
                self.at = match.end()
                return
            self._count()
            field = fields.get(name)
            if field is None:
                raise self._no_field(into.DESCRIPTOR, name, match.start("name"))
            if not field.repeated:
                self._once(field, names, into, match.start("name"))
            bracket = match["open"]
            if not match["colon"] and (bracket is None or (bracket == "[" and field.kind != _F.CPPTYPE_MESSAGE)):
                where = self._next(match.end("name"))
                remedy = remedies.of_character(text, where) if text[where : where + 1] == "=" else ""
                remedy = remedy or remedies.of_name(field)
                raise self.error('Expected ":"', where, remedy)
            if bracket == "[":
                self._list(into, field, node, match.end())
            else:
                self._value(into, field, node, match, match.start("name"))

    def error(self, message: str, at: int, remedy: str = remedies.USUAL, unknown: bool = False) -> TextError:
        """Returns an error at the offset `at`."""
        line, column = self.place(at)
        return TextError(message, line, column, remedy, unknown)

    def _no_field(self, message: Descriptor, name: str, at: int) -> TextError:
        rest = self.text[at + len(name) : at + len(name) + 100]
        remedy = remedies.of_field(message, ModelConfig.DESCRIPTOR, name, rest)
        return self.error(f'Message type "{message.full_name}" has no field named "{name}"', at, remedy, unknown=True)

    def place(self, at: int) -> tuple[int, int]:
        """Returns the line and column of an offset."""
        line = bisect_right(self._lines, at)
        return line, at - self._lines[line - 1] + 1

    @cached_property
    def _lines(self) -> list[int]:
        """The offsets of the lines."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def _once(self, field: Field, names: dict[str, str], into: Any, at: int) -> None:
        """Raises TextError for the second value of a field that isn't repeated, or of a oneof."""
        if field.name in names:
            name = into.DESCRIPTOR.full_name
            raise self.error(f'Message type "{name}" should not have multiple "{field.name}" fields', at,
                             "keep one of them")  # fmt: skip
        names[field.name] = field.name
        if field.oneof:
            other = names.setdefault(f"{field.oneof} ", field.name)
            if other != field.name:
                raise self.error(f'Field "{field.name}" is specified along with field "{other}"', at,
                                 "keep one of them")  # fmt: skip

    def _list(self, into: Any, field: Field, node: Node, start: int) -> None:
        if not field.repeated:
            raise self.error(f'Field "{field.name}" takes one value, not a list', start - 1, "remove the brackets")
        if self._plain(into, field, node, start):
            return
        self.at = start
        closing = _MARK.match(self.text, start)
        if closing is not None and closing["mark"] == "]":
            self.at = closing.end()
            node.fields.setdefault(field.name, [])
            return
        while True:
            match = _ITEM.match(self.text, self.at)
            assert match is not None  # noqa: S101
            self._count()
            first = match.start("open") if match["open"] else self._next(self.at)
            if match["open"] == "[":
                raise self.error("A list can't contain a list", first)
            self._value(into, field, node, match, first)
            mark = _MARK.match(self.text, self.at)
            assert mark is not None  # noqa: S101
            self.at = mark.end()
            if mark["mark"] == "]":
                return
            if mark["mark"] != ",":
                error = self._unexpected(mark.start("mark"), "]", 'Expected ","')
                error.remedy = "write a comma between two elements" if _STARTS.match(mark["mark"]) else error.remedy
                raise error

    def _plain(self, into: Any, field: Field, node: Node, start: int) -> bool:
        """Reads a list of numbers or words. Reads each different one once. Returns False for any other list."""
        row = _PLAIN.match(self.text, start) if field.kind not in _NO_PLAIN else None
        if row is None:
            return False
        text = _COMMENT.sub(lambda match: " " * len(match[0]), row[0][:-1])
        parts = text.split(",")
        values = self._plain_values.setdefault(id(field), {})
        for part in set(parts).difference(values):
            self._count()
            value = _plain_value(field, part.strip(_BLANK))
            if value is None:
                return False
            values[part] = value
        getattr(into, field.name).extend([values[part] for part in parts])
        node.add_row(field.name, TextRow(text, start, len(parts), self.place))
        self.at = row.end()
        return True

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooManyValuesError

    def _value(self, into: Any, field: Field, node: Node, match: re.Match[str], at: int) -> None:
        """Reads one value of a field. For a message, `at` is the offset of its field's name or of its bracket."""
        if field.kind == _F.CPPTYPE_MESSAGE:
            bracket = match["open"]
            if bracket is None:
                named = "name" in match.re.groupindex and match["name"]
                error = self._unexpected(self._next(match.end("name") if named else self.at), "", 'Expected "{"')
                if value := match["string"] or match["word"] or match["number"]:
                    error.remedy = remedies.of_message(field, value)
                raise error
            self.at = match.end()
            inner = Node(at, self.place)
            node.add(field.name, inner)
            self._inner(into, field, inner, _CLOSE[bracket])
            return
        if match["open"]:
            raise self.error(f'Field "{field.name}" takes a value, not a message', match.start("open"),
                             remedies.of_name(field))  # fmt: skip
        value, text, first = self._scalar(field, match)
        if field.repeated:
            getattr(into, field.name).append(value)
        else:
            setattr(into, field.name, value)
        node.add(field.name, Node(first, self.place, text, NO_FIELDS))

    def _inner(self, into: Any, field: Field, node: Node, end: str) -> None:
        content = getattr(into, field.name)
        if field.is_map:
            entry = content.GetEntryClass()()
            self.message(entry, node, end)
            if field.maps_messages:
                content[entry.key].CopyFrom(entry.value)
            else:
                content[entry.key] = entry.value
        elif field.repeated:
            self.message(content.add(), node, end)
        else:
            content.SetInParent()
            self.message(content, node, end)

    def _scalar(self, field: Field, match: re.Match[str]) -> tuple[Any, str, int]:
        """Reads a scalar. Returns the value, its text and its offset."""
        self.at = match.end()
        kind = field.kind
        if match["string"] is not None:
            if kind != _F.CPPTYPE_STRING:
                raise self._bad_value(field, match["string"], match.start("string"))
            return self._string(field, match["string"], match.start("string"))
        word, number = match["word"], match["number"]
        if word is None and number is None:
            start = self._next(match.end("colon") if "colon" in match.re.groupindex else match.start())
            if start >= len(self.text) or not self.text[start].isprintable() or ord(self.text[start]) > 126:
                raise self._unexpected(start, "")
            raise self._bad_value(field, self.text[start : start + 1], start)
        minus = match["minus"]
        start = match.start("minus") if minus else match.start("word" if number is None else "number")
        text = minus + (word or number or "")
        if number is not None and self.text[match.end() : match.end() + 1].isidentifier():
            raise self.error(f"Expected a space between the number {text} and a name", start)
        if kind == _F.CPPTYPE_STRING:
            raise self._bad_value(field, text, start)
        if kind == _F.CPPTYPE_ENUM and word is not None and not minus:
            if word not in field.enum:
                raise self.error(f'Enum field "{field.name}" has no value named {word}', start,
                                 remedies.of_enum(field, word))  # fmt: skip
            return field.enum[word], text, start
        if kind == _F.CPPTYPE_BOOL and word in _WORDS and not minus:
            return _WORDS[word], text, start
        if kind in (_F.CPPTYPE_FLOAT, _F.CPPTYPE_DOUBLE):
            return self._float(field, text, start), text, start
        if number is None:
            raise self._bad_value(field, text, start)
        return self._integer(field, number, bool(minus), start), text, start

    def _integer(self, field: Field, number: str, minus: bool, start: int) -> int | bool:
        octal = len(number) > 1 and number[0] == "0"
        try:
            value = int(number, 16 if number[:2] in ("0x", "0X") else 8 if octal else 10) if len(number) < 64 else None
        except ValueError:
            raise self._bad_value(field, number, start) from None
        if field.kind == _F.CPPTYPE_BOOL:
            if value not in (0, 1) or minus:
                raise self._bad_value(field, number, start)
            return bool(value)
        low, high = RANGES.get(field.kind, _ENUM_RANGE)
        if value is None or not low <= (-value if minus else value) <= high or (minus and low == 0):
            raise self.error(f"Value out of range: {'-' if minus else ''}{number[:40]}", start)
        if field.kind == _F.CPPTYPE_ENUM and (-value if minus else value) not in field.enum.values():
            raise self.error(f'Enum field "{field.name}" has no value {"-" if minus else ""}{number}', start)
        return -value if minus else value

    def _float(self, field: Field, text: str, start: int) -> float:
        plain = text.lstrip("-").lower()
        if plain in _FLOATS:
            return float(("-" if text[0] == "-" else "") + _FLOATS[plain])
        if plain.startswith("0x") or (not plain[:1].strip(".").isdecimal() and not plain.startswith(".")):
            raise self._bad_value(field, text, start)
        return float(text.rstrip("fF"))

    def _string(self, field: Field, literal: str, start: int) -> tuple[Any, str, int]:
        more = _MORE.match(self.text, self.at)
        if more is None and not field.is_bytes and "\\" not in literal and literal.isascii():
            return literal[1:-1], literal[1:-1], start
        pieces = [self._decoded(literal, start)]
        while more is not None:
            self._count()
            pieces.append(self._decoded(more["string"], more.start("string")))
            self.at = more.end()
            more = _MORE.match(self.text, self.at)
        whole = b"".join(pieces)
        text = whole.decode("utf-8", "replace")
        return (whole if field.is_bytes else text), text, start

    def _decoded(self, literal: str, at: int) -> bytes:
        try:
            return decoded(literal[1:-1])
        except EscapeError as error:
            raise self.error(str(error), at + 1 + error.at) from None

    def _next(self, at: int) -> int:
        """Returns the offset of the next token."""
        match = _MARK.match(self.text, at)
        return match.start("mark") if match is not None else at

    def _bad_value(self, field: Field, text: str, at: int) -> TextError:
        form = {
            _F.CPPTYPE_STRING: "a string in quotes",
            _F.CPPTYPE_BOOL: "true or false",
            _F.CPPTYPE_FLOAT: "a number",
            _F.CPPTYPE_DOUBLE: "a number",
            _F.CPPTYPE_ENUM: "the name of a value",
        }.get(field.kind, "a whole number")
        return self.error(f'Field "{field.name}" takes {form}, got {text[:40]}', at, remedies.of_value(field, text))

    def _unexpected(self, at: int, end: str, message: str = "") -> TextError:
        remedy = remedies.of_character(self.text, at, end)
        if at >= len(self.text):
            last = len(self.text.rstrip())
            return self.error(f'Expected "{end}", got end of file' if end else "Unexpected end of file", last, remedy)
        char = self.text[at]
        if char in "\"'":
            return self.error("Unexpected string, or string without its closing quote", at, remedy)
        if not char.isprintable() or ord(char) > 126:
            code = f"U+{ord(char):04X}" if char.isprintable() or ord(char) < 0xDC80 else "not UTF-8"
            return self.error(f"Invalid character: {code}", at, remedy)
        message = message or ("Expected the name of a field" + (f' or "{end}"' if end else ""))
        return self.error(f"{message}, got {char}", at, remedy)


def _plain_value(field: Field, part: str) -> Any:
    """Returns the value of a number or a word; None if it is invalid."""
    reader = _Reader(part)
    match = _ITEM.fullmatch(part)
    if match is None or (match["number"] is None and match["word"] is None):
        return None
    try:
        return reader._scalar(field, match)[0]
    except TextError:
        return None
