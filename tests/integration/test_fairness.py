"""One tenant keeps the operator busy. Other tenants don't wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import operator_process, webhook
from support.api import Api, eventually
from support.controlplane import ControlPlane
from support.operator_process import Operator
from support.people import tritonmodel
from triton_operator.reconcile.pace import SPEC_BURST, SPEC_SECONDS

pytestmark = pytest.mark.integration

NOISY, SECONDS, CHANGES = 60, 1.0, 200
SLOW = {"example.com/admission": "slow"}


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    kubeconfig = operator_process.install(control_plane)
    with operator_process.running(kubeconfig, tmp_path_factory.mktemp("operator")) as process:
        yield process


def version(api: Api, kind: str, name: str) -> int:
    """Returns the resourceVersion of the object's last write. These numbers order all writes of the API server."""
    return int(api.get(kind, name)["metadata"]["resourceVersion"])


def test_new_tritonmodel_does_not_wait_for_a_namespace_with_slow_writes(
    api: Api, control_plane: ControlPlane, operator: Operator, tmp_path: Path
) -> None:
    noisy = control_plane.api.in_namespace("noisy")
    control_plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "noisy", "labels": SLOW}})
    for number in range(NOISY):
        noisy.create(tritonmodel(f"n-{number}"))
    eventually(lambda: len(noisy.list("Deployment")) == NOISY, 60, lambda: operator.log[-2000:])
    since = int(noisy.request("GET", noisy.path("Deployment"))["metadata"]["resourceVersion"])
    with webhook.slow(control_plane, tmp_path, SLOW, SECONDS):
        eventually(lambda: is_slow(noisy), 30, "the webhook in effect", every=0)
        change = {"spec": {"modelImage": {"reference": "registry.example.com/noise:1"}}}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: noisy.patch("TritonModel", f"n-{n}", change), range(NOISY)))
        created = int(api.create(tritonmodel("quiet"))["metadata"]["resourceVersion"])
        eventually(lambda: api.find("Deployment", "quiet"), 60, lambda: operator.log[-2000:], every=0.02)
        served = version(api, "Deployment", "quiet")
        eventually(lambda: all(version(noisy, "Deployment", f"n-{n}") > since for n in range(NOISY)), 60)
    writes = sorted(version(noisy, "Deployment", f"n-{n}") for n in range(NOISY))
    between = [write for write in writes if created < write < served]
    print(f"{len(between)} of {NOISY} came before the new model; {sum(w < created for w in writes)} before that")
    assert len(between) < NOISY / 3


def is_slow(noisy: Api) -> bool:
    began = time.monotonic()
    noisy.patch("Deployment", "n-0", {"metadata": {"annotations": {"example.com/now": str(began)}}})
    return time.monotonic() - began >= SECONDS


def test_limits_the_reconciles_of_a_tritonmodel_that_changes_in_a_loop(api: Api, operator: Operator) -> None:
    api.create(tritonmodel("looped"))
    eventually(lambda: api.find("Deployment", "looped"), 60, lambda: operator.log[-2000:])
    before, began = api.get("Deployment", "looped")["metadata"]["generation"], time.monotonic()

    def change(number: int) -> str:
        image = f"registry.example.com/triton:v{number}"
        api.patch("TritonModel", "looped", {"spec": {"server": {"image": image}}})
        return image

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(CHANGES)))
    last = change(CHANGES)

    def arrived() -> bool:
        return api.get("Deployment", "looped")["spec"]["template"]["spec"]["containers"][0]["image"] == last

    eventually(arrived, 60, lambda: operator.log[-2000:])
    took, changes = time.monotonic() - began, api.get("Deployment", "looped")["metadata"]["generation"] - before
    print(f"{CHANGES} changes in {took:.1f} s, of which the Deployment saw {changes}")
    assert changes <= SPEC_BURST * operator.starts + took / SPEC_SECONDS
