"""The models of spec.server.loadModels in a pod template, which can change without new servers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from triton_operator.api import names

_FLAG, _CHECK_FLAG = "--load-model=", "--load-models="


def flags(models: Sequence[str]) -> list[str]:
    """Returns the flags of tritonserver that load these models at start."""
    return [f"{_FLAG}{name}" for name in models]


def check_flags(models: Sequence[str]) -> list[str]:
    """Returns the flag of the repository check with these models; none if there are no models."""
    return [f"{_CHECK_FLAG}{','.join(models)}"] if models else []


def listed(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the models that the server of a PodSpec loads at start, in order."""
    found: Mapping[str, Any] = next((c for c in spec["containers"] if c.get("name") == names.CONTAINER_SERVER), {})
    return tuple(a.removeprefix(_FLAG) for a in found.get("args") or () if a.startswith(_FLAG))


def with_models(template: dict[str, Any], models: Sequence[str]) -> dict[str, Any]:
    """Returns `template` with other models in the arguments of the server and of the repository check."""
    out = copy.deepcopy(template)
    for container in out["spec"]["containers"]:
        if container["name"] == names.CONTAINER_SERVER:
            _replace(container, "args", _FLAG, flags(models))
    for container in out["spec"].get("initContainers", ()):
        if container["name"] == names.CONTAINER_CHECK:
            _replace(container, "command", _CHECK_FLAG, check_flags(models))
    return out


def _replace(container: dict[str, Any], field: str, flag: str, new: Sequence[str]) -> None:
    """Puts `new` in the place of the first argument that begins with `flag`, and removes the others."""
    old = container.get(field) or []
    at = next((k for k, argument in enumerate(old) if argument.startswith(flag)), len(old))
    rest = [argument for argument in old[at:] if not argument.startswith(flag)]
    container[field] = [*old[:at], *new, *rest]
