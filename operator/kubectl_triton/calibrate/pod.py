"""The pod of a calibration. Pure.

It is one more server with the Deployment's pod template, and the load generator beside it. Nothing else finds it: it
has none of the template's labels, by which Services, autoscalers and others select servers. It ends by itself after
`activeDeadlineSeconds`, and is deleted with its TritonModel.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from triton_operator.api import names

Object = dict[str, Any]
LABEL = f"{names.GROUP}/calibration"
"""The label of the pods, with the name of the TritonModel."""
CONTAINER = "load"
FOLDER = "/tmp"  # noqa: S108 - of the load generator, a volume of its own
INPUT = f"{FOLDER}/input.json"
"""The file with the user's inputs, in the load generator's container."""
_VOLUME = "calibration"
_GRACE_SECONDS = 5
_SCRAPED = "prometheus.io/"
"""Annotations by which some Prometheus configurations find pods to scrape."""


def name_of(model: str) -> str:
    """Returns the name of the pod. There is one for each TritonModel, so two calibrations don't disturb each other."""
    return f"{model}-calibration"


def pod(model: Object, deployment: Object, image: str, resources: Mapping[str, str], seconds: int) -> Object:
    """Returns the pod for this TritonModel and its live Deployment.

    `image` and `resources` are those of the load generator: its limits, and at the same time its requests. The pod may
    run for `seconds`.
    """
    metadata = model["metadata"]
    template = copy.deepcopy(deployment["spec"]["template"])
    spec: Object = template["spec"]
    # They count or spread servers, and this pod isn't one of them.
    for field in ("topologySpreadConstraints", "nodeName", "hostname"):
        spec.pop(field, None)
    for container in spec["containers"]:
        container.pop("lifecycle", None)  # the drain: no client depends on this server
    spec["containers"].append(_load(image, resources))
    volumes = spec.setdefault("volumes", [])
    volumes.append({"name": _VOLUME, "emptyDir": {"sizeLimit": "1Gi"}})
    spec |= {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": seconds,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
    }
    annotations = template["metadata"].get("annotations") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_of(metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": {LABEL: metadata["name"]},
            "annotations": {key: value for key, value in annotations.items() if not key.startswith(_SCRAPED)},
            "ownerReferences": [
                {
                    "apiVersion": names.API_VERSION,
                    "kind": names.KIND,
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "spec": spec,
    }


def _load(image: str, resources: Mapping[str, str]) -> Object:
    """Returns the load generator's container. Equal limits and requests keep the QoS class of a Guaranteed pod."""
    return {
        "name": CONTAINER,
        "image": image,
        "command": ["sleep", "infinity"],
        "resources": {"limits": dict(resources), "requests": dict(resources)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": _VOLUME, "mountPath": FOLDER}],
    }
