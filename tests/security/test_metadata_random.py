"""Random metadata by every way that a tenant has: nothing that the operator or a policy relies on changes."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import gen, operator_process
from support import guarded as guarded_plane
from support.api import Api, Object, eventually
from support.controlplane import ControlPlane
from support.people import Team, refusal, tritonmodel
from support.thresholds import MAX_QPS
from triton_operator.api import names

pytestmark = pytest.mark.integration

ROUNDS = 1500 if os.environ.get("SOAK") else 100
NOBODY = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "00000000-0000-0000-0000-000000000000"}
SERVER, POD, OPEN = "a server", "another pod", "a TritonModel without networkPolicy"
OBJECTS = {SERVER: ("Pod", "server"), POD: ("Pod", "other"), OPEN: (names.KIND, "open")}
WAYS = [
    ("statusmaker", "Deployment", "status"), ("statusmaker", "Service", "status"),
    ("statusmaker", names.KIND, "status"), ("statusmaker", names.KIND, "scale"),
    ("developer", names.KIND, ""), ("developer", "Deployment", ""), ("oncall", names.KIND, ""),
    ("statusmaker", SERVER, "status"), ("statusmaker", POD, "status"), ("statusmaker", POD, "binding"),
    ("statusmaker", POD, "bindings"), ("updater", OPEN, ""),
]  # fmt: skip
"""User, kind (or an object) and subresource. The developer may not write Deployments at all."""


def metadata(source: random.Random, uid: str) -> Object:
    """Returns changes of some fields of the metadata. `uid`: of the TritonModel."""
    other = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "open", "uid": uid}
    parts: list[Object] = [
        {"labels": {names.LABEL_MANAGED_BY: source.choice([None, "other"])}},
        {"labels": {names.LABEL_MODEL: source.choice([None, "open", ""])}},
        {"labels": {f"example.com/{n}": "v" for n in range(source.choice([1, 3000]))}},
        {"annotations": {names.ANNOTATION_POD_TEMPLATE: "forged", names.ANNOTATION_TEMPLATE: "0"}},
        {"annotations": {f"example.com/{n}": "v" for n in range(source.choice([200, 8000]))}},
        {"annotations": {MAX_QPS: source.choice([None, "1"]), "max_qps": "2"}},
        {"ownerReferences": source.choice([None, [NOBODY], [other], [{**other, "controller": True}]])},
        {"finalizers": ["example.com/wait"]},
    ]
    out: Object = {}
    for part in source.sample(parts, source.choice([1, 1, 2, 3])):
        for field, value in part.items():
            out[field] = {**out[field], **value} if isinstance(out.get(field), dict) else value
    return out


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Without admission plugins, which refuse some of these owners too."""
    with guarded_plane.running() as plane:
        yield plane


def add_pod(api: Api, name: str, labels: Object) -> None:
    spec = {"containers": [{"name": "a", "image": "a"}]}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})


def attempt(api: Api, client: Api, kind: str, subresource: str, body: Object) -> str:
    """Sends the request. Returns the API server's refusal; "" without."""
    name_of = OBJECTS.get(kind, (kind, gen.NAME))
    if subresource.startswith("binding"):
        return bind_pod(api, client, subresource, body["metadata"])
    answer = refusal(lambda: client.patch(*name_of, body, subresource=subresource))
    if kind == SERVER and not answer:
        # To remove the label takes the requests from the pod, as its deletion does.
        assert label(api.get(*name_of)) in ("", gen.NAME), body
        api.patch(*name_of, {"metadata": {"labels": names.selector(gen.NAME)}})
    return answer


def bind_pod(api: Api, client: Api, resource: str, metadata: Object) -> str:
    """Binds the other pod, with this metadata."""
    _, name = OBJECTS[POD]
    fields = {
        key: {k: v for k, v in metadata.get(key, {}).items() if v is not None} for key in ("labels", "annotations")
    }
    binding = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **fields},
        "target": {"kind": "Node", "name": "a"},
    }  # fmt: skip
    path = client.path("Pod", name) + "/binding" if resource == "binding" else f"{client.path('Pod')[:-4]}bindings"
    answer = refusal(lambda: client.request("POST", path, binding))
    if not answer:
        # A pod can be bound only once. An earlier round may have set a finalizer.
        assert not label(api.get("Pod", name)), metadata
        api.patch("Pod", name, {"metadata": {"finalizers": None}})
        api.request("DELETE", api.path("Pod", name), {"gracePeriodSeconds": 0})
        add_pod(api, name, {"app": "other"})
    return answer


def label(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get(names.LABEL_MODEL, ""))


def guarded(api: Api) -> list[Object]:
    """Returns what only the operator, or a user with more rights, may change."""
    parts = []
    for kind in ("Deployment", "Service"):
        child_metadata = api.get(kind, gen.NAME)["metadata"]
        parts.append(
            {key: child_metadata.get(key) for key in ("uid", "labels", "annotations", "ownerReferences", "finalizers")}
        )
    model = api.get(names.KIND, gen.NAME)
    thresholds = {k: v for k, v in model["metadata"]["annotations"].items() if k in (MAX_QPS, "max_qps")}
    owners = model["metadata"].get("ownerReferences")
    parts.append({"uid": model["metadata"]["uid"], "owners": owners, "thresholds": thresholds, "spec": model["spec"]})
    parts.append({"owners": api.get(names.KIND, "open")["metadata"].get("ownerReferences")})
    server, other = (api.get(*OBJECTS[pod]) for pod in (SERVER, POD))
    parts.append({"label": label(server), "address": server["status"].get("podIP"), "label of others": label(other)})
    return parts


def test_random_metadata_changes_nothing_that_is_guarded(team: Team, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "0")) or random.randrange(1, 10**6)
    print(f"seed {seed}")
    source, api = random.Random(seed), team.api()
    api.create(tritonmodel(gen.NAME, {MAX_QPS: "80"}, networkPolicy={}))
    uid = api.create(tritonmodel("open"))["metadata"]["uid"]
    add_pod(api, "server", names.labels(gen.NAME))
    add_pod(api, "other", {"app": "other"})
    kubeconfig = operator_process.install(team.plane)
    with operator_process.running(kubeconfig, tmp_path, WATCH_NAMESPACES=team.namespace) as operator:
        eventually(lambda: api.find("Service", gen.NAME), 20, lambda: operator.log)
        assert operator.stop() == 0  # it would correct what gets through
    clients = {user: team.api(user) for user, _, _ in WAYS}
    before, refused = guarded(api), 0
    for number in range(ROUNDS):
        user, kind, subresource = source.choice(WAYS)
        body: Object = {"metadata": metadata(source, uid)}
        if kind in (SERVER, POD) and source.random() < 0.5:
            body["status"] = {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}
        answer = attempt(api, clients[user], kind, subresource, body)
        if user == "oncall" and not answer:
            # They may set thresholds.
            api.patch(names.KIND, gen.NAME, {"metadata": {"annotations": {MAX_QPS: "80", "max_qps": None}}})
        refused += bool(answer)
        assert guarded(api) == before, (seed, number, user, kind, subresource, sorted(body["metadata"]), answer)
    assert ROUNDS / 4 < refused < ROUNDS
