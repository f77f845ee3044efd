"""When somebody is told, and what it says. Values stand in annotations, never in labels: an alert whose labels change
is a new alert to Alertmanager."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

from triton_operator.api import thresholds

from .promql import PER_MODEL, Rule, Scope, equal, escape_template, number, one_of, quote, unequal, window
from .recording import demand_by_limit, limits, tokens
from .slo import CANCELED, budget, error_ratio
from .subject import Subject

_CALM = "5m"
"""An alert about a limit ends when the load was at or below the present limit for so long: load that swings around the
limit, and scrapes that fail, are one alert. Not `keep_firing_for`: an alert must end at once when its limit is raised
or removed."""
_GAP = "20s"
"""The same before it fires. Shorter than it has to be above the limit, so that one high value alone is no alert."""
_TOLERANCE = 1.1
"""The HorizontalPodAutoscaler leaves the servers as they are up to this part of its target."""
_SPIKE_LEAST = 5
"""Requests a second below which nothing is a spike."""
_SPIKE_LEAST_OF_LIMIT = 0.01
"""The same as a part of the limit, where there is one."""
_FAILURES_RATIO = 0.01
"""Which part of the requests may fail for one reason before an alert."""
_FEW_FAILURES = 5
"""Failed requests for one reason in five minutes, below which there is no alert."""
_FEW_WAITING = 10
"""Requests a minute, below which their mean time in the queue is no reason for an alert."""
_BURNS = {
    "critical": ((Decimal("14.4"), "1h", "5m", ""), (Decimal("6"), "6h", "30m", "1h")),
    "warning": ((Decimal("1"), "3d", "6h", "6h"),),
}
"""Burn rate, long and short window (The Site Reliability Workbook, chapter 5), and how old a model is at least that the
long window says something about."""
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
    "pod",
    "severity",
}
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_WHO = "{{ $labels.namespace }}/{{ $labels.tritonmodel }}"
_VERSION = "{{ with $labels.version }} version {{ . }}{{ end }}"
_PLAIN = '{{ if ge %s 1000.0 }}{{ printf "%%.0f" %s }}{{ else }}{{ printf "%%.3g" %s }}{{ end }}'


def _number(value: str) -> str:
    """A template that prints a number as people write it: 12345, 97.3, 0.05."""
    return _PLAIN % (value, value, value)


def alerts(subject: Subject) -> list[Rule]:
    """What needs the newest samples."""
    found = [
        _qps_overflow(subject),
        *([_tps_overflow(subject)] if subject.token_counter else []),
        _qps_spike(subject),
        *([_at_max_replicas(subject)] if subject.max_replicas is not None else []),
        _queue_duration(subject),
    ]
    return [_labelled(subject, rule) for rule in found]


def slow_alerts(subject: Subject) -> list[Rule]:
    """What lasts for minutes before it is told, or reads hours of samples."""
    found = [
        _not_serving(subject),
        _servers_missing(subject),
        _server_restarts(subject),
        _limit_missing(subject),
        _metrics_absent(subject),
        _disagreement(subject),
        _request_failures(subject),
        *_error_budget_burn(subject),
    ]
    return [_labelled(subject, rule) for rule in found]


def _not_serving(subject: Subject) -> Rule:
    """A first start may take as long as `rollout.startupSeconds`; who has served before is missed at once."""
    scope = subject.scope
    wanted, ready = scope.pick("triton:servers:wanted"), scope.pick("triton:servers:ready")
    return _alert(
        "TritonModelNotServing", "critical", "1m",
        f"({wanted} > 0 unless on ({PER_MODEL}) {ready} > 0)\nand on ({PER_MODEL}) (\n"
        f"  max_over_time({ready}[1h]) > 0 or {wanted} offset {subject.startup_seconds}s > 0\n)",
        f"{_WHO} serves nothing: of {_number('$value')} servers none is ready",
        "Every request fails. kubectl triton status says why, server by server.",
    )  # fmt: skip


def _servers_missing(subject: Subject) -> Rule:
    """By the mean of a while, so that a server that comes and goes is missing too, and a restart isn't."""
    scope = subject.scope
    wanted, ready = scope.pick("triton:servers:wanted"), scope.pick("triton:servers:ready")
    mean = f"avg_over_time({ready}[15m])"
    return _alert(
        "TritonModelServersMissing", "warning", "10m",
        f"(min_over_time({wanted}[15m]) - {mean} > 0.25)\nand on ({PER_MODEL}) {mean} > 0",
        f"{_WHO} lacks servers: on average {_number('$value')} weren't ready in the last 15 minutes",
        "The others carry their load. kubectl triton status says why a server isn't ready; the cluster may have no "
        "room for it, or it may crash again and again.",
    )  # fmt: skip


def _server_restarts(subject: Subject) -> Rule:
    """By its counters, which begin anew."""
    restarts = f"resets({subject.scope.pick('nv_inference_request_success', *subject.entry)}[15m])"
    return _alert(
        "TritonModelServerRestarts", "warning", "",
        f"max by ({PER_MODEL}, pod) ({restarts}) >= 3",
        f"The server {{{{ $labels.pod }}}} of {_WHO} restarted {_number('$value')} times in 15 minutes",
        "Requests that it was computing failed. The log of its container `triton` (kubectl logs --previous) says how "
        "it ended; look whether it ran out of memory.",
        keep="5m",
    )  # fmt: skip


def _qps_overflow(subject: Subject) -> Rule:
    scope, kind, name = subject.scope, thresholds.MAX_QPS.name, "TritonModelQpsOverflow"
    demand = demand_by_limit(scope)
    coefficient = scope.pick("triton:threshold", equal("kind", thresholds.ENSEMBLE_COEFFICIENT.name))
    raw = _queried(f"{demand} / on ({PER_MODEL}) group_left () ({coefficient} != 1)")
    factor = f"{{{{ range query {quote(f'{coefficient} != 1')} }}}}{_number('.Value')}{{{{ end }}}}"
    counted = f"{{{{ with query {quote(f'{coefficient} != 1')} }}}} ({raw} times the ensemble-coefficient {factor})"
    return _alert(
        name, "critical", "30s",
        _above(
            scope, name, demand, lambda span: f"max_over_time({demand}[{span}])", limits(scope, kind),
            f"{PER_MODEL}, version",
        ),
        f"{_WHO}{_VERSION} gets {_queried_rate(demand)}{counted}{{{{ end }}}}; its max-qps is {_in_force(scope, kind)}",
        "More requests come than the limit allows, whether or not they are served. Look which client sends more than "
        "agreed, shed or spread the load, add servers, or raise the annotation tritonoperator.io/max-qps if the "
        f"servers can carry it. The alert ends when the load has been below the limit for {_CALM}, or at once when the "
        "limit is raised above it.",
    )  # fmt: skip


def _tps_overflow(subject: Subject) -> Rule:
    scope, kind, name = subject.scope, thresholds.MAX_TPS.name, "TritonModelTpsOverflow"
    made = tokens(scope)
    step = subject.monitoring.evaluation_seconds
    return _alert(
        name, "critical", "30s",
        _above(
            scope, name, made, lambda span: f"max_over_time(({made})[{span}:{step}s])", limits(scope, kind), PER_MODEL
        ),
        f"{_WHO} makes {_number('$value')} tokens/s; its max-tps is {_in_force(scope, kind)}",
        "Look which client asks for more or longer answers than agreed, add servers, or raise the annotation "
        "tritonoperator.io/max-tps if the servers can carry it.",
    )  # fmt: skip


def _qps_spike(subject: Subject) -> Rule:
    """Against the mean of the ten minutes before the last one, and only where half of them are known: the first
    requests after a start are no spike. Nor is what is little, or little of what is allowed."""
    scope = subject.scope
    demand = scope.pick("triton:demand_by_limit:rate1m", equal("version", ""))
    before = f"{demand}[10m] offset 1m"
    mean = f"sum_over_time({before}) / (count_over_time({before}) >= {300 // subject.monitoring.evaluation_seconds})"
    factor = scope.pick("triton:threshold", equal("kind", thresholds.SPIKE_FACTOR.name))
    limit = scope.pick("triton:threshold", equal("kind", thresholds.MAX_QPS.name), equal("version", ""))
    return _alert(
        "TritonModelQpsSpike", "warning", "30s",
        f"({demand} >= {_SPIKE_LEAST}\n  unless on ({PER_MODEL}) "
        f"{demand} < on ({PER_MODEL}) {_SPIKE_LEAST_OF_LIMIT} * ({limit} < Inf))\n> on ({PER_MODEL}) ({mean})\n"
        f"* on ({PER_MODEL}) max by ({PER_MODEL}) ({factor})",
        f"{_WHO} suddenly gets {_number('$value')} requests/s",
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
        f"{_WHO} gets {_number('$value')} requests/s that no limit is set for",
        "Nobody is told when it gets too many. Set the annotation tritonoperator.io/max-qps (or max-tps) on the "
        "TritonModel; it restarts nothing.",
    )  # fmt: skip


def _metrics_absent(subject: Subject) -> Rule:
    """By the operator's word that servers are ready: without servers there are no metrics, and without an operator
    nobody knows. A server that Prometheus can't scrape is missing in every sum."""
    scope = subject.scope
    ready = subject.of_operator("triton_operator_replicas", equal("state", "ready"))
    ready = f"(max by ({PER_MODEL}) ({ready}) > 0)"
    series = scope.pick("nv_inference_request_success", *subject.entry)
    scraped = f"count by ({PER_MODEL}) (count by ({PER_MODEL}, pod, instance) ({series}))"
    return _alert(
        "TritonModelMetricsAbsent", "warning", "5m",
        f"{ready} - on ({PER_MODEL}) ({scraped}\n  or {ready} * 0) > 0",
        f"Prometheus has no metrics of {_number('$value')} ready servers of {_WHO}",
        "They serve requests that no sum has: alerts about load or failures come late or not at all, and the "
        "autoscaler holds still or sees too little. Look at the targets of the PodMonitor in Prometheus: is it "
        "selected (spec.monitoring.labels), may Prometheus reach port 8002 (NetworkPolicy), is the entry model loaded? "
        "Prometheus drops a whole scrape that exceeds a limit of the PodMonitor (sampleLimit and others), and the "
        "target's error says so: expose fewer metrics, or let an administrator raise SAMPLE_LIMIT of the operator.",
    )  # fmt: skip


def _disagreement(subject: Subject) -> Rule:
    """The rule follows the annotation within about two minutes, so longer means that one of the ways is broken. The
    operator's replicas are compared too: one whose watch hangs would hide behind the others."""
    scope = subject.scope
    live, literal = scope.pick("triton:threshold:live"), scope.pick("triton:threshold:literal")
    gauge, by = subject.of_operator("triton_operator_threshold"), f"{PER_MODEL}, kind, version"
    least, most = (_queried(f"{end} by ({by}) ({gauge})", "kind", "version") for end in ("min", "max"))
    return _alert(
        "TritonModelThresholdDisagreement", "warning", "5m",
        f"({live} != on ({by}) {literal})\nor ({live} unless on ({by}) {literal})\n"
        f"or ({literal} unless on ({by}) {live} and on ({PER_MODEL}) {live})\n"
        f"or (max by ({by}) ({gauge}) != min by ({by}) ({gauge}))",
        f"The operator and the PrometheusRule of {_WHO} have different thresholds: {{{{ $labels.kind }}}}{_VERSION}",
        f"The operator's replicas say {least} to {most}, the rule says {_queried(literal, 'kind', 'version')} (nothing "
        "is none), for five minutes. Alerts follow the operator; should it stop, they follow the rule. Look at the "
        "TritonModel's conditions, at the operator's log, and whether Prometheus has loaded the PrometheusRule "
        "(prometheus_config_last_reload_successful).",
    )  # fmt: skip


def _at_max_replicas(subject: Subject) -> Rule:
    """Servers that are there beyond the greatest number are those of a rollout."""
    scope, most = subject.scope, subject.max_replicas
    up, wanted = f"sum by ({PER_MODEL}) ({scope.pick('up')})", scope.pick("triton:servers:wanted")
    at_max = f"({wanted} or count by ({PER_MODEL}) ({scope.pick('up')})) >= {most}"
    return _alert(
        "TritonModelAtMaxReplicas", "warning", "2m",
        f"{scope.pick('triton:load:replicas')}\n/ on ({PER_MODEL}) (clamp_max({up}, {most}) and on ({PER_MODEL}) "
        f"({at_max}))\n> {number(round(subject.utilization * _TOLERANCE, 6))}",
        f"{_WHO} has all {most} servers that it may have, and they are not enough",
        "Each carries {{ $value | humanizePercentage }} of what a server is for, and the autoscaler can add none. "
        "Raise spec.autoscaling.max if there is room in the cluster, or shed load.",
        keep="2m",
    )  # fmt: skip


def _queue_duration(subject: Subject) -> Rule:
    most, scope = subject.monitoring.queue_milliseconds, subject.scope
    served = f"rate({scope.pick('nv_inference_request_success')}[{window(60, subject.scrape_seconds)}])"
    return _alert(
        "TritonModelQueueDuration", "warning", "1m",
        f"{scope.pick('triton:queue_duration_seconds:avg1m')} > {number(most / 1000)}\n"
        f"and on ({PER_MODEL}, model) sum by ({PER_MODEL}, model) ({served}) * 60 >= {_FEW_WAITING}",
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
        failures = scope.pick("nv_inference_request_failure", *matchers, unequal("reason", CANCELED))
        return f"{by} (rate({failures}[{span}]))"

    failed = rates()
    if subject.ensemble:
        failed = f"({rates(unequal('model', subject.entrypoint))}\nor {subject.once(rates(*subject.entry))})"
    requests = f"sum by ({PER_MODEL}) ({scope.pick('triton:requests:rate5m')}) > 0"
    return _alert(
        "TritonModelRequestFailures", "warning", "1m",
        f"({failed} * 300 >= {_FEW_FAILURES}) / 300\n/ on ({PER_MODEL}) group_left () ({requests})\n"
        f"> {_FAILURES_RATIO}",
        f"{{{{ $value | humanizePercentage }}}} of the requests of {_WHO} fail in model {{{{ $labels.model }}}}: "
        "{{ $labels.reason }}",
        "REJECTED: they waited too long in its queue; BACKEND: the model's code or its backend failed; OTHER: a step "
        "of the ensemble failed. Look at the log of the servers and at the steps.",
        keep="2m",
    )  # fmt: skip


def _error_budget_burn(subject: Subject) -> list[Rule]:
    """One alert for each severity: the windows of one incident overlap."""
    objective = subject.monitoring.objective
    what = {
        "critical": "At this rate the error budget of a month is gone within days. Look which model fails and why "
        "(TritonModelRequestFailures, the log of the servers), and take back the last change.",
        "warning": "It is no emergency, but the objective will be missed: plan time to find out what fails.",
    }
    return [
        _alert(
            "TritonModelErrorBudgetBurn", severity, "",
            "\nor ".join(_burns(subject, budget(objective), *burn) for burn in burns),
            f"{{{{ $value | humanizePercentage }}}} of the requests of {_WHO} failed in the last "
            f"{' or '.join(long for _, long, _, _ in burns)}",
            f"{objective} % shall succeed (spec.monitoring.objective). {what[severity]}",
        )
        for severity, burns in _BURNS.items()
    ]  # fmt: skip


def _burns(subject: Subject, allowed: Decimal, burn: Decimal, long: str, short: str, age: str) -> str:
    """Enough failures have to be in the long window to be worth anyone's time: of five requests in an hour one that
    fails is a fifth, and nothing."""
    scope, most = subject.scope, error_ratio(allowed, burn)
    failed = f"sum_over_time({scope.pick('triton:failures:rate5m')}[{long}])"
    parts = [
        f"({scope.pick(f'triton:error_ratio:{long}')} > {most})",
        f"({scope.pick(f'triton:error_ratio:{short}')} > {most})",
        f"(sum by ({PER_MODEL}) ({failed}) * {subject.slo_seconds} >= {_FEW})",
        *([f"{scope.pick('triton:requests:rate5m')} offset {age}"] if age else []),
    ]
    return "(\n  " + f"\n  and on ({PER_MODEL}) ".join(parts) + "\n)"


def _above(scope: Scope, name: str, value: str, most: Callable[[str], str], limit: str, on: str) -> str:
    """`value` above `limit`. `most`: the greatest value in a range of time. While the alert `name` is pending or fires,
    this counts: the rate of a server falls by a sixth while a scrape of it is missing."""
    held = "\nor ".join(
        f"(\n  {value}\n  and on ({on}) ({most(span)} > on ({on}) {limit})\n  and on ({on}) "
        f"{scope.pick('ALERTS', equal('alertname', name), equal('alertstate', state))}\n)"
        for state, span in (("pending", _GAP), ("firing", _CALM))
    )
    return f"{value}\n> on ({on}) {limit}\nor {held}"


def _queried(expr: str, *labels: str) -> str:
    """A template that prints the value of `expr` whose labels are those of the alert. The query is a constant: a server
    chooses the values of its labels, and one that became part of a query could ask for anything."""
    return _each(expr, _number(".Value"), labels or ("version",))


def _queried_rate(expr: str) -> str:
    """The same for requests a second: what is less than one is told by the minute."""
    slow = f"{{{{ if lt .Value 60.0 }}}}{_number('.Value')} requests a minute{{{{ end }}}}"
    fast = f"{{{{ if ge .Value 1.0 }}}}{_number('.Value')} requests/s{{{{ end }}}}"
    return _each(expr, fast, ("version",)) + _each(f"60 * {expr}", slow, ("version",))


def _each(expr: str, shown: str, labels: tuple[str, ...]) -> str:
    same = "".join(f"{{{{ if eq .Labels.{name} $labels.{name} }}}}" for name in labels)
    return f"{{{{ range query {quote(expr)} }}}}{same}{shown}{'{{ end }}' * len(labels)}{{{{ end }}}}"


def _in_force(scope: Scope, kind: str) -> str:
    """A template that shows the threshold in force, for the version that the alert is about."""
    return _queried(scope.pick("triton:threshold", equal("kind", kind)))


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
    rule of the cluster; and with the address of its runbook."""
    wanted = subject.monitoring.alert_labels.items()
    more = {k: escape_template(v) for k, v in wanted if k not in _OWN_LABELS and _LABEL.fullmatch(k)}
    page = escape_template(f"{subject.runbooks.rstrip('/')}/{rule['alert']}.md")
    return {
        **rule,
        "labels": {**more, **rule["labels"]},
        "annotations": {**rule["annotations"], "runbook_url": page},
    }
