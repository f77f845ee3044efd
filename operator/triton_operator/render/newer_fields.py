"""Fields of children that older versions of a CRD or of Kubernetes don't know."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from triton_operator.api.kinds import NewerField

from .child_type import Child, Object

_UNDECLARED = ": field not declared in schema"
"""After a path in the API server's message about an object with fields that it doesn't know. It names some of them, by
chance."""


def undeclared(message: str) -> tuple[str, ...]:
    """Returns the paths of the fields that the API server doesn't know, without the places in lists."""
    before = (text.split()[-1:] for text in message.split(_UNDECLARED)[:-1])
    paths = (word.partition(".")[2] for words in before for word in words)
    return tuple(dict.fromkeys(_without_places(path) for path in paths if path))


def _without_places(path: str) -> str:
    """Returns `path` without the keys in brackets: spec.a[name="b"].c → spec.a.c."""
    first, *others = path.split("[")
    return first + "".join(other.partition("]")[2] for other in others)


def known(child: Child, paths: Iterable[str]) -> tuple[NewerField, ...]:
    """Returns the fields of `child` with these paths."""
    return tuple(field for field in child.newer if field.path in paths)


def dispensable(child: Child, message: str) -> frozenset[str]:
    """Returns the paths of the fields to leave out after this refusal.

    It may be about others, too. Then the next one is only about these, which makes its message say always the same.
    """
    paths = undeclared(message)
    return frozenset(
        f.path for f in child.newer if f.is_dispensable and (f.path in paths or _refuses_value(f, message))
    )


def _refuses_value(field: NewerField, message: str) -> bool:
    """Returns whether the API server's validation refuses the field's value. A webhook says "denied the request"."""
    errors = message.partition(" is invalid: ")[2]
    return field.value is not None and f"{field.path}: Invalid value: {field.value}:" in errors


def without(obj: Object, fields: Iterable[NewerField]) -> tuple[Object, tuple[NewerField, ...]]:
    """Returns the object without what is left out where these fields are unknown, and the fields that it had."""
    had = tuple(field for field in fields if field.is_dispensable and _has(obj, field.path.split("."), field.value))
    for field in had:
        obj = _without(obj, (field.left_out or field.path).split("."), field.instead)
    return obj, had


def without_lacking(
    child: Child, obj: Object, lacks: Collection[tuple[str, str]]
) -> tuple[Object, tuple[NewerField, ...]]:
    """Returns the object without what the cluster lacks: `Capabilities.lacks`."""
    return without(obj, known(child, {path for kind, path in lacks if kind == child.kind.kind}))


def _has(value: Any, path: Sequence[str], wanted: int | None) -> bool:
    """Returns whether there is a field with this path and the wanted value; None is any value."""
    if not path:
        return wanted in (None, value)
    if isinstance(value, list):
        return any(_has(item, path, wanted) for item in value)
    return isinstance(value, Mapping) and path[0] in value and _has(value[path[0]], path[1:], wanted)


def _without(value: Any, path: Sequence[str], instead: int | None) -> Any:
    """Returns `value` without what is at `path`, or with another value there."""
    if isinstance(value, list):
        return [_without(item, path, instead) for item in value]
    name, _, in_items = path[0].rstrip("]").partition("[") if path else ("", "", "")
    if not isinstance(value, Mapping) or name not in value:
        return value
    if in_items:
        return {**value, name: [item for item in value[name] if in_items not in item]}
    if len(path) == 1 and instead is not None:
        return {**value, name: instead}
    if len(path) == 1:
        return {key: item for key, item in value.items() if key != name}
    return {**value, path[0]: _without(value[path[0]], path[1:], instead)}
