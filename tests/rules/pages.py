"""Metrics pages of one TritonModel: two servers, the kubelet, kube-state-metrics, and two replicas of the operator.

The servers' page is a recorded page of Triton 24.10: model_images/detection on a CPU with summary_latencies, after 36
images and one invalid file. The simulated counters start at its values.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.registry import CollectorRegistry

from latency_sampler.histograms import Histograms
from latency_sampler.traces import Times
from support import gen
from support.prometheus_process import Json, Page
from triton_operator.api import names, thresholds
from triton_operator.api.status import READY
from triton_operator.api.types import TritonModel
from triton_operator.render.facts import Facts
from triton_operator.render.pod_monitor import pod_monitor
from triton_operator.render.prometheus_rule import prometheus_rule
from triton_operator.runtime.metrics import Metrics, gauges_of

ROOT = Path(__file__).parents[2]
REAL = (Path(__file__).parent / "data" / "triton_24.10.txt").read_text()
NAMESPACE, NAME, ENTRY = gen.NAMESPACE, "detector", "detection"
STEPS = ("preprocess", "yolov5s", "postprocess")
PODS = ("detector-1", "detector-2")
TOKENS = "detector_tokens"
JOB = "triton-operator-metrics"
STREAMS = "language"
HISTOGRAMS = ("time_to_first_token_seconds", "time_per_output_token_seconds", "e2e_request_latency_seconds")
GAUGES = {"num_requests_running": 4, "num_requests_waiting": 1, "gpu_cache_usage_perc": 0.4}
GROWTH = 10
"""Seconds after which the counters have doubled."""

# The recorded page has no GPU metrics. These have the names and labels of Triton's documentation.
GPU = """\
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.62
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 25769803776
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 3221225472
# TYPE nv_gpu_power_usage gauge
nv_gpu_power_usage{gpu_uuid="GPU-1"} 71.5
"""
# Of servers from 24.11 on; seen on 26.07.
LOADED = """\
# TYPE nv_model_load_duration_secs gauge
nv_model_load_duration_secs{model="yolov5s",version="1"} 1.517791169
"""
FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
WITHIN = {"100": 30, "500": 34, "2000": 36, "5000": 36, "+Inf": 36}
"""A histogram of servers from 26.01 on: its bounds, and the entrypoint's requests within each; form seen on 26.07."""
_SAMPLE = re.compile(r"^(\w+)(\{.*\})? (\S+)$")


class SimulatedTargets:
    """All scraped pages. Time starts at the first scrape of an operator. After 6 seconds the limit falls below the
    load; after 18 seconds a version has its own limit."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._operators = (Metrics(CollectorRegistry()), Metrics(CollectorRegistry()))
        for metrics in self._operators:
            metrics.count_models(lambda: [(f"{NAMESPACE}/{NAME}", gauges_of(self.model()))], self._desired, self._ready)
            ProcessCollector(registry=metrics.registry)

    def _desired(self) -> dict[str, int]:
        model = self.model()
        return {model["metadata"]["uid"]: int(model["status"]["replicas"])}

    def _ready(self) -> dict[str, int]:
        return {f"{NAMESPACE}/{NAME}": int(self.model()["status"]["readyReplicas"])}

    def pages(self) -> dict[str, Page]:
        return {
            "/server/0": lambda: self._server(idle=False),
            "/server/1": lambda: self._server(idle=True),
            **{f"/latency/{i}": self._latency for i in range(len(PODS))},
            **{f"/processes/{i}": self._processes for i in range(len(PODS))},
            "/kubelet": self._kubelet,
            "/kube-state-metrics": self._kube_state,
            "/operator/0": lambda: self._operator(leads=True),
            "/operator/1": lambda: self._operator(leads=False),
        }

    def model(self, seconds: float | None = None) -> Json:
        """Returns the TritonModel after `seconds`; now by default."""
        seconds = self._seconds() if seconds is None else seconds
        annotations = {"max-qps": "100", "max-qps-peak": "500", "max-tps": "3", "spike-factor": "many"}
        annotations |= {"max-qps": "5"} if seconds > 6 else {}
        # Later than one step of the subquery, which is 10 s.
        annotations |= {"max-qps.v1": "4"} if seconds > 18 else {}
        return gen.raw(
            gen.put("metadata.annotations", {thresholds.PREFIX + k: v for k, v in annotations.items()}),
            gen.put("status", {"replicas": 2, "readyReplicas": 2, "conditions": [{"type": READY, "status": "True"}]}),
            name=NAME,
            autoscaling={"max": 4, "predict": True},
            monitoring={"tokenCounter": TOKENS, "streaming": {"names": "VLLM"}, "latency": {"p99": "40ms"}},
        )

    def groups(self) -> list[Any]:
        """Returns the rules that the operator renders for the TritonModel in its last state."""
        raw = self.model(seconds=60)
        facts = Facts(
            "tools:1", "Copy", replicas=2, entrypoint=ENTRY, ensemble=True, decoupled=(STREAMS,),
            thresholds=thresholds.effective_of(raw),
        )  # fmt: skip
        groups: list[Any] = prometheus_rule(TritonModel.model_validate(raw), facts)["spec"]["groups"]
        return groups

    def _seconds(self) -> float:
        return time.monotonic() - self._since if self._since else 0

    def _server(self, *, idle: bool) -> str:
        """Returns the page of a server. `idle`: no requests for a minute, so quantiles are "Nan" (Triton's form)."""
        factor = 1 + self._seconds() / GROWTH
        lines = [_grown(line, factor, idle) for line in REAL.splitlines()]
        tokens = f'# TYPE {TOKENS} counter\n{TOKENS}{{model="yolov5s",version="1"}} {36 * factor}\n'
        return "\n".join(lines) + "\n" + GPU + LOADED + _first_responses(factor) + tokens + _streams(factor)

    def _latency(self) -> str:
        """Returns the page of the container that measures latency: 60 % take 22.5 ms, 38 % 45 ms, and 2 % 180 ms."""
        histograms, factor = Histograms(), 1 + self._seconds() / GROWTH
        for seconds, share in ((0.0225, 60), (0.045, 38), (0.18, 2)):
            histograms.add(
                [Times(model, "1", seconds, 0.001, 0.02) for model in (ENTRY, *STEPS)], round(share * 10 * factor)
            )
        histograms.works = True
        registry = CollectorRegistry()
        registry.register(histograms)
        return generate_latest(registry).decode()

    def _processes(self) -> str:
        """Returns the page of the container that shows processes: a step and tritonserver."""
        labels = {
            f'model="{STEPS[0]}",version="1",process="{STEPS[0]}_0_0"': 0.4,
            'process="tritonserver"': 2.0,
        }
        return "".join(
            f"triton_process_cpu_seconds_total{{{of}}} {cores * self._seconds()}\n"
            f'triton_process_resident_memory_bytes{{{of},kind="anonymous"}} {2e8 + 1e6 * self._seconds()}\n'
            f'triton_process_resident_memory_bytes{{{of},kind="shared"}} 4e6\n'
            f"triton_process_threads{{{of}}} {30 * cores}\n"
            f"triton_process_start_time_seconds{{{of}}} 1.7e9\n"
            for of, cores in labels.items()
        ) + (
            f"triton_container_memory_used_bytes {4.1e8 + 2e6 * self._seconds()}\n"
            "triton_container_memory_limit_bytes 4e9\n"
        )

    def _kubelet(self) -> str:
        used = {
            "container_cpu_usage_seconds_total": 1.5 * self._seconds(),
            "container_cpu_cfs_periods_total": 10 * self._seconds(),
            "container_cpu_cfs_throttled_periods_total": self._seconds(),
            "container_memory_working_set_bytes": 2e9,
        }
        # cAdvisor's sum of a pod has an empty container label. The rules must ignore the pod other-1.
        places = [(pod, container) for pod in (*PODS, "other-1") for container in (names.CONTAINER_SERVER, "")]
        return "".join(
            f'{series}{{namespace="{NAMESPACE}",pod="{pod}",container="{container}",id="/{pod}/{container}"}} {value}\n'
            for series, value in used.items()
            for pod, container in places
        )

    def _kube_state(self) -> str:
        return "".join(
            f'kube_pod_container_resource_limits{{namespace="{NAMESPACE}",pod="{pod}",'
            f'container="{names.CONTAINER_SERVER}",node="node-1",resource="{resource}",unit="{unit}"}} {value}\n'
            for pod in (*PODS, "other-1")
            for resource, unit, value in (("cpu", "core", 4), ("memory", "byte", 8e9))
        )

    def _operator(self, *, leads: bool) -> str:
        self._since = self._since or time.monotonic()
        metrics = self._operators[0 if leads else 1]
        metrics.leading.set(leads)
        metrics.depth.set(1)
        if leads:
            metrics.reconciles.labels("ok").inc()
            metrics.seconds.observe(0.02)
            metrics.waited.observe(0.002)
            metrics.on_request("PATCH", "leases", 200)
            metrics.on_request("GET", "tritonmodels", 200)
            metrics.on_threshold("max-qps", "accepted")
        return generate_latest(metrics.registry).decode()


def scrape_configs(address: str) -> list[Json]:
    """Returns the configuration that prometheus-operator generates from the PodMonitor and the ServiceMonitors."""
    kubelet = yaml.safe_load((ROOT / "manifests" / "monitoring" / "prometheus" / "kubelet.yaml").read_text())
    relabelings = [
        {"action": r["action"], "source_labels": r["sourceLabels"], "regex": r["regex"]}
        for r in kubelet["spec"]["endpoints"][0]["metricRelabelings"]
    ]

    def target(path: str, **labels: str) -> Json:
        return {"targets": [address], "labels": {"__metrics_path__": path, "instance": path, **labels}}

    servers = [
        target(f"/server/{i}", namespace=NAMESPACE, pod=pod, container=names.CONTAINER_SERVER, tritonmodel=NAME)
        for i, pod in enumerate(PODS)
    ]
    exporters = {
        page: [
            target(f"/{page}/{i}", namespace=NAMESPACE, pod=pod, container=container, measured_tritonmodel=NAME)
            for i, pod in enumerate(PODS)
        ]
        for page, container in (("latency", names.CONTAINER_LATENCY), ("processes", names.CONTAINER_PROCESSES))
    }
    operators = [
        target(f"/operator/{i}", namespace="triton-operator", pod=f"triton-operator-{i}", service=JOB) for i in (0, 1)
    ]
    return [
        {"job_name": f"{NAMESPACE}/{NAME}", "static_configs": servers, "metric_relabel_configs": _relabelings(0)},
        *(
            {
                "job_name": f"{NAMESPACE}/{NAME}/{page}", "static_configs": targets,
                "metric_relabel_configs": _relabelings(endpoint),
            }
            for endpoint, (page, targets) in enumerate(exporters.items(), 1)
        ),
        {"job_name": JOB, "honor_labels": True, "static_configs": operators},
        {
            "job_name": "kubelet", "honor_labels": True, "static_configs": [target("/kubelet")],
            "metric_relabel_configs": relabelings,
        },
        {
            "job_name": "kube-state-metrics", "honor_labels": True,
            "static_configs": [target("/kube-state-metrics")],
        },
    ]  # fmt: skip


def _relabelings(endpoint: int) -> list[Json]:
    """Returns the relabelings of the PodMonitor of a TritonModel with a GPU."""
    gpu = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    subject = gen.model(monitoring={"tokenCounter": TOKENS, "latency": {}, "processes": True}, server=gpu)
    rules = pod_monitor(subject, Facts("operator:1", "Copy"))["spec"]["podMetricsEndpoints"][endpoint][
        "metricRelabelings"
    ]
    written = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return [{written.get(k, k): v for k, v in rule.items()} for rule in rules]


def _first_responses(factor: float) -> str:
    of = f'model="{ENTRY}",version="1"'
    buckets = [f'{FIRST_RESPONSE}_bucket{{{of},le="{le}"}} {count * factor}' for le, count in WITHIN.items()]
    count = f"{FIRST_RESPONSE}_count{{{of}}} {WITHIN['+Inf'] * factor}"
    return "\n".join([f"# TYPE {FIRST_RESPONSE} histogram", *buckets, count]) + "\n"


def _streams(factor: float) -> str:
    """Returns the series of a language model, with the names and labels of Triton's vLLM backend."""
    of = f'model="{STREAMS}",version="1"'
    lines = [f"vllm:{name}{{{of}}} {value}" for name, value in GAUGES.items()]
    for name in HISTOGRAMS:
        lines += [f'vllm:{name}_bucket{{{of},le="{le}"}} {share * factor}' for le, share in (("1", 5), ("+Inf", 9))]
    return "\n".join(lines) + "\n"


def _grown(line: str, factor: float, idle: bool) -> str:
    """Returns a line of the page with its counter multiplied by `factor`."""
    sample = _SAMPLE.match(line)
    if not sample or not line.startswith("nv_inference_") or "pending" in line:
        return line
    name, labels, value = sample[1], sample[2] or "", sample[3]
    if "quantile=" in labels:
        return f"{name}{labels} Nan" if idle else line
    return f"{name}{labels} {float(value) * factor}"
