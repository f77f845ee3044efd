"""Who scrapes the servers, and how often."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds
from triton_operator.api.status import MONITORING_AVAILABLE
from triton_operator.api.types import TritonModel

from .child import Child
from .choices import Choices
from .common import obj, selector

RESERVED = "triton_operator_.*|triton:.*|ALERTS(_FOR_STATE)?|up|scrape_.*"
"""Names of series that the operator, the rules or Prometheus make. A model names its metrics as it likes: under one of
these names it would set its own limit or silence its own alerts."""
BAD_VERSION = "(?s)nv_[^;]*;(.*[^0-9].*|.{20,})"
"""`name;version` of a metric of Triton whose version is not a number of up to 19 digits. Versions are labels of alerts,
and Triton has no other ones."""
LIMITS = {
    # The labels of the target are about ten, those of a metric of Triton up to four.
    "labelLimit": 32,
    "labelNameLengthLimit": 128,
    # A name of a model is the name of a folder; `job` is two names of objects.
    "labelValueLengthLimit": 512,
}
"""Limits of the labels of a sample. Prometheus drops the whole scrape that exceeds a limit, and `up` of that server
is 0."""
_BYTES_OF_A_SAMPLE = 512
"""What a page may have for each sample that it may have. Triton's pages have about 100."""
_SCRAPE_TIMEOUT = 10
"""Seconds, unless servers are scraped more often: Prometheus refuses a timeout above the interval."""


def pod_monitor(model: TritonModel, choices: Choices) -> dict[str, Any]:
    """A PodMonitor for Triton's metrics. Every series gets the label `tritonmodel`, by which the rules find it.

    The servers run the code of tenants, so their pages are limited, and a server sets neither the labels of its target
    nor the times of its samples. No podTargetLabels: one called `version` would rename Triton's own to
    exported_version.
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
        "honorLabels": False,
        "honorTimestamps": False,
        # A redirect would make Prometheus ask any address.
        "followRedirects": False,
        "relabelings": relabelings,
        "metricRelabelings": [
            {"sourceLabels": ["__name__"], "regex": RESERVED, "action": "drop"},
            {"sourceLabels": ["__name__", "version"], "regex": BAD_VERSION, "action": "drop"},
        ],
    }
    spec = {
        "selector": {"matchLabels": selector(model, choices)},
        "podMetricsEndpoints": [endpoint],
        "sampleLimit": choices.sample_limit,
        # Of the page, before metrics are dropped.
        "bodySizeLimit": f"{choices.sample_limit * _BYTES_OF_A_SAMPLE}B",
        **LIMITS,
    }
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
