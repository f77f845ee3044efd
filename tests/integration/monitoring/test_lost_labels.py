"""Children that have lost the label by which the watches select them, when nobody wants them any more: nothing is
written in their place, by whose refusal the operator would learn that they are still there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from integration.monitoring.steps import AUTOSCALER, QUICK, SOON, serving, told
from support import gen, operator_process
from support.api import Api, Object, eventually
from support.operator_process import Operator
from support.people import make
from triton_operator.api import names

pytestmark = pytest.mark.integration

WANTED = {"networkPolicy": {}, "autoscaling": {"min": 2, "max": 3}, "monitoring": {"enabled": True}}
UNWANTED = {"networkPolicy": None, "autoscaling": None, "replicas": 1, "monitoring": {"enabled": False}}
KINDS = ("NetworkPolicy", "PodDisruptionBudget", AUTOSCALER, "PodMonitor", "PrometheusRule")


@contextmanager
def working(kubeconfig: Path, folder: Path, **env: str) -> Iterator[Operator]:
    with operator_process.running(kubeconfig, folder, **QUICK, **env) as operator:
        yield operator
        assert operator.stop() == 0  # so that the next needn't wait for the Lease
        assert "Traceback" not in operator.log


def made(api: Api, operator: Operator) -> None:
    make(api, **WANTED)
    serving(api, operator)
    api.patch("Deployment", gen.NAME, {"spec": {"replicas": 2}})  # as the autoscaler would
    eventually(lambda: not missing(api), SOON, lambda: (missing(api), operator.log))


def missing(api: Api) -> list[str]:
    return [kind for kind in KINDS if api.find(kind, gen.NAME) is None]


def strip(api: Api, *kinds: str) -> None:
    for kind in kinds:
        api.patch(kind, gen.NAME, {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}})


def gone(api: Api, operator: Operator) -> None:
    eventually(lambda: missing(api) == list(KINDS), SOON, lambda: ({*KINDS} - {*missing(api)}, operator.log[-3000:]))


def deep(levels: int) -> Object:
    return {"a": deep(levels - 1)} if levels else {}


def test_what_is_unwanted_goes(own: Api, kubeconfig: Path, tmp_path: Path) -> None:
    """While a spec can't be read nothing is mended: so there is time to take the labels, and the children are no longer
    wanted when it can."""
    with working(kubeconfig, tmp_path) as operator:
        made(own, operator)
        own.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": {"spec": {"deep": deep(300)}}}})
        told(own, "Progressing", "False", "SpecInvalid")
        strip(own, *KINDS)
        time.sleep(1)  # until the watches have told
        own.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": None, **UNWANTED}})
        gone(own, operator)


def test_what_became_unwanted_while_no_operator_ran_goes(own: Api, kubeconfig: Path, tmp_path: Path) -> None:
    with working(kubeconfig, tmp_path) as operator:
        made(own, operator)
    strip(own, *KINDS)
    own.patch("TritonModel", gen.NAME, {"spec": UNWANTED})
    with working(kubeconfig, tmp_path) as operator:
        gone(own, operator)


def test_rules_that_are_kept_are_not_lost(own: Api, kubeconfig: Path, tmp_path: Path) -> None:
    """As long as it isn't known whether the entry model is an ensemble there are no rules to compare them with."""
    with working(kubeconfig, tmp_path, RESYNC_SECONDS="2") as operator:
        made(own, operator)
        own.patch("TritonModel", gen.NAME, {"spec": {"entrypoint": "detectoin"}})
        generation = own.get("TritonModel", gen.NAME)["metadata"]["generation"]
        eventually(
            lambda: own.get("TritonModel", gen.NAME)["status"].get("observedGeneration") == generation,
            SOON, lambda: operator.log,
        )  # fmt: skip
        uid = own.get("PrometheusRule", gen.NAME)["metadata"]["uid"]
        strip(own, "PrometheusRule")
        time.sleep(5)  # two listings, in which it isn't among those that have the label
        assert own.get("PrometheusRule", gen.NAME)["metadata"]["uid"] == uid
        own.patch("TritonModel", gen.NAME, {"spec": UNWANTED})
        gone(own, operator)


def test_objects_of_others_without_the_label_are_left_alone(own: Api, kubeconfig: Path, tmp_path: Path) -> None:
    """Also where they have the name that a child would have."""
    with working(kubeconfig, tmp_path, RESYNC_SECONDS="2") as operator:
        make(own, **UNWANTED)
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
