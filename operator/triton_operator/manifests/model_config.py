"""The schema of spec.models[].config in the CRD, from Triton's own schema of config.pbtxt.

The API server refuses an unknown field, or a value of the wrong type, with its place. The repository check finds what a
schema can't: choices that exclude each other, and numbers as keys.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from triton_operator.api.fields import SETTABLE
from triton_repository_check.schema import ModelConfig
from triton_repository_check.textformat import RANGES

Schema = dict[str, Any]
_F = FieldDescriptor
_MAX_ITEMS = 64
_MAX_LENGTH = 4096
_LARGEST = 2**53
"""The largest whole number that is exact in every program that reads JSON."""
_INTEGERS = {kind: (max(low, -_LARGEST), min(high, _LARGEST)) for kind, (low, high) in RANGES.items()}


def schema() -> Schema:
    """Returns the structural schema of the fields that spec.models may set."""
    fields = ModelConfig.DESCRIPTOR.fields_by_name
    return {
        "type": "object",
        "properties": {name: {"description": what, **_field(fields[name])} for name, what in SETTABLE.items()},
    }


def _field(field: FieldDescriptor) -> Schema:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        values = _single(entry.fields_by_name["value"])
        return {"type": "object", "maxProperties": _MAX_ITEMS, "additionalProperties": values}
    return {"type": "array", "maxItems": _MAX_ITEMS, "items": _single(field)} if field.is_repeated else _single(field)


def _single(field: FieldDescriptor) -> Schema:
    if field.message_type is not None:
        return _message(field.message_type)
    if field.enum_type is not None:
        return {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    if field.cpp_type in _INTEGERS:
        low, high = _INTEGERS[field.cpp_type]
        return {"type": "integer", "minimum": low, "maximum": high}
    if field.cpp_type == _F.CPPTYPE_BOOL:
        return {"type": "boolean"}
    if field.cpp_type == _F.CPPTYPE_STRING:
        return {"type": "string", "maxLength": _MAX_LENGTH}
    return {"type": "number"}


def _message(message: Descriptor) -> Schema:
    # A choice, such as that of a version policy.
    one_of = len(message.oneofs) == 1 and len(message.oneofs[0].fields) == len(message.fields)
    choice = {"maxProperties": 1} if one_of and len(message.fields) > 1 else {}
    return {"type": "object", **choice, "properties": {field.name: _field(field) for field in message.fields}}
