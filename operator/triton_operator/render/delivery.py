"""Delivers the model repository from its image to the server (docs/decisions/0003-delivery.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_operator.api import names
from triton_operator.api.types import TritonModel

from . import expectations
from .choices import Choices
from .sizes import host_resources

_MOUNT = "/models"
"""Mount path of the repository in the server."""
SHM = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108 - the path that the Python backend uses

CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}

# A volume hides the image's files at the same path, so these are paths that no model image has.
TOOLS = {"name": "tools", "mountPath": "/.triton-operator/tools"}
REPOSITORIES = {"name": "models", "mountPath": "/.triton-operator/models"}
"""Writable mount of the volume with the repository."""
BUSYBOX = "/.triton-operator/tools/busybox"
CHANGES_MAX = 5
"""Maximum number of changes of a pod's model image. Each adds two ephemeral containers, and with more of them the
report of the repository check would not fit."""
_COPY_BEHIND_LINK = """\
set -e
"$0" rm -rf "$2"/*
"$0" mkdir "$2/0"
"$0" cp -r "$1" "$2/0"
"$0" ln -s 0 "$2/current"
"""
"""For the strategy InPlace: `current` is a link to the directory with the repository. After a restart of the node, the
volume still has the files of the last change, so the script removes them first."""


def init_containers(model: TritonModel, choices: Choices) -> list[dict[str, Any]]:
    """Returns tools, fetch and check. `fetch` runs from the model image, so its status also has the image's digest."""
    image = model.spec.model_image
    source = image.path.rstrip("/") + "/."
    copies = choices.delivery == "Copy"
    if copies and model.is_in_place:
        command = [BUSYBOX, "sh", "-c", _COPY_BEHIND_LINK, BUSYBOX, source, REPOSITORIES["mountPath"]]
    else:
        command = [BUSYBOX, "cp", "-r", source, REPOSITORIES["mountPath"]] if copies else [BUSYBOX, "true"]
    pull = {"imagePullPolicy": image.pull_policy} if image.pull_policy else {}
    return [
        _container(
            model, names.CONTAINER_TOOLS, choices.tools_image,
            command=["/usr/local/bin/busybox", "cp", "/usr/local/bin/busybox", BUSYBOX], mounts=[TOOLS],
        ),
        _container(
            model, names.CONTAINER_FETCH, image.reference,
            command=command, mounts=[{**TOOLS, "readOnly": True}, *([REPOSITORIES] if copies else [])], **pull,
        ),
        _container(
            model, names.CONTAINER_CHECK, choices.tools_image,
            command=["python", "-m", "triton_operator.repository.check", *_check_arguments(model), repository(model)],
            mounts=[mount(model, choices), SHM],
        ),
    ]  # fmt: skip


def repository(model: TritonModel) -> str:
    """Returns the path of the model repository in the server and in the check."""
    return f"{_MOUNT}/current" if model.is_in_place else _MOUNT


def volumes(model: TritonModel, choices: Choices) -> list[dict[str, Any]]:
    """Returns the volumes of the repository and of the program that `fetch` runs."""
    image = model.spec.model_image
    if choices.delivery == "Copy":
        repository: dict[str, Any] = {"emptyDir": {}}
    else:
        pull = {"pullPolicy": image.pull_policy} if image.pull_policy else {}
        repository = {"image": {"reference": image.reference, **pull}}
    return [{"name": "models", **repository}, {"name": "tools", "emptyDir": {}}]


def mount(model: TritonModel, choices: Choices) -> dict[str, Any]:
    """Returns the read-only mount of the repository in the server and in the check."""
    path = model.spec.model_image.path.strip("/")
    sub_path = {"subPath": path} if choices.delivery == "ImageVolume" and path else {}
    return {"name": "models", "mountPath": _MOUNT, "readOnly": True, **sub_path}


def _check_arguments(model: TritonModel) -> list[str]:
    number = len(_container_names(model)) + (CHANGES_MAX * 2 if model.is_in_place else 0)
    return ["--termination-log=/dev/termination-log", f"--containers={number}", *expectations.arguments(model)]


def _container_names(model: TritonModel) -> set[str]:
    """Returns the names of all containers of the pod, which share the maximum size of termination messages."""
    ours = {names.CONTAINER_TOOLS, names.CONTAINER_FETCH, names.CONTAINER_CHECK, names.CONTAINER_SERVER}
    user = model.spec.pod_template.spec
    lists = [user.get(field) for field in ("containers", "initContainers")]
    return ours | {
        str(c.get("name")) for found in lists if isinstance(found, list) for c in found if isinstance(c, dict)
    }


def _container(
    model: TritonModel,
    name: str,
    image: str,
    *,
    command: list[str],
    mounts: list[dict[str, Any]],
    **more: Any,
) -> dict[str, Any]:
    resources = host_resources(model.spec.server.resources)
    return {
        "name": name,
        "image": image,
        "command": command,
        "volumeMounts": mounts,
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **({"resources": resources} if resources else {}),
        **more,
    }
