"""The pod in which `--with-server=cluster` runs tritonserver. Pure.

It is made from the pod template that the operator would render. It has none of the template's labels, by which
Services, autoscalers and others select servers, and it waits for the repository, which the command uploads.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from triton_operator.api import names
from triton_operator.api.types import TritonModel
from triton_operator.render import sizes
from triton_operator.render.deployment import pod_template
from triton_operator.render.facts import Capabilities, Facts
from triton_repository_check.expected import Expected
from triton_repository_check.model import SERVED_AT
from triton_repository_check.view import REPOSITORY

Object = dict[str, Any]
LABEL = f"{names.GROUP}/trial"
"""The label of the pods, with the name of the TritonModel."""
UPLOAD = "/.triton-operator/upload"
"""Where the server's container has the volume for the repository, writable."""
MODELS, ORIGINAL = "models", "original"
"""The folders of the volume: what the server serves, and the repository to which links of a view lead."""
_COMPLETE = f"{UPLOAD}/complete"
UNPACK = f"tar -x -C {UPLOAD} && : >{_COMPLETE}"
"""The shell command in the container that takes a tar archive with these folders."""
_WAIT = f'until [ -e {_COMPLETE} ]; do sleep 0.2; done; exec tritonserver "$@"'
_VOLUME = "upload"
_RENDERED_INIT = {names.CONTAINER_TOOLS, names.CONTAINER_FETCH, names.CONTAINER_CHECK}
_RENDERED_VOLUMES = {"models", "tools", "load-models", "view"}
_GRACE_SECONDS = 5
_SCRAPED = "prometheus.io/"
"""Annotations by which some Prometheus configurations find pods to scrape."""


@dataclass(frozen=True)
class Place:
    """Where the pod runs. `model`: the TritonModel of --spec. `namespace`, `context`: None for those of kubectl."""

    model: TritonModel | None
    namespace: str | None
    context: str | None


@dataclass(frozen=True)
class Server:
    """What the pod runs. `flags`: of tritonserver in `image`. `expected`: the resources, where they are known."""

    image: str
    flags: Sequence[str]
    expected: Expected


def without_spec(expected: Expected) -> TritonModel:
    """Returns a TritonModel for a repository without one: with the defaults, and these GPUs."""
    limits = {"nvidia.com/gpu": expected.gpus} if expected.gpus else {}
    spec = {"modelImage": {"reference": "uploaded"}, "server": {"resources": {"limits": limits}}}
    return TritonModel.model_validate({"metadata": {"name": "repository", "namespace": ""}, "spec": spec})


def manifest(model: TritonModel, namespace: str, name: str, server: Server, seconds: int, *, openshift: bool) -> Object:
    """Returns the pod, which ends by itself after `seconds`. `openshift`: whether the cluster chooses its user."""
    template = copy.deepcopy(pod_template(model, Facts(server.image, cluster=Capabilities(openshift=openshift))))
    spec: Object = template["spec"]
    # They count or spread servers, and this pod isn't one of them.
    for field in ("topologySpreadConstraints", "nodeName", "hostname", "readinessGates"):
        spec.pop(field, None)
    if spec.get("serviceAccountName") == names.account(model.name):
        del spec["serviceAccountName"]  # the TritonModel may not be in the cluster yet
    spec["initContainers"] = [c for c in spec["initContainers"] if c["name"] not in _RENDERED_INIT]
    for container in spec["containers"]:
        container.pop("lifecycle", None)  # the drain: no client depends on this server
        if container["name"] == names.CONTAINER_SERVER:
            _wait_for_upload(container, server)
            gpus = server.expected.gpus
            if gpus is not None and gpus != sizes.gpus(model.spec):
                _set_gpus(container["resources"], gpus)
    spec["volumes"] = [
        *(_sized(volume, server.expected) for volume in spec["volumes"] if volume["name"] not in _RENDERED_VOLUMES),
        {"name": _VOLUME, "emptyDir": {}},
    ]
    spec |= {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": seconds,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
    }
    annotations = template["metadata"].get("annotations") or {}
    rendered = (_SCRAPED, f"{names.GROUP}/", "cluster-autoscaler.kubernetes.io/")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {LABEL: model.name},
            "annotations": {key: value for key, value in annotations.items() if not key.startswith(rendered)},
        },
        "spec": spec,
    }


def _wait_for_upload(container: Object, server: Server) -> None:
    """Makes the template's container wait for the repository. Its only probe says when Triton's endpoints are up."""
    for field in ("startupProbe", "livenessProbe"):
        container.pop(field, None)
    container |= {
        "image": server.image,
        "command": ["sh", "-c", _WAIT, "sh"],
        "args": list(server.flags),
        "readinessProbe": {"httpGet": {"path": "/v2/health/live", "port": "http"}, "periodSeconds": 1},
        "volumeMounts": [
            *(mount for mount in container["volumeMounts"] if mount["name"] not in _RENDERED_VOLUMES),
            {"name": _VOLUME, "mountPath": UPLOAD},
            {"name": _VOLUME, "mountPath": SERVED_AT, "subPath": MODELS, "readOnly": True},
            {"name": _VOLUME, "mountPath": REPOSITORY, "subPath": ORIGINAL, "readOnly": True},
        ],
    }
    if server.expected.cpus is not None:
        resources = container["resources"]
        resources["limits"] = {**(resources.get("limits") or {}), "cpu": f"{server.expected.cpus:g}"}


def _set_gpus(resources: Object, number: int) -> None:
    """Sets the number of GPUs, which requests needn't name."""
    resources["requests"] = sizes.with_gpus(resources.get("requests") or {}, 0)
    resources["limits"] = sizes.with_gpus(resources.get("limits") or {}, number)


def _sized(volume: Object, expected: Expected) -> Object:
    """Returns the volume, that of /dev/shm with the expected size."""
    if volume["name"] != "shm" or expected.shared_memory is None or "emptyDir" not in volume:
        return volume
    return {**volume, "emptyDir": {**volume["emptyDir"], "sizeLimit": str(expected.shared_memory)}}
