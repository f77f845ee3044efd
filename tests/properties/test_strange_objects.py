"""Thousands of unusual objects that the API server accepts. They must not affect other TritonModels."""

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
"""The number of rounds, and of unusual TritonModels and unusual children in each."""
accepted: Counter[str] = Counter()
"""The number of patches that the API server accepted, by kind. The test needs many of each."""
CANARIES = tuple(f"canary-{n}" for n in range(16))
"""Ordinary TritonModels. Two change in each round, because the operator limits the rate of changes of one spec."""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with controlplane.running() as control_plane:
        control_plane.install_crds()
        control_plane.install_monitoring()
        control_plane.install_keda()
        control_plane.install_routes()
        control_plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strange"}})
        yield control_plane


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    kubeconfig, folder = operator_process.install(plane), tmp_path_factory.mktemp("operator")
    with operator_process.running(kubeconfig, folder, RESYNC_SECONDS="5") as process:
        yield process


def test_unusual_objects_do_not_affect_other_tritonmodels(plane: ControlPlane, operator: Operator) -> None:
    api = plane.api.in_namespace("strange")
    uids = {}
    for name in CANARIES:
        spec = {"modelImage": {"reference": "example.com/models:0"}}
        body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": spec}
        uids[name] = api.create(body)["metadata"]["uid"]
    seed = int(os.environ.get("SEED", "1")) if not SOAK else int(os.environ.get("SEED", str(time.time_ns() % 10**6)))
    print(f"SEED={seed}")
    strange = Strange(seed, uids)
    created = refused = 0
    for number in range(ROUNDS):
        models = [strange.model() for _ in range(EACH)]
        children = [strange.child() for _ in range(EACH)]
        with ThreadPoolExecutor(4) as pool:
            results = [
                *pool.map(lambda m: put(api, m[0], m[1], None), models),
                *pool.map(lambda c: put(api, *c), children),
            ]
            created += sum(results)
            refused += len(results) - sum(results)
            list(
                pool.map(
                    lambda m: write_status_or_delete(api, m[0], *m[1]),
                    [(m[0], (strange.status(), n)) for n, m in enumerate(models)],
                )
            )
        took = change_canaries(api, operator, number)
        eventually(lambda: canaries_have_metrics(operator), 60, lambda: operator.log[-3000:])
        print(f"round {number}: {created} created, {refused} refused, canaries after {took:.1f} s")
        assert "Traceback" not in operator.log, operator.log[operator.log.index("Traceback") - 500 :][:4000]
        if SOAK:
            delete_unusual_models(api)
    print(f"accepted patches: {dict(accepted)}")
    assert created > ROUNDS * EACH
    assert all(accepted[what] > ROUNDS * EACH / 10 for what in ("managedFields", "status", "status of a child")), (
        accepted
    )
    print(f"{operator.reconciles():.0f} reconciles, {operator.reconciles(result='error'):.0f} of them failed")
    eventually(lambda: operator.get("/healthz") == "ok", 60, lambda: operator.log[-3000:])
    assert operator.stop() == 0
    assert "Traceback" not in operator.log


def canaries_have_metrics(operator: Operator) -> bool:
    metrics = operator.get("/metrics")
    return all(f'tritonmodel="{name}"' in metrics for name in CANARIES)


def put(api: Api, body: Json, patch: Json | None, status: Json | None) -> bool:
    """Creates and patches the object. Returns whether the API server accepted it."""
    try:
        stored = api.create({**body, "metadata": {**body["metadata"], "namespace": api.namespace}})
    except RefusedError:
        return False
    body["metadata"]["name"] = name = stored["metadata"]["name"]
    if patch is not None:
        accepted["managedFields"] += try_patch(api, body["kind"], name, patch)
    if status is not None:
        accepted["status of a child"] += try_patch(api, body["kind"], name, {"status": status}, "status")
    return True


def try_patch(api: Api, kind: str, name: str, patch: Json, subresource: str = "") -> bool:
    try:
        api.patch(kind, name, patch, subresource)
    except RefusedError:
        return False
    return True


def write_status_or_delete(api: Api, model: Json, status: Any, number: int) -> None:
    """Writes a generated status, and deletes every fifth TritonModel, some of which have finalizers."""
    if "name" not in model["metadata"]:
        return
    accepted["status"] += try_patch(api, names.KIND, model["metadata"]["name"], {"status": status}, "status")
    if number % 5 == 0:
        with contextlib.suppress(RefusedError):
            api.delete(names.KIND, model["metadata"]["name"])


def change_canaries(api: Api, operator: Operator, number: int) -> float:
    """Changes two ordinary TritonModels. Returns the seconds until their Deployments have the change."""
    image, began = f"example.com/triton:{number}", time.monotonic()
    canaries = [CANARIES[(2 * number + n) % len(CANARIES)] for n in range(2)]
    for name in canaries:
        api.patch(names.KIND, name, {"spec": {"server": {"image": image}}})

    def has_image(name: str) -> bool:
        deployment = api.find("Deployment", name)
        return bool(deployment) and deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image

    for name in canaries:
        eventually(lambda n=name: has_image(n), 120, lambda: operator.log[-4000:])
    return time.monotonic() - began


def delete_unusual_models(api: Api) -> None:
    """Deletes all unusual TritonModels, to limit their number."""
    for model in api.list(names.KIND):
        name = model["metadata"]["name"]
        if name not in CANARIES:
            with contextlib.suppress(RefusedError):
                api.patch(names.KIND, name, {"metadata": {"finalizers": None}})
            api.delete(names.KIND, name)
