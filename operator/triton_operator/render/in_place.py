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
from .sizes import devices

FILES, CHANGE = "in-place-files-", "in-place-change-"
"""Prefixes of the names of the two ephemeral containers; the number of the change follows."""
COPY = """\
set -e
"$0" mkdir "$2/$3"
"$0" cp -r "$1" "$2/$3" || { "$0" touch "$2/$3.failed"; exit 1; }
"$0" mkfifo "$2/$3.pipe"
"$0" touch "$2/$3.complete"
before=$("$0" timeout "$4" "$0" cat "$2/$3.pipe")
[ ! -e "$2/$3.done" ] || exit 0
if [ "$("$0" readlink "$2/current")" = "$3" ]; then
  "$0" ln -sfn "$before" "$2/current"
fi
"""
"""Copies the files, and then waits until `change` closes a pipe. If the server ends, all processes in its namespace
end, `change` too; then the link still names the new files, and the script moves it back. A directory that exists is of
the same change, made before: the node has lost the container. It stays as it is."""
PROGRAM = ("python", "-m", "triton_operator.in_place")
_END, _REFERENCE = "--end=", "--reference="
_STORAGE = "both versions of the files may not fit into the server's limit of ephemeral-storage"
_ACCELERATOR = "the operator can't measure whether both versions of a model fit into the memory of an accelerator"


def files(model: TritonModel, number: int, seconds: int) -> dict[str, Any]:
    """Returns the ephemeral container that copies the new repository. `seconds`: maximum time of the change."""
    image = model.spec.model_image
    pull = {"imagePullPolicy": image.pull_policy} if image.pull_policy else {}
    source = image.path.rstrip("/") + "/."
    return _container(
        f"{FILES}{number}", image.reference,
        command=[BUSYBOX, "sh", "-c", COPY, BUSYBOX, source, REPOSITORIES["mountPath"], str(number), str(seconds)],
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
        f"{_REFERENCE}{model.spec.model_image.reference}",
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
    text = _argument(container, _END)
    return int(text) if text.isdecimal() and len(text) < 12 else 0


def number_of(name: str) -> int:
    """Returns the number of the change that the ephemeral container `name` belongs to; 0 if it belongs to none."""
    for prefix in (FILES, CHANGE):
        digits = name.removeprefix(prefix)
        if digits != name and digits.isdecimal() and len(digits) < 4:
            return int(digits)
    return 0


def reference_of(container: Mapping[str, Any]) -> str:
    """Returns the model image that the container `change` brings; "" if it isn't known."""
    return _argument(container, _REFERENCE)


def reference(metadata: Mapping[str, Any]) -> str:
    """Returns the model image of a pod or a pod template; "" if it has no rollout.strategy InPlace."""
    return str((metadata.get("annotations") or {}).get(names.ANNOTATION_MODEL_IMAGE, ""))


def with_reference(template: dict[str, Any], reference: str) -> dict[str, Any]:
    """Returns the pod template with another model image."""
    out = copy.deepcopy(template)
    out["metadata"]["annotations"][names.ANNOTATION_MODEL_IMAGE] = reference
    for container in out["spec"].get("initContainers", ()):
        if container["name"] == names.CONTAINER_FETCH:
            container["image"] = reference
    return out


def obstacle(model: TritonModel) -> str:
    """Returns why the model image of running servers can't change; "" if it can."""
    resources = model.spec.server.resources
    if found := _users_container(model):
        return f"the container {found} of spec.podTemplate changes how the files get into the pod"
    if "ephemeral-storage" in (resources.limits or {}):
        return _STORAGE
    if devices(model.spec) != 0:
        return _ACCELERATOR
    if "memory" not in (resources.limits or {}):
        return "without a memory limit (spec.server.resources.limits) nobody knows whether both versions of a model fit"
    return ""


def pod_obstacle(pod: Mapping[str, Any]) -> str:
    """Returns why the model image of this pod can't change; "" if it can.

    Its resources may not be those of the spec: spec.podTemplate, a LimitRange or a webhook may have added some.
    """
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        if "ephemeral-storage" in (resources.get("limits") or {}):
            return _STORAGE
        server = container["name"] == names.CONTAINER_SERVER
        if server and (resources.get("claims") or any("/" in name for name in resources.get("limits") or {})):
            return _ACCELERATOR
    return ""


def _users_container(model: TritonModel) -> str:
    """Returns the container of spec.podTemplate that changes the delivery or may write the files; "" if none does."""
    ours = {names.CONTAINER_TOOLS, names.CONTAINER_FETCH, names.CONTAINER_CHECK}
    user = model.spec.pod_template.spec
    for field in ("initContainers", "containers"):
        for one in user.get(field) or ():
            mounts = one.get("volumeMounts") or () if isinstance(one, dict) else ()
            writes = any(m.get("name") == REPOSITORIES["name"] and not m.get("readOnly") for m in mounts)
            if isinstance(one, dict) and (one.get("name") in ours or writes):
                return str(one.get("name", ""))
    return ""


def _argument(container: Mapping[str, Any], option: str) -> str:
    return next((a.removeprefix(option) for a in container.get("command") or () if str(a).startswith(option)), "")


def _container(name: str, image: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **more,
    }
