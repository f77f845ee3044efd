"""Delivers the model repository from its image to the server (docs/decisions/0003-delivery.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_operator.api import names
from triton_operator.api.types import TritonModel

from . import expectations
from .choices import Choices
from .sizes import host_resources

REPOSITORY = "/models"
"""Mount path of the repository in the server."""
SHM = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108 - the path that the Python backend uses

CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}

# A volume hides the image's files at the same path, so these are paths that no model image has.
_TOOLS = {"name": "tools", "mountPath": "/.triton-operator/tools"}
_TARGET = {"name": "models", "mountPath": "/.triton-operator/models"}
_BUSYBOX = "/.triton-operator/tools/busybox"


def init_containers(model: TritonModel, choices: Choices) -> list[dict[str, Any]]:
    """Returns tools, fetch and check. `fetch` runs from the model image, so its status also has the image's digest."""
    image = model.spec.model_image
    source = image.path.rstrip("/") + "/."
    copies = choices.delivery == "Copy"
    command = [_BUSYBOX, "cp", "-r", source, _TARGET["mountPath"]] if copies else [_BUSYBOX, "true"]
    pull = {"imagePullPolicy": image.pull_policy} if image.pull_policy else {}
    return [
        _container(
            model, names.CONTAINER_TOOLS, choices.tools_image,
            command=["/usr/local/bin/busybox", "cp", "/usr/local/bin/busybox", _BUSYBOX], mounts=[_TOOLS],
        ),
        _container(
            model, names.CONTAINER_FETCH, image.reference,
            command=command, mounts=[{**_TOOLS, "readOnly": True}, *([_TARGET] if copies else [])], **pull,
        ),
        _container(
            model, names.CONTAINER_CHECK, choices.tools_image,
            command=["python", "-m", "triton_operator.repository.check", *_check_arguments(model), REPOSITORY],
            mounts=[mount(model, choices), SHM],
        ),
    ]  # fmt: skip


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
    return {"name": "models", "mountPath": REPOSITORY, "readOnly": True, **sub_path}


def _check_arguments(model: TritonModel) -> list[str]:
    containers = f"--containers={len(_container_names(model))}"
    return ["--termination-log=/dev/termination-log", containers, *expectations.arguments(model)]


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
