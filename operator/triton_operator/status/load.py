"""The conditions MonitoringAvailable, ThresholdLive and AutoscalerActive."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from triton_operator.api.monitoring import Answer, Prometheus, describe
from triton_operator.api.status import (
    AUTOSCALER_ACTIVE,
    MONITORING_AVAILABLE,
    THRESHOLD_LIVE,
    TOO_MANY_SERIES,
    Condition,
    ThresholdStatus,
)
from triton_operator.api.thresholds import (
    MAX_QPS,
    MAX_QPS_PER_REPLICA,
    MAX_TPS,
    MAX_TPS_PER_REPLICA,
    ThresholdKey,
    text,
)
from triton_operator.api.types import TritonModel
from triton_operator.render.children import CHILDREN

from . import churn, keda, pods
from .conditions import condition
from .observation import Object, Observation, Problem

THRESHOLD_INVALID = "ThresholdInvalid"
SERIES_CHURN = "SeriesChurn"
_MEASURED_SECONDS = 600
_PAUSED = " (spec.paused is true, so new and changed rules don't reach it)"
_NO_LOAD = "FailedGetObjectMetric"


def monitoring_available(model: TritonModel, observed: Observation, suspended: str | None = None) -> Condition | None:
    """MonitoringAvailable: whether a Prometheus selects the rules; None if monitoring is disabled.

    `suspended`: until when the scraping is suspended.
    """
    if not model.spec.monitoring.enabled:
        return None
    if observed.installed is None:
        return condition(
            MONITORING_AVAILABLE, "False", "CRDsMissing",
            "the cluster has no CRDs for PrometheusRule and PodMonitor: install prometheus-operator to get alerts; "
            "serving works without them",
        )  # fmt: skip
    if refusal := _refusal(MONITORING_AVAILABLE, observed):
        return condition(MONITORING_AVAILABLE, "False", refusal.reason, refusal.message)
    if suspended:
        return condition(
            MONITORING_AVAILABLE, "False", SERIES_CHURN,
            "a server keeps replacing its series, which fills Prometheus' memory. So the operator has deleted the "
            f"PodMonitor at {churn.since(suspended)}, and creates it again at {suspended}. The servers keep serving; "
            "the autoscaler and the alerts about requests have no metrics. Find the metric with changing labels and "
            "correct the model's code: see the runbook TritonModelSeriesChurn",
        )  # fmt: skip
    if missing := observed.series.missing:
        return condition(
            MONITORING_AVAILABLE, "False", TOO_MANY_SERIES,
            f"Prometheus gets the metrics of {len(observed.series.pairs)} versions of models, and not of {missing} "
            "others that the servers report: with them, a scrape of all servers of the namespace would have more "
            "samples than the operator's setting SAMPLES_PER_NAMESPACE. If the page of a server is larger than the "
            "PodMonitor's bodySizeLimit, Prometheus gets none of its metrics. Serve fewer models or versions, lower "
            "autoscaling.max or replicas, delete TritonModels, or ask an administrator to raise the setting",
        )  # fmt: skip
    if observed.installed.prometheuses is None:
        return condition(
            MONITORING_AVAILABLE, "Unknown", "NotPermitted",
            "the operator isn't allowed to list Prometheus resources, so it can't check whether one selects the rules",
        )  # fmt: skip
    selecting = observed.installed.selecting(model.monitoring_labels, model.namespace)
    if selecting:
        names = ", ".join(f"{p.namespace}/{p.name}{_PAUSED if p.paused else ''}" for p in selecting)
        return condition(MONITORING_AVAILABLE, "True", "Selected", f"selected by Prometheus {names}")
    if not observed.installed.prometheuses:
        return condition(
            MONITORING_AVAILABLE, "False", "NoPrometheus",
            "no Prometheus resource in the namespaces of the operator's setting PROMETHEUS_NAMESPACES "
            f"({', '.join(observed.installed.searched) or 'none'}), so no Prometheus evaluates the rules: create one "
            "there, or add its namespace to the setting",
        )  # fmt: skip
    return condition(MONITORING_AVAILABLE, "False", "NotSelected", _not_selected(observed.installed.prometheuses))


def threshold_live(
    model: TritonModel,
    observed: Observation,
    states: Sequence[ThresholdStatus],
    before: Condition | None,
    now: str,
) -> Condition | None:
    """ThresholdLive: whether Prometheus uses the accepted thresholds. `before`: this condition until now."""
    if observed.requested.invalid:
        known = {ThresholdKey(t.kind, t.version) for t in states}
        kept = (
            "; the last accepted value stays in effect"
            if any(w.threshold in known for w in observed.requested.invalid)
            else ""
        )
        return condition(
            THRESHOLD_LIVE, "False", THRESHOLD_INVALID, "; ".join(w.message for w in observed.requested.invalid) + kept
        )
    if not model.spec.monitoring.enabled:
        return None
    if observed.installed is None:
        return condition(
            THRESHOLD_LIVE, "Unknown", "NotMonitored", "no Prometheus evaluates the thresholds; see MonitoringAvailable"
        )
    if not observed.has_rules and not model.spec.entrypoint and any(_ambiguous(p) for p in observed.pods):
        return condition(
            THRESHOLD_LIVE, "False", "NoEntrypoint",
            "the repository has several possible entrypoints, so the operator doesn't know whose "
            "requests to count, and creates no rules: set spec.entrypoint",
        )  # fmt: skip
    if not observed.has_rules:
        return condition(
            THRESHOLD_LIVE,
            "Unknown",
            "Starting",
            "the operator creates the rules when it has read the repository of the first server",
        )
    if observed.answer is None:
        return condition(
            THRESHOLD_LIVE, "Unknown", "NoPrometheus",
            "no known Prometheus selects the rules; see MonitoringAvailable",
        )  # fmt: skip
    if observed.answer.error:
        return condition(THRESHOLD_LIVE, "Unknown", "PrometheusUnreachable", observed.answer.error)
    if not observed.answer.at:
        return condition(THRESHOLD_LIVE, "Unknown", "Starting", "the operator hasn't queried Prometheus yet")
    if _uncounted(observed, observed.answer):
        return condition(
            THRESHOLD_LIVE, "False", "TokenCounterMissing",
            f"Prometheus has no counter {model.spec.monitoring.token_counter} of these servers "
            "(spec.monitoring.tokenCounter), so max-tps has no effect",
        )  # fmt: skip
    wanted = _compared(observed)
    if behind := _behind(wanted, observed.answer):
        return condition(THRESHOLD_LIVE, "False", "Propagating", _still(behind, wanted, observed.answer.values))
    if outdated(observed.answer, states):
        return condition(
            THRESHOLD_LIVE, "False", "Propagating", "the operator hasn't queried Prometheus since the threshold changed"
        )
    shown = ", ".join(f"{s} {text(v)}" for s, v in sorted(wanted.items()) if not math.isinf(v)) or "no limit"
    message = f"Prometheus uses {shown}"
    if before is not None and before.status == "True" and before.message.partition(";")[0] == message:
        return before
    return condition(THRESHOLD_LIVE, "True", "Live", message + _measured(states, before, now))


def outdated(answer: Answer, states: Sequence[ThresholdStatus]) -> bool:
    """Returns whether a threshold changed after the query, so that the answer may contain its previous value."""
    return answer.at < max((t.since for t in states), default="")


def autoscaler_active(model: TritonModel, observed: Observation) -> Condition | None:
    """AutoscalerActive: whether the autoscaler gets the load; None without autoscaling."""
    if model.scaling is None:
        return None
    if refusal := _refusal(AUTOSCALER_ACTIVE, observed):
        return condition(AUTOSCALER_ACTIVE, "False", refusal.reason, refusal.message)
    if obstacle := keda.obstacle(model, observed):
        return obstacle
    per_server = (ThresholdKey(MAX_QPS_PER_REPLICA.name), ThresholdKey(MAX_TPS_PER_REPLICA.name))
    if all(math.isinf(observed.thresholds.get(s, math.inf)) for s in per_server):
        return condition(
            AUTOSCALER_ACTIVE, "False", "NoThreshold",
            "the capacity of one server isn't known: set the annotation tritonoperator.io/max-qps-per-replica, or "
            "tritonoperator.io/max-qps, which is divided by spec.autoscaling.max",
        )  # fmt: skip
    if model.is_keda:
        return keda.reported(observed)
    reported = {c["type"]: c for c in (observed.autoscaler or {}).get("status", {}).get("conditions", [])}
    if not reported:
        return condition(
            AUTOSCALER_ACTIVE, "Unknown", "Starting", "the HorizontalPodAutoscaler hasn't reported a status yet"
        )
    for kind in ("AbleToScale", "ScalingActive"):
        if reported.get(kind, {}).get("status") == "False":
            words = reported[kind]
            if words["reason"] == _NO_LOAD and not any(map(pods.is_ready, observed.pods)):
                return condition(
                    AUTOSCALER_ACTIVE, "Unknown", "Starting", "no server is ready yet, so there is no load"
                )
            hint = _hint(words["reason"]) + _direct_adds(observed)
            return condition(AUTOSCALER_ACTIVE, "False", words["reason"], words["message"] + hint)
    if "ScalingActive" not in reported:
        return condition(
            AUTOSCALER_ACTIVE, "Unknown", "Starting", "the HorizontalPodAutoscaler hasn't reported a status yet"
        )
    limited = reported.get("ScalingLimited", {})
    if limited.get("status") == "True" and limited.get("reason") == "TooManyReplicas":
        return condition(
            AUTOSCALER_ACTIVE, "True", "AtMaximum",
            f"the load needs more servers than spec.autoscaling.max ({model.scaling.max}) allows",
        )  # fmt: skip
    return condition(AUTOSCALER_ACTIVE, "True", "Scaling", f"the autoscaler gets the load metric{_tokens(observed)}")


def _direct_adds(observed: Observation) -> str:
    counted = math.isfinite(observed.thresholds.get(ThresholdKey(MAX_QPS_PER_REPLICA.name), math.inf))
    return "; the engine Direct still adds servers" if observed.scaling and counted else ""


def _tokens(observed: Observation) -> str:
    """Returns words about tokens, which the engine Direct doesn't count."""
    limited = math.isfinite(observed.thresholds.get(ThresholdKey(MAX_TPS_PER_REPLICA.name), math.inf))
    if not (observed.scaling and limited):
        return ""
    return "; the engine Direct doesn't count tokens, so only the HorizontalPodAutoscaler adds servers for max-tps"


def _refusal(condition_type: str, observed: Observation) -> Problem | None:
    """Returns the first refused write of an object that this condition reports on."""
    found = (observed.refused.get(child.kind.kind) for child in CHILDREN if child.condition == condition_type)
    return next((refusal for refusal in found if refusal), None)


def _measured(states: Sequence[ThresholdStatus], before: Condition | None, now: str) -> str:
    """Returns the time from the annotation to Prometheus, as text.

    Empty if something else caused the delay: the rules were new, Prometheus was unreachable, or a threshold was
    removed.
    """
    since = max((t.since for t in states), default="")
    if before is None or before.reason != "Propagating" or since[:19] < (before.last_transition_time or "")[:19]:
        return ""
    seconds = (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds()
    return f"; {seconds:.1f} s after it was set" if 0 <= seconds <= _MEASURED_SECONDS else ""


def _ambiguous(pod: Object) -> bool:
    report = pods.check_report(pod)
    return report is not None and bool(report.models) and report.entrypoint is None


def _uncounted(observed: Observation, answer: Answer) -> bool:
    """Returns whether there is a max-tps, but no token counter."""
    return ThresholdKey(MAX_TPS.name) in observed.requested.requested and not answer.tokens


def _compared(observed: Observation) -> dict[ThresholdKey, float]:
    """Returns the thresholds that Prometheus should use: the requested ones, and max-qps (infinite if it isn't set)."""
    return {
        s: v
        for s, v in observed.thresholds.items()
        if s in observed.requested.requested or s == ThresholdKey(MAX_QPS.name)
    }


def _behind(wanted: Mapping[ThresholdKey, float], answer: Answer) -> ThresholdKey | None:
    """Returns the first threshold for which Prometheus has a different value; None if all are equal.

    The rules record at least one value of every TritonModel, but no infinite values.
    """
    return next((s for s, v in wanted.items() if not answer.values or answer.values.get(s, math.inf) != v), None)


def _still(threshold: ThresholdKey, wanted: Mapping[ThresholdKey, float], values: Mapping[ThresholdKey, float]) -> str:
    has = f"still uses {text(values[threshold])}" if threshold in values else "doesn't have it yet"
    return f"{threshold} is {text(wanted[threshold])}; Prometheus {has}"


def _not_selected(prometheuses: Sequence[Prometheus]) -> str:
    first = prometheuses[0]
    return (
        "no Prometheus selects both the PrometheusRule and the PodMonitor: set spec.monitoring.labels to the labels "
        "that yours selects; "
        f"{first.namespace}/{first.name} selects rules with {describe(first.rules.objects)} and pod monitors with "
        f"{describe(first.pod_monitors.objects)}, in namespaces with {_namespaces(first.rules.namespaces)}"
    )


def _namespaces(selector: Object | None) -> str:
    return "its own namespace" if selector is None else describe(selector)


def _hint(reason: str) -> str:
    if reason not in (_NO_LOAD, "InvalidMetricSourceType"):
        return ""
    return (
        "; check that prometheus-adapter is installed with the rule of manifests/monitoring/adapter, and that the "
        "condition MonitoringAvailable is True. The number of servers doesn't change while the metric is missing"
    )
