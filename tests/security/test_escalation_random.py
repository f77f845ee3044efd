"""Random specs: those that the policy accepts from a developer add no privileges to the pods.

The policy checks the spec, and this test checks the rendered pods.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from support import allowed, gen
from support.api import Api, Object, RefusedError
from support.controlplane import ControlPlane
from support.people import Team, tritonmodel
from triton_operator.api import names
from triton_operator.api.types import TritonModel
from triton_operator.render import Facts, render

pytestmark = pytest.mark.integration

ROUNDS = 2000 if os.environ.get("SOAK") else 250
Feature = tuple[str, ...]

SECRET = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
FIELD = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
ODD: list[Any] = [None, 5, "x", {}, [], [None], [5], {"name": "triton"}]
NAMES = ["data", "models", "tmp", "shm", "tools", "extra"]
ENV: list[Any] = [
    {"name": "A", "value": "1"}, {"name": "A", **SECRET}, {"name": "A", **FIELD}, {"name": "B", **SECRET},
    {"name": "A", "value": None, "valueFrom": {**FIELD["valueFrom"], **SECRET["valueFrom"]}},
    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}, {"name": "B", "valueFrom": None},
]  # fmt: skip
SOURCES: list[Object] = [
    {"emptyDir": {}}, {"emptyDir": {"medium": "Memory"}}, {"emptyDir": None}, {}, {"hostPath": {"path": "/"}},
    {"secret": {"secretName": "s"}}, {"emptyDir": None, "hostPath": {"path": "/etc"}}, {"emptyDir": {}, "secret": {}},
]  # fmt: skip
FIELDS: dict[str, list[Any]] = {
    "hostNetwork": [True, None], "serviceAccountName": ["admin", None], "automountServiceAccountToken": [True, None],
    "securityContext": [None, {}, {"runAsUser": 0}], "nodeName": ["n"], "priorityClassName": ["p"],
    "initContainers": [[{"name": "check", "image": "i"}], [{"name": "mine", "image": "i"}], None, ["x"]],
    "imagePullSecrets": [[{"name": "s"}]], "nodeSelector": [{"a": "b"}, None], "enableServiceLinks": [True],
    "affinity": [{"nodeAffinity": {}}, {"podAffinity": {}}, {"nodeAffinity": {}, "podAntiAffinity": {"a": 1}}, None],
    "topologySpreadConstraints": [[{"topologyKey": "zone"}], None], "yetToCome": [{}],
}  # fmt: skip
CONTAINER: dict[str, list[Any]] = {
    "args": [["--x"], None], "command": [["/x"], None], "workingDir": ["/"], "image": ["mine"], "ports": [[], None],
    "securityContext": [None, {}, {"privileged": True}, {"capabilities": None}], "livenessProbe": [None, {"exec": {}}],
    "lifecycle": [None], "resources": [{"limits": {"example.com/gpu": None}}, {"claims": []}],
    "envFrom": [[{"secretRef": {"name": "s"}}]],
}  # fmt: skip
DEVICES = ["example.com/gpu", "node-role.kubernetes.io/control-plane"]
KEYS = [*DEVICES * 4, "team-b", "", "node.kubernetes.io/not-ready"]


class Maker:
    """Makes random parts of specs: most are well-formed, half are allowed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def some(self, make: Any, most: int = 3) -> list[Any]:
        return [make() for _ in range(self.chance.randint(0, most))]

    def odd(self, usual: Any) -> Any:
        return self.chance.choice(ODD) if self.chance.random() < 0.04 else usual

    def variable(self) -> Any:
        return self.odd(self.chance.choice(ENV[:1] * 5 + ENV))

    def volume(self) -> Any:
        return self.odd({"name": self.chance.choice(NAMES), **self.chance.choice(SOURCES[:1] * 6 + SOURCES)})

    def mount(self) -> Any:
        name, path = self.chance.choice(NAMES), self.chance.choice(["/data", "/models", "/tmp", "/etc"])
        return self.odd({"name": name, "mountPath": path, **({"readOnly": True} if self.chance.random() < 0.3 else {})})

    def toleration(self) -> Any:
        return self.odd({"key": self.chance.choice(KEYS), "operator": "Exists"})

    def container(self) -> Any:
        name = "sidecar" if self.chance.random() < 0.1 else names.CONTAINER_SERVER
        out: Object = {"name": name}
        if self.chance.random() < 0.6:
            out["env"] = self.odd(self.some(self.variable, 2))
        if self.chance.random() < 0.6:
            out["volumeMounts"] = self.odd(self.some(self.mount, 2))
        return self.odd(out | self.fields(CONTAINER, 0.06))

    def fields(self, table: dict[str, list[Any]], rate: float) -> Object:
        return {k: self.chance.choice(v) for k, v in table.items() if self.chance.random() < rate}

    def spec(self) -> Object:
        template: Object = self.fields(FIELDS, 0.04)
        for field, make in (("volumes", self.volume), ("containers", self.container), ("tolerations", self.toleration)):
            if self.chance.random() < 0.5:
                template[field] = self.odd(self.some(make, 3 if field == "volumes" else 2))
        labels = {"app": "x"} if self.chance.random() < 0.05 else {}
        annotations = {"note": "x", **({"example.com/a": "b"} if self.chance.random() < 0.05 else {})}
        server: Object = {"env": [e for e in self.some(self.variable, 2) if isinstance(e, dict)]}
        if self.chance.random() < 0.5:
            server["resources"] = {"limits": {self.chance.choice(DEVICES): self.chance.choice([0, 1, "1"])}}
        metadata = {"labels": labels, "annotations": annotations}
        return {"server": server, "podTemplate": {"metadata": metadata, "spec": template}}


def pod(spec: Object) -> Object:
    model = TritonModel.model_validate(gen.raw(**spec))
    deployment = next(o for o in render(model, Facts("operator:1", "Copy")) if o["kind"] == "Deployment")
    template: Object = deployment["spec"]["template"]
    return template


def features(spec: Object) -> set[Feature]:
    """Returns the parts of the pods that need the permission to create pods, except those of every server."""
    server = {k: v for k, v in spec["server"].items() if k != "env"}
    custom, plain = pod(spec), pod({**spec, "podTemplate": {}, "server": server})
    return set(_features(custom["spec"], plain["spec"], server)) | set(_metadata(custom["metadata"], plain["metadata"]))


def _features(custom: Object, plain: Object, server: Object) -> Iterator[Feature]:
    listed = {"containers", "initContainers", "volumes", "tolerations", "affinity"}
    yield from _differences("pod", custom, plain, listed | {"nodeSelector", "topologySpreadConstraints"})
    limits = server.get("resources", {}).get("limits", {})
    held = {k for k, v in limits.items() if str(v) != "0" and "kubernetes.io/" not in k}
    for toleration in _dicts(custom.get("tolerations")):
        if toleration.get("key") not in held | set(allowed.TOLERATIONS):
            yield "toleration", _text(toleration)
    for kind, value in (custom.get("affinity") or {}).items():
        if kind != "nodeAffinity":
            yield "affinity", kind, _text(value)
    volumes = {v.get("name"): v for v in _dicts(custom.get("volumes"))}
    foreign = {n: v for n, v in volumes.items() if v not in plain["volumes"] and not _is_empty(v)}
    yield from (("volume", _text(_source(v))) for v in foreign.values())
    for group in ("containers", "initContainers"):
        usual = {c["name"]: c for c in plain[group]}
        for container in _dicts(custom.get(group)):
            name = str(container.get("name"))
            if name not in usual:
                yield "container", _text(container)
                continue
            # The arguments of the check contain the number of containers.
            free = {names.CONTAINER_SERVER: set(allowed.CONTAINER), names.CONTAINER_CHECK: {"command"}}.get(name, set())
            yield from _differences(name, container, usual[name], free)
            for variable in _dicts(container.get("env")):
                yield from _references(name, variable)
            for mount in _dicts(container.get("volumeMounts")):
                if mount.get("name") in foreign and mount not in usual[name]["volumeMounts"]:
                    yield "mount", name, _text(mount), _text(_source(foreign[mount["name"]]))


def _written(spec: Object) -> Iterator[Feature]:
    """Returns the existing variables, also those that podTemplate overrides."""
    for variable in spec["server"]["env"]:
        yield from _references(names.CONTAINER_SERVER, variable)


def _references(container: str, variable: Object) -> Iterator[Feature]:
    for kind, reference in (variable.get("valueFrom") or {}).items():
        if kind not in allowed.VALUE_FROM:
            yield "env", container, str(variable.get("name")), kind, _text(reference)


def _metadata(custom: Object, plain: Object) -> Iterator[Feature]:
    for key, value in custom["labels"].items():
        if plain["labels"].get(key) != value:
            yield "label", key, value
    for key, value in custom["annotations"].items():
        own = key == names.ANNOTATION_TEMPLATE or plain["annotations"].get(key) == value
        if "/" in key and not own and key not in allowed.ANNOTATIONS:
            yield "annotation", key, value


def _differences(where: str, custom: Object, plain: Object, free: set[str]) -> Iterator[Feature]:
    for key in sorted({*custom, *plain} - free):
        if custom.get(key) != plain.get(key) or (key in custom) != (key in plain):
            # The merged resources depend on the server's resources.
            yield where, key, "" if key == "resources" else _text(custom.get(key, "is gone"))


def _is_empty(volume: Object) -> bool:
    return set(volume) <= {"name", "emptyDir"}


def _source(volume: Object) -> Object:
    """Returns the fields of a volume, except those of an emptyDir."""
    return {k: v for k, v in volume.items() if k != "emptyDir"}


def _dicts(value: Any) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@pytest.fixture(autouse=True)
def policy_alone(plane: ControlPlane) -> Iterator[None]:
    """Tests the policy without the help of the CRD's schema, which drops or rejects many values."""
    with plane.without_bounds():
        yield


@pytest.fixture(scope="module")
def seed() -> int:
    """Returns the seed: a fixed one, or a random one for long runs (SOAK)."""
    return int(os.environ.get("SEED") or (random.randrange(1 << 30) if os.environ.get("SOAK") else 1))


def test_random_creations_by_a_developer_add_no_privileges(team: Team, seed: int) -> None:
    make, developer = Maker(seed), team.api("developer")
    let, held = 0, 0
    for number in range(ROUNDS):
        spec = make.spec()
        accepted, refusal = _dry_run(developer, "POST", developer.path("TritonModel"), tritonmodel("random", **spec))
        held += "pod-template" in refusal
        if accepted is None:
            continue
        let += 1
        more = features(accepted)
        assert not more, (seed, number, spec, more)
    # Some are accepted and some refused; otherwise the test shows nothing.
    assert let > ROUNDS / 20, (let, held)
    assert held > ROUNDS / 20, (let, held)


def test_random_changes_by_a_developer_add_no_privileges(team: Team, seed: int) -> None:
    make, developer, admin = Maker(seed + 1), team.api("developer"), team.api()
    let = 0
    for number in range(ROUNDS // 2):
        before, name = make.spec(), f"random-{number}"
        try:
            before = admin.create(tritonmodel(name, **before))["spec"]
        except RefusedError:
            continue  # the schema rejects some random values for everyone
        # Parts of the previous spec, and others.
        after = mixed(make, before, make.spec())
        obj = developer.get("TritonModel", name)
        obj["spec"] |= after
        accepted, _ = _dry_run(developer, "PUT", developer.path("TritonModel", name), obj)
        if accepted is None:
            continue
        let += 1
        more = features(accepted) - features(before) - set(_written(before))
        assert not more, (seed, number, before, after, more)
    assert let > ROUNDS / 40, let


def _dry_run(api: Api, method: str, path: str, obj: Object) -> tuple[Object | None, str]:
    """Returns the spec that the API server would store, without unknown fields; or None, and its refusal."""
    try:
        return api.request(method, f"{path}?dryRun=All", obj)["spec"], ""
    except RefusedError as error:
        return None, error.message


def mixed(make: Maker, before: Any, other: Any) -> Any:
    """Returns a random mix of the previous and another value."""
    if isinstance(before, dict) and isinstance(other, dict):
        keys = [*before, *(k for k in other if k not in before)]
        both = {k: mixed(make, before.get(k, other.get(k)), other.get(k, before.get(k))) for k in keys}
        return {k: v for k, v in both.items() if k in ("name", "server", "podTemplate") or make.chance.random() < 0.9}
    if isinstance(before, list) and isinstance(other, list) and make.chance.random() < 0.7:
        return [*(i for i in before if make.chance.random() < 0.8), *(i for i in other if make.chance.random() < 0.2)]
    return before if make.chance.random() < 0.85 else other
