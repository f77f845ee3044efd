"""Evaluates the CRD's own rules (CEL), so that the API server's refusal is known without a cluster."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

from triton_operator.api import quantity
from triton_operator.api.faults import Fault, place
from triton_operator.manifests.values import RULES, schema

Steps = tuple[str | int, ...]


def faults(document: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields what the CRD's rules refuse of a TritonModel (JSON), whose values have the types of the CRD."""
    yield from _faults(_with_defaults(copy.deepcopy(dict(document)), schema()), schema(), ())


def _with_defaults(value: Any, part: Mapping[str, Any]) -> Any:
    """Returns `value` with the defaults of the schema, as the API server sets them before it evaluates rules."""
    if isinstance(value, dict):
        for key, inner in part.get("properties", {}).items():
            if "default" in inner:
                value.setdefault(key, copy.deepcopy(inner["default"]))
    for key, inner in _parts(value, part):
        value[key] = _with_defaults(value[key], inner)
    return value


def _parts(value: Any, part: Mapping[str, Any]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yields the keys of a map or a list, each with the schema of its value."""
    if isinstance(value, dict):
        for key in value:
            if inner := part.get("properties", {}).get(key) or part.get("additionalProperties"):
                yield key, inner
    elif isinstance(value, list) and "items" in part:
        yield from ((index, part["items"]) for index in range(len(value)))


def _faults(value: Any, part: Mapping[str, Any], steps: Steps) -> Iterator[Fault]:
    rules = part.get(RULES, ())
    known = json_to_cel(value) if rules else None
    for rule in rules:
        if not _evaluated(rule["rule"], known):
            words = _evaluated(rule.get("messageExpression", ""), known) or rule["message"]
            yield Fault(place(steps), str(words))
    for key, inner in _parts(value, part):
        if value[key] is not None:
            yield from _faults(value[key], inner, (*steps, key))


def _evaluated(expression: str, known: Any) -> Any:
    """Returns the value of an expression about `self`; None for one that ends in an error, as the API server has it."""
    try:
        return _program(expression).evaluate({"self": known}) if expression else None
    except CELEvalError:
        return None


@functools.cache
def _program(expression: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression), functions=_FUNCTIONS)


def _find(text: celtypes.StringType, pattern: celtypes.StringType) -> celtypes.StringType:
    found = re.search(pattern, text)
    return celtypes.StringType(found[0] if found else "")


def _split(text: celtypes.StringType, separator: celtypes.StringType) -> celtypes.ListType:
    return celtypes.ListType(map(celtypes.StringType, str(text).split(separator)))


def _sum(numbers: celtypes.ListType) -> celtypes.IntType:
    return celtypes.IntType(sum(numbers))


def _is_greater(left: Any, right: Any) -> celtypes.BoolType:
    return celtypes.BoolType(left > right)


_FUNCTIONS: dict[str, Any] = {
    "find": _find,
    "split": _split,
    "sum": _sum,
    "quantity": quantity.parse,
    "isGreaterThan": _is_greater,
}
"""Those of Kubernetes' library of CEL that the CRD uses (https://kubernetes.io/docs/reference/using-api/cel/)."""
