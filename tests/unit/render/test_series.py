"""Which series of a page Prometheus keeps. tests/rules/test_series.py has the same rules in a real Prometheus."""

from __future__ import annotations

import re
from typing import Any

import pytest

from support import gen
from support.controlplane import ROOT
from triton_operator.render import series
from triton_operator.render.choices import Choices
from triton_operator.render.pod_monitor import pod_monitor
from triton_operator.render.series import Pair

PAGE = (ROOT / "tests/rules/data/triton_24.10.txt").read_text()
PIPELINE = tuple((name, "1") for name in ("detection", "preprocess", "yolov5s", "postprocess"))
TARGET = {"namespace": "vision", "pod": "p", "instance": "i", "job": "j", "tritonmodel": gen.NAME}
GPU = {"server": {"resources": {"limits": {"nvidia.com/gpu": 2}}}}
DOCUMENTED = """\
nv_inference_request_success nv_inference_request_failure nv_inference_count nv_inference_exec_count
nv_inference_pending_request_count nv_inference_request_duration_us nv_inference_queue_duration_us
nv_inference_compute_input_duration_us nv_inference_compute_infer_duration_us nv_inference_compute_output_duration_us
nv_inference_first_response_histogram_ms_bucket nv_inference_first_response_histogram_ms_sum
nv_inference_first_response_histogram_ms_count nv_inference_request_summary_us nv_inference_request_summary_us_sum
nv_inference_request_summary_us_count nv_gpu_power_usage nv_gpu_power_limit nv_energy_consumption nv_gpu_utilization
nv_gpu_memory_total_bytes nv_gpu_memory_used_bytes nv_cpu_utilization nv_cpu_memory_total_bytes
nv_cpu_memory_used_bytes nv_pinned_memory_pool_total_bytes nv_pinned_memory_pool_used_bytes
nv_cache_num_hits_per_model nv_cache_num_misses_per_model nv_cache_hit_duration_per_model
nv_cache_miss_duration_per_model nv_model_load_duration_secs
"""
"""Triton's metrics, from its user guide (docs/user_guide/metrics.md)."""


def parsed(page: str) -> list[dict[str, str]]:
    lines = [line for line in page.splitlines() if line and not line.startswith("#")]
    return [{"__name__": re.split("[{ ]", line)[0], **dict(re.findall(r'(\w+)="([^"]*)"', line))} for line in lines]


def kept(page: str, pairs: tuple[Pair, ...] = PIPELINE, labels: tuple[str, ...] = (), **spec: Any) -> list[Any]:
    """Returns the series of the page that Prometheus keeps, as its relabeling is documented."""
    rules, found = series.keep(gen.model(**spec), pairs, labels), []
    for one in ({**TARGET, **labels} for labels in parsed(page)):
        for rule in rules:
            value = ";".join(one.get(label, "") for label in rule.get("sourceLabels", []))
            if rule["action"] == "labelkeep":
                one = {k: v for k, v in one.items() if re.fullmatch(rule["regex"], k)}
            elif (re.fullmatch(rule["regex"], value, re.DOTALL) is None) == (rule["action"] == "keep"):
                break
        else:
            found.append({k: v for k, v in one.items() if k not in TARGET})
    return found


def test_keeps_all_of_an_honest_page_but_the_summaries_that_nothing_reads() -> None:
    expected = [one for one in parsed(PAGE) if "summary" not in one["__name__"] or "_request_" in one["__name__"]]
    assert kept(PAGE) == expected
    assert kept(PAGE, server={"args": ["--metrics-config=summary_latencies=true"]}) == parsed(PAGE)


@pytest.mark.parametrize("name", DOCUMENTED.split())
def test_keeps_every_metric_that_triton_documents(name: str) -> None:
    assert kept(f'{name}{{model="detection",version="1"}} 1')
    assert kept(f"{name} 1")


@pytest.mark.parametrize(
    "line",
    [
        'nv_made_up{model="detection",version="1"} 1',
        'nv_inference_count{model="other",version="1"} 1',
        'nv_inference_count{model="detection",version="2"} 1',
        'nv_inference_count{model="detectionx",version="1"} 1',
        'nv_inference_count{model="detection"} 1',
        'nv_inference_request_failure{model="detection",version="1",reason="made up"} 1',
        'nv_inference_request_summary_us{model="detection",version="1",quantile="0.12345"} 1',
        'nv_inference_first_response_histogram_ms_bucket{model="detection",version="1",le="123.4"} 1',
        'triton_operator_threshold{model="detection",version="1"} 1',
        "up 1",
    ],
)
def test_drops_what_a_server_can_invent(line: str) -> None:
    assert kept(line) == []


@pytest.mark.parametrize(
    "bound",
    ["0.0001", "0.005", "0.25", "0.75", "1", "1.0", "2.5", "7.5", "10", "100", "2000", "1e+06", "2.5e+08", "+Inf"],
)
def test_keeps_usual_boundaries_of_buckets(bound: str) -> None:
    """Those of Triton, vLLM, Prometheus' clients and the sample models."""
    assert kept(f'nv_inference_first_response_histogram_ms_bucket{{model="detection",version="1",le="{bound}"}} 1')


def test_removes_labels_that_a_server_can_invent() -> None:
    line = 'nv_inference_count{model="detection",version="1",turn="17",gpu_uuid="GPU-1",exported_namespace="x"} 1'
    assert kept(line) == [{"__name__": "nv_inference_count", "model": "detection", "version": "1"}]
    assert kept(line, labels=("turn",))[0]["turn"] == "17"


def test_only_servers_with_devices_have_the_label_gpu_uuid() -> None:
    line = 'nv_gpu_utilization{{gpu_uuid="{}"}} 1'
    assert kept(line.format("GPU-8d3b-11"), **GPU)[0]["gpu_uuid"] == "GPU-8d3b-11"
    assert kept(line.format("MIG-8d3b-11"), **GPU)
    assert kept(line.format("made up"), **GPU) == []
    assert kept(line.format("GPU-8d3b-11")) == [{"__name__": "nv_gpu_utilization"}]


def test_keeps_custom_metrics_that_the_spec_names() -> None:
    page = 'vllm:num_requests_running{model="detection",version="1",extra="x"} 1\ntokens_total 1\nother_total 1\n'
    monitoring = {"metrics": ["vllm:num_requests_running"], "tokenCounter": "tokens_total"}
    assert [one["__name__"] for one in kept(page, monitoring=monitoring)] == [
        "vllm:num_requests_running",
        "tokens_total",
    ]
    forged = "tritonmodel:threshold:effective"
    assert kept(f"{forged} 1", monitoring={"metrics": [forged]}) == []


ODD = (("a;b", "1"), ("a|b", "2"), ("a.*", "3"), ("a\\", "4"), ("$(x) é [y]", "5"), ("a+b-c", "6"))


def test_names_of_models_are_exact_values() -> None:
    for name, version in ODD:
        assert kept(f'nv_inference_count{{model="{name}",version="{version}"}} 1', ODD), name
    assert not kept('nv_inference_count{model="axx",version="3"} 1', ODD)


def test_reads_the_list_of_a_pod_monitor() -> None:
    found = pod_monitor(gen.model(), Choices("operator:1", "Copy", series=ODD))
    assert series.listed(found) == sorted(ODD)
    assert series.listed(None) is None
    found["spec"]["podMetricsEndpoints"][0]["metricRelabelings"] = [{"sourceLabels": ["__name__"], "action": "drop"}]
    assert series.listed(found) is None


def test_ignores_versions_that_are_not_numbers() -> None:
    assert series.usable([("a", ""), ("a", "x"), ("a\n", "1"), ("", "1"), ("a", "9" * 20), ("b", "2")]) == [("b", "2")]


def test_an_unknown_server_has_the_metrics_of_version_1_of_the_entry_model() -> None:
    found = pod_monitor(gen.model(), Choices("operator:1", "Copy", entrypoint="detection"))
    assert series.listed(found) == [("detection", "1")]


@pytest.mark.parametrize("length", [8, 40])
@pytest.mark.parametrize("models", [1, 4, 20, 100])
def test_page_of_listed_models_is_within_the_limits(models: int, length: int) -> None:
    names = [f"{number:0{length}}" for number in range(models)]
    one = [line for line in PAGE.splitlines() if "yolov5s" in line]
    rest = [line for line in PAGE.splitlines() if line.startswith("#") or "version" not in line]
    page = "\n".join([*rest, *(line.replace("yolov5s", name) for name in names for line in one)])
    pairs = tuple((name, "1") for name in names)
    spec = pod_monitor(gen.model(), Choices("operator:1", "Copy", series=pairs))["spec"]
    assert len(kept(page, pairs)) < 0.85 * spec["sampleLimit"]
    assert len(page) < int(spec["bodySizeLimit"].removesuffix("B"))


def test_limit_follows_the_list() -> None:
    few, many = (pod_monitor(gen.model(), Choices("operator:1", "Copy", series=PIPELINE[:n])) for n in (3, 4))
    assert few["spec"]["sampleLimit"] < many["spec"]["sampleLimit"] < 200


def test_room_is_what_fits_into_the_samples() -> None:
    for spec in ({}, GPU, {"monitoring": {"metrics": ["a_bucket", "b"]}}):
        model = gen.model(**spec)
        assert series.room(model, series.samples(model, 12)) == 12
        assert series.room(model, 0) == series.LEAST


def test_counts_the_servers_that_the_spec_asks_for() -> None:
    assert series.servers(gen.model()) == 1
    assert series.servers(gen.model(replicas=7)) == 7
    assert series.servers(gen.model(autoscaling={"max": 9})) == 9
