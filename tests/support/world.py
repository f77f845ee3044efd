"""What must be true of a namespace of TritonModels once nothing is broken any more."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

from triton_operator.api import names, quantity
from triton_operator.api.lists import LIST_KEYS
from triton_operator.render.children import KINDS

from .api import PATIENCE, Api, Object, condition, eventually
from .controlplane import ControlPlane
from .supervised import Supervised
from .workload import BROKEN, Workload, desired

Objects = dict[tuple[str, str], Object]
"""By kind and name."""


class Foreign:
    """Objects of others, as like ours as can be, that nobody may touch. No controller writes their status."""

    def __init__(self, api: Api, monitoring: bool = True) -> None:
        self._api, self._monitoring = api, monitoring
        self.known: dict[tuple[str, str], str] = {}
        self.plant()

    def plant(self) -> None:
        """Makes them; again where the namespace is another one."""
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
        # One that belongs to somebody else.
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": True,
                 "uid": api.get("ConfigMap", "owner")["metadata"]["uid"]}  # fmt: skip
        owned = _object("v1", "Service", "m-1-owned", labels, spec=ports)
        owned["metadata"] |= {"namespace": api.namespace, "ownerReferences": [owner]}
        self._note(api.create(owned))

    def problems(self) -> Iterator[str]:
        for (kind, name), version in self.known.items():
            found = self._api.find(kind, name)
            if found is None or found["metadata"]["resourceVersion"] != version:
                yield f"the foreign {kind} {name} was touched: {found}"

    def forget(self, kind: str) -> None:
        """Its CRD has gone, and all objects with it."""
        self.known = {(k, n): v for (k, n), v in self.known.items() if k != kind}

    def has(self, kind: str, name: str) -> bool:
        return (kind, name) in self.known

    def _note(self, obj: Object) -> None:
        self.known[obj["kind"], obj["metadata"]["name"]] = obj["metadata"]["resourceVersion"]


def _object(version: str, kind: str, name: str, labels: dict[str, str], **more: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}, **more}


def assert_whole(
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
    """The state of the world after a fault; how many seconds it took to become so.

    Every model is as it was asked for, each of its children is there once and as rendered, what belonged to deleted
    models is gone, no foreign object was touched, no pod template came that nobody had asked for (`restarts`), nothing
    is written any more for `still` seconds, and the operator has never met what it can't deal with.
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
    assert_still(plane, operator, still)
    # What was true stays true.
    wrong = [*problems(work, foreign, monitoring), *(unneeded(work) if restarts else ())]
    assert not wrong, "\n".join([*wrong, operator.log])
    assert_log(operator.log)
    return took


def assert_still(plane: ControlPlane, operator: Supervised, seconds: float) -> None:
    """Nothing is written for so long, and nothing looked at again and again: no loop goes on. The controllers' own
    writes come to their end first."""
    last, since, deadline = written(plane), time.monotonic(), time.monotonic() + 2 * PATIENCE
    passes = operator.now.passes()
    while time.monotonic() - since < seconds:
        time.sleep(0.4)
        now = written(plane)
        if now != last:
            assert time.monotonic() < deadline, ("the writes don't end", difference(last, now), operator.log[-4000:])
            last, since, passes = now, time.monotonic(), operator.now.passes()
    passes, seconds = operator.now.passes() - passes, time.monotonic() - since
    # What is propagating, or is refused, is looked at each 2 s; a listing and what was on its way come on top.
    assert passes <= operator.now.counted("triton_operator_models") * (3 + seconds), (passes, seconds)


def assert_log(log: str) -> None:
    """No traceback, and nothing of which the operator itself says that it is an error, but for a lease that is lost."""
    assert "Traceback" not in log, _around(log, "Traceback")
    errors = [e for e in _entries(log) if e.get("level") in ("ERROR", "CRITICAL")]
    errors = [e for e in errors if not _expected(e)]
    assert not errors, errors[:5]


def _expected(entry: Object) -> bool:
    # kopf tells of each request that fails, and then tries again.
    return entry["logger"].startswith("kopf") or "leading no more" in entry["message"]


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
    """As ControlPlane.writes, by kind and subresource alone."""
    out: dict[str, float] = {}
    for labels, count in plane.writes().items():
        found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        name = "/".join(filter(None, (found["verb"], found["resource"], found["subresource"])))
        out[name] = out.get(name, 0) + count
    return out


def difference(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    return {k: n - before.get(k, 0) for k, n in now.items() if n != before.get(k, 0)}


def problems(work: Workload, foreign: Foreign, monitoring: bool = True) -> list[str]:
    """What is not as it should be, in words."""
    models = {m["metadata"]["name"]: m for m in work.api.list("TritonModel")}
    there = {
        (kind.kind, obj["metadata"]["name"]): {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        for kind in KINDS
        if monitoring or not kind.optional
        for obj in work.api.list(kind.kind)
    }
    wanted = {
        name: {(o["kind"], o["metadata"]["name"]): o for o in desired(m, there.get(("Deployment", name)), monitoring)}
        for name, m in models.items()
    }
    found = [f"there are {sorted(models)}, wanted {sorted(work.wanted)}"] if models.keys() != work.wanted.keys() else []
    for name, model in models.items():
        found += _model(name, model, wanted[name], there, monitoring)
    return [*found, *_strangers(models, wanted, there, foreign), *_servers(work.api, there), *foreign.problems()]


def _model(name: str, model: Object, wanted: Objects, there: Objects, monitoring: bool) -> Iterator[str]:
    metadata, status = model["metadata"], model.get("status", {})
    if status.get("observedGeneration") != metadata["generation"]:
        yield f"{name}: the status is about {status.get('observedGeneration')}, not {metadata['generation']}"
    ready = condition(model, "Ready")
    if ready.get("status") != "True" and ready.get("reason") != "ScaledToZero":
        yield f"{name}: {ready}"
    if ready.get("status") == "True" and monitoring and status.get("entrypointType") != "Ensemble":
        yield f"{name}: the entry model isn't known"
    for (kind, child), want in wanted.items():
        have = there.get((kind, child))
        if have is None:
            yield f"{name}: no {kind} {child}"
            continue
        yield from (f"{name}: {kind} {child} differs at {path}" for path in unlike(want, have))
        if "deletionTimestamp" in have["metadata"]:
            yield f"{name}: {kind} {child} is being deleted"


def _servers(api: Api, there: Objects) -> Iterator[str]:
    """Servers of Deployments that are gone. Their pods have the labels of those that are there."""
    uids = {obj["metadata"]["uid"] for (kind, _), obj in there.items() if kind == "Deployment"}
    # The pods first: one that is made meanwhile has a ReplicaSet that is listed.
    pods, sets = api.list("Pod"), api.list("ReplicaSet")
    for found in sets:
        if not _owners(found) <= uids:
            yield f"ReplicaSet {found['metadata']['name']} is of a Deployment that is gone"
    for found in pods:
        if not _owners(found) <= {obj["metadata"]["uid"] for obj in sets}:
            yield f"Pod {found['metadata']['name']} is of a ReplicaSet that is gone"


def _owners(obj: Object) -> set[str]:
    return {r["uid"] for r in obj["metadata"].get("ownerReferences", [])}


def _strangers(
    models: dict[str, Object], wanted: dict[str, Objects], there: Objects, foreign: Foreign
) -> Iterator[str]:
    """Objects that belong to no model, or that none asks for."""
    uids = {m["metadata"]["uid"] for m in models.values()}
    # Alerts aren't taken away because the entry model isn't known yet.
    kept = {
        ("PrometheusRule", name)
        for name, m in models.items()
        if not m.get("status", {}).get("entrypointType") and m["spec"].get("monitoring", {}).get("enabled", True)
    }
    asked = kept.union(*wanted.values())
    for (kind, name), obj in there.items():
        metadata = obj["metadata"]
        owners = {r["uid"] for r in metadata.get("ownerReferences", []) if r["kind"] == names.KIND}
        ours = owners or metadata.get("labels", {}).get(names.LABEL_MANAGED_BY) == names.FIELD_MANAGER
        if not ours or foreign.has(kind, name):
            continue
        if not owners <= uids or not owners:
            yield f"{kind} {name} is an orphan"
        elif (kind, name) not in asked:
            yield f"{kind} {name} is wanted by nobody"


def unneeded(work: Workload) -> Iterator[str]:
    """Pod templates that nobody had asked for, or that came back, by the ReplicaSets that the Deployments have left."""
    lives: dict[str, list[tuple[int, int, str]]] = {}
    for replicas in work.api.list("ReplicaSet"):
        metadata = replicas["metadata"]
        template = replicas["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_TEMPLATE]
        number = work.templates.get(template)
        if number is None:
            yield f"ReplicaSet {metadata['name']} has the template {template}, which no spec asked for"
            continue
        revision = int(metadata["annotations"]["deployment.kubernetes.io/revision"])
        lives.setdefault(metadata["ownerReferences"][0]["uid"], []).append((revision, number, metadata["name"]))
    for life in lives.values():
        # A template that comes back gets a new revision.
        numbers = [number for _, number, _ in sorted(life)]
        if numbers != sorted(set(numbers)):
            yield f"the templates of a Deployment came in another order than its specs: {sorted(life)}"


def unlike(want: Any, have: Any, path: str = "", field: str = "") -> Iterator[str]:
    """Paths at which `have` lacks something that `want` has."""
    if isinstance(want, dict) and isinstance(have, dict):
        for key, value in want.items():
            yield from unlike(value, have.get(key), f"{path}.{key}", key)
    elif isinstance(want, list) and isinstance(have, list):
        key = LIST_KEYS.get(field, "name")
        if want and all(isinstance(i, dict) and key in i for i in want):
            there = {i.get(key): i for i in have}
            for item in want:
                yield from unlike(item, there.get(item[key]), f"{path}[{item[key]}]")
        elif len(want) != len(have):
            yield path
        else:
            for index, (one, other) in enumerate(zip(want, have, strict=True)):
                yield from unlike(one, other, f"{path}[{index}]")
    elif want != have and not (want in ({}, [], "") and have is None) and not quantity.same(want, have):
        yield f"{path}: {have!r}, wanted {want!r}"
