"""Changes the model image of a running pod by two ephemeral containers (docs/decisions/0030-in-place.md).

`files` runs from the new model image and copies the repository next to the old one. `change` runs from the operator's
image: `triton_operator.in_place`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from triton_operator.api import names
from triton_operator.api.types import TritonModel

from . import expectations
from .delivery import BUSYBOX, CONTAINER_SECURITY, REPOSITORIES, SHM, TOOLS
from .sizes import accelerators

FILES, CHANGE = "in-place-files-", "in-place-change-"
"""Prefixes of the names of the two ephemeral containers; the number of the change follows."""
COPY = """\
set -e
"$0" cp -r "$1" "$2/$3"
"$0" touch "$2/$3.complete"
"""
PROGRAM = ("python", "-m", "triton_operator.in_place")
_END = "--end="


def files(model: TritonModel, number: int) -> dict[str, Any]:
    """Returns the ephemeral container that copies the new repository."""
    image = model.spec.model_image
    pull = {"imagePullPolicy": image.pull_policy} if image.pull_policy else {}
    source = image.path.rstrip("/") + "/."
    return _container(
        f"{FILES}{number}", image.reference,
        command=[BUSYBOX, "sh", "-c", COPY, BUSYBOX, source, REPOSITORIES["mountPath"], str(number)],
        volumeMounts=[{**TOOLS, "readOnly": True}, REPOSITORIES],
        **pull,
    )  # fmt: skip


def change(model: TritonModel, number: int, tools_image: str, end: int) -> dict[str, Any]:
    """Returns the ephemeral container that checks the new repository and loads the model that differs.

    `end`: the time when the change must have ended, in seconds since 1970.
    """
    options = [
        f"--repositories={REPOSITORIES['mountPath']}",
        f"--number={number}",
        f"--load-seconds={model.spec.rollout.startup_seconds}",
        f"{_END}{end}",
        *expectations.arguments(model),
    ]
    return _container(
        f"{CHANGE}{number}", tools_image,
        command=[*PROGRAM, *options],
        volumeMounts=[REPOSITORIES, SHM],
        # Shares the process namespace of the server, to read how much memory it uses.
        targetContainerName=names.CONTAINER_SERVER,
    )  # fmt: skip


def end_of(container: Mapping[str, Any]) -> int:
    """Returns the time when the change must have ended, in seconds since 1970; 0 if it isn't known."""
    text = next((a.removeprefix(_END) for a in container.get("command") or () if str(a).startswith(_END)), "")
    return int(text) if text.isdecimal() and len(text) < 12 else 0


def number_of(name: str) -> int:
    """Returns the number of the change that the ephemeral container `name` belongs to; 0 if it belongs to none."""
    for prefix in (FILES, CHANGE):
        digits = name.removeprefix(prefix)
        if digits != name and digits.isdecimal() and len(digits) < 4:
            return int(digits)
    return 0


def reference(spec: Mapping[str, Any]) -> str:
    """Returns the model image of a PodSpec; "" if it has none."""
    found = (c for c in spec.get("initContainers") or () if c.get("name") == names.CONTAINER_FETCH)
    return next((str(c.get("image", "")) for c in found), "")


def with_reference(template: dict[str, Any], reference: str) -> dict[str, Any]:
    """Returns the pod template with another model image."""
    out = copy.deepcopy(template)
    for container in out["spec"].get("initContainers", ()):
        if container["name"] == names.CONTAINER_FETCH:
            container["image"] = reference
    return out


def obstacle(model: TritonModel) -> str:
    """Returns why the model image of running servers can't change; "" if it can."""
    resources = model.spec.server.resources
    if accelerators(resources):
        return "the operator can't measure whether both versions of a model fit into the memory of an accelerator"
    if "memory" not in (resources.limits or {}):
        return "without a memory limit (spec.server.resources.limits) nobody knows whether both versions of a model fit"
    return ""


def _container(name: str, image: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **more,
    }
