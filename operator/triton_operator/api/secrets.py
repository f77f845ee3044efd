"""Sensitive values of the spec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from triton_repository_check.text import one_line

from .types import TritonModel

MIN_LENGTH = 6
"""Minimum length of a redacted value, in characters. Shorter values are mostly numbers and switches, and redacting them
would make messages unreadable."""
REDACTED = "(hidden)"
MAX_VALUES = 1000
"""Maximum number of values that are looked for. Each costs the time of a search in each message, and real specs have
fewer than 200."""


def values(model: TritonModel) -> tuple[str, ...]:
    """Returns the values of environment variables and of settings in arguments.

    Each is in three forms: unchanged, on one line, and as Go quotes it. The longest come first, because one value may
    contain another.
    """
    texts = {
        text
        for value in chain(_variables(model), _settings(model))
        for text in (value, one_line(value), json.dumps(value, ensure_ascii=False)[1:-1])
    }
    return tuple(sorted((text for text in texts if len(text) >= MIN_LENGTH), key=lambda text: (-len(text), text)))


def redact(text: str, hidden: Iterable[str]) -> str:
    """Returns `text` with these values redacted, or only words if there are more than MAX_VALUES."""
    hidden = tuple(hidden)
    if len(hidden) > MAX_VALUES:
        return f"{REDACTED}: the spec has more than {MAX_VALUES} settings, each of which may be secret"
    for value in hidden:
        text = text.replace(value, REDACTED)
    return text


def _variables(model: TritonModel) -> Iterator[str]:
    lists: list[Any] = [model.spec.server.env, *(c.get("env") for c in _containers(model))]
    for variables in lists:
        for variable in variables if isinstance(variables, list) else []:
            yield from _texts(variable.get("value") if isinstance(variable, dict) else None)


def _settings(model: TritonModel) -> Iterator[str]:
    """Yields the values of settings, such as `x` in --cache-config=redis,password=x. Plain flags aren't sensitive."""
    lists: list[Any] = [model.spec.server.args]
    lists += [container.get(field) for container in _containers(model) for field in ("args", "command")]
    for argument in chain.from_iterable(map(_texts, lists)):
        settings = argument.partition("=")[2] if argument.startswith("-") else argument
        # A value may contain a comma.
        yield settings.partition("=")[2]
        for setting in settings.split(","):
            yield setting.partition("=")[2]


def _containers(model: TritonModel) -> Iterator[dict[str, Any]]:
    for field in ("containers", "initContainers"):
        containers = model.spec.pod_template.spec.get(field)
        yield from (c for c in containers if isinstance(c, dict)) if isinstance(containers, list) else ()


def _texts(value: Any) -> Iterator[str]:
    """Yields the strings in a value of any type."""
    if isinstance(value, dict | list):
        for part in value.items() if isinstance(value, dict) else value:
            yield from _texts(list(part) if isinstance(part, tuple) else part)
    elif value is not None:
        yield str(value)
