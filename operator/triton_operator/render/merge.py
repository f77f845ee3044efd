"""Strategic merge of pod templates, as in `kubectl patch`."""

from __future__ import annotations

from typing import Any

from triton_operator.api.lists import LIST_KEYS, key_of


def merge(base: Any, patch: Any, field: str = "") -> Any:
    """Returns `base` merged with `patch`. None in the patch removes a field. Doesn't modify its arguments."""
    if isinstance(base, dict) and isinstance(patch, dict):
        out = dict(base)
        for key, value in patch.items():
            if value is None:
                out.pop(key, None)
            else:
                out[key] = merge(base.get(key), value, key)
        return out
    fields = LIST_KEYS.get(field)
    if fields and isinstance(base, list) and isinstance(patch, list) and _keyed(base + patch, fields):
        return _merge_lists(base, patch, fields)
    return patch


def _keyed(items: list[Any], fields: tuple[str, ...]) -> bool:
    return all(key_of(item, fields) is not None for item in items)


def _merge_lists(base: list[dict[str, Any]], patch: list[dict[str, Any]], fields: tuple[str, ...]) -> list[Any]:
    patches = {key_of(item, fields): item for item in patch}
    merged = [merge(item, patches.pop(key)) if (key := key_of(item, fields)) in patches else item for item in base]
    return merged + list(patches.values())
