"""The right form for common mistakes in config.pbtxt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from triton_repository_check.fields import Field

USUAL = "correct the protobuf text format: brackets, quotes, colons, names of values"
_F = FieldDescriptor
_TYPES = {
    "FLOAT": "FP32", "FLOAT16": "FP16", "FLOAT32": "FP32", "FLOAT64": "FP64", "HALF": "FP16", "DOUBLE": "FP64",
    "BFLOAT16": "BF16", "INT": "INT32", "LONG": "INT64", "UINT": "UINT32", "BYTE": "UINT8", "BYTES": "STRING",
    "STR": "STRING", "OBJECT": "STRING", "TEXT": "STRING", "BOOLEAN": "BOOL",
}  # fmt: skip
"""Names of types in other programs, and Triton's."""
_MEANT = {"shape": "dims", "type": "data_type", "dtype": "data_type", "datatype": "data_type"}
"""Names of fields in other programs, and Triton's."""
_LIST_END = re.compile(r",\s*$")
_MAX_LISTED = 16


def of_field(message: Descriptor, root: Descriptor, name: str, rest: str) -> str:
    """Returns what to do about an unknown field. `rest` is the text after its name."""
    if message.GetOptions().map_entry:
        return of_entry(message, name)
    words = re.match(r"(?:[ \t-]+\w+)*", rest)
    whole = re.sub(r"[ \t-]+", "_", name + (words[0] if words else ""))
    if whole != name and whole in message.fields_by_name:
        return f"write {whole}, with {'an underscore' if whole.count('_') == name.count('_') + 1 else 'underscores'}"
    longer = (field for field in message.fields_by_name if field.startswith(f"{name}_"))
    near = get_close_matches(name[:100], message.fields_by_name.keys(), 1, 0.75)
    meant = _MEANT.get(name, "")
    if meant := meant if meant in message.fields_by_name else next(longer, next(iter(near), "")):
        return f"did you mean {meant!r}?"
    if homes := sorted(set(_homes(root, name)), key=lambda home: (home.count(" "), home)):
        return f"{name} belongs into {' or '.join(homes[:3])}"
    return "correct the field's name, unless it is newer than this check's schema"


def of_entry(message: Descriptor, key: str) -> str:
    """Returns the form of a map's entry, for one that has its key as a field. `message`: the entry's."""
    value = message.fields_by_name["value"]
    form = "…" if value.cpp_type != _F.CPPTYPE_STRING else '"…"'
    if value.message_type is not None:
        form = '{ string_value: "…" }' if value.message_type.name == "ModelParameter" else "{ … }"
    return f'write key: "{key}" value: {form}'


def _homes(message: Descriptor, name: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Returns the paths of the messages that have a field `name`."""
    for field in message.fields:
        inner = field.message_type
        if inner is None or inner.GetOptions().map_entry or field.name in above:
            continue
        path = (*above, field.name)
        if name in inner.fields_by_name:
            yield " { ".join(path) + " { … " + "}" * len(path)
        yield from _homes(inner, name, path)


def of_value(field: Field, text: str) -> str:
    """Returns what to do about a value of the wrong type. `text` is the value's, or a single character."""
    plain = text.strip("\"'")
    if text == "]":
        return "remove the comma after the last value"
    if text in ('"', "'"):
        return "add the closing quote"
    if field.kind == _F.CPPTYPE_ENUM and text[:1] in "\"'":
        return f"write {enum_value(field, plain) or plain} without quotes"
    if field.kind == _F.CPPTYPE_STRING:
        return f'write "{text}" in quotes' if text[:1].isalnum() else USUAL
    if field.kind == _F.CPPTYPE_BOOL:
        return "write true or false, without quotes"
    return f"write {plain} without quotes" if plain != text and plain.isdecimal() else "write a number"


def of_enum(field: Field, word: str) -> str:
    """Returns what to do about an unknown name of a value."""
    if meant := enum_value(field, word):
        return f"did you mean {meant}?"
    names = [name for name in field.enum if not name.endswith("_INVALID")]
    return f"use one of {', '.join(names[:_MAX_LISTED])}"


def enum_value(field: Field, word: str) -> str:
    """Returns the name of the value that `word` means; an empty string if it is unclear."""
    short = word.upper().removeprefix("TYPE_")
    for name in (word, word.upper(), f"TYPE_{short}", f"TYPE_{_TYPES.get(short, '')}", f"KIND_{word.upper()}"):
        if name in field.enum:
            return name
    return next(iter(get_close_matches(word.upper()[:100], field.enum, 1, 0.8)), "")


def of_message(field: Field, value: str) -> str:
    """Returns what to do about a message without its braces. `value` is the text of its value."""
    if value[:1] in "\"'" and field.inner == "ModelParameter":
        return f"write {field.name}: {{ string_value: {value} }}"
    return f"write {field.name} {{ … }}"


def of_name(field: Field) -> str:
    """Returns what to do about a field's name without a colon and without a bracket."""
    if field.kind != _F.CPPTYPE_MESSAGE:
        return f"write {field.name}: {'[ … ]' if field.repeated else '…'}"
    return f"write {field.name} {{ {'… ' if field.repeated else ''}}}"


def of_character(text: str, at: int, end: str = "") -> str:
    """Returns what to do about an unexpected character at the offset `at`. `end`: what closes the open bracket."""
    before, char = text[:at], text[at : at + 1]
    if text.startswith("\ufeff"):
        return "save the file without a byte order mark, which Triton rejects"
    if text.startswith(("//", "/*"), at):
        return "begin comments with #"
    if char == "{" and not before.strip():
        return 'write protobuf text instead of JSON: backend: "python", without outer braces and quotes around names'
    if char in "\"'" and re.match(r"""(["'])\w+\1\s*:""", text[at:]):
        return "write the names of fields without quotes"
    if char == "=":
        return "write a colon instead of ="
    if at >= len(text):
        return "add the missing closing brackets"
    if char in "]}>":
        if _LIST_END.search(before):
            return "remove the comma after the last element"
        return f"add the missing {end} before it" if end else f"remove the {char}, which closes nothing"
    if char in "“”„‟‘’‚′″«»":
        return 'write straight quotes: "…"'
    if char.isspace():
        return "replace this character, which looks like a space, by a space"
    if char in "\"'" and char not in text[at + 1 :].partition("\n")[0]:
        return "add the closing quote"
    return USUAL
