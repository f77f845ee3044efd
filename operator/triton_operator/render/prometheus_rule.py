"""The PrometheusRule."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds
from triton_operator.api.kinds import NewerField
from triton_operator.api.status import MONITORING_AVAILABLE
from triton_operator.api.types import TritonModel
from triton_operator.promql import Rule

from .child_type import Child
from .common import obj
from .facts import Facts
from .pod_monitor import labelled, monitored
from .rules.alerts import limit_alerts, peak_alerts, slow_alerts
from .rules.latency import latency_recording
from .rules.recording import (
    peak_recording,
    queue_recording,
    recording,
    server_recording,
    threshold_recording,
)
from .rules.slo import slo_recording
from .rules.streaming import decoupled_recording, streaming_recording
from .rules.subject import subject

_KEEP = "spec.groups.rules.keep_firing_for"


def prometheus_rule(model: TritonModel, facts: Facts) -> dict[str, Any]:
    """Returns the PrometheusRule of `model`, with `facts.thresholds` as fallback values."""
    about, monitoring = subject(model, facts), model.spec.monitoring
    every = monitoring.evaluation_seconds
    groups = [
        # Half the interval, because a changed threshold waits for this group, and a burst lasts seconds.
        _group(f"{model.name}-limits", max(1, every // 2), [
            *threshold_recording(about), *peak_recording(about), *(peak_alerts(about) if monitoring.alerts else []),
        ]),
        _group(model.name, every, [
            *streaming_recording(about), *recording(about), *(limit_alerts(about) if monitoring.alerts else []),
        ]),
        # A rule costs Prometheus most by its evaluation, even if it has no result.
        _group(f"{model.name}-slow", about.slow_seconds, [
            *server_recording(about), *queue_recording(about), *slo_recording(about), *decoupled_recording(about),
            *latency_recording(about),
            *(slow_alerts(about) if monitoring.alerts else []),
        ]),
    ]  # fmt: skip
    return labelled(obj(model, kinds.PROMETHEUS_RULE, spec={"groups": groups}), model)


def prometheus_rules(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    """Returns the PrometheusRule, or nothing until the entry model is known, because an ensemble has other rules."""
    return [prometheus_rule(model, facts)] if monitored(model, facts) and facts.entrypoint else []


def _group(name: str, seconds: int, rules: list[Rule]) -> dict[str, Any]:
    return {"name": name, "interval": f"{seconds}s", "rules": rules}


CHILD = Child(
    kinds.PROMETHEUS_RULE,
    prometheus_rules,
    condition=MONITORING_AVAILABLE,
    unchecked="check spec.monitoring.labels, which the operator copies unchanged",
    copied="metadata.labels",
    # Without it an alert that ends for a moment fires twice.
    newer=(NewerField(_KEEP, "prometheus-operator 0.66", left_out=_KEEP),),
    needs_entrypoint=True,
)
