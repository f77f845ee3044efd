"""Writes values.yaml, values.schema.json and the table of values from the values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml_text

from helm_chart import json_schema
from helm_chart.json_schema import Schema
from helm_chart.values import Group, Value


def yaml_of(group: Group) -> str:
    """Returns values.yaml: each value with its description as a comment."""
    return yaml_text.HEADER + "\n" + "\n".join(_lines(group, ""))


def _lines(group: Group, indent: str) -> Iterator[str]:
    for number, (name, value) in enumerate(group.values.items()):
        if number and not indent:
            yield ""
        yield from (f"{indent}# {line}" for line in _wrapped(value.help, 116 - len(indent)))
        if isinstance(value, Group):
            yield f"{indent}{name}:"
            yield from _lines(value, f"{indent}  ")
        else:
            text = yaml_text.text({name: value.default}, header="").rstrip("\n")
            yield from (indent + line for line in text.splitlines())
    if not indent:
        yield ""


def _wrapped(text: str, width: int) -> Iterator[str]:
    for line in text.splitlines():
        hang = "  " if line.startswith("- ") else ""
        while len(line) > width:
            cut = line.rfind(" ", 0, width)
            yield line[:cut]
            line = hang + line[cut + 1 :]
        yield line


def schema_of(group: Group) -> str:
    """Returns values.schema.json. It refuses unknown values, so that a typo is an error."""
    schema = _schema(group)
    # Helm adds `global` to the values of a subchart.
    schema["properties"]["global"] = {"type": "object"}
    definitions = json_schema.definitions(schema)
    named = {"definitions": definitions} if definitions else {}
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **schema, **named}
    return json.dumps(whole, indent=2) + "\n"


def _schema(value: Value | Group) -> Schema:
    if isinstance(value, Value):
        # draft-07 ignores what is beside a $ref.
        own = {"allOf": [value.schema]} if "$ref" in value.schema else value.schema
        return {"description": value.help, **own}
    about = {"description": value.help} if value.help else {}
    properties = {name: _schema(inner) for name, inner in value.values.items()}
    return {"type": "object", **about, "additionalProperties": False, "properties": properties}


def table_of(group: Group) -> str:
    """Returns a Markdown table of all values."""
    rows = [f"| `{name}` | {_cell(value.default)} | {_sentence(value.help)} |" for name, value in _flat(group, "")]
    return "\n".join(["| Value | Default | Description |", "|---|---|---|", *rows]) + "\n"


def _flat(group: Group, prefix: str) -> Iterator[tuple[str, Value]]:
    for name, value in group.values.items():
        if isinstance(value, Group):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _cell(default: Any) -> str:
    if default in ("", [], {}):
        return "–"
    return "see values.yaml" if isinstance(default, dict | list) else f"`{json.dumps(default).strip(chr(34))}`"


def _sentence(text: str) -> str:
    return text.replace("\n- ", "<br>").replace("\n", " ").replace("|", "\\|")
