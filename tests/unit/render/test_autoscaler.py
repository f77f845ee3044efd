"""The autoscaler: what it aims at, and that no threshold is in it."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.render import Choices, render
from triton_operator.render.autoscaler import METRIC, autoscalers


def made(**scaling: Any) -> dict[str, Any]:
    [found] = autoscalers(gen.model(autoscaling={"max": 4, **scaling}), Choices("tools:1", "Copy"))
    return found


def test_what_it_scales_and_by_what() -> None:
    spec = made(min=2)["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": gen.NAME}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 4)
    (metric,) = spec["metrics"]
    assert metric["object"]["describedObject"] == {
        "apiVersion": "tritonoperator.io/v1alpha1", "kind": "TritonModel", "name": gen.NAME
    }  # fmt: skip
    assert metric["object"]["metric"]["name"] == METRIC


@pytest.mark.parametrize(("utilization", "target"), [(0.75, "750m"), (1, "1000m"), (0.333, "333m"), (0.0001, "1m")])
def test_the_target_is_a_part_of_a_server(utilization: float, target: str) -> None:
    (metric,) = made(utilization=utilization)["spec"]["metrics"]
    assert metric["object"]["target"] == {"type": "AverageValue", "averageValue": target}


def test_a_new_threshold_does_not_change_it() -> None:
    def rendered(value: float) -> Any:
        choices = Choices("t", "Copy", entrypoint="a", thresholds={ThresholdKey("max-qps"): value})
        objects = render(gen.model(autoscaling={"max": 4}), choices)
        return [o for o in objects if o["kind"] != "PrometheusRule"]

    assert rendered(80) == rendered(1)
    assert [o for o in rendered(80) if o["kind"] == "HorizontalPodAutoscaler"]


def test_up_at_once_and_down_late_and_slowly() -> None:
    behavior = made()["spec"]["behavior"]
    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 0
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 300
    own = {"scaleDown": {"selectPolicy": "Disabled"}}
    assert made(behavior=own)["spec"]["behavior"] == own


@pytest.mark.parametrize("spec", [{}, {"autoscaling": {"max": 4, "engine": "None"}}, {"replicas": 3}])
def test_where_nothing_shall_scale_there_is_none(spec: dict[str, Any]) -> None:
    assert autoscalers(gen.model(**spec), Choices("tools:1", "Copy")) == []


def test_the_deployment_leaves_the_number_to_it() -> None:
    objects = {o["kind"]: o for o in render(gen.model(autoscaling={"max": 4}), Choices("t", "Copy", 3))}
    assert "replicas" not in objects["Deployment"]["spec"]
    assert "PodDisruptionBudget" in objects
