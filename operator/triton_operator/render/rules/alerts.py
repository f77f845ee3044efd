"""When somebody is told, and what it says. Values stand in annotations, never in labels: an alert whose labels change
is a new alert to Alertmanager."""

from __future__ import annotations

import re
from decimal import Decimal

from triton_operator.api import thresholds

from .promql import PER_MODEL, Rule, Scope, equal, escape_template, number, one_of, quote, unequal, window
from .recording import demand_by_limit, limits, tokens
from .slo import budget, error_ratio
from .subject import Subject

_CALM = 0.9
"""An alert about a limit ends below this part of it, so that load that swings around the limit is one alert. Not
`keep_firing_for`: an alert must end at once when its limit is raised or removed."""
_SPIKE_LEAST = 1
"""Requests a second below which nothing is a spike."""
_FAILURES_RATIO = 0.01
"""Which part of the requests may fail for one reason before an alert."""
_BURNS = (
    (Decimal("14.4"), "1h", "5m", "critical"),
    (Decimal("6"), "6h", "30m", "critical"),
    (Decimal("1"), "3d", "6h", "warning"),
)
"""Burn rate, long and short window (The Site Reliability Workbook, chapter 5)."""
_FEW = 10
"""Failed requests in the long window, below which no error budget is looked at."""
_OWN_LABELS = {
    "__name__",
    "alertname",
    "namespace",
    "tritonmodel",
    "model",
    "version",
    "kind",
    "reason",
    "window",
    "severity",
}
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_WHO = "{{ $labels.namespace }}/{{ $labels.tritonmodel }}"
_VERSION = "{{ with $labels.version }} version {{ . }}{{ end }}"
_VALUE = "{{ $value | humanize }}"


def alerts(subject: Subject) -> list[Rule]:
    """What needs the newest samples."""
    found = [
        _qps_overflow(subject),
        *([_tps_overflow(subject)] if subject.token_counter else []),
        _qps_spike(subject),
        _limit_missing(subject),
        _metrics_absent(subject),
        _disagreement(subject),
        *([_at_max_replicas(subject)] if subject.max_replicas is not None else []),
        _queue_duration(subject),
    ]
    return [_labelled(subject, rule) for rule in found]


def slo_alerts(subject: Subject) -> list[Rule]:
    return [_labelled(subject, rule) for rule in (_request_failures(subject), *_error_budget_burn(subject))]


def _qps_overflow(subject: Subject) -> Rule:
    scope, kind, name = subject.scope, thresholds.MAX_QPS.name, "TritonModelQpsOverflow"
    return _alert(
        name, "critical", "30s",
        _above(scope, name, demand_by_limit(scope), limits(scope, kind), f"{PER_MODEL}, version"),
        f"{_WHO}{_VERSION} gets {_VALUE} requests/s; its max-qps is {_in_force(scope, kind)}",
        "More requests come than the limit allows, whether or not they are served. Look which client sends more than "
        "agreed, shed or spread the load, add servers, or raise the annotation tritonoperator.io/max-qps if the "
        "servers can carry it.",
    )  # fmt: skip


def _tps_overflow(subject: Subject) -> Rule:
    scope, kind, name = subject.scope, thresholds.MAX_TPS.name, "TritonModelTpsOverflow"
    return _alert(
        name, "critical", "30s",
        _above(scope, name, tokens(scope), limits(scope, kind), PER_MODEL),
        f"{_WHO} makes {_VALUE} tokens/s; its max-tps is {_in_force(scope, kind)}",
        "Look which client asks for more or longer answers than agreed, add servers, or raise the annotation "
        "tritonoperator.io/max-tps if the servers can carry it.",
    )  # fmt: skip


def _qps_spike(subject: Subject) -> Rule:
    """Against the mean of the ten minutes before the last one, and only where half of them are known: the first
    requests after a start are no spike."""
    scope = subject.scope
    demand = scope.pick("triton:demand:rate1m")
    before = f"{demand}[10m] offset 1m"
    mean = (
        f"sum by ({PER_MODEL}) (sum_over_time({before})) "
        f"/ (max by ({PER_MODEL}) (count_over_time({before})) >= {300 // subject.monitoring.evaluation_seconds})"
    )
    factor = scope.pick("triton:threshold", equal("kind", thresholds.SPIKE_FACTOR.name))
    return _alert(
        "TritonModelQpsSpike", "warning", "30s",
        f"(sum by ({PER_MODEL}) ({demand}) >= {_SPIKE_LEAST})\n> on ({PER_MODEL}) ({mean})\n"
        f"* on ({PER_MODEL}) max by ({PER_MODEL}) ({factor})",
        f"{_WHO} suddenly gets {_VALUE} requests/s",
        f"That is more than {_in_force(scope, thresholds.SPIKE_FACTOR.name)} times the mean of the ten minutes before. "
        "Look whether a client retries without backing off or a job has started, and whether servers are being "
        "added. The annotation tritonoperator.io/spike-factor says what a spike is.",
        keep="2m",
    )  # fmt: skip


def _limit_missing(subject: Subject) -> Rule:
    scope = subject.scope
    qps, tps = thresholds.MAX_QPS.name, thresholds.MAX_TPS.name
    any_limit = scope.pick("triton:threshold", one_of("kind", qps, tps), equal("version", ""))
    own = scope.pick("triton:threshold", equal("kind", qps), unequal("version", ""))
    return _alert(
        "TritonModelQpsLimitMissing", "info", "5m",
        f"sum by ({PER_MODEL}) (\n  (sum by ({PER_MODEL}, version) ({scope.pick('triton:demand:rate1m')}) > 0)\n"
        f"  unless on ({PER_MODEL}, version) ({own} < Inf)\n  unless on ({PER_MODEL}) ({any_limit} < Inf)\n)",
        f"{_WHO} gets {_VALUE} requests/s that no limit is set for",
        "Nobody is told when it gets too many. Set the annotation tritonoperator.io/max-qps (or max-tps) on the "
        "TritonModel; it restarts nothing.",
    )  # fmt: skip


def _metrics_absent(subject: Subject) -> Rule:
    """By the operator's word that servers are ready: without servers there are no metrics, and without an operator
    nobody knows."""
    scope = subject.scope
    ready = subject.of_operator("triton_operator_replicas", equal("state", "ready"))
    series = scope.pick("nv_inference_request_success", *subject.entry)
    return _alert(
        "TritonModelMetricsAbsent", "warning", "5m",
        f"(max by ({PER_MODEL}) ({ready}) > 0)\nunless on ({PER_MODEL}) {series}",
        f"{_WHO} has {_VALUE} ready servers, but no metrics",
        "Requests are served, but no alert about load or failures can fire and the autoscaler holds still. Look "
        "at the targets of the PodMonitor in Prometheus: is it selected (spec.monitoring.labels), may Prometheus "
        "reach port 8002 (NetworkPolicy), is the entry model loaded? Prometheus drops a whole scrape that exceeds a "
        "limit of the PodMonitor (sampleLimit and others), and the target's error says so: expose fewer metrics, or "
        "let an administrator raise SAMPLE_LIMIT of the operator.",
    )  # fmt: skip


def _disagreement(subject: Subject) -> Rule:
    """The rule follows the annotation within about two minutes, so longer means that one of the ways is broken. The
    operator's replicas are compared too: one whose watch hangs would hide behind the others."""
    scope = subject.scope
    live, literal = scope.pick("triton:threshold:live"), scope.pick("triton:threshold:literal")
    gauge, by = subject.of_operator("triton_operator_threshold"), f"{PER_MODEL}, kind, version"
    return _alert(
        "TritonModelThresholdDisagreement", "warning", "5m",
        f"({live} != on ({by}) {literal})\nor ({live} unless on ({by}) {literal})\n"
        f"or ({literal} unless on ({by}) {live} and on ({PER_MODEL}) {live})\n"
        f"or (max by ({by}) ({gauge}) != min by ({by}) ({gauge}))",
        f"Thresholds of {_WHO} differ: {{{{ $labels.kind }}}}{_VERSION}",
        "The operator's gauge and the value in the PrometheusRule have differed for five minutes, or the operator's "
        "replicas differ. Alerts follow the gauge; should the operator stop, they follow the rule. Look at the "
        "TritonModel's conditions, at the operator's log, and whether Prometheus has loaded the PrometheusRule "
        "(prometheus_config_last_reload_successful).",
    )  # fmt: skip


def _at_max_replicas(subject: Subject) -> Rule:
    scope = subject.scope
    up = scope.pick("up")
    at_max = f"count by ({PER_MODEL}) ({up}) >= {subject.max_replicas}"
    return _alert(
        "TritonModelAtMaxReplicas", "warning", "2m",
        f"{scope.pick('triton:load:replicas')}\n/ on ({PER_MODEL}) (sum by ({PER_MODEL}) ({up}) and ({at_max}))\n"
        f"> {number(subject.utilization)}",
        f"{_WHO} has all {subject.max_replicas} servers that it may have, and they are not enough",
        "Each carries {{ $value | humanizePercentage }} of what a server is for, and the autoscaler can add none. "
        "Raise spec.autoscaling.max if there is room in the cluster, or shed load.",
        keep="2m",
    )  # fmt: skip


def _queue_duration(subject: Subject) -> Rule:
    most = subject.monitoring.queue_milliseconds
    return _alert(
        "TritonModelQueueDuration", "warning", "1m",
        f"{subject.scope.pick('triton:queue_duration_seconds:avg1m')} > {number(most / 1000)}",
        f"Requests of {_WHO} wait {{{{ $value | humanizeDuration }}}} for model {{{{ $labels.model }}}}",
        f"A mean of {most} ms in the queue is allowed (spec.monitoring.queueMilliseconds). The model is the "
        "bottleneck: add servers or instances (instance_group), let it batch (dynamic_batching), or see why it "
        "computes slowly.",
        keep="2m",
    )  # fmt: skip


def _request_failures(subject: Subject) -> Rule:
    scope, span = subject.scope, window(300, subject.scrape_seconds)
    by = f"sum by ({PER_MODEL}, model, reason)"

    def rates(*matchers: str) -> str:
        return f"{by} (rate({scope.pick('nv_inference_request_failure', *matchers)}[{span}]))"

    failed = rates()
    if subject.ensemble:
        failed = f"({rates(unequal('model', subject.entrypoint))}\nor {subject.once(rates(*subject.entry))})"
    requests = f"sum by ({PER_MODEL}) ({scope.pick('triton:requests:rate5m')}) > 0"
    return _alert(
        "TritonModelRequestFailures", "warning", "1m",
        f"{failed}\n/ on ({PER_MODEL}) group_left () ({requests})\n> {_FAILURES_RATIO}",
        f"{{{{ $value | humanizePercentage }}}} of the requests of {_WHO} fail in model {{{{ $labels.model }}}}: "
        "{{ $labels.reason }}",
        "REJECTED: they waited too long in its queue; CANCELED: the client gave up; BACKEND: the model's code or its "
        "backend failed; OTHER: a step of the ensemble failed. Look at the log of the servers and at the steps.",
        keep="2m",
    )  # fmt: skip


def _error_budget_burn(subject: Subject) -> list[Rule]:
    scope, objective = subject.scope, subject.monitoring.objective
    what = {
        "critical": "At this rate the error budget of a month is gone within days. Look which model fails and why "
        "(TritonModelRequestFailures, the log of the servers), and take back the last change.",
        "warning": "It is no emergency, but the objective will be missed: plan time to find out what fails.",
    }
    return [
        _alert(
            "TritonModelErrorBudgetBurn", severity, "",
            f"({scope.pick(f'triton:error_ratio:{long}')} > {error_ratio(budget(objective), burn)})\n"
            f"and on ({PER_MODEL}) ({scope.pick(f'triton:error_ratio:{short}')} "
            f"> {error_ratio(budget(objective), burn)})\nand on ({PER_MODEL}) {_enough(subject, long)}",
            f"{{{{ $value | humanizePercentage }}}} of the requests of {_WHO} failed in {long}",
            f"{objective} % shall succeed (spec.monitoring.objective). {what[severity]}",
            window=long,
        )
        for burn, long, short, severity in _BURNS
    ]  # fmt: skip


def _enough(subject: Subject, span: str) -> str:
    """Enough failures to be worth anyone's time: of five requests in an hour one that fails is a fifth, and nothing."""
    failed = f"sum_over_time({subject.scope.pick('triton:failures:rate5m')}[{span}])"
    return f"(sum by ({PER_MODEL}) ({failed}) * {subject.slo_seconds} >= {_FEW})"


def _above(scope: Scope, name: str, value: str, limit: str, on: str) -> str:
    """`value` above `limit`; while the alert `name` fires, not clearly below it."""
    firing = scope.pick("ALERTS", equal("alertname", name), equal("alertstate", "firing"))
    return (
        f"{value}\n> on ({on}) {limit}\nor (\n  {value}\n  > on ({on}) {_CALM} * {limit}\n  and on ({on}) {firing}\n)"
    )


def _in_force(scope: Scope, kind: str) -> str:
    """A template that shows the threshold in force, for the version that the alert is about. The query is a constant:
    a server chooses the values of its labels, and one that became part of a query could ask for anything."""
    query = quote(scope.pick("triton:threshold", equal("kind", kind)))
    return (
        f"{{{{ range query {query} }}}}{{{{ if eq .Labels.version $labels.version }}}}"
        "{{ .Value | humanize }}{{ end }}{{ end }}"
    )


def _alert(
    name: str, severity: str, wait: str, expr: str, summary: str, description: str, keep: str = "", **labels: str
) -> Rule:
    return {
        "alert": name,
        "expr": expr,
        **({"for": wait} if wait else {}),
        **({"keep_firing_for": keep} if keep else {}),
        "labels": {**labels, "severity": severity},
        "annotations": {"summary": summary, "description": description},
    }


def _labelled(subject: Subject, rule: Rule) -> Rule:
    """With the user's labels, but for those that would merge alerts or that Prometheus would refuse, with every other
    rule of the cluster."""
    wanted = subject.monitoring.alert_labels.items()
    more = {k: escape_template(v) for k, v in wanted if k not in _OWN_LABELS and _LABEL.fullmatch(k)}
    return {**rule, "labels": {**more, **rule["labels"]}}
