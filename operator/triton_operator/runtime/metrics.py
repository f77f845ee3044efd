"""The operator's own metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from prometheus_client import REGISTRY, Gauge, Histogram
from prometheus_client import Counter as PromCounter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from triton_operator.api import thresholds
from triton_operator.api.status import GPU_NOT_USED, READY, STALLED
from triton_operator.api.types import Rollout
from triton_operator.render.deployment import progress_seconds

_UID = 8
"""How many characters of a uid are enough to tell TritonModels of the same name in different clusters apart."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(frozen=True)
class Gauges:
    """The values of the gauges for one TritonModel. `limits`: kind, version and value. `seen`: its resourceVersion.

    `floor`: the least number of servers by the engine's decision; None without one. `gpu_not_used`: whether servers
    with a GPU run their models on the CPU. `start_ends`: the Unix time until which its start may take, while that
    lasts; None for one that is ready or stalled.
    """

    uid: str
    ready: str
    gpu_not_used: bool
    limits: tuple[tuple[str, str, float], ...]
    invalid: int
    seen: int
    floor: int | None
    start_ends: float | None


def gauges_of(model: dict[str, Any]) -> Gauges:
    limits, metadata, status = thresholds.of(model), model["metadata"], model.get("status", {})
    conditions = {c["type"]: c for c in status.get("conditions", [])}
    ready = conditions.get(READY, {"status": "Unknown"})
    starts = ready["status"] != "True" and conditions.get(STALLED, {}).get("status") != "True"
    return Gauges(
        metadata["uid"],
        str(ready["status"]),
        ready.get("reason") == GPU_NOT_USED,
        tuple((s.kind, s.version, value) for s, value in thresholds.effective_of(model, limits).items()),
        len(limits.invalid),
        int(metadata["resourceVersion"]),
        status.get("autoscaling", {}).get("desired"),
        _start_ends(model) if starts else None,
    )


def _start_ends(model: dict[str, Any]) -> float:
    created = datetime.fromisoformat(model["metadata"]["creationTimestamp"])
    rollout = model["spec"].get("rollout", {})
    return created.timestamp() + progress_seconds(rollout.get("startupSeconds", Rollout().startup_seconds))


class Metrics:
    """The operator's metrics in one registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.registry = registry
        self.reconciles = PromCounter(
            "triton_operator_reconciles", "Reconciles of TritonModels, by result.", ["result"], registry=registry
        )
        self.seconds = Histogram(
            "triton_operator_reconcile_seconds", "Duration of a reconcile.", buckets=_SECONDS, registry=registry
        )
        self.waited = Histogram(
            "triton_operator_queue_seconds", "Time that a key waited in the work queue.", buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        self.depth = Gauge("triton_operator_queue_depth", "Keys in the work queue.", registry=registry)
        self.requests = PromCounter(
            "triton_operator_api_requests",
            "Requests to the API server, by verb, resource and HTTP status (0: no answer), without watches.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.threshold_changes = PromCounter(
            "triton_operator_threshold_changes",
            "Threshold annotations that were accepted or refused, by kind.",
            ["kind", "result"],
            registry=registry,
        )
        self.probes = PromCounter(
            "triton_operator_probes", "Polls of Triton servers and of Prometheus, by result.",
            ["target", "result"], registry=registry,
        )  # fmt: skip
        self.scale_ups = PromCounter("triton_operator_scale_ups", "Scale-ups by the operator.", registry=registry)
        self.repairs = PromCounter(
            "triton_operator_repairs",
            "Restarts of servers because of spec.repair, by kind.",
            ["kind"],
            registry=registry,
        )
        self.leading = Gauge("triton_operator_leading", "1 on the replica that holds the Lease.", registry=registry)

    def on_request(self, verb: str, resource: str, code: int) -> None:
        self.requests.labels(verb, resource, str(code)).inc()

    def on_probe(self, target: str, answered: bool) -> None:
        self.probes.labels(target, "answered" if answered else "failed").inc()

    def on_threshold(self, kind: str, result: str) -> None:
        self.threshold_changes.labels(kind, result).inc()

    def on_repair(self, reason: str) -> None:
        self.repairs.labels(reason).inc()

    def count_refused(self, places: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Adds a gauge of what the API server refuses to list: resource and namespace, "" for all."""
        self.registry.register(_Refused(places))

    def count_models(
        self,
        models: Callable[[], Iterable[tuple[str, Gauges]]],
        desired: Callable[[], Mapping[str, int]],
        ready: Callable[[], Mapping[str, int]],
    ) -> None:
        """Adds gauges: TritonModels by Ready condition, those with unused GPUs, and thresholds and servers of each.

        Each scrape, on every replica of the operator, reads them from `models` (key and values), `desired` (desired
        number of servers, by the TritonModel's uid) and `ready` (ready servers, by the TritonModel's key).
        """
        self.registry.register(_Models(models))
        self.registry.register(_Thresholds(models, desired, ready))


class _Refused(Collector):
    def __init__(self, places: Callable[[], Iterable[tuple[str, str]]]) -> None:
        self._places = places

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "triton_operator_listing_refused",
            "1 for each kind that the API server refuses to list, in a namespace or (empty) in all.",
            labels=["resource", "watched"],
        )
        for place in self._places():
            family.add_metric(place, 1)
        yield family


class _Models(Collector):
    def __init__(self, models: Callable[[], Iterable[tuple[str, Gauges]]]) -> None:
        self._models = models

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("triton_operator_models", "TritonModels by their Ready condition.", labels=["ready"])
        for ready, count in Counter(model.ready for _, model in self._models()).items():
            family.add_metric([ready], count)
        yield family
        unused = GaugeMetricFamily(
            "triton_operator_gpu_not_used",
            "1 for each TritonModel with a server that has a GPU by its limits and runs a model on the CPU.",
            labels=["namespace", "tritonmodel"],
        )
        for key, model in self._models():
            if model.gpu_not_used:
                unused.add_metric(key.split("/"), 1)
        yield unused


class _Thresholds(Collector):
    """The thresholds that the recording rules use (render/rules)."""

    def __init__(
        self,
        models: Callable[[], Iterable[tuple[str, Gauges]]],
        desired: Callable[[], Mapping[str, int]],
        ready: Callable[[], Mapping[str, int]],
    ) -> None:
        self._models, self._desired, self._ready = models, desired, ready

    def collect(self) -> Iterable[Metric]:
        own = ["namespace", "tritonmodel"]
        limits = GaugeMetricFamily(
            "triton_operator_threshold",
            "Effective threshold of a TritonModel: from its annotations, or the default; +Inf for no limit.",
            labels=[*own, "kind", "version"],
        )
        invalid = GaugeMetricFamily(
            "triton_operator_thresholds_invalid", "Number of invalid threshold annotations.", labels=own
        )
        versions = GaugeMetricFamily(
            "triton_operator_resource_version",
            "resourceVersion of the TritonModel in this replica. The replica with the highest one is up to date.",
            labels=[*own, "uid"],
        )
        servers = GaugeMetricFamily(
            "triton_operator_replicas", "Servers of a TritonModel, by state: wanted or ready.", labels=[*own, "state"]
        )
        floor = GaugeMetricFamily(
            "triton_operator_autoscaling_desired", "Least number of servers, by the operator's decision.", labels=own
        )
        starts = GaugeMetricFamily(
            "triton_operator_start_ends_seconds",
            "Unix time until which the first start of a TritonModel may take, while it isn't ready or stalled.",
            labels=own,
        )
        desired, ready = self._desired(), self._ready()
        for key, model in self._models():
            place = key.split("/")
            for kind, version, value in model.limits:
                limits.add_metric([*place, kind, version], value)
            invalid.add_metric(place, model.invalid)
            versions.add_metric([*place, model.uid[:_UID]], model.seen)
            servers.add_metric([*place, "wanted"], desired.get(model.uid, 0))
            servers.add_metric([*place, "ready"], ready.get(key, 0))
            if model.floor is not None:
                floor.add_metric(place, model.floor)
            if model.start_ends is not None:
                starts.add_metric(place, model.start_ends)
        yield from (limits, versions, invalid, servers, floor, starts)
