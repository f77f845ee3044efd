"""What each alert is about: the picture to show, and the next command. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from importlib import resources

from process_exporter.series import MEMORY_LIMIT, MEMORY_USED
from triton_operator.api import names
from triton_operator.api.thresholds import MAX_QPS, MAX_QPS_PEAK, MAX_TPS, ThresholdKey
from triton_operator.status.threshold_live import THRESHOLD_INVALID

from .incident import Firing, Panel, selector

RUNBOOKS: dict[str, dict[str, list[str]]] = json.loads(
    resources.files(__package__).joinpath("runbooks.json").read_text(encoding="utf-8")
)
"""By alert: the paragraphs `meaning`, `look` and `do` of its runbook."""
NAMES = tuple(name for name in RUNBOOKS if name.startswith("TritonModel"))
"""The alerts about one TritonModel."""
_SERVERS = {
    "TritonModelNotServing", "TritonModelServersMissing", "TritonModelServerRestarts", "TritonModelNeverStarted",
    "TritonModelMetricsAbsent", "TritonModelSeriesChurn", "TritonModelLatencyNotMeasured",
}  # fmt: skip
_FAILURES = {"TritonModelRequestFailures", "TritonModelErrorBudgetBurn", "TritonModelServerFails"}
_CONDITIONS = {
    **dict.fromkeys(
        ("TritonModelQpsOverflow", "TritonModelQpsPeak", "TritonModelTpsOverflow", "TritonModelAtMaxQps"),
        "if the load is expected and the servers have the capacity; otherwise the second command",
    ),
    "TritonModelAtMaxReplicas": "if the nodes have the capacity; otherwise the second command",
}
_POD = re.compile(r"[a-z0-9][-a-z0-9.]*")
"""The name of a pod. It becomes a part of a command, so it may contain nothing else."""
_HEADROOM = 1.2
"""A proposed limit is the highest demand of the last hour times this, rounded up to two digits."""


def full_name(name: str) -> str:
    """Returns the name of an alert that is given with or without `TritonModel`; "" for an unknown one."""
    return next((n for n in NAMES if name in (n, n.removeprefix("TritonModel"))), "")


def panel(firing: Firing, namespace: str, name: str) -> Panel:
    """Returns what the picture for this alert shows."""
    of, alert = selector(namespace, name), firing.alert.name
    if alert in _SERVERS:
        return Panel("ready servers", "", f"tritonmodel:servers:ready{{{of}}}", f"tritonmodel:servers:desired{{{of}}}",
                     "wanted")  # fmt: skip
    if alert in _FAILURES:
        return Panel("failed requests", "%", f"100 * tritonmodel:error_ratio:rate5m{{{of}}}")
    if alert == "TritonModelLatencyBudgetBurn":
        kind = json.dumps(label(firing, "kind"))
        slow, timed = (f"tritonmodel:requests_{how}:rate5m{{{of},kind={kind}}}" for how in ("slow", "timed"))
        return Panel("requests slower than the objective", "%", f"100 * {slow} / ({timed} > 0)")
    if alert == "TritonModelMemoryGrows":
        used, limit = (f"max by (tritonmodel) ({name}{{{of}}}) / 2^20" for name in (MEMORY_USED, MEMORY_LIMIT))
        return Panel("memory that can't be freed", "MiB", used, limit, "limit")
    if alert in ("TritonModelQueueDuration", "TritonModelServerHangs"):
        return Panel("time in the queue", "ms", f"1000 * tritonmodel:queue_duration_seconds:avg1m{{{of}}}")
    if alert == "TritonModelAtMaxReplicas":
        return Panel("load in servers", "", f"tritonmodel:load_replicas:max{{{of}}}",
                     f"tritonmodel:servers:ready{{{of}}}", "ready servers")  # fmt: skip
    version = label(firing, "version")
    limit = f'tritonmodel:threshold:effective{{{of},kind="%s",version={json.dumps(version)}}}'
    if alert == "TritonModelTpsOverflow":
        tokens = f"sum(tritonmodel:tokens:rate1m{{{of}}})"
        return Panel("tokens", "tokens/s", tokens, limit % "max-tps", "max-tps")
    if alert == "TritonModelQpsPeak":
        peaks = f"tritonmodel:demand:irate{{{of}}}"
        return Panel("demand between two scrapes", "requests/s", peaks, limit % MAX_QPS_PEAK.name, MAX_QPS_PEAK.name)
    demand = f"tritonmodel:demand:rate1m{{{of},version={json.dumps(version)}}}"
    return Panel("demand", "requests/s", demand, limit % "max-qps", str(ThresholdKey(MAX_QPS.name, version)))


def label(firing: Firing, name: str) -> str:
    """Returns the value of a label that names the part which the alert is about; "" without it."""
    start = f"{name} "
    return next((part.removeprefix(start) for part in firing.about.split(", ") if part.startswith(start)), "")


def pod(firing: Firing) -> str:
    """Returns the pod that the alert is about; "" if it is about none."""
    value = label(firing, "pod")
    return value if _POD.fullmatch(value) else ""


def commands(firing: Firing, namespace: str, name: str, peak: float | None, most: int | None) -> list[str]:
    """Returns the commands to run next, the first one first. `condition` says when the first one is right.

    - `peak`: the highest value of the picture in the last hour
    - `most`: spec.autoscaling.max
    """
    at, alert = f"-n {namespace}", firing.alert.name
    status = f"kubectl triton status {name} {at}"
    # Of a Deployment's pods, `kubectl logs deploy/NAME` takes a ready one, if there is one.
    logs = f"kubectl logs -l {names.LABEL_MODEL}={name} {at} -c triton --prefix --tail=50"
    annotate = f"kubectl annotate tm/{name} {at} tritonoperator.io/"
    if alert in (
        "TritonModelQpsOverflow",
        "TritonModelQpsPeak",
        "TritonModelTpsOverflow",
        "TritonModelAtMaxQps",
        "TritonModelQpsLimitMissing",
    ):
        kind = {"TritonModelTpsOverflow": MAX_TPS, "TritonModelQpsPeak": MAX_QPS_PEAK}.get(alert, MAX_QPS)
        setting = f"{annotate}{ThresholdKey(kind.name, label(firing, 'version'))}={_proposed(peak)} --overwrite"
        return [setting, f"kubectl triton top {name} {at}"]
    if alert == "TritonModelQpsSpike":
        return [f"kubectl triton top {name} {at}", f"{annotate}spike-factor=5 --overwrite"]
    if alert == "TritonModelThresholdInvalid":
        path = '{.status.conditions[?(@.type=="ThresholdLive")].message}'
        return [f"kubectl get tm {name} {at} -o jsonpath='{path}'"]
    if alert == "TritonModelAtMaxReplicas":
        maximum = "N" if most is None else str(most + 1)
        patch = f'{{"spec":{{"autoscaling":{{"max":{maximum}}}}}}}'
        return [f"kubectl patch tm {name} {at} --type merge -p '{patch}'", status]
    if alert in ("TritonModelRequestFailures", "TritonModelErrorBudgetBurn"):
        return [status, logs]
    if alert == "TritonModelLatencyNotMeasured":
        return [f"kubectl logs deploy/{name} {at} -c {names.CONTAINER_LATENCY} --tail=20", status]
    if alert in ("TritonModelQueueDuration", "TritonModelLatencyBudgetBurn"):
        return [f"kubectl triton models {name} {at}", status]
    if alert == "TritonModelServersMissing":
        return [status, f"{logs} --ignore-errors"]
    log = f"kubectl logs {pod(firing) or f'deploy/{name}'} {at} -c triton --tail=50"
    if alert in ("TritonModelServerFails", "TritonModelServerHangs"):
        return [status, log]
    if alert == "TritonModelGPUNotUsed":
        return [status, f"kubectl logs deploy/{name} {at} -c triton | grep -i cuda"]
    if alert == "TritonModelMemoryGrows":
        patch = '{"spec":{"rollout":{"restartedAt":"\'$(date -u +%FT%TZ)\'"}}}'
        return [status, f"kubectl patch tm {name} {at} --type merge -p '{patch}'"]
    if alert in ("TritonModelNotServing", "TritonModelServerRestarts"):
        return [status, f"{log} --previous"]
    return [status, f"kubectl describe tm {name} {at}"]


def condition(alert: str) -> str:
    """Returns when the first command is right, for the line above it; "" if it always is."""
    return _CONDITIONS.get(alert, "")


def _proposed(peak: float | None) -> str:
    """Returns a limit above the peak; N without one."""
    if not peak or not math.isfinite(peak):
        return "N"
    limit = peak * _HEADROOM
    unit = 10.0 ** (math.floor(math.log10(limit)) - 1)
    return f"{math.ceil(limit / unit) * unit:.10g}"


def suspected(ready: int, desired: int, threshold_reason: str) -> Sequence[str]:
    """Returns the alerts that the status suggests, for use without Prometheus."""
    suspects = ["TritonModelNotServing"] if ready == 0 < desired else []
    suspects += ["TritonModelServersMissing"] if 0 < ready < desired else []
    return suspects + (["TritonModelThresholdInvalid"] if threshold_reason == THRESHOLD_INVALID else [])
