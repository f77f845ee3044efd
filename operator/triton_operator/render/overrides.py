"""The fields of config.pbtxt in spec.models: the server gets a view of the repository (decision 42).

The repository check writes the view, links to the repository's files and the changed configurations, into a volume. The
server has the view where it otherwise has the repository, and the repository at another path, to which the links lead.
"""

from __future__ import annotations

from typing import Any

from triton_operator.api.fields import as_argument
from triton_operator.api.types import TritonModel
from triton_repository_check.model import SERVED_AT
from triton_repository_check.overrides import Overrides
from triton_repository_check.view import REPOSITORY

_VIEW = {"name": "view", "mountPath": "/.triton-operator/view"}


def overrides(model: TritonModel) -> Overrides:
    """Returns the content of spec.models."""
    return {item.name: item.config for item in model.spec.models}


def volumes(model: TritonModel) -> list[dict[str, Any]]:
    """Returns the volume of the view; none without spec.models."""
    return [{"name": _VIEW["name"], "emptyDir": {}}] if model.spec.models else []


def server_mounts(model: TritonModel, repository: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the server's mounts of what it serves. `repository`: the mount of the repository."""
    if not model.spec.models:
        return [repository]
    return [{**_VIEW, "mountPath": SERVED_AT, "readOnly": True}, {**repository, "mountPath": REPOSITORY}]


def check_mounts(model: TritonModel) -> list[dict[str, Any]]:
    """Returns the mount into which the repository check writes the view."""
    return [_VIEW] if model.spec.models else []


def check_flags(model: TritonModel) -> list[str]:
    """Returns the arguments of the repository check in the pod for spec.models."""
    if not model.spec.models:
        return []
    return [f"--view={_VIEW['mountPath']}", f"--links-to={REPOSITORY}", *map(_flag, overrides(model).items())]


def _flag(item: tuple[str, Any]) -> str:
    name, config = item
    return "--model=" + as_argument({"name": name, "config": config})
