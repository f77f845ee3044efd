"""Delivers the model repository from its image to the server (docs/decisions/0003-delivery.md)."""

from __future__ import annotations

from typing import Any

from triton_operator.api import names
from triton_operator.api.types import TritonModel
from triton_repository_check.model import SERVED_AT

from . import expectations, exporters, load_models, overrides
from .common import CONTAINER_SECURITY
from .facts import Facts
from .sizes import host_resources

SHM = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108 - the path that the Python backend uses

# A volume hides the image's files at the same path, so these are paths that no model image has.
TOOLS = {"name": "tools", "mountPath": "/.triton-operator/tools"}
_TARGET = {"name": "models", "mountPath": "/.triton-operator/models"}
BUSYBOX = "/.triton-operator/tools/busybox"


def init_containers(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    """Returns tools, fetch and check. `fetch` runs from the model image, so its status also has the image's digest."""
    image = model.spec.model_image
    source = image.path.rstrip("/") + "/."
    copies = facts.delivery == "Copy"
    command = [BUSYBOX, "cp", "-r", source, _TARGET["mountPath"]] if copies else [BUSYBOX, "true"]
    pull = {"imagePullPolicy": image.pull_policy} if image.pull_policy else {}
    return [
        _container(
            model, names.CONTAINER_TOOLS, facts.tools_image,
            command=["/usr/local/bin/busybox", "cp", "/usr/local/bin/busybox", BUSYBOX], mounts=[TOOLS],
        ),
        _container(
            model, names.CONTAINER_FETCH, image.reference,
            command=command, mounts=[{**TOOLS, "readOnly": True}, *([_TARGET] if copies else [])], **pull,
        ),
        _container(
            model, names.CONTAINER_CHECK, facts.tools_image,
            command=["python", "-m", "triton_repository_check.check", *_check_arguments(model, facts), SERVED_AT],
            mounts=[mount(model, facts), SHM, *load_models.mounts(model), *overrides.check_mounts(model)],
        ),
    ]  # fmt: skip


def volumes(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    """Returns the volumes of the repository, of its view, and of the program that `fetch` and the server start with."""
    image = model.spec.model_image
    if facts.delivery == "Copy":
        repository: dict[str, Any] = {"emptyDir": {}}
    else:
        pull = {"pullPolicy": image.pull_policy} if image.pull_policy else {}
        repository = {"image": {"reference": image.reference, **pull}}
    return [{"name": "models", **repository}, {"name": "tools", "emptyDir": {}}, *overrides.volumes(model)]


def mount(model: TritonModel, facts: Facts) -> dict[str, Any]:
    """Returns the read-only mount of the repository."""
    path = model.spec.model_image.path.strip("/")
    sub_path = {"subPath": path} if facts.delivery == "ImageVolume" and path else {}
    return {"name": "models", "mountPath": SERVED_AT, "readOnly": True, **sub_path}


def _check_arguments(model: TritonModel, facts: Facts) -> list[str]:
    containers = f"--containers={len(_container_names(model))}"
    return [
        "--termination-log=/dev/termination-log",
        containers,
        *expectations.arguments(model, facts.delivery),
        *overrides.check_flags(model),
    ]


def _container_names(model: TritonModel) -> set[str]:
    """Returns the names of all containers of the pod, which share the maximum size of termination messages."""
    ours = {names.CONTAINER_TOOLS, names.CONTAINER_FETCH, names.CONTAINER_CHECK, names.CONTAINER_SERVER}
    spec = model.spec.pod_template.spec
    lists = [spec.get(field) for field in ("containers", "initContainers")]
    ours |= {exporter.container for exporter in exporters.of(model)}
    return ours | {
        str(item.get("name")) for items in lists if isinstance(items, list) for item in items if isinstance(item, dict)
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
