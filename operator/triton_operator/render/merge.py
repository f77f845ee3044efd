"""Strategic merge of pod templates, as in `kubectl patch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_operator.api.lists import LIST_KEYS, key_of

_ONE_OF = (frozenset({"exec", "grpc", "httpGet", "sleep", "tcpSocket"}), frozenset({"value", "valueFrom"}))
"""Fields of which only one may be set: of a probe or a hook, and of a variable."""


def merge(base: Any, patch: Any, field: str = "") -> Any:
    """Returns `base` merged with `patch`. Doesn't modify its arguments.

    None in the patch removes a field. A field of which only one may be set removes the others.
    """
    if isinstance(base, dict) and isinstance(patch, dict):
        out = {key: value for key, value in base.items() if not _is_replaced(key, patch, field)}
        for key, value in patch.items():
            if value is None:
                out.pop(key, None)
            else:
                out[key] = merge(base.get(key), value, key)
        return out
    fields = LIST_KEYS.get(field)
    if fields and isinstance(base, list) and isinstance(patch, list) and _keyed(base + patch, fields):
        return _merge_lists(base, patch, field, fields)
    return patch


def without(base: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns `base` without the field at `path`, such as spec.containers.triton.livenessProbe."""
    out: dict[str, Any] = _without(base, path.split("."))
    return out


def _without(base: Any, path: list[str]) -> Any:
    first, *rest = path
    if isinstance(base, list):
        return [_without(item, rest) if item.get("name") == first else item for item in base]
    if not rest:
        return {key: value for key, value in base.items() if key != first}
    return {key: _without(value, rest) if key == first else value for key, value in base.items()}


def _is_replaced(key: str, patch: Mapping[str, Any], field: str) -> bool:
    """Whether the patch sets another one of the fields of which only one may be set."""
    if field == "volumes":  # an item of the list: all but the name are sources
        return key != "name" and key not in patch and len(patch) > 1
    rivals = next((fields for fields in _ONE_OF if key in fields), frozenset())
    return key not in patch and any(patch.get(rival) is not None for rival in rivals)


def _keyed(items: list[Any], fields: tuple[str, ...]) -> bool:
    return all(key_of(item, fields) is not None for item in items)


def _merge_lists(
    base: list[dict[str, Any]], patch: list[dict[str, Any]], field: str, fields: tuple[str, ...]
) -> list[Any]:
    patches = {key_of(item, fields): item for item in patch}
    merged = [
        merge(item, patches.pop(key), field) if (key := key_of(item, fields)) in patches else item for item in base
    ]
    return merged + list(patches.values())
