"""Strategic merge of pod templates, as in `kubectl patch`."""

from __future__ import annotations

from typing import Any

from triton_operator.api.lists import LIST_KEYS


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
    key_name = LIST_KEYS.get(field)
    if key_name and isinstance(base, list) and isinstance(patch, list) and _keyed(base + patch, key_name):
        return _merge_lists(base, patch, key_name)
    return patch


def _keyed(items: list[Any], key: str) -> bool:
    return all(isinstance(item, dict) and isinstance(item.get(key), str | int) for item in items)


def _merge_lists(base: list[dict[str, Any]], patch: list[dict[str, Any]], key: str) -> list[Any]:
    patches = {item[key]: item for item in patch}
    merged = [merge(item, patches.pop(item[key])) if item[key] in patches else item for item in base]
    return merged + list(patches.values())
