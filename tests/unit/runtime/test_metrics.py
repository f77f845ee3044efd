"""The operator's own metrics in the exposition format."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.rules import pages
from support import gen
from triton_operator.api import thresholds
from triton_operator.runtime.metrics import Metrics, gauges_of

P = thresholds.PREFIX
KEY = f"{gen.NAMESPACE}/{gen.NAME}"


def exposition(*models: dict[str, Any], desired: int = 0, ready: int = 0) -> list[str]:
    metrics = Metrics(CollectorRegistry())
    reported = [(f"{m['metadata']['namespace']}/{m['metadata']['name']}", gauges_of(m)) for m in models]
    metrics.count_models(lambda: reported, lambda: {gen.UID: desired}, lambda: {KEY: ready})
    return generate_latest(metrics.registry).decode().splitlines()


def model(annotations: dict[str, str] | None = None, *modifiers: gen.Modifier, **spec: Any) -> dict[str, Any]:
    created = gen.put("metadata.creationTimestamp", "2026-01-01T00:00:00Z")
    return gen.raw(created, gen.put("metadata.annotations", annotations or {}), *modifiers, **spec)


def samples(lines: list[str], name: str) -> list[str]:
    return [line for line in lines if line.startswith(name + "{")]


def gauge(lines: list[str], kind: str, version: str = "", name: str = gen.NAME) -> str:
    labels = f'kind="{kind}",namespace="vision",tritonmodel="{name}",version="{version}"'
    (sample,) = [
        line
        for line in samples(lines, "triton_operator_threshold")
        if sorted(line.partition("{")[2].partition("}")[0].split(",")) == labels.split(",")
    ]
    return sample.rpartition(" ")[2]


def test_exposes_every_threshold_kind_without_annotations() -> None:
    lines = exposition(model())
    kinds = {k.name for k in thresholds.KINDS} | {thresholds.MAX_TPS_PER_REPLICA.name}
    assert {k: gauge(lines, k) for k in kinds} == {
        "max-qps": "+Inf", "max-qps-peak": "+Inf", "max-qps-per-replica": "+Inf", "max-tps": "+Inf",
        "max-tps-per-replica": "+Inf", "max-streams-per-replica": "+Inf", "max-cache-usage-per-replica": "+Inf",
        "ensemble-coefficient": "1.0", "token-coefficient": "+Inf", "spike-factor": "3.0",
    }  # fmt: skip
    assert len(samples(lines, "triton_operator_threshold")) == len(kinds)
    assert "# TYPE triton_operator_threshold gauge" in lines


def test_the_benchmark_of_rules_has_gauges_of_each_model() -> None:
    assert pages.operator_page(3).count(b'kind="max-qps-per-replica"') == 3


def test_exposes_the_resource_version_that_this_replica_has_seen() -> None:
    lines = exposition(model(None, gen.put("metadata.resourceVersion", "4711")))
    [line] = samples(lines, "triton_operator_resource_version")
    assert line.endswith(" 4711.0")
    assert f'uid="{gen.UID[:8]}"' in line


def test_exposes_how_long_a_start_may_take_while_it_goes_on() -> None:
    def ends(*conditions: tuple[str, str]) -> list[str]:
        status = {"conditions": [{"type": kind, "status": status} for kind, status in conditions]}
        created = gen.put("metadata.creationTimestamp", "1970-01-01T00:10:00Z")
        slow = model(None, created, gen.put("status", status), rollout={"startupSeconds": 1000})
        return [line.rpartition(" ")[2] for line in samples(exposition(slow), "triton_operator_start_ends_seconds")]

    assert ends() == ends(("Ready", "False"), ("Stalled", "False")) == ["2800.0"]
    assert ends(("Ready", "True")) == ends(("Ready", "False"), ("Stalled", "True")) == []


def test_exposes_the_servers_that_the_engine_direct_asks_for() -> None:
    decision = gen.put("status.autoscaling", {"desired": 4, "reason": "ScaledUp", "message": "m", "time": "t"})
    lines = samples(exposition(model(None, decision)), "triton_operator_autoscaling_desired")
    assert lines == ['triton_operator_autoscaling_desired{namespace="vision",tritonmodel="detection"} 4.0']
    assert not samples(exposition(model()), "triton_operator_autoscaling_desired")


def test_exposes_thresholds_by_kind_and_version() -> None:
    lines = exposition(model({f"{P}max-qps": "80", f"{P}max-qps.v2": "12.5"}, autoscaling={"max": 4}))
    assert gauge(lines, "max-qps") == "80.0"
    assert gauge(lines, "max-qps", "2") == "12.5"
    assert gauge(lines, "max-qps-per-replica") == "20.0"
    assert samples(lines, "triton_operator_thresholds_invalid")[0].endswith(" 0.0")


def test_keeps_the_accepted_value_when_an_annotation_is_invalid() -> None:
    good = gen.put("status.thresholds", [{"kind": "max-qps", "value": "80", "version": "2"}])
    lines = exposition(model({f"{P}max-qps.2": "many", f"{P}spike-factor": "0"}, good))
    assert gauge(lines, "max-qps", "2") == "80.0"
    assert gauge(lines, "max-qps") == "+Inf"
    assert gauge(lines, "spike-factor") == "3.0"
    assert samples(lines, "triton_operator_thresholds_invalid") == [
        'triton_operator_thresholds_invalid{namespace="vision",tritonmodel="detection"} 2.0'
    ]


def test_invalid_status_of_one_tritonmodel_does_not_affect_another() -> None:
    broken = model({f"{P}max-qps": "x"}, gen.put("metadata.name", "other"),
                   gen.put("status.thresholds", [{"kind": "max-qps", "value": "%"}]))  # fmt: skip
    lines = exposition(broken, model({"max_qps": "7"}))
    assert gauge(lines, "max-qps") == "7.0"
    assert gauge(lines, "max-qps", name="other") == "+Inf"


def test_exposes_wanted_and_ready_replicas() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "r", "message": "m"}
    status = {"conditions": [ready], "replicas": 3, "readyReplicas": 3}
    lines = exposition(model({}, gen.put("status", status)), desired=3, ready=1)
    assert samples(lines, "triton_operator_replicas") == [
        f'triton_operator_replicas{{namespace="vision",state="{state}",tritonmodel="detection"}} {count}'
        for state, count in (("wanted", 3.0), ("ready", 1.0))
    ]
    assert 'triton_operator_models{ready="True"} 1.0' in lines


def test_exposes_tritonmodels_whose_gpu_is_not_used() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "GPUNotUsed", "message": "m"}
    lines = exposition(model({}, gen.put("status", {"conditions": [ready]})))
    assert samples(lines, "triton_operator_gpu_not_used") == [
        'triton_operator_gpu_not_used{namespace="vision",tritonmodel="detection"} 1.0'
    ]
    assert not samples(exposition(model()), "triton_operator_gpu_not_used")


def test_exposes_no_series_without_tritonmodels() -> None:
    lines = exposition()
    assert samples(lines, "triton_operator_threshold") == samples(lines, "triton_operator_models") == []


def test_counts_threshold_changes() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.on_threshold("max-qps", "accepted")
    metrics.on_threshold("unknown", "refused")
    lines = generate_latest(metrics.registry).decode().splitlines()
    assert 'triton_operator_threshold_changes_total{kind="max-qps",result="accepted"} 1.0' in lines
    assert 'triton_operator_threshold_changes_total{kind="unknown",result="refused"} 1.0' in lines
