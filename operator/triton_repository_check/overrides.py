"""Fields of config.pbtxt that a TritonModel sets: spec.models (docs/decisions/0042-overrides-of-config-pbtxt.md).

Messages are merged field by field and maps entry by entry; a list or any other value replaces that of config.pbtxt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from triton_repository_check import remedies
from triton_repository_check.fields import Field, table
from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.places import Node, SpecNode
from triton_repository_check.rules.base import did_you_mean, error, warning
from triton_repository_check.schema import ModelConfig
from triton_repository_check.text import one_line
from triton_repository_check.textformat import RANGES

CODES = {
    "TR509": "spec.models names a model that doesn't exist, or that can't be changed",
    "TR510": "spec.models: a field or a value that config.pbtxt can't have",
    "TR511": "spec.models changes the shapes that clients see",
}

Overrides = Mapping[str, Mapping[str, Any]]
"""The content of spec.models: model → field of config.pbtxt → value, as in JSON."""
_F = FieldDescriptor
_INTEGER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_REAL = (_F.CPPTYPE_FLOAT, _F.CPPTYPE_DOUBLE)


def merge(name: str, config: Any, where: Node, values: Mapping[str, Any]) -> tuple[Any, Node, list[Finding]]:
    """Returns `config` with the values of spec.models[name].config, their places, and what is wrong with the values.

    Changes nothing if a value is wrong. `where`: the positions in config.pbtxt.
    """
    reader = _Reader()
    override, root = ModelConfig(), SpecNode(one_line(f"spec.models[{name}].config"))
    reader.message(override, root, values)
    fields = table(ModelConfig.DESCRIPTOR)
    for field in (fields[name] for name in root.fields):
        chosen = config.WhichOneof(field.oneof) if field.oneof else None
        if chosen not in (None, field.name):
            reader.fault(root.find(field.name), f"config.pbtxt has {chosen}, which excludes it", "remove it")
    if reader.findings:
        return config, where, reader.findings
    merged = ModelConfig()
    merged.CopyFrom(config)
    nodes = _overlay(merged, override, where, root)
    return merged, nodes, [*_shapes(config, merged, root)]


def _overlay(into: Any, override: Any, where: Node | None, node: Node) -> Node:
    """Puts the fields that `node` has of `override` into `into`. Returns the places of both.

    `where`: the places of `into`; None if it is empty.
    """
    fields, places = table(into.DESCRIPTOR), dict(where.fields) if where else {}
    for name, values in node.fields.items():
        field, value = fields[name], getattr(override, name)
        for other in fields.values() if field.oneof else ():
            if other.oneof == field.oneof and other.name != name:
                into.ClearField(other.name)
                places.pop(other.name, None)
        before = places.get(name, ())
        if field.is_map:
            places[name] = _entries(getattr(into, name), value, field, before, values)
        elif field.repeated:
            into.ClearField(name)
            getattr(into, name).extend(value)
            places[name] = values
        elif field.kind == _F.CPPTYPE_MESSAGE:
            getattr(into, name).SetInParent()
            places[name] = [_overlay(getattr(into, name), value, before[0] if before else None, values[0])]
        else:
            setattr(into, name, value)
            places[name] = values
    return Node(where.at, where.place, where.text, places) if where else node


def _entries(into: Any, override: Any, field: Field, before: Sequence[Node], entries: Sequence[Node]) -> list[Node]:
    """Puts the entries of a map into `into`, as `_overlay` does with fields. Returns the places of all entries."""
    places, new = ({entry.find("key").text: entry for entry in nodes} for nodes in (before, entries))
    for key, value in override.items():
        entry, old = new[str(key)], places.get(str(key))
        if field.maps_messages:
            below = _overlay(into[key], value, old.find("value") if old else None, entry.find("value"))
            entry.fields["value"] = [below]
        else:
            into[key] = value
        places[str(key)] = entry
    return list(places.values())


def _shapes(before: Any, after: Any, root: Node) -> Iterator[Finding]:
    """TR511: with max_batch_size above 0, Triton puts a dimension before those of each tensor."""
    if before.input and (before.max_batch_size > 0) != (after.max_batch_size > 0):
        yield warning(
            "",
            "TR511",
            f"max_batch_size is {before.max_batch_size} in config.pbtxt: with {after.max_batch_size}, each tensor has "
            f"one dimension {'more' if after.max_batch_size else 'less'} for clients",
            "change it in config.pbtxt, with the dims, in the image",
            root.find("max_batch_size"),
        )


def absent(overrides: Overrides, models: Collection[str], closed: Collection[str]) -> Iterator[Finding]:
    """TR509: the repository lacks the model, or its folder is a link out of the repository (`closed`)."""
    for name in overrides:
        if name not in models:
            message = f"spec.models names {name!r}, which isn't in the repository"
            remedy = did_you_mean(name, models) or "remove it, or add the model to the image"
        elif name in closed:
            message = f"spec.models names {name!r}, whose folder is a link out of the repository"
            remedy = "move the model into the repository"
        else:
            continue
        yield error(".", "TR509", one_line(message), remedy)


def unread(name: str) -> Finding:
    """TR509: the check has only warned that it doesn't read config.pbtxt, so that nothing can be merged into it."""
    message = "the check doesn't read config.pbtxt, as its warning says, so these fields can't be merged into it"
    place = SpecNode(one_line(f"spec.models[{name}].config"))
    return error("", "TR509", message, "make config.pbtxt a file of the repository of a usual size", place)


def texts(repository: Repository) -> dict[str, str]:
    """Returns the config.pbtxt of each model that spec.models changes, by its directory."""
    return {m.directory: _text(m) for m in repository.models.values() if m.replaced}


def _text(model: Model) -> str:
    comment = f"# spec.models of the TritonModel sets: {', '.join(model.replaced)}"
    return f"{comment}\n{text_format.MessageToString(model.config, as_utf8=True)}"


class _WrongError(ValueError):
    """A value that a field can't have. `remedy`: what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class _Reader:
    """Reads JSON values as Triton's messages, and collects what is wrong with them."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def fault(self, at: Node, message: str, remedy: str) -> None:
        self.findings.append(error("", "TR510", one_line(message), one_line(remedy), at))

    def message(self, into: Any, node: SpecNode, data: Any) -> None:
        """Reads the fields in `data` into `into`."""
        if not isinstance(data, Mapping):
            self.fault(node, f"takes fields, got {_quoted(data)}", "write {field: value}")
            return
        fields, chosen = table(into.DESCRIPTOR), dict[str, str]()
        for key, value in data.items():
            name, field = str(key), fields.get(key)
            place = SpecNode(one_line(f"{node.spec}.{name}"))
            if field is None:
                remedy = remedies.of_field(into.DESCRIPTOR, ModelConfig.DESCRIPTOR, name, "")
                self.fault(place, f"{into.DESCRIPTOR.name} has no such field", remedy)
            elif field.oneof and chosen.setdefault(field.oneof, name) != name:
                self.fault(place, f"{chosen[field.oneof]} is set, too", "keep one of them")
            elif field.is_map:
                self._map(into, field, node, value, place)
            elif not field.repeated:
                self._value(into, field, node, value, place)
            elif isinstance(value, list):
                node.fields[name] = []
                for index, item in enumerate(value):
                    self._value(into, field, node, item, SpecNode(f"{place.spec}[{index}]"))
            else:
                self.fault(
                    place, f"takes a list, got {_quoted(value)}", "write [value], or - value in a line of its own"
                )

    def _map(self, into: Any, field: Field, node: SpecNode, data: Any, place: SpecNode) -> None:
        content = getattr(into, field.name)
        if not isinstance(data, Mapping):
            self.fault(place, f"takes values by name, got {_quoted(data)}", "write {name: value}")
            return
        for key, value in data.items():
            entry, child = content.GetEntryClass()(), SpecNode(one_line(f"{place.spec}.{key}"))
            fields = table(entry.DESCRIPTOR)
            self._value(entry, fields["key"], child, key, child)
            self._value(entry, fields["value"], child, value, child)
            if field.maps_messages:
                content[entry.key].CopyFrom(entry.value)
            else:
                content[entry.key] = entry.value
            node.add(field.name, child)

    def _value(self, into: Any, field: Field, node: SpecNode, data: Any, place: SpecNode) -> None:
        """Reads one value of a field."""
        if field.kind == _F.CPPTYPE_MESSAGE:
            child = SpecNode(place.spec)
            inner = getattr(into, field.name)
            inner = inner.add() if field.repeated else inner
            inner.SetInParent()
            node.add(field.name, child)
            self.message(inner, child, data)
            return
        try:
            value = _scalar(field, data)
        except _WrongError as wrong:
            self.fault(place, str(wrong), wrong.remedy)
            return
        if field.repeated:
            getattr(into, field.name).append(value)
        else:
            setattr(into, field.name, value)
        node.add(field.name, SpecNode(place.spec, str(data if field.kind == _F.CPPTYPE_ENUM else value)))


def _scalar(field: Field, data: Any) -> Any:
    """Returns the value of a field. Raises _WrongError."""
    kind = field.kind
    if kind == _F.CPPTYPE_ENUM and isinstance(data, str):
        if data not in field.enum:
            raise _WrongError(f"there is no {_quoted(data)}", remedies.of_enum(field, data))
        return field.enum[data]
    if kind == _F.CPPTYPE_STRING and isinstance(data, str):
        raw = data.encode(errors="replace")
        return raw if field.is_bytes else raw.decode()
    if kind == _F.CPPTYPE_BOOL and isinstance(data, bool):
        return data
    if kind in _REAL and isinstance(data, int | float) and not isinstance(data, bool):
        return float(data)
    if kind in RANGES:
        # JSON of Triton and protobuf has numbers of 64 bits as text.
        number = int(data) if isinstance(data, str) and _INTEGER.fullmatch(data) else data
        number = int(number) if isinstance(number, float) and number.is_integer() else number
        if isinstance(number, int) and not isinstance(number, bool):
            low, high = RANGES[kind]
            if low <= number <= high:
                return number
            raise _WrongError(f"{_quoted(data)} is out of range", f"use a number from {low} to {high}")
    form = {_F.CPPTYPE_STRING: "text", _F.CPPTYPE_BOOL: "true or false", _F.CPPTYPE_ENUM: "the name of a value"}
    form_of_value = form.get(kind, "a number" if kind in _REAL else "a whole number")
    raise _WrongError(f"takes {form_of_value}, got {_quoted(data)}", remedies.of_value(field, str(_quoted(data))))


def _quoted(data: Any) -> str:
    """Returns a value as JSON, shortened."""
    try:
        return json.dumps(data, ensure_ascii=False)[:80]
    except (TypeError, RecursionError):  # a date of YAML
        return str(data)[:80]
