"""Thousands of objects that the API server takes and nobody would write: only they may suffer."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support import controlplane, operator_process
from support.api import Api, RefusedError, eventually
from support.controlplane import ControlPlane
from support.operator_process import Operator
from support.profiles import SOAK
from support.strange import Strange
from triton_operator.api import names

pytestmark = pytest.mark.properties

Json = dict[str, Any]
ROUNDS, EACH = (40, 60) if SOAK else (2, 60)
"""So many rounds, each of so many TritonModels and as many of what looks like children."""
accepted: Counter[str] = Counter()
"""How many of the patches the API server took, so that it is seen whether they are strange in vain."""
CANARIES = ("canary-one", "canary-two")
SERVED_SECONDS = 20
"""Within which a healthy TritonModel is served beside it all, on a busy machine too; as a rule it takes two."""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with controlplane.running() as found:
        found.install_crds()
        found.install_monitoring()
        found.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strange"}})
        yield found


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    kubeconfig, folder = operator_process.install(plane), tmp_path_factory.mktemp("operator")
    with operator_process.running(kubeconfig, folder, RESYNC_SECONDS="5") as found:
        yield found


def test_strange_objects_harm_nobody_else(plane: ControlPlane, operator: Operator) -> None:
    api = plane.api.within("strange")
    uids = {}
    for name in CANARIES:
        spec = {"modelImage": {"reference": "example.com/models:0"}}
        body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": spec}
        uids[name] = api.create(body)["metadata"]["uid"]
    seed = int(os.environ.get("SEED", "1")) if not SOAK else int(os.environ.get("SEED", str(time.time_ns() % 10**6)))
    print(f"SEED={seed}")
    strange = Strange(seed, uids)
    taken = refused = 0
    for number in range(ROUNDS):
        made = [strange.model() for _ in range(EACH)]
        beside = [strange.child() for _ in range(EACH)]
        with ThreadPoolExecutor(4) as pool:
            results = [
                *pool.map(lambda m: put(api, m[0], m[1], None), made),
                *pool.map(lambda c: put(api, *c), beside),
            ]
            taken += sum(results)
            refused += len(results) - sum(results)
            list(
                pool.map(
                    lambda m: disturb(api, m[0], *m[1]), [(m[0], (strange.status(), n)) for n, m in enumerate(made)]
                )
            )
        took = canaries_are_served(api, operator, f"example.com/triton:{number}")
        began = time.monotonic()
        for name in CANARIES:
            assert f'tritonmodel="{name}"' in operator.ask("/metrics"), operator.log[-3000:]
        assert time.monotonic() - began < 5
        print(f"round {number}: {taken} taken, {refused} refused, canaries after {took:.1f} s")
        assert "Traceback" not in operator.log, operator.log[operator.log.index("Traceback") - 500 :][:4000]
        if SOAK:
            clear(api)
    print(f"taken too: {dict(accepted)}")
    assert taken > ROUNDS * EACH
    assert all(accepted[what] > ROUNDS * EACH / 10 for what in ("managedFields", "status", "status of a child")), (
        accepted
    )
    print(f"{operator.passes():.0f} passes, {operator.passes(result='error'):.0f} of them failed")
    assert operator.ask("/healthz") == "ok"
    assert operator.stop() == 0
    assert "Traceback" not in operator.log


def put(api: Api, body: Json, patch: Json | None, status: Json | None) -> bool:
    """Whether the API server takes it."""
    try:
        made = api.create({**body, "metadata": {**body["metadata"], "namespace": api.namespace}})
    except RefusedError:
        return False
    body["metadata"]["name"] = name = made["metadata"]["name"]
    if patch is not None:
        accepted["managedFields"] += patched(api, body["kind"], name, patch)
    if status is not None:
        accepted["status of a child"] += patched(api, body["kind"], name, {"status": status}, "status")
    return True


def patched(api: Api, kind: str, name: str, patch: Json, subresource: str = "") -> bool:
    try:
        api.patch(kind, name, patch, subresource)
    except RefusedError:
        return False
    return True


def disturb(api: Api, model: Json, status: Any, number: int) -> None:
    """A status by hand, and for some an end that a finalizer holds up."""
    if "name" not in model["metadata"]:
        return
    accepted["status"] += patched(api, names.KIND, model["metadata"]["name"], {"status": status}, "status")
    if number % 5 == 0:
        with contextlib.suppress(RefusedError):
            api.delete(names.KIND, model["metadata"]["name"])


def canaries_are_served(api: Api, operator: Operator, image: str) -> float:
    """How many seconds an ordinary change of ordinary resources took to reach their children."""
    began = time.monotonic()
    for name in CANARIES:
        api.patch(names.KIND, name, {"spec": {"server": {"image": image}}})

    def follow(name: str) -> bool:
        found = api.find("Deployment", name)
        return bool(found) and found["spec"]["template"]["spec"]["containers"][0]["image"] == image

    for name in CANARIES:
        eventually(lambda n=name: follow(n), 120, lambda: operator.log[-4000:])
    took = time.monotonic() - began
    assert took < SERVED_SECONDS
    return took


def clear(api: Api) -> None:
    """Takes all strange TritonModels away, so that thousands aren't there at once."""
    for model in api.list(names.KIND):
        name = model["metadata"]["name"]
        if name not in CANARIES:
            with contextlib.suppress(RefusedError):
                api.patch(names.KIND, name, {"metadata": {"finalizers": None}})
            api.delete(names.KIND, name)
