"""The PodMonitor."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds
from triton_operator.api.status import MONITORING_AVAILABLE
from triton_operator.api.types import TritonModel

from . import series
from .child import Child
from .choices import Choices
from .common import obj, selector

LIMITS = {
    # A target has about ten labels, a metric of Triton up to four.
    "labelLimit": 32,
    "labelNameLengthLimit": 128,
    # A model's name is the name of a folder; `job` contains the names of two objects.
    "labelValueLengthLimit": 512,
}
"""Limits for the labels of a sample. If a scrape exceeds a limit, Prometheus drops all of it and sets `up` to 0."""
_BYTES_OF_A_SAMPLE = 512
"""Maximum size of a page, in bytes per allowed sample. Triton's pages have 190 to 310, because of the summaries that
are dropped. It must be small: Prometheus remembers every line of a page, also of dropped series, until the next scrape.
"""
_LEAST_BYTES, _MOST_BYTES = 64 << 10, 256
"""The smallest limit of a page in bytes, and the largest in bytes per sample of `Choices.sample_limit`."""
_SCRAPE_TIMEOUT = 10
"""Maximum timeout in seconds. Prometheus refuses a timeout above the interval."""


def pod_monitor(model: TritonModel, choices: Choices) -> dict[str, Any]:
    """Returns a PodMonitor for Triton's metrics. Every series gets the label `tritonmodel`, which the rules use.

    The servers run the code of tenants. So the PodMonitor limits their metrics pages, keeps only known series, and
    ignores their target labels and timestamps. It has no podTargetLabels: a pod label `version` would rename Triton's
    label to exported_version.
    """
    monitoring = model.spec.monitoring
    pairs = choices.series or ([(choices.entrypoint, "1")] if choices.entrypoint else [])
    limit = min(choices.sample_limit, series.samples(model, max(len(pairs), series.LEAST)))
    size = min(max(_LEAST_BYTES, limit * _BYTES_OF_A_SAMPLE), choices.sample_limit * _MOST_BYTES)
    relabelings = [
        # During its init containers, a pod has an address but no metrics.
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
        # A redirect could make Prometheus send requests to any address.
        "followRedirects": False,
        "relabelings": relabelings,
        "metricRelabelings": series.keep(model, pairs, choices.target_labels),
    }
    spec = {
        "selector": {"matchLabels": selector(model, choices)},
        "podMetricsEndpoints": [endpoint],
        "sampleLimit": limit,
        # Applies before metricRelabelings drop samples.
        "bodySizeLimit": f"{size}B",
        **LIMITS,
    }
    return labelled(obj(model, kinds.POD_MONITOR, spec=spec), model)


def pod_monitors(model: TritonModel, choices: Choices) -> list[dict[str, Any]]:
    """Returns the PodMonitor, or nothing while the scraping is suspended."""
    return [pod_monitor(model, choices)] if monitored(model, choices) and not choices.suspended else []


def monitored(model: TritonModel, choices: Choices) -> bool:
    """Whether a Prometheus is to monitor the TritonModel."""
    return choices.monitoring and model.spec.monitoring.enabled


def labelled(manifest: dict[str, Any], model: TritonModel) -> dict[str, Any]:
    """Returns `manifest` with the labels that the Prometheus selects by. The operator's labels take precedence."""
    return {**manifest, "metadata": {**manifest["metadata"], "labels": model.monitoring_labels}}


CHILD = Child(
    kinds.POD_MONITOR,
    pod_monitors,
    condition=MONITORING_AVAILABLE,
    unchecked="check spec.monitoring.labels, which the operator copies unchanged",
)
