"""Invariants of a namespace with TritonModels, to check after a fault has ended."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

from triton_operator.api import names, quantity
from triton_operator.api.lists import LIST_KEYS, key_of
from triton_operator.render import series
from triton_operator.render.children import KINDS

from .api import MIN_WAIT_SECONDS, Api, Object, condition, eventually
from .controlplane import ControlPlane
from .supervised import Supervised
from .workload import BROKEN, Workload, desired

Objects = dict[tuple[str, str], Object]
"""Objects by kind and name."""


class Foreign:
    """Foreign objects that resemble children. The operator must not change them. No controller writes their status."""

    def __init__(self, api: Api, monitoring: bool = True) -> None:
        self._api, self._monitoring = api, monitoring
        self.known: dict[tuple[str, str], str] = {}
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
        owned = _object("v1", "Service", "m-1-owned", labels, spec=ports)
        owned["metadata"] |= {"namespace": api.namespace, "ownerReferences": [owner]}
        self._note(api.create(owned))

    def problems(self) -> Iterator[str]:
        for (kind, name), version in self.known.items():
            found = self._api.find(kind, name)
            if found is None or found["metadata"]["resourceVersion"] != version:
                yield f"the foreign {kind} {name} was changed or deleted: {found}"

    def forget(self, kind: str) -> None:
        """Forgets the objects of a kind whose CRD was deleted."""
        self.known = {(k, n): v for (k, n), v in self.known.items() if k != kind}

    def has(self, kind: str, name: str) -> bool:
        return (kind, name) in self.known

    def _note(self, obj: Object) -> None:
        self.known[obj["kind"], obj["metadata"]["name"]] = obj["metadata"]["resourceVersion"]


def _object(version: str, kind: str, name: str, labels: dict[str, str], **more: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}, **more}


def assert_converged(
    plane: ControlPlane,
    work: Workload,
    foreign: Foreign,
    operator: Supervised,
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
    found: list[str] = []

    def whole() -> bool:
        try:
            found[:] = problems(work, foreign, monitoring)
        except BROKEN as error:
            found[:] = [str(error)]
        return not found

    eventually(whole, within, lambda: "\n".join([*found[:8], operator.log[-4000:]]), every=0.3)
    took = time.monotonic() - started
    assert_quiet(plane, operator, still)
    # Check again after the quiet time.
    wrong = [*problems(work, foreign, monitoring), *(unneeded(work) if restarts else ())]
    assert not wrong, "\n".join([*wrong, operator.log])
    assert_log(operator.log)
    return took


def assert_quiet(plane: ControlPlane, operator: Supervised, seconds: float) -> None:
    """Checks that a period of `seconds` comes without writes and without repeated reconciles.

    The first periods may have both: other controllers finish, and each deleted pod causes a reconcile.
    """
    deadline = time.monotonic() + 2 * MIN_WAIT_SECONDS
    while True:
        since, writes, reconciles = time.monotonic(), written(plane), operator.current.reconciles()
        time.sleep(seconds)
        changed = difference(writes, written(plane))
        passes, took = operator.current.reconciles() - reconciles, time.monotonic() - since
        # The operator requeues propagating or refused TritonModels every 2 s. A resync and queued keys may add to it.
        if not changed and passes <= operator.current.metric_sum("triton_operator_models") * (3 + took):
            return
        assert time.monotonic() < deadline, ("writes or reconciles don't stop", changed, passes, operator.log[-4000:])


def assert_log(log: str) -> None:
    """Checks that the log has no traceback and no error, except a lost Lease."""
    assert "Traceback" not in log, _around(log, "Traceback")
    errors = [e for e in _entries(log) if e.get("level") in ("ERROR", "CRITICAL")]
    errors = [e for e in errors if not _expected(e)]
    assert not errors, errors[:5]


def _expected(entry: Object) -> bool:
    # kopf logs every failed request and then retries it.
    return entry["logger"].startswith("kopf") or "no longer leading" in entry["message"]


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
    out: dict[str, float] = {}
    for labels, count in plane.writes().items():
        found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        name = "/".join(filter(None, (found["verb"], found["resource"], found["subresource"])))
        out[name] = out.get(name, 0) + count
    return out


def difference(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    return {k: n - before.get(k, 0) for k, n in now.items() if n != before.get(k, 0)}


def problems(work: Workload, foreign: Foreign, monitoring: bool = True) -> list[str]:
    """Returns descriptions of all violated invariants."""
    models = {m["metadata"]["name"]: m for m in work.api.list("TritonModel")}
    there = {
        (kind.kind, obj["metadata"]["name"]): {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        for kind in KINDS
        if monitoring or not kind.optional
        for obj in work.api.list(kind.kind)
    }
    wanted = {
        name: {
            (o["kind"], o["metadata"]["name"]): o
            for o in desired(m, there.get(("Deployment", name)), monitoring, there.get(("PodMonitor", name)))
        }
        for name, m in models.items()
    }
    found = [f"found {sorted(models)}, wanted {sorted(work.wanted)}"] if models.keys() != work.wanted.keys() else []
    for name, model in models.items():
        found += _model(name, model, wanted[name], there, monitoring)
    return [*found, *_strangers(models, wanted, there, foreign), *_servers(work.api, there), *foreign.problems()]


def _model(name: str, model: Object, wanted: Objects, there: Objects, monitoring: bool) -> Iterator[str]:
    metadata, status = model["metadata"], model.get("status", {})
    if status.get("observedGeneration") != metadata["generation"]:
        yield f"{name}: the status has generation {status.get('observedGeneration')}, not {metadata['generation']}"
    ready = condition(model, "Ready")
    if ready.get("status") != "True" and ready.get("reason") != "ScaledToZero":
        yield f"{name}: {ready}"
    if ready.get("status") == "True" and monitoring and status.get("entrypointType") != "Ensemble":
        yield f"{name}: the entrypoint isn't known"
    for (kind, child), want in wanted.items():
        have = there.get((kind, child))
        if have is None:
            yield f"{name}: no {kind} {child}"
            continue
        yield from (f"{name}: {kind} {child} differs at {path}" for path in unlike(want, have))
        if "deletionTimestamp" in have["metadata"]:
            yield f"{name}: {kind} {child} is being deleted"
        if kind == "PodMonitor" and (missing := _reported(status) - set(series.listed(have) or ())):
            yield f"{name}: {kind} {child} lacks {missing}"


def _reported(status: Object) -> set[series.Pair]:
    """Returns the versions of models that the servers report."""
    return set(series.usable((m["name"], m["version"]) for m in status.get("models", [])))


def _servers(api: Api, there: Objects) -> Iterator[str]:
    """Yields the ReplicaSets and pods of deleted Deployments."""
    uids = {obj["metadata"]["uid"] for (kind, _), obj in there.items() if kind == "Deployment"}
    # List pods first, so that the ReplicaSet of every listed pod is in the second list.
    pods, sets = api.list("Pod"), api.list("ReplicaSet")
    for found in sets:
        if not _owners(found) <= uids:
            yield f"ReplicaSet {found['metadata']['name']} belongs to a deleted Deployment"
    for found in pods:
        if not _owners(found) <= {obj["metadata"]["uid"] for obj in sets}:
            yield f"Pod {found['metadata']['name']} belongs to a deleted ReplicaSet"


def _owners(obj: Object) -> set[str]:
    return {r["uid"] for r in obj["metadata"].get("ownerReferences", [])}


def _strangers(
    models: dict[str, Object], wanted: dict[str, Objects], there: Objects, foreign: Foreign
) -> Iterator[str]:
    """Yields children without a TritonModel, and children that their TritonModel doesn't want."""
    uids = {m["metadata"]["uid"] for m in models.values()}
    # The operator keeps the rules while the entrypoint isn't known yet.
    kept = {
        ("PrometheusRule", name)
        for name, m in models.items()
        if not m.get("status", {}).get("entrypointType") and m["spec"].get("monitoring", {}).get("enabled", True)
    }
    requested = kept.union(*wanted.values())
    for (kind, name), obj in there.items():
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
    lives: dict[str, list[tuple[int, int, str]]] = {}
    for replicas in work.api.list("ReplicaSet"):
        metadata = replicas["metadata"]
        template = replicas["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_TEMPLATE]
        number = work.templates.get(template)
        if number is None:
            yield f"ReplicaSet {metadata['name']} has the template {template}, which no spec requested"
            continue
        revision = int(metadata["annotations"]["deployment.kubernetes.io/revision"])
        lives.setdefault(metadata["ownerReferences"][0]["uid"], []).append((revision, number, metadata["name"]))
    for life in lives.values():
        # A template that a Deployment uses again gets a new revision.
        numbers = [number for _, number, _ in sorted(life)]
        if numbers != sorted(set(numbers)):
            yield f"the templates of a Deployment are in another order than its specs: {sorted(life)}"


def unlike(want: Any, have: Any, path: str = "", field: str = "") -> Iterator[str]:
    """Yields the paths at which `have` lacks something of `want`."""
    if isinstance(want, dict) and isinstance(have, dict):
        for key, value in want.items():
            yield from unlike(value, have.get(key), f"{path}.{key}", key)
    elif isinstance(want, list) and isinstance(have, list):
        keys = LIST_KEYS.get(field, ("name",))
        if want and all(key_of(item, keys) for item in want):
            there = {key_of(item, keys): item for item in have}
            for item in want:
                yield from unlike(item, there.get(key_of(item, keys)), f"{path}[{key_of(item, keys)}]")
        elif len(want) != len(have):
            yield path
        else:
            for index, (one, other) in enumerate(zip(want, have, strict=True)):
                yield from unlike(one, other, f"{path}[{index}]")
    elif want != have and not (want in ({}, [], "") and have is None) and not quantity.same(want, have):
        yield f"{path}: {have!r}, wanted {want!r}"
