"""Which series of a server Prometheus keeps, and how many they are.

A server runs the code of tenants and can write any name and any label into its page. So Prometheus keeps only names of
Triton's metrics, versions of models that the operator knows, and labels with few values. All series that a server can
have are then a finite set, however often it changes its page.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from triton_operator.api.types import TritonModel

from .server import asks_for_summaries
from .sizes import devices

Pair = tuple[str, str]
"""(model, version)."""

RESERVED = "triton_operator_.*|triton(model)?:.*|ALERTS(_FOR_STATE)?|up|scrape_.*"
"""Names of series that only the operator, the rules or Prometheus may create. A model that exposed them could change
its limits or suppress its alerts."""
_REQUESTS = (
    "nv_inference_(request_(success|failure|duration_us)|count|exec_count|queue_duration_us"
    "|compute_(input|infer|output)_duration_us|pending_request_count"
    "|first_response_histogram_ms_(bucket|sum|count)|request_summary_us(_sum|_count)?)"
)
SUMMARIES = "nv_(inference_(queue|compute_[a-z]+)|cache_(hit|miss))_summary_us(_sum|_count)?"
"""Summaries that no rule and no dashboard reads: half of a page's samples. Triton exposes all summaries or none."""
_OTHERS = (
    "nv_model_load_duration_secs",
    "nv_cache_(num|hit|miss|lookup|insertion)_(hits|misses|entries|lookups|evictions|duration)(_per_model)?",
    "nv_cache_util",
    "nv_(pinned_memory_pool|cpu_memory|gpu_memory)_(total|used)_bytes",
    "nv_(cpu|gpu)_utilization",
    "nv_gpu_power_(usage|limit)",
    "nv_energy_consumption",
)
_BOUNDS = r"0\.0{0,3}([1-9]|15|25|75)|([1-9]|15|25|75)0{0,8}(\.0)?|[1-9](\.5)?(e[+-]0[0-9])?|\+Inf"
"""Matches the boundaries of buckets: those of Triton and vLLM, and other round numbers."""
_VALUES = rf"(|REJECTED|CANCELED|BACKEND|OTHER);(|0\.([1-9]|[1-9]5|98|99|999|9999));(|{_BOUNDS})"
"""Matches `reason;quantile;le`."""
_LABELS = (
    "__name__", "namespace", "pod", "container", "endpoint", "instance", "job", "tritonmodel",
    "model", "version", "reason", "quantile", "le",
)  # fmt: skip
"""Labels that a series keeps: those of the target, and Triton's."""
_VERSION = re.compile(r"[0-9]{1,19}")
_KNOWN = ["model", "version"]

LEAST = 3
"""The number of versions of models that every TritonModel may have: some of the entry model."""
_USUAL, _ALL = 25, 74
"""Samples of one version of a model, without and with all of Triton's summaries. Measured with Triton 24.10 and its
response cache; metrics that newer versions add are included."""
_SERVER, _DEVICE, _MARGIN, _BUCKETS = 16, 8, 20, 16
"""Samples of a server without models, of each GPU, of what Triton may add, and of a histogram of the user."""


def usable(pairs: Iterable[Pair]) -> list[Pair]:
    """Returns the pairs that can be in the rule: the version is a number, as in Triton. Sorted, without duplicates."""
    return sorted({pair for pair in pairs if pair[0] and pair[0].isprintable() and _VERSION.fullmatch(pair[1])})


def keep(model: TritonModel, pairs: Collection[Pair], target_labels: Collection[str] = ()) -> list[dict[str, Any]]:
    """Returns the metricRelabelings. `target_labels`: labels that the administrator's Prometheus adds to targets."""
    monitoring, gpus = model.spec.monitoring, _devices(model)
    own = [name for name in (monitoring.token_counter, *monitoring.metrics) if name]
    summaries = [SUMMARIES] if asks_for_summaries(model) else []
    labels = [*_LABELS, *(["gpu_uuid"] if gpus else []), *map(re.escape, target_labels)]
    # The empty pair is for the metrics of the whole server.
    known = [*(re.escape(name) + ";" + version for name, version in usable(pairs)), ";"]
    uuids = [{"sourceLabels": ["gpu_uuid"], "regex": "|(GPU|MIG)-[-0-9a-f]{1,64}", "action": "keep"}] if gpus else []
    return [
        {"sourceLabels": ["__name__"], "regex": RESERVED, "action": "drop"},
        {"sourceLabels": ["__name__"], "regex": "|".join([_REQUESTS, *_OTHERS, *summaries, *own]), "action": "keep"},
        {"sourceLabels": _KNOWN, "regex": "|".join(known), "action": "keep"},
        {"sourceLabels": ["reason", "quantile", "le"], "regex": _VALUES, "action": "keep"},
        *uuids,
        {"regex": "|".join(labels), "action": "labelkeep"},
    ]


def listed(monitor: Mapping[str, Any] | None) -> list[Pair] | None:
    """Returns the pairs in a PodMonitor of `keep`; None if it has no list, as in earlier versions of the operator."""
    endpoints = (monitor or {}).get("spec", {}).get("podMetricsEndpoints", [])
    for rule in (rule for endpoint in endpoints for rule in endpoint.get("metricRelabelings", [])):
        if rule.get("sourceLabels") == _KNOWN and rule.get("action") == "keep":
            texts = re.findall(r"((?:\\.|[^\\|])+)", rule.get("regex", ""), re.DOTALL)
            pairs = (re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL).rpartition(";") for text in texts)
            return usable((name, version) for name, _, version in pairs)
    return None


def samples(model: TritonModel, pairs: int) -> int:
    """Returns the number of samples in one scrape of an honest server with so many versions of models, and a margin."""
    return _SERVER + _MARGIN + _DEVICE * _devices(model) + pairs * _each(model)


def room(model: TritonModel, allowed: int) -> int:
    """Returns how many versions of models fit into so many samples of a server; at least LEAST."""
    return max(LEAST, (allowed - samples(model, 0)) // _each(model))


def servers(model: TritonModel) -> int:
    """Returns the largest number of servers that the spec asks for, at least one. A rollout adds others for a while."""
    scaling = model.spec.autoscaling
    return max(1, model.spec.replicas or 0, scaling.max if scaling else 0)


def _each(model: TritonModel) -> int:
    own = sum(_BUCKETS if name.endswith("_bucket") else 1 for name in model.spec.monitoring.metrics)
    standard = _ALL if asks_for_summaries(model) else _USUAL
    return (standard + 1 + own) * max(1, _devices(model))


def _devices(model: TritonModel) -> int:
    """Returns the number of devices of a server, at least one if it claims some."""
    number = devices(model.spec)
    return 1 if number is None else number
