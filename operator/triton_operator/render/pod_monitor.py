"""Who scrapes the servers, and how often."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds
from triton_operator.api.status import MONITORING_AVAILABLE
from triton_operator.api.types import TritonModel

from .child import Child
from .choices import Choices
from .common import obj, selector

NOT_A_SERVERS = "triton_operator_.*|triton:.*|ALERTS(_FOR_STATE)?|up|scrape_.*"
"""Series that the operator, the rules or Prometheus itself makes. A model may name its own metrics as it likes: under
one of these names it would set its own limit, or silence its own alerts."""
_SCRAPE_TIMEOUT = 10
"""Seconds, unless servers are scraped more often: Prometheus refuses a timeout above the interval."""


def pod_monitor(model: TritonModel, choices: Choices) -> dict[str, Any]:
    """A PodMonitor for Triton's metrics. Every series gets the label `tritonmodel`, by which the rules find it.

    No podTargetLabels: one called `version` would rename Triton's own to exported_version.
    """
    monitoring = model.spec.monitoring
    relabelings = [
        # A pod whose init containers still copy the models has an address, and no metrics yet.
        {"sourceLabels": ["__meta_kubernetes_pod_phase"], "regex": "Running", "action": "keep"},
        {"targetLabel": "tritonmodel", "replacement": model.name, "action": "replace"},
    ]
    endpoint = {
        "port": "metrics",
        "path": "/metrics",
        "interval": f"{monitoring.scrape_seconds}s",
        "scrapeTimeout": f"{min(monitoring.scrape_seconds, _SCRAPE_TIMEOUT)}s",
        "relabelings": relabelings,
        "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": NOT_A_SERVERS, "action": "drop"}],
    }
    spec = {"selector": {"matchLabels": selector(model, choices)}, "podMetricsEndpoints": [endpoint]}
    return labelled(obj(model, kinds.POD_MONITOR, spec=spec), model)


def monitored(model: TritonModel, choices: Choices) -> bool:
    """Whether Prometheus is told about the servers."""
    return choices.monitoring and model.spec.monitoring.enabled


def labelled(manifest: dict[str, Any], model: TritonModel) -> dict[str, Any]:
    """`manifest` with the labels by which the cluster's Prometheus selects; the operator's own come first."""
    return {**manifest, "metadata": {**manifest["metadata"], "labels": model.monitoring_labels}}


CHILD = Child(
    kinds.POD_MONITOR,
    lambda model, choices: [pod_monitor(model, choices)] if monitored(model, choices) else [],
    condition=MONITORING_AVAILABLE,
    unchecked="spec.monitoring.labels get there as they are",
)
