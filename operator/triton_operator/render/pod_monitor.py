"""The PodMonitor."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.kinds import NewerField
from triton_operator.api.status import MONITORING_AVAILABLE
from triton_operator.api.types import TritonModel

from . import exporters
from .child_type import Child
from .common import obj
from .exporter import Exporter
from .facts import Facts
from .server import asks_for_summaries

RESERVED = "triton_operator_.*|triton(model)?:.*|ALERTS(_FOR_STATE)?|up|scrape_.*"
"""Names of series that only the operator, the rules or Prometheus may create. A model that exposed them could change
its limits or suppress its alerts."""
SUMMARIES = "nv_(inference_(queue|compute_[a-z]+)_summary_us|cache_(hit|miss)_summary_per_model)(_sum|_count)?"
"""Summaries that no rule and no dashboard reads: half of a page's samples. Triton exposes all summaries or none."""

LIMITS = {
    # A target has about ten labels, a metric of Triton up to four.
    "labelLimit": 32,
    "labelNameLengthLimit": 128,
    # A model's name is the name of a folder; `job` contains the names of two objects.
    "labelValueLengthLimit": 512,
}
"""Limits for the labels of a sample. If a scrape exceeds a limit, Prometheus drops all of it and sets `up` to 0."""
BYTES_OF_A_SAMPLE = 256
"""Maximum size of a page, in bytes per allowed sample. Triton's pages have 190 to 310, because of the summaries that
are dropped."""
_MEASURED = "measured_tritonmodel"
_SCRAPE_TIMEOUT = 10
"""Maximum timeout in seconds. Prometheus refuses a timeout above the interval."""


def pod_monitor(model: TritonModel, facts: Facts) -> dict[str, Any]:
    """Returns a PodMonitor for Triton's metrics. Every series gets the label `tritonmodel`, which the rules use.

    The servers run the code of tenants. So the PodMonitor limits their metrics pages, drops series with names that
    others own, and ignores their target labels and timestamps. It has no podTargetLabels: a pod label `version` would
    rename Triton's label to exported_version.
    """
    monitoring = model.spec.monitoring
    series = [
        RESERVED,
        *(exporter.series for exporter in exporters.of(model)),
        *([] if asks_for_summaries(model) else [SUMMARIES]),
    ]
    relabelings = [
        # During its init containers, a pod has an address but no metrics.
        {"sourceLabels": ["__meta_kubernetes_pod_phase"], "regex": "Running", "action": "keep"},
        {"targetLabel": "tritonmodel", "replacement": model.name, "action": "replace"},
        *([_of_copies(model)] if model.copies else []),
    ]
    endpoint: dict[str, Any] = {
        "port": "metrics",
        "path": "/metrics",
        "interval": f"{monitoring.scrape_seconds}s",
        "scrapeTimeout": f"{min(monitoring.scrape_seconds, _SCRAPE_TIMEOUT)}s",
        "honorLabels": False,
        "honorTimestamps": False,
        # A redirect could make Prometheus send requests to any address.
        "followRedirects": False,
        "relabelings": relabelings,
        "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": name, "action": "drop"} for name in series],
    }
    spec = {
        "selector": {"matchLabels": names.selector(model.name)},
        "podMetricsEndpoints": [endpoint, *(_endpoint(endpoint, exporter) for exporter in exporters.of(model))],
        "sampleLimit": facts.settings.sample_limit,
        # Applies before metricRelabelings drop samples.
        "bodySizeLimit": f"{facts.settings.sample_limit * BYTES_OF_A_SAMPLE}B",
        **LIMITS,
    }
    return labelled(obj(model, kinds.POD_MONITOR, spec=spec), model)


def _endpoint(servers: dict[str, Any], exporter: Exporter) -> dict[str, Any]:
    """Returns the endpoint of an exporter. `servers`: that of Triton's metrics.

    Its target has another label, which its series get as `tritonmodel`. So the rules, which count servers by `up`,
    don't count it.
    """
    kept = [
        {"sourceLabels": ["__name__"], "regex": exporter.series, "action": "keep"},
        {"sourceLabels": [_MEASURED], "targetLabel": "tritonmodel", "action": "replace"},
        {"regex": _MEASURED, "action": "labeldrop"},
    ]
    relabelings = [
        {**relabeling, **({"targetLabel": _MEASURED} if relabeling.get("targetLabel") == "tritonmodel" else {})}
        for relabeling in servers["relabelings"]
    ]
    return {
        **servers,
        "port": exporter.port_name,
        "relabelings": relabelings,
        "metricRelabelings": kept,
    }


def _of_copies(model: TritonModel) -> dict[str, Any]:
    """Returns a relabeling for servers that get copies of requests: these aren't a load of the TritonModel.

    The rules need not know of it, nor that they still see the copies of the last minute when there are none any more.
    """
    return {
        "sourceLabels": ["__meta_kubernetes_pod_label_tritonoperator_io_group"],
        "regex": names.CANARY,
        "targetLabel": "tritonmodel",
        "replacement": copies_of(model.name),
        "action": "replace",
    }


def copies_of(name: str) -> str:
    """Returns the label `tritonmodel` of servers that get copies of requests. No TritonModel can have this name."""
    return f"{name}/copies"


def pod_monitors(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    return [pod_monitor(model, facts)] if monitored(model, facts) else []


def monitored(model: TritonModel, facts: Facts) -> bool:
    """Whether a Prometheus is to monitor the TritonModel."""
    return facts.cluster.monitoring and model.spec.monitoring.enabled


def labelled(manifest: dict[str, Any], model: TritonModel) -> dict[str, Any]:
    """Returns `manifest` with the labels that the Prometheus selects by. The operator's labels take precedence."""
    return {**manifest, "metadata": {**manifest["metadata"], "labels": model.monitoring_labels}}


CHILD = Child(
    kinds.POD_MONITOR,
    pod_monitors,
    condition=MONITORING_AVAILABLE,
    unchecked="check spec.monitoring.labels, which the operator copies unchanged",
    copied="metadata.labels",
    newer=(
        # The limit of the samples remains.
        NewerField("spec.bodySizeLimit", "prometheus-operator 0.73", left_out="spec.bodySizeLimit"),
        # Without these a server could send Prometheus to other addresses, or fill it.
        NewerField("spec.podMetricsEndpoints.followRedirects", "prometheus-operator 0.55"),
        *(NewerField(f"spec.{limit}", "prometheus-operator 0.50") for limit in LIMITS),
    ),
)
