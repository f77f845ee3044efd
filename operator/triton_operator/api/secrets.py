"""Values of the spec that are nobody's business but the servers'."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from .types import TritonModel

SHORTEST = 6
"""Characters. What is shorter is a number or a switch, and would blot out half of a message."""
HIDDEN = "(hidden)"


def values(model: TritonModel) -> tuple[str, ...]:
    """What environment variables are set to, as it is and as Go quotes it. Longest first: one may hold another."""
    found = {text for value in _variables(model) for text in (value, json.dumps(value, ensure_ascii=False)[1:-1])}
    return tuple(sorted((text for text in found if len(text) >= SHORTEST), key=lambda text: (-len(text), text)))


def hide(text: str, hidden: Iterable[str]) -> str:
    """`text` without these values."""
    for value in hidden:
        text = text.replace(value, HIDDEN)
    return text


def _variables(model: TritonModel) -> Iterator[str]:
    lists: list[Any] = [model.spec.server.env]
    for field in ("containers", "initContainers"):
        containers = model.spec.pod_template.spec.get(field)
        lists += [c.get("env") for c in containers if isinstance(c, dict)] if isinstance(containers, list) else []
    for found in lists:
        for variable in found if isinstance(found, list) else []:
            yield from _texts(variable.get("value") if isinstance(variable, dict) else None)


def _texts(value: Any) -> Iterator[str]:
    """The words of a value, which should be text and need not be."""
    if isinstance(value, dict | list):
        for part in value.items() if isinstance(value, dict) else value:
            yield from _texts(list(part) if isinstance(part, tuple) else part)
    elif value is not None:
        yield str(value)
