"""Objects for tests, valid by default, and modifiers that change them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from triton_operator.api import names
from triton_operator.api.lists import LIST_KEYS, key_of
from triton_operator.api.types import TritonModel
from triton_operator.render import Facts, render

Object = dict[str, Any]
Modifier = Callable[[Object], None]

NAME, NAMESPACE, UID = "detection", "vision", "uid-of-the-model"
TEMPLATE = "template-1"
IMAGE = "registry.example.com/detection:v1"
DIGEST = "sha256:" + "1" * 64


def raw(*modifiers: Modifier, name: str = NAME, namespace: str = NAMESPACE, uid: str = UID, **spec: Any) -> Object:
    """Returns a TritonModel as the API server stores it. `spec` (camelCase) is merged over a minimal one."""
    obj: Object = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "generation": 1, "resourceVersion": "1"},
        "spec": {"modelImage": {"reference": IMAGE}, **spec},
    }
    return modified(obj, *modifiers)


def child(kind: str = "Deployment", version: int = 10, uid: str = "", **spec: Any) -> Object:
    """Returns the child of this kind of a TritonModel, as the API server has it."""
    obj = next(o for o in render(model(**spec), Facts("t", "Copy")) if o["kind"] == kind)
    return live(obj, version=version, uid=uid)


def child_name(kind: str, model: str) -> str:
    """Returns the name of the child of this kind that every TritonModel named `model` has."""
    return names.account(model) if kind in ("ServiceAccount", "ConfigMap") else model


def model(*modifiers: Modifier, **spec: Any) -> TritonModel:
    """Returns the parsed result of `raw`."""
    return TritonModel.model_validate(raw(*modifiers, **spec))


def modified(obj: Object, *modifiers: Modifier) -> Object:
    """Returns a copy of `obj` with the modifiers applied."""
    result = copy.deepcopy(obj)
    for modify in modifiers:
        modify(result)
    return result


def put(path: str, value: Any) -> Modifier:
    """Sets the value at a dotted path. Numbers are list indices."""

    def modify(obj: Object) -> None:
        *keys, leaf = path.split(".")
        node: Any = obj
        for step in keys:
            node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
        if isinstance(node, list):
            node[int(leaf)] = value
        else:
            node[leaf] = value

    return modify


def deleting(obj: Object) -> None:
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def live(desired: Object, *modifiers: Modifier, uid: str = "", version: int = 10) -> Object:
    """Returns `desired` as the API server stores it after an apply: with a uid, defaults and managedFields."""
    obj = copy.deepcopy(desired)
    metadata = obj["metadata"]
    metadata |= {
        "uid": uid or f"uid-of-{obj['kind']}-{metadata['name']}",
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [managed(desired)],
    }
    if obj["kind"] == "Deployment":
        obj["spec"].setdefault("replicas", 1)
        obj["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    return modified(obj, *modifiers)


def managed(desired: Object, manager: str = names.FIELD_MANAGER, operation: str = "Apply") -> Object:
    """Returns the managedFields entry of a manager that applied `desired`."""
    fields = _fields({k: v for k, v in desired.items() if k not in ("apiVersion", "kind")}, "")
    for key in ("name", "namespace"):
        fields.get("f:metadata", {}).pop(f"f:{key}", None)
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": desired["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def _fields(value: Any, field: str) -> Object:
    if isinstance(value, dict):
        return {f"f:{k}": _fields(v, k) for k, v in value.items()}
    keys = {**LIST_KEYS, "ownerReferences": ("uid",)}.get(field)
    if isinstance(value, list) and keys and value and all(isinstance(i, dict) for i in value):
        keys = keys if key_of(value[0], keys) else ("port", "protocol")
        return {
            "k:" + json.dumps(dict(zip(keys, key_of(item, keys) or (), strict=True))): {".": {}, **_fields(item, "")}
            for item in value
        }
    return {}


# Pods


def pod(*modifiers: Modifier, name: str = "detection-abc-1", template: str = TEMPLATE) -> Object:
    """Returns a ready pod of the operator's Deployment, with the status from the kubelet."""
    inits = [names.CONTAINER_TOOLS, names.CONTAINER_FETCH, names.CONTAINER_CHECK]
    images = {names.CONTAINER_FETCH: IMAGE, names.CONTAINER_SERVER: "triton:1"}
    termination = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    obj: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-of-{name}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": names.labels(NAME),
            "annotations": {names.ANNOTATION_TEMPLATE: template},
        },
        "spec": {
            "initContainers": [{"name": n, "image": images.get(n, "operator:1")} for n in inits],
            "containers": [
                {
                    "name": names.CONTAINER_SERVER,
                    "image": "triton:1",
                    "resources": {"limits": {"memory": "8Gi"}},
                    "startupProbe": {"periodSeconds": 1, "failureThreshold": 600},
                }
            ],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.7",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True"},
            ],
            "initContainerStatuses": [
                {
                    "name": n,
                    "image": images.get(n, "operator:1"),
                    "imageID": f"registry.example.com/detection@{DIGEST}" if n == names.CONTAINER_FETCH else "",
                    "ready": True,
                    "restartCount": 0,
                    "state": copy.deepcopy(termination),
                }
                for n in inits
            ],
            "containerStatuses": [
                {
                    "name": names.CONTAINER_SERVER,
                    "image": "triton:1",
                    "imageID": "",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }
    return modified(obj, *modifiers)


def condition(kind: str, status: str, **more: str) -> Modifier:
    """Sets one condition of a pod."""

    def modify(obj: Object) -> None:
        conditions = obj["status"].setdefault("conditions", [])
        conditions[:] = [c for c in conditions if c["type"] != kind] + [{"type": kind, "status": status, **more}]

    return modify


def not_ready(obj: Object) -> None:
    """Makes the server fail its readiness probe, as while the entrypoint doesn't answer."""
    for status in obj["status"].get("containerStatuses", []):
        status["ready"] = status["ready"] and status["name"] != names.CONTAINER_SERVER
    condition("Ready", "False", reason="ContainersNotReady")(obj)


def injected(name: str, place: int | None = None, spec: Object | None = None, **status: Any) -> Modifier:
    """Adds a container that isn't ready, as a webhook does. `place`: its number as an init container; None: a sidecar.

    Containers after an init container haven't started.
    """

    def modify(obj: Object) -> None:
        kind = "containers" if place is None else "initContainers"
        statuses = obj["status"]["containerStatuses" if place is None else "initContainerStatuses"]
        at = len(statuses) if place is None else place
        obj["spec"][kind].insert(at, {"name": name, "image": "mesh:1", **(spec or {})})
        statuses.insert(at, {"name": name, "image": "mesh:1", "ready": False, "restartCount": 0, **status})
        for entry in statuses[at + 1 :] + (obj["status"]["containerStatuses"] if place is not None else []):
            entry |= {"ready": False, "started": False, "state": {"waiting": {"reason": "PodInitializing"}}}
        condition("Ready", "False", message=f"containers with unready status: [{name}]")(obj)

    return modify


def unschedulable(message: str) -> Modifier:
    """Makes the pod unschedulable: no container has run."""

    def modify(obj: Object) -> None:
        obj["status"] = {"phase": "Pending", "conditions": []}
        condition("PodScheduled", "False", reason="Unschedulable", message=message)(obj)

    return modify


def state(container: str, **states: Any) -> Modifier:
    """Sets the container's status (`state`, `lastState`, `started`, …). Later containers haven't started."""

    def modify(obj: Object) -> None:
        not_ready(obj)
        statuses = obj["status"]["initContainerStatuses"] + obj["status"]["containerStatuses"]
        place = next(i for i, s in enumerate(statuses) if s["name"] == container)
        statuses[place] |= {"ready": False, "started": False, **states}
        for entry in statuses[place + 1 :]:
            entry |= {"ready": False, "started": False, "state": {"waiting": {"reason": "PodInitializing"}}}

    return modify


def waiting(container: str, reason: str, message: str = "") -> Modifier:
    return state(container, state={"waiting": {"reason": reason, "message": message}})


def ended(container: str, code: int, message: str = "", reason: str = "Error", **more: Any) -> Modifier:
    """Makes the container's status that of a crash loop, as the kubelet reports it."""
    termination = {"exitCode": code, "reason": reason, "message": message, **more}
    back_off = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}
    return state(container, state=back_off, lastState={"terminated": termination}, restartCount=1)


def failed(reason: str, message: str) -> Modifier:
    """Makes the pod Failed, as after an eviction."""

    def modify(obj: Object) -> None:
        not_ready(obj)
        obj["status"] |= {"phase": "Failed", "reason": reason, "message": message}

    return modify


def checked(report: Object) -> Modifier:
    """Makes the repository check successful, with `report` as its termination message."""

    def modify(obj: Object) -> None:
        status = next(s for s in obj["status"]["initContainerStatuses"] if s["name"] == names.CONTAINER_CHECK)
        status["state"] = {"terminated": {"exitCode": 0, "reason": "Completed", "message": json.dumps(report)}}

    return modify


def report(
    *models: str,
    entrypoint: str | None = None,
    findings: list[Object] | None = None,
    decoupled: list[str] | None = None,
) -> Object:
    """Returns the repository check's termination message as a JSON object. `decoupled`: None for an older check's."""
    about = [{} if decoupled is None else {"decoupled": m in decoupled} for m in models]
    return {
        "ok": not findings,
        "entrypoint": entrypoint,
        "models": [
            {"name": m, "versions": [1], "ensemble": m == entrypoint, **more}
            for m, more in zip(models, about, strict=True)
        ],
        "modelCount": len(models),
        "sharedMemory": {"need": 0, "have": -1},
        "findings": findings or [],
        "truncated": 0,
    }


def stopped_answering(since: str = "2026-01-01T01:00:00Z") -> Modifier:
    """Makes a server that was ready fail its readiness probe."""

    def modify(obj: Object) -> None:
        not_ready(obj)
        for kind in ("ContainersReady", "Ready"):
            condition(kind, "False", lastTransitionTime=since)(obj)

    return modify
