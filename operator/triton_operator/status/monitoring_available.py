"""The condition MonitoringAvailable: whether a Prometheus selects the rules and the servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triton_operator.api.monitoring import Prometheus, describe
from triton_operator.api.status import MONITORING_AVAILABLE, Condition, ModelStatus
from triton_operator.decisions.snapshot import Snapshot

from . import scrape_size
from .conditions import condition
from .writes import Writes

_PAUSED = " (spec.paused is true, so new and changed rules don't reach it)"


def monitoring_available(snapshot: Snapshot, writes: Writes, models: Sequence[ModelStatus]) -> Condition | None:
    """MonitoringAvailable: whether a Prometheus selects the rules; None if monitoring is disabled.

    `models`: what the servers report.
    """
    model = snapshot.model
    if not model.spec.monitoring.enabled:
        return None
    installed = snapshot.installed
    if installed is None:
        return condition(
            MONITORING_AVAILABLE, "False", "CRDsMissing",
            "the cluster has no CRDs for PrometheusRule and PodMonitor: for alerts install prometheus-operator, or let "
            "kubectl triton rules write files for another Prometheus; serving works without them",
        )  # fmt: skip
    if refusal := writes.refusal(MONITORING_AVAILABLE):
        return condition(MONITORING_AVAILABLE, "False", refusal.reason, refusal.message)
    if not installed.answered:
        return condition(
            MONITORING_AVAILABLE, "Unknown", "NotListed",
            "the API server hasn't listed the Prometheus resources yet (the operator's log says why), so the operator "
            "can't check whether one selects the rules; it tries again about every 30 s",
        )  # fmt: skip
    if installed.prometheuses is None:
        return condition(
            MONITORING_AVAILABLE, "Unknown", "NotPermitted",
            "the operator isn't allowed to list Prometheus resources, so it can't check whether one selects the rules",
        )  # fmt: skip
    selecting = installed.selecting(model.monitoring_labels, model.namespace)
    if selecting:
        names = ", ".join(f"{p.namespace}/{p.name}{_PAUSED if p.paused else ''}" for p in selecting)
        size = scrape_size.note(model, models, snapshot.facts.settings.sample_limit)
        latency = scrape_size.latency_note(model, models, snapshot.facts.settings.sample_limit)
        notes = [f"; but {note}" for note in (size, latency, _without_objective(snapshot)) if note]
        return condition(MONITORING_AVAILABLE, "True", "Selected", f"selected by Prometheus {names}" + "".join(notes))
    if not installed.prometheuses:
        return condition(
            MONITORING_AVAILABLE, "False", "NoPrometheus",
            "no Prometheus resource in the namespaces of the operator's setting PROMETHEUS_NAMESPACES "
            f"({', '.join(installed.searched) or 'none'}), so no Prometheus evaluates the rules: create one "
            "there, or add its namespace to the setting",
        )  # fmt: skip
    return condition(MONITORING_AVAILABLE, "False", "NotSelected", _not_selected(installed.prometheuses))


def _without_objective(snapshot: Snapshot) -> str:
    """Returns why no alert is about the objectives of latency; "" if one is, or if there are none."""
    latency, facts = snapshot.model.spec.monitoring.latency, snapshot.facts
    if latency is None or not latency.objectives or facts.entrypoint not in facts.decoupled:
        return ""
    return (
        f"spec.monitoring.latency has objectives, which no alert watches, because {facts.entrypoint} streams its "
        "answers: a request ends when its stream ends"
    )


def _not_selected(prometheuses: Sequence[Prometheus]) -> str:
    first = prometheuses[0]
    return (
        "no Prometheus selects both the PrometheusRule and the PodMonitor: set spec.monitoring.labels to the labels "
        "that yours selects; "
        f"{first.namespace}/{first.name} selects rules with {describe(first.rules.objects)} and pod monitors with "
        f"{describe(first.pod_monitors.objects)}, in namespaces with {_namespaces(first.rules.namespaces)}"
    )


def _namespaces(selector: Mapping[str, Any] | None) -> str:
    return "its own namespace" if selector is None else describe(selector)
