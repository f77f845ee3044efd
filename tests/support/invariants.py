"""Invariants of a namespace with TritonModels, to check after a fault has ended."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

from triton_operator.api import names, quantity
from triton_operator.api.lists import LIST_KEYS, key_of
from triton_operator.render.children import KINDS

from .api import MIN_WAIT_SECONDS, Api, Object, condition, eventually
from .controlplane import ControlPlane
from .operator_process import Operator
from .workload import BROKEN, Workload, desired

Objects = dict[tuple[str, str], Object]
"""Objects by kind and name."""


class Foreign:
    """Foreign objects that resemble children. The operator must not change them. No controller writes their status."""

    def __init__(self, api: Api, monitoring: bool = True) -> None:
        self._api, self._monitoring = api, monitoring
        self.versions: dict[tuple[str, str], str] = {}
        self.plant()

    def plant(self) -> None:
        """Creates the objects, again if the namespace was recreated."""
        api, labels = self._api, names.labels("m-1")
        ports = {"ports": [{"port": 80}], "selector": names.selector("m-1")}
        objects: list[Object] = [
            _object("v1", "ConfigMap", "owner", {}),
            _object("v1", "Service", "m-1-canary", labels, spec=ports),
            _object("v1", "Service", "m-headless", {}, spec={"ports": [{"port": 1}]}),
            _object("v1", "ServiceAccount", "m-1-canary", labels),
            _object("v1", "ConfigMap", "m-1", labels),
        ]
        if self._monitoring:
            version = "monitoring.coreos.com/v1"
            objects.append(_object(version, "PrometheusRule", "m-1-canary", labels, spec={"groups": []}))
        for obj in objects:
            obj["metadata"]["namespace"] = api.namespace
            self._note(api.create(obj))
        # An object with another owner.
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": True,
                 "uid": api.get("ConfigMap", "owner")["metadata"]["uid"]}  # fmt: skip
        service = _object("v1", "Service", "m-1-owned", labels, spec=ports)
        service["metadata"] |= {"namespace": api.namespace, "ownerReferences": [owner]}
        self._note(api.create(service))

    def problems(self) -> Iterator[str]:
        for (kind, name), version in self.versions.items():
            obj = self._api.find(kind, name)
            if obj is None or obj["metadata"]["resourceVersion"] != version:
                yield f"the foreign {kind} {name} was changed or deleted: {obj}"

    def forget(self, kind: str) -> None:
        """Forgets the objects of a kind whose CRD was deleted."""
        self.versions = {(k, n): v for (k, n), v in self.versions.items() if k != kind}

    def has(self, kind: str, name: str) -> bool:
        return (kind, name) in self.versions

    def _note(self, obj: Object) -> None:
        self.versions[obj["kind"], obj["metadata"]["name"]] = obj["metadata"]["resourceVersion"]


def _object(version: str, kind: str, name: str, labels: dict[str, str], **more: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}, **more}


def assert_converged(
    plane: ControlPlane,
    work: Workload,
    foreign: Foreign,
    operator: Operator,
    *,
    within: float = 60,
    still: float = 2.5,
    monitoring: bool = True,
    restarts: bool = True,
) -> float:
    """Waits until the namespace has converged after a fault, and returns the seconds that this took. Checks that

    - every TritonModel is as requested
    - every child exists and is as rendered
    - children of deleted TritonModels are deleted
    - no foreign object was changed
    - there was no pod template that no spec requested (`restarts`)
    - there are no writes for `still` seconds
    - the operator's log has no errors
    """
    work.finish()
    started = time.monotonic()
    messages: list[str] = []

    def whole() -> bool:
        try:
            messages[:] = problems(work, foreign, monitoring)
        except BROKEN as error:
            messages[:] = [str(error)]
        return not messages

    eventually(whole, within, lambda: "\n".join([*messages[:8], operator.log[-4000:]]), every=0.3)
    seconds = time.monotonic() - started
    assert_quiet(plane, operator, still)
    # Check again after the quiet time.
    violations = [*problems(work, foreign, monitoring), *(unneeded(work) if restarts else ())]
    assert not violations, "\n".join([*violations, operator.log])
    assert_log(operator.log)
    return seconds


def assert_quiet(plane: ControlPlane, operator: Operator, seconds: float) -> None:
    """Checks that a period of `seconds` comes without writes and without repeated reconciles.

    The first periods may have both: other controllers finish, and each deleted pod causes a reconcile.
    """
    deadline = time.monotonic() + 2 * MIN_WAIT_SECONDS
    while True:
        since, writes, reconciles = time.monotonic(), written(plane), operator.reconciles()
        time.sleep(seconds)  # the period itself
        changes = difference(writes, written(plane))
        passes, duration = operator.reconciles() - reconciles, time.monotonic() - since
        # The operator requeues propagating or refused TritonModels every 2 s. A resync and queued keys may add to it.
        if not changes and passes <= operator.metric_sum("triton_operator_models") * (3 + duration):
            return
        assert time.monotonic() < deadline, ("writes or reconciles don't stop", changes, passes, operator.log[-4000:])


def assert_log(log: str) -> None:
    """Checks that the log has no traceback and no error, except a lost Lease."""
    assert "Traceback" not in log, _around(log, "Traceback")
    errors = [e for e in _entries(log) if e.get("level") in ("ERROR", "CRITICAL")]
    errors = [e for e in errors if not _expected(e)]
    assert not errors, errors[:5]


def _expected(entry: Object) -> bool:
    # kopf logs every failed request and then retries it.
    return entry["logger"].startswith("kopf") or "not leading" in entry["message"]


def _around(text: str, word: str) -> str:
    place = text.index(word)
    return text[max(0, place - 1500) : place + 3000]


def _entries(log: str) -> Iterator[Object]:
    for line in log.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut by a kill
        yield entry


def written(plane: ControlPlane) -> dict[str, float]:
    """Returns ControlPlane.writes by verb, resource and subresource."""
    counts: dict[str, float] = {}
    for labels, count in plane.writes().items():
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        name = "/".join(filter(None, (pairs["verb"], pairs["resource"], pairs["subresource"])))
        counts[name] = counts.get(name, 0) + count
    return counts


def difference(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    return {k: n - before.get(k, 0) for k, n in now.items() if n != before.get(k, 0)}


def problems(work: Workload, foreign: Foreign, monitoring: bool = True) -> list[str]:
    """Returns descriptions of all violated invariants."""
    models = {m["metadata"]["name"]: m for m in work.api.list("TritonModel")}
    state = {
        (kind.kind, obj["metadata"]["name"]): {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        for kind in KINDS
        if monitoring or not kind.optional
        for obj in work.api.list(kind.kind)
    }
    children = {
        name: {(o["kind"], o["metadata"]["name"]): o for o in desired(m, state.get(("Deployment", name)), monitoring)}
        for name, m in models.items()
    }
    messages = [f"found {sorted(models)}, wanted {sorted(work.models)}"] if models.keys() != work.models.keys() else []
    for name, model in models.items():
        messages += _model(name, model, children[name], state, monitoring)
    return [*messages, *_strangers(models, children, state, foreign), *_servers(work.api, state), *foreign.problems()]


def _model(name: str, model: Object, children: Objects, objects: Objects, monitoring: bool) -> Iterator[str]:
    metadata, status = model["metadata"], model.get("status", {})
    if status.get("observedGeneration") != metadata["generation"]:
        yield f"{name}: the status has generation {status.get('observedGeneration')}, not {metadata['generation']}"
    ready = condition(model, "Ready")
    if ready.get("status") != "True" and ready.get("reason") != "ScaledToZero":
        yield f"{name}: {ready}"
    if ready.get("status") == "True" and monitoring and status.get("entrypointType") != "Ensemble":
        yield f"{name}: the entrypoint isn't known"
    for (kind, child), want in children.items():
        have = objects.get((kind, child))
        if have is None:
            yield f"{name}: no {kind} {child}"
            continue
        yield from (f"{name}: {kind} {child} differs at {path}" for path in unlike(want, have))
        if "deletionTimestamp" in have["metadata"]:
            yield f"{name}: {kind} {child} is being deleted"


def _servers(api: Api, objects: Objects) -> Iterator[str]:
    """Yields the ReplicaSets and pods of deleted Deployments."""
    uids = {obj["metadata"]["uid"] for (kind, _), obj in objects.items() if kind == "Deployment"}
    # List pods first, so that the ReplicaSet of every listed pod is in the second list.
    pods, sets = api.list("Pod"), api.list("ReplicaSet")
    for replicas in sets:
        if not _owners(replicas) <= uids:
            yield f"ReplicaSet {replicas['metadata']['name']} belongs to a deleted Deployment"
    for pod in pods:
        if not _owners(pod) <= {obj["metadata"]["uid"] for obj in sets}:
            yield f"Pod {pod['metadata']['name']} belongs to a deleted ReplicaSet"


def _owners(obj: Object) -> set[str]:
    return {r["uid"] for r in obj["metadata"].get("ownerReferences", [])}


def _strangers(
    models: dict[str, Object], children: dict[str, Objects], objects: Objects, foreign: Foreign
) -> Iterator[str]:
    """Yields children without a TritonModel, and children that their TritonModel doesn't want."""
    uids = {m["metadata"]["uid"] for m in models.values()}
    # The operator keeps the rules while the entrypoint isn't known yet.
    rules = {
        ("PrometheusRule", name)
        for name, m in models.items()
        if not m.get("status", {}).get("entrypointType") and m["spec"].get("monitoring", {}).get("enabled", True)
    }
    requested = rules.union(*children.values())
    for (kind, name), obj in objects.items():
        metadata = obj["metadata"]
        owners = {r["uid"] for r in metadata.get("ownerReferences", []) if r["kind"] == names.KIND}
        ours = owners or metadata.get("labels", {}).get(names.LABEL_MANAGED_BY) == names.FIELD_MANAGER
        if not ours or foreign.has(kind, name):
            continue
        if not owners <= uids or not owners:
            yield f"{kind} {name} is an orphan"
        elif (kind, name) not in requested:
            yield f"no TritonModel wants {kind} {name}"


def unneeded(work: Workload) -> Iterator[str]:
    """Yields ReplicaSets whose pod template no spec requested, and Deployments whose pod templates are out of order."""
    histories: dict[str, list[tuple[int, int, str]]] = {}
    for replicas in work.api.list("ReplicaSet"):
        metadata = replicas["metadata"]
        template = replicas["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_TEMPLATE]
        number = work.templates.get(template)
        if number is None:
            yield f"ReplicaSet {metadata['name']} has the template {template}, which no spec requested"
            continue
        revision = int(metadata["annotations"]["deployment.kubernetes.io/revision"])
        histories.setdefault(metadata["ownerReferences"][0]["uid"], []).append((revision, number, metadata["name"]))
    for history in histories.values():
        # A template that a Deployment uses again gets a new revision.
        numbers = [number for _, number, _ in sorted(history)]
        if numbers != sorted(set(numbers)):
            yield f"the templates of a Deployment are in another order than its specs: {sorted(history)}"


def unlike(want: Any, have: Any, path: str = "", field: str = "") -> Iterator[str]:
    """Yields the paths at which `have` lacks something of `want`."""
    if isinstance(want, dict) and isinstance(have, dict):
        for key, value in want.items():
            yield from unlike(value, have.get(key), f"{path}.{key}", key)
    elif isinstance(want, list) and isinstance(have, list):
        keys = LIST_KEYS.get(field, ("name",))
        if want and all(key_of(item, keys) for item in want):
            by_key = {key_of(item, keys): item for item in have}
            for item in want:
                yield from unlike(item, by_key.get(key_of(item, keys)), f"{path}[{key_of(item, keys)}]")
        elif len(want) != len(have):
            yield path
        else:
            for index, (want_item, have_item) in enumerate(zip(want, have, strict=True)):
                yield from unlike(want_item, have_item, f"{path}[{index}]")
    elif want != have and not (want in ({}, [], "") and have is None) and not quantity.same(want, have):
        yield f"{path}: {have!r}, wanted {want!r}"
