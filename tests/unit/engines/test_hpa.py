"""The HorizontalPodAutoscaler: its target, its behavior, and that it contains no threshold."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.engines.hpa import METRIC
from triton_operator.render import Facts, children, render

autoscalers = children.BY_NAME["HorizontalPodAutoscaler"].render


def autoscaler(**scaling: Any) -> dict[str, Any]:
    [hpa] = autoscalers(gen.model(autoscaling={"max": 4, **scaling}), Facts("tools:1", "Copy"))
    return hpa


def test_scales_the_deployment_by_the_load_metric() -> None:
    spec = autoscaler(min=2)["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": gen.NAME}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 4)
    (metric,) = spec["metrics"]
    assert metric["object"]["describedObject"] == {
        "apiVersion": "tritonoperator.io/v1alpha1", "kind": "TritonModel", "name": gen.NAME
    }  # fmt: skip
    assert metric["object"]["metric"]["name"] == METRIC


@pytest.mark.parametrize(("floor", "least"), [(0, 2), (3, 3)])
def test_engine_direct_raises_the_minimum(floor: int, least: int) -> None:
    model = gen.model(autoscaling={"min": 2, "max": 4, "engine": "Direct"})
    [hpa] = autoscalers(model, Facts("tools:1", "Copy", autoscaler_floor=floor))
    assert (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]) == (least, 4)


HUNDRED_PERCENT = {"type": "Percent", "value": 100, "periodSeconds": 15}
ONE_POD = {"type": "Pods", "value": 1, "periodSeconds": 15}


@pytest.mark.parametrize(
    ("scale_up", "least"),
    [
        (None, 0),
        ({}, 0),
        ({"policies": None}, 0),
        ({"policies": [HUNDRED_PERCENT, ONE_POD]}, 0),
        ({"policies": [ONE_POD], "selectPolicy": "Min"}, 0),
        ({"policies": [HUNDRED_PERCENT]}, 1),
        ({"policies": [HUNDRED_PERCENT, ONE_POD], "selectPolicy": "Min"}, 1),
        ({"selectPolicy": "Min"}, 1),
        ({"selectPolicy": "Disabled"}, 1),
    ],
)
def test_keeps_a_server_if_no_policy_would_add_the_first(scale_up: Any, least: int) -> None:
    assert autoscaler(min=0, behavior={"scaleUp": scale_up})["spec"]["minReplicas"] == least
    assert autoscaler(min=3, behavior={"scaleUp": scale_up})["spec"]["minReplicas"] == 3


@pytest.mark.parametrize(("utilization", "target"), [(0.75, "750m"), (1, "1000m"), (0.333, "333m"), (0.0001, "1m")])
def test_target_is_the_utilization_in_milli_servers(utilization: float, target: str) -> None:
    (metric,) = autoscaler(utilization=utilization)["spec"]["metrics"]
    assert metric["object"]["target"] == {"type": "AverageValue", "averageValue": target}


def test_threshold_change_does_not_change_the_autoscaler() -> None:
    def rendered(value: float) -> Any:
        facts = Facts("t", "Copy", entrypoint="a", thresholds={ThresholdKey("max-qps"): value})
        objects = render(gen.model(autoscaling={"max": 4}), facts)
        return [o for o in objects if o["kind"] != "PrometheusRule"]

    assert rendered(80) == rendered(1)
    assert [o for o in rendered(80) if o["kind"] == "HorizontalPodAutoscaler"]


def test_scales_up_at_once_and_down_after_five_minutes() -> None:
    behavior = autoscaler()["spec"]["behavior"]
    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 0
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 300
    own = {"scaleDown": {"selectPolicy": "Disabled"}}
    assert autoscaler(behavior=own)["spec"]["behavior"] == own


@pytest.mark.parametrize("spec", [{}, {"autoscaling": {"max": 4, "engine": "None"}}, {"replicas": 3}])
def test_renders_no_autoscaler_without_autoscaling(spec: dict[str, Any]) -> None:
    assert autoscalers(gen.model(**spec), Facts("tools:1", "Copy")) == []


def test_deployment_has_no_replicas_if_there_is_an_autoscaler() -> None:
    objects = {o["kind"]: o for o in render(gen.model(autoscaling={"max": 4}), Facts("t", "Copy", 3))}
    assert "replicas" not in objects["Deployment"]["spec"]
    assert "PodDisruptionBudget" in objects
