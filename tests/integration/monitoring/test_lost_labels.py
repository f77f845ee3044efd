"""Deletes children that lost their label and are no longer desired.

The watches select children by this label. If such a child is desired, the operator finds it again when it creates it.
If it isn't, the operator must look it up by its name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from integration.monitoring.steps import AUTOSCALER, QUICK, SOON, serving, wait_for_condition
from support import gen, operator_process
from support.api import Api, eventually
from support.operator_process import Operator
from support.people import make
from triton_operator.api import names

pytestmark = pytest.mark.integration

DESIRED = {"networkPolicy": {}, "autoscaling": {"min": 2, "max": 3}, "monitoring": {"enabled": True}}
UNDESIRED = {"networkPolicy": None, "autoscaling": None, "replicas": 1, "monitoring": {"enabled": False}}
KINDS = ("NetworkPolicy", "PodDisruptionBudget", AUTOSCALER, "PodMonitor", "PrometheusRule")


@contextmanager
def running_operator(kubeconfig: Path, folder: Path, **env: str) -> Iterator[Operator]:
    with operator_process.running(kubeconfig, folder, **QUICK, **env) as operator:
        yield operator
        assert operator.stop() == 0  # releases the Lease, so that the next operator leads at once
        assert "Traceback" not in operator.log


def create_all_children(api: Api, operator: Operator) -> None:
    make(api, **DESIRED)
    serving(api, operator)
    api.patch("Deployment", gen.NAME, {"spec": {"replicas": 2}})  # as the autoscaler does
    eventually(lambda: not missing(api), SOON, lambda: (missing(api), operator.log))


def missing(api: Api) -> list[str]:
    return [kind for kind in KINDS if api.find(kind, gen.NAME) is None]


def remove_label(api: Api, *kinds: str) -> None:
    for kind in kinds:
        api.patch(kind, gen.NAME, {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}})


def wait_until_all_are_deleted(api: Api, operator: Operator) -> None:
    eventually(lambda: missing(api) == list(KINDS), SOON, lambda: ({*KINDS} - {*missing(api)}, operator.log[-3000:]))


TOO_LARGE = [f"--flag={'x' * 4085}{n:02}" for n in range(64)]
"""Server flags that are larger than the maximum size of an object that the operator reads."""


def test_deletes_undesired_children_that_lost_their_label(own: Api, kubeconfig: Path, tmp_path: Path) -> None:
    """While the spec is too large, the operator corrects no drift. So the test can remove the labels before the
    children become undesired."""
    with running_operator(kubeconfig, tmp_path) as operator:
        create_all_children(own, operator)
        own.patch("TritonModel", gen.NAME, {"spec": {"server": {"args": TOO_LARGE}}})
        wait_for_condition(own, "Progressing", "False", "TooLarge")
        remove_label(own, *KINDS)
        time.sleep(1)  # until the watches have reported the changes
        own.patch("TritonModel", gen.NAME, {"spec": {"server": {"args": None}, **UNDESIRED}})
        wait_until_all_are_deleted(own, operator)


def test_deletes_children_that_became_undesired_while_no_operator_ran(
    own: Api, kubeconfig: Path, tmp_path: Path
) -> None:
    with running_operator(kubeconfig, tmp_path) as operator:
        create_all_children(own, operator)
    remove_label(own, *KINDS)
    own.patch("TritonModel", gen.NAME, {"spec": UNDESIRED})
    with running_operator(kubeconfig, tmp_path) as operator:
        wait_until_all_are_deleted(own, operator)


def test_keeps_rules_without_label_while_the_entrypoint_type_is_unknown(
    own: Api, kubeconfig: Path, tmp_path: Path
) -> None:
    """The operator renders no rules until it knows whether the entry model is an ensemble."""
    with running_operator(kubeconfig, tmp_path, RESYNC_SECONDS="2") as operator:
        create_all_children(own, operator)
        own.patch("TritonModel", gen.NAME, {"spec": {"entrypoint": "detectoin"}})
        generation = own.get("TritonModel", gen.NAME)["metadata"]["generation"]
        eventually(
            lambda: own.get("TritonModel", gen.NAME)["status"].get("observedGeneration") == generation,
            SOON, lambda: operator.log,
        )  # fmt: skip
        uid = own.get("PrometheusRule", gen.NAME)["metadata"]["uid"]
        remove_label(own, "PrometheusRule")
        time.sleep(5)  # two resyncs, whose listings by label don't contain it
        assert own.get("PrometheusRule", gen.NAME)["metadata"]["uid"] == uid
        own.patch("TritonModel", gen.NAME, {"spec": UNDESIRED})
        wait_until_all_are_deleted(own, operator)


def test_keeps_foreign_objects_without_the_label(own: Api, kubeconfig: Path, tmp_path: Path) -> None:
    """This also holds for an object that has the name of a child."""
    with running_operator(kubeconfig, tmp_path, RESYNC_SECONDS="2") as operator:
        make(own, **UNDESIRED)
        eventually(lambda: own.find("Deployment", gen.NAME), SOON, lambda: operator.log)
        foreign = own.create(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": {"name": gen.NAME, "labels": names.selector(gen.NAME)},
                "spec": {"podSelector": {}},
            }
        )
        time.sleep(5)
        version = own.get("NetworkPolicy", gen.NAME)["metadata"]["resourceVersion"]
        assert version == foreign["metadata"]["resourceVersion"]
