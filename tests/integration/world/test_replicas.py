"""The replicas come from the spec, from the TritonModel's autoscaler, or from a foreign autoscaler."""

from __future__ import annotations

import time

import pytest

from integration.world.steps import SOON, model, version, wait_until_observed
from support import gen
from support.api import Api, condition, eventually, states
from support.operator_process import Operator
from support.people import make

pytestmark = pytest.mark.integration


def test_hands_replicas_over_without_scaling_to_one(api: Api, operator: Operator) -> None:
    make(api, replicas=4)
    wait_until_observed(api)
    start = version(api.get("Deployment", gen.NAME))
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": None}})
    wait_until_observed(api)
    api.patch("Deployment", gen.NAME, {"spec": {"replicas": 5}}, "scale")
    time.sleep(0.5)
    api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})
    wait_until_observed(api)
    # All states of the Deployment in order, from the watch cache.
    replicas = [obj["spec"]["replicas"] for obj in states(api, "Deployment", gen.NAME, since=start)]
    assert set(replicas) == {4, 5}
    assert replicas == sorted(replicas)
    ours = [
        f for f in api.get("Deployment", gen.NAME)["metadata"]["managedFields"] if f["manager"] == "triton-operator"
    ]
    assert all("f:replicas" not in f["fieldsV1"].get("f:spec", {}) for f in ours)
    # The number in the spec takes effect again.
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 2}})
    eventually(lambda: api.get("Deployment", gen.NAME)["spec"]["replicas"] == 2, SOON)


def test_keeps_replicas_set_by_a_foreign_autoscaler_and_creates_a_disruption_budget(
    api: Api, operator: Operator
) -> None:
    make(api)
    wait_until_observed(api)
    assert api.get("Deployment", gen.NAME)["spec"]["replicas"] == 1
    api.patch("Deployment", gen.NAME, {"spec": {"replicas": 5}}, "scale")
    eventually(lambda: api.find("PodDisruptionBudget", gen.NAME), SOON)
    time.sleep(0.5)
    assert api.get("Deployment", gen.NAME)["spec"]["replicas"] == 5


def test_supports_the_scale_subresource(api: Api, operator: Operator) -> None:
    make(api, replicas=1)
    wait_until_observed(api)
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 3}}, "scale")
    eventually(lambda: api.get("Deployment", gen.NAME)["spec"]["replicas"] == 3, SOON)
    scale = api.request("GET", api.path("TritonModel", gen.NAME) + "/scale")
    assert scale["status"]["selector"] == "tritonoperator.io/model=detection"
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 0}}, "scale")
    eventually(lambda: condition(model(api), "Ready").get("reason") == "ScaledToZero", SOON)
