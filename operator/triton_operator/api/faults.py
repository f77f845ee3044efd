"""Words for values that a TritonModel can't have: where, what it is, what it must be, and what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from pydantic import ValidationError

from .plain_yaml import Written

TEXT, WHOLE, NUMBER, BOOLEAN, LIST, MAP = "text", "a whole number", "a number", "true or false", "a list", "a map"
QUANTITY = "a quantity"
_TYPES = {
    "string_type": TEXT,
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), WHOLE),
    **dict.fromkeys(("float_type", "float_parsing"), NUMBER),
    **dict.fromkeys(("bool_type", "bool_parsing"), BOOLEAN),
    "list_type": LIST,
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), MAP),
}
"""What a value must be, by pydantic's type of the error."""
_MARKS = frozenset({"str", "int", "float", "[key]"})
"""What pydantic adds to a path that isn't in the value: the type of a union, and that a key is meant."""
_SHOULD = re.compile(r"^\w+ should ")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_SHOWN = 40
"""Maximum length of a number in a message."""


class Fault(NamedTuple):
    """What is wrong with a value. `path`: its place, such as spec.server.env[0].value."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def of(error: ValidationError) -> list[Fault]:
    """Returns what is wrong with a TritonModel in words for its author, one fault for each value."""
    types: dict[str, list[str]] = {}
    faults: dict[str, Fault] = {}
    for problem in error.errors(include_url=False, include_context=False):
        *above, last = problem["loc"] or ("",)
        path = place(above if last in _MARKS else (*above, last))
        if problem["type"] in _TYPES:
            types.setdefault(path, []).append(_TYPES[problem["type"]])
            faults[path] = Fault(path, wrong_type(problem["input"], *types[path]))
        else:
            faults.setdefault(path, Fault(path, _message(problem["type"], problem["msg"])))
    return [*faults.values()]


def place(steps: Iterable[str | int]) -> str:
    """Returns a path as the API server writes it: names, and positions in lists."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def wrong_type(value: Any, *types: str) -> str:
    """Returns the words for a value (JSON) that must be one of `types`, such as TEXT.

    They quote no text, which may be a secret.
    """
    return f"{_what(value)}, but must be {' or '.join(types)}: {_remedy(value, types)}"


def _what(value: Any) -> str:
    match value:
        case None:
            return "is empty (null)"
        case bool():
            return f"is {json.dumps(value)}"
        case int() | float():
            return f"is the number {_short(value)}"
        case str():
            return f"is the text {json.dumps(value)}" if _is_literal(value) else "is text"
        case dict():
            return "is a map"
    return "is a list"


def _remedy(value: Any, types: tuple[str, ...]) -> str:
    match value:
        case None:
            return "write a value, or remove it"
        case bool() if types == (TEXT,):
            return f'quote it: "{json.dumps(value)}"'
        case int() | float() if TEXT in types and not isinstance(value, bool):
            return f'quote it: "{_short(value)}"'
        case int() | float() if WHOLE in types and not isinstance(value, bool):
            return "leave out the fraction" if abs(value) < 2**63 else "write one of at most 64 bits"
        case str() if _is_literal(value) and not {TEXT, LIST, MAP}.intersection(types):
            is_boolean = value in ("true", "false")
            if is_boolean is (types == (BOOLEAN,)):
                return f"remove the quotes: {value}"
        case dict() if LIST in types:
            return 'write "- " before its first line'
        case list() if MAP in types:
            return 'write it without "- "'
    return f"write {' or '.join(types)}{_EXAMPLES.get(types, '')}"


_EXAMPLES: dict[tuple[str, ...], str] = {
    (QUANTITY,): ", such as 500m, 2 or 4Gi",
    (LIST,): ", such as [a, b]",
    (MAP,): ", such as {name: value}",
}


def _is_literal(text: str) -> bool:
    """Whether the text is a number or a boolean in quotes."""
    return len(text) <= _SHOWN and (text in ("true", "false") or _NUMBER.fullmatch(text) is not None)


def _short(value: float) -> str:
    text = value.text if isinstance(value, Written) else json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _message(kind: str, words: str) -> str:
    if kind == "missing":
        return "is missing: add it"
    return _SHOULD.sub("must ", words.removeprefix("Value error, "))
