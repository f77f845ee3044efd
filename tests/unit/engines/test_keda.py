"""The ScaledObject of KEDA: its load, its way to zero and back, and that KEDA and the operator write the same."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import gen
from triton_operator.api import names
from triton_operator.api.kinds import SCALED_OBJECT
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.engines.keda import address
from triton_operator.render import Facts, children, render
from triton_operator.render.facts import Capabilities, RenderSettings

ROOT = Path(__file__).resolve().parents[3]
URL = "http://prometheus.example:9090"
autoscalers, scaled_objects = (children.BY_NAME[kind].render for kind in ("HorizontalPodAutoscaler", "ScaledObject"))
FACTS = Facts("tools:1", "Copy", entrypoint="a", prometheus=URL)
KEDA: dict[str, Any] = {"engine": "KEDA", "max": 4}


def scaled_object(**scaling: Any) -> dict[str, Any]:
    [obj] = scaled_objects(gen.model(autoscaling={**KEDA, **scaling}), FACTS)
    return obj


def triggers(**scaling: Any) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = scaled_object(**scaling)["spec"]["triggers"]
    return entries


def test_scales_the_deployment_between_min_and_max() -> None:
    spec = scaled_object(min=2)["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": gen.NAME}
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 4)
    assert spec["fallback"] == {"failureThreshold": 3, "replicas": 2, "behavior": "currentReplicasIfHigher"}


def test_refers_to_the_administrators_credentials() -> None:
    facts = replace(FACTS, settings=RenderSettings(engines={"KEDA_AUTHENTICATION": "basic/prometheus"}))
    [obj] = scaled_objects(gen.model(autoscaling={**KEDA, "min": 0}), facts)
    assert len(obj["spec"]["triggers"]) == 2
    for trigger in obj["spec"]["triggers"]:
        assert trigger["authenticationRef"] == {"kind": "ClusterTriggerAuthentication", "name": "prometheus"}
        assert trigger["metadata"]["authModes"] == "basic"
    assert all("authenticationRef" not in trigger for trigger in triggers(min=0))


def test_reads_the_load_as_prometheus_adapter_does() -> None:
    config = yaml.safe_load((ROOT / "manifests/monitoring/adapter/config.yaml").read_text())
    [trigger] = triggers(min=1)
    own = f'namespace="{gen.NAMESPACE}", tritonmodel="{gen.NAME}"'
    series = "tritonmodel:autoscaler_load_replicas:max"
    adapter = config["rules"][0]["metricsQuery"].replace(" by (<<.GroupBy>>)", "")
    query = adapter.replace("<<.Series>>", series).replace("<<.LabelMatchers>>", own)
    assert trigger["metadata"]["query"] == query.replace("max (", "max(")
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", "AverageValue")
    assert trigger["metadata"]["serverAddress"] == URL
    assert {t["metadata"]["ignoreNullValues"] for t in triggers(min=0)} == {"false"}


def test_target_is_the_one_of_the_horizontalpodautoscaler() -> None:
    for thousandths in range(1, 1001):
        scaling = {"max": 4, "utilization": thousandths / 1000}
        [hpa] = autoscalers(gen.model(autoscaling=scaling), FACTS)
        target = hpa["spec"]["metrics"][0]["object"]["target"]["averageValue"]
        # KEDA: int64(value * 1000), in thousandths.
        assert f"{math.trunc(float(triggers(**scaling)[0]['metadata']['threshold']) * 1000)}m" == target


def test_needs_another_series_than_tritons_to_scale_from_zero() -> None:
    load, arrivals = triggers(min=0)
    assert "or max(tritonmodel:servers:desired{" in load["metadata"]["query"]
    assert arrivals["metadata"]["query"].startswith("max(tritonmodel:arrivals:rate1m{")
    # The HorizontalPodAutoscaler asks for one server at most because of the arrivals.
    assert math.ceil(1e6 / float(arrivals["metadata"]["threshold"])) == 1
    assert scaled_object(min=0)["spec"]["fallback"]["replicas"] == 1


@pytest.mark.parametrize(
    ("behavior", "seconds"),
    [(None, 300), ({"scaleDown": {"stabilizationWindowSeconds": 900}}, 900),
     ({"scaleDown": {"stabilizationWindowSeconds": 0}}, 60), ({"scaleUp": {}}, 300),
     ({"scaleDown": None}, 300), ({"scaleDown": {"stabilizationWindowSeconds": None}}, 300)],
)  # fmt: skip
def test_removes_the_last_server_after_the_window_of_scale_down(behavior: Any, seconds: int) -> None:
    spec = scaled_object(min=0, behavior=behavior)["spec"]
    assert spec["cooldownPeriod"] == spec["initialCooldownPeriod"] == seconds


def test_has_no_settings_without_effect() -> None:
    # KEDA's webhook warns about them.
    assert not {"pollingInterval", "cooldownPeriod", "initialCooldownPeriod"} & scaled_object(min=1)["spec"].keys()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"scaleUp": {"tolerance": "0.05"}}, {"scaleUp": {"tolerance": "50m"}}),
        ({"scaleUp": {"tolerance": "1.0"}}, {"scaleUp": {"tolerance": "1"}}),
        ({"scaleUp": {"tolerance": 0.0005}}, {"scaleUp": {"tolerance": "500u"}}),
        ({"scaleUp": {"tolerance": {}}}, {"scaleUp": {"tolerance": {}}}),
        ({"scaleUp": None, "scaleDown": {"policies": [], "selectPolicy": "Disabled"}},
         {"scaleDown": {"selectPolicy": "Disabled"}}),
        ({"scaleDown": {"stabilizationWindowSeconds": 0, "policies": None}},
         {"scaleDown": {"stabilizationWindowSeconds": 0}}),
    ],
)  # fmt: skip
def test_behavior_has_the_form_in_which_keda_writes_it(written: Any, expected: Any) -> None:
    rendered = scaled_object(behavior=written)["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert rendered == expected


def test_autoscaler_of_keda_has_the_name_of_ours_and_none_of_our_labels() -> None:
    obj = scaled_object()
    [hpa] = autoscalers(gen.model(autoscaling={"max": 4}), FACTS)
    config = obj["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
    assert config["name"] == hpa["metadata"]["name"]
    excluded = obj["metadata"]["annotations"]["scaledobject.keda.sh/hpa-excluded-labels"].split(",")
    assert set(excluded) == obj["metadata"]["labels"].keys() == names.labels("x").keys()


def test_contains_no_threshold() -> None:
    def rendered(value: float) -> Any:
        facts = Facts("t", "Copy", entrypoint="a", thresholds={ThresholdKey("max-qps"): value}, prometheus=URL)
        return scaled_objects(gen.model(autoscaling=KEDA), facts)

    assert rendered(80) == rendered(1) != []


@pytest.mark.parametrize("engine", ["HPA", "Direct", "KEDA", "None"])
def test_has_at_most_one_scaler(engine: str) -> None:
    objects = render(gen.model(autoscaling={"max": 4, "engine": engine}), FACTS)
    scalers = {"HPA": "HorizontalPodAutoscaler", "Direct": "HorizontalPodAutoscaler", "KEDA": "ScaledObject"}
    kinds = [o["kind"] for o in objects if o["kind"] in ("HorizontalPodAutoscaler", "ScaledObject")]
    assert kinds == ([scalers[engine]] if engine in scalers else [])
    assert "replicas" not in next(o for o in objects if o["kind"] == "Deployment")["spec"]


@pytest.mark.parametrize(
    "facts",
    [Facts("t", "Copy", prometheus=URL, cluster=Capabilities(missing=frozenset({SCALED_OBJECT}))), Facts("t", "Copy")],
)
def test_is_missing_without_keda_or_prometheus(facts: Facts) -> None:
    assert not {"HorizontalPodAutoscaler", "ScaledObject"} & {
        o["kind"] for o in render(gen.model(autoscaling=KEDA), facts)
    }


def test_returns_the_address_of_a_scaled_object() -> None:
    assert (address(scaled_object()), address(None), address({"spec": {"triggers": []}})) == (URL, "", "")
