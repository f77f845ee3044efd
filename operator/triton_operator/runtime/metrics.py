"""The operator's own metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import REGISTRY, Gauge, Histogram
from prometheus_client import Counter as PromCounter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from triton_operator.api import thresholds
from triton_operator.api.status import READY

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """One set of metrics on one registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.registry = registry
        self.reconciles = PromCounter(
            "triton_operator_reconciles", "Passes over a TritonModel, by how they ended.", ["result"], registry=registry
        )
        self.seconds = Histogram(
            "triton_operator_reconcile_seconds", "How long a pass took.", buckets=_SECONDS, registry=registry
        )
        self.waited = Histogram(
            "triton_operator_queue_seconds", "How long a key was due before a worker took it.", buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        self.depth = Gauge("triton_operator_queue_depth", "Keys that are due.", registry=registry)
        self.requests = PromCounter(
            "triton_operator_api_requests",
            "Requests to the API server, by verb, resource and HTTP status (0: no answer). Watches are not counted.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.threshold_changes = PromCounter(
            "triton_operator_threshold_changes",
            "Annotations of thresholds that were accepted, or refused as unreadable, by kind.",
            ["kind", "result"],
            registry=registry,
        )
        self.leading = Gauge("triton_operator_leading", "1 on the replica that holds the Lease.", registry=registry)

    def on_request(self, verb: str, resource: str, code: int) -> None:
        self.requests.labels(verb, resource, str(code)).inc()

    def on_threshold(self, kind: str, result: str) -> None:
        self.threshold_changes.labels(kind, result).inc()

    def count_models(
        self, models: Callable[[], Iterable[dict[str, Any]]], wanted: Callable[[dict[str, Any]], int]
    ) -> None:
        """Adds gauges of the TritonModels: how many are Ready, and of each its thresholds and servers. They are
        read from `models` when they are asked for, on every replica of the operator. `wanted`: how many servers
        there shall be."""
        self.registry.register(_Models(models))
        self.registry.register(_Thresholds(models, wanted))


class _Models(Collector):
    def __init__(self, models: Callable[[], Iterable[dict[str, Any]]]) -> None:
        self._models = models

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("triton_operator_models", "TritonModels by their Ready condition.", labels=["ready"])
        for ready, count in Counter(_ready(m) for m in self._models()).items():
            family.add_metric([ready], count)
        yield family


class _Thresholds(Collector):
    """The limits that Prometheus compares with. The recording rules read them (render/rules)."""

    def __init__(self, models: Callable[[], Iterable[dict[str, Any]]], wanted: Callable[[dict[str, Any]], int]) -> None:
        self._models, self._wanted = models, wanted

    def collect(self) -> Iterable[Metric]:
        own = ["namespace", "tritonmodel"]
        limits = GaugeMetricFamily(
            "triton_operator_threshold",
            "What is in force for a TritonModel: its annotations, or their defaults; +Inf where there is no limit.",
            labels=[*own, "kind", "version"],
        )
        wrong = GaugeMetricFamily(
            "triton_operator_thresholds_invalid", "Annotations of thresholds that can't be read.", labels=own
        )
        seen = GaugeMetricFamily(
            "triton_operator_resource_version",
            "Which state of the TritonModel this replica has seen: of several replicas the newest is right.",
            labels=own,
        )
        servers = GaugeMetricFamily(
            "triton_operator_replicas", "Servers that are wanted, and that are ready.", labels=[*own, "state"]
        )
        for model in self._models():
            key = [model["metadata"]["namespace"], model["metadata"]["name"]]
            found = thresholds.of(model)
            for slot, value in thresholds.effective_of(model, found).items():
                limits.add_metric([*key, slot.kind, slot.version], value)
            wrong.add_metric(key, len(found.wrong))
            seen.add_metric(key, int(model["metadata"]["resourceVersion"]))
            status = model.get("status", {})
            servers.add_metric([*key, "wanted"], self._wanted(model))
            servers.add_metric([*key, "ready"], status.get("readyReplicas", 0))
        yield from (limits, seen, wrong, servers)


def _ready(model: dict[str, Any]) -> str:
    conditions = model.get("status", {}).get("conditions", [])
    return next((str(c["status"]) for c in conditions if c["type"] == READY), "Unknown")
