"""The alerts of one TritonModel.

Values are in annotations, not in labels, because Alertmanager treats an alert with changed labels as a new alert.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

from latency_sampler.series import WORKS
from latency_sampler.versions import OLDEST
from process_exporter.series import MEMORY_FULL
from triton_operator.api import names, thresholds
from triton_operator.api.series import CANCELED, DESIRED
from triton_operator.api.types import ALERTS_OWN_LABELS, LatencyObjective
from triton_operator.promql import (
    PER_MODEL,
    Rule,
    Scope,
    duration,
    equal,
    escape_template,
    number,
    one_of,
    quote,
    rate,
    unequal,
    window,
)

from .latency import SAMPLED, TIMED, objectives, of, slow_ratio
from .recording import (
    DEMAND,
    EFFECTIVE,
    FALLBACK,
    LOAD,
    PEAK,
    QUEUE,
    RATE_TOLERANCE,
    READY,
    limits,
    tokens,
)  # fmt: skip
from .slo import FAILED, REQUESTS, budget, error_ratio, ratio
from .subject import Subject

_CALM = "5m"
"""An alert about a limit ends when the load has been at or below the current limit for this time. So load that swings
around the limit, or failed scrapes, cause one alert. `keep_firing_for` doesn't work: an alert must end at once when its
limit is raised or removed."""
_GAP = "20s1ms"
"""The same while the alert is pending. The evaluation at which it fires needs a value above the limit of its own, so
that the load was too high at both ends of the time. Samples have the times of evaluations, and Prometheus 3 leaves out
one at the very beginning of a range."""
_FOR_SECONDS = 30
_TOLERANCE = 1.1
"""Tolerance of the HorizontalPodAutoscaler: it doesn't scale up to this multiple of its target."""
_AT_LIMIT = 0.95
"""Demand from which on the Gateway may reject requests, as a fraction of the limit: they come unevenly."""
_SPIKE_MIN_RATE = 5
"""Minimum demand of a spike, in requests per second."""
_SPIKE_MIN_RATIO = 0.01
"""Minimum demand of a spike, as a fraction of the limit if there is one."""
_FAILURES_RATIO = 0.01
"""Maximum ratio of requests that fail for one reason without an alert."""
_MIN_FAILURES = 5
"""Minimum number of failed requests for one reason in five minutes for an alert."""
_MIN_REQUESTS = 10
"""Minimum number of requests per minute for an alert about the queue."""
_BURNS = {
    "critical": ((Decimal("14.4"), "1h", "5m", ""), (Decimal("6"), "6h", "30m", "1h")),
    "warning": ((Decimal("1"), "3d", "6h", "6h"),),
}
"""Burn rate, long and short window (The Site Reliability Workbook, chapter 5), and the minimum age of the model's
metrics for the long window."""
_MIN_BURN_FAILURES = 10
"""Minimum number of failed requests in the long window for an alert about the error budget."""
NOT_COUNTED = "TritonModelRequestsNotCounted"
AT_MAX_QPS = "TritonModelAtMaxQps"
FAILS, HANGS = "TritonModelServerFails", "TritonModelServerHangs"
_HANG_SECONDS = 300
_MAX_EXECUTION_SECONDS = 30
"""A model whose executions took longer than this before, on average, isn't strange when it takes minutes."""
_FALLS = 10
"""How often a queue gets shorter before its model has answered requests for sure. A server that crashes empties its
queue too, but Kubernetes restarts it less often than this in ten minutes."""
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_ONE = f"{PER_MODEL}, pod, model, version"
"""The labels of one version of a model on one server."""
_WHO = "{{ $labels.namespace }}/{{ $labels.tritonmodel }}"
_VERSION = "{{ with $labels.version }} version {{ . }}{{ end }}"
_VERSION_OR_CANARY = (
    f'{{{{ with $labels.version }}}}{{{{ if eq . "{names.CANARY}" }}}}: its canary{{{{ else }}}} version {{{{ . }}}}'
    "{{ end }}{{ end }}"
)


def _number(value: str, digits: int = 3) -> str:
    """Returns a template that prints a number without an exponent: 12345, 97.3, 0.05."""
    whole, part = (f'{{{{ printf "%.{form}" {value} }}}}' for form in ("0f", f"{digits}g"))
    return f"{{{{ if ge {value} {10.0**digits} }}}}{whole}{{{{ else }}}}{part}{{{{ end }}}}"


def _compared(value: str) -> str:
    """Returns a template like `_number`, with so many digits that a value above a limit looks like that."""
    return _number(value, 5)


def _plural(singular: str, plural: str) -> str:
    """Returns a template with the text for the alert's value 1, or for another one."""
    return f"{{{{ if eq $value 1.0 }}}}{singular}{{{{ else }}}}{_number('$value')} {plural}{{{{ end }}}}"


def limit_alerts(subject: Subject) -> list[Rule]:
    """Returns the alerts about limits."""
    rules = [
        _qps_overflow(subject),
        *([_at_max_qps(subject)] if subject.enforced else []),
        *([_tps_overflow(subject)] if subject.token_counter else []),
    ]
    return [_labelled(subject, rule) for rule in rules]


def peak_alerts(subject: Subject) -> list[Rule]:
    """Returns the alert about bursts of seconds, if they have a limit."""
    return [_labelled(subject, _qps_peak(subject))] if subject.has_peak else []


def slow_alerts(subject: Subject) -> list[Rule]:
    """Returns the alerts that may wait for an evaluation every 60 s."""
    rules = [
        _not_serving(subject),
        _servers_missing(subject),
        _server_restarts(subject),
        _qps_spike(subject),
        *([_at_max_replicas(subject)] if subject.max_replicas is not None else []),
        _queue_duration(subject),
        _limit_missing(subject),
        _metrics_absent(subject),
        _not_counted(subject),
        _disagreement(subject),
        _request_failures(subject),
        _server_fails(subject),
        _server_hangs(subject),
        *_error_budget_burn(subject),
        *_latency_budget_burn(subject),
        *([_latency_not_measured(subject)] if subject.monitoring.latency else []),
        *([_memory_grows(subject)] if subject.monitoring.processes else []),
    ]
    return [_labelled(subject, rule) for rule in rules]


def _not_serving(subject: Subject) -> Rule:
    """Returns the alert. The first start may take `rollout.startupSeconds`, and so may each start from zero servers."""
    scope = subject.scope
    desired, ready = scope.pick(DESIRED), scope.pick(READY)
    seconds = subject.startup_seconds
    started = f"  max_over_time({ready}[1h]) > 0 or {desired} offset {seconds}s > 0"
    if subject.to_zero:
        started = f"  min_over_time({desired}[{duration(seconds)}]) > 0 and {desired} offset {seconds}s > 0"
    return _alert(
        "TritonModelNotServing", "critical", "1m",
        f"({desired} > 0 unless on ({PER_MODEL}) {ready} > 0)\nand on ({PER_MODEL}) (\n{started}\n)",
        f"{_WHO} serves no requests: ready servers: 0 of {_number('$value')}",
        "Every request fails. Run `kubectl triton status` to see why each server isn't ready.",
    )  # fmt: skip


def _servers_missing(subject: Subject) -> Rule:
    """Returns the alert. It uses a mean, so that it includes servers that often aren't ready, but no single restart.

    A new server counts when it may have been ready for all of the mean's time: `rollout.startupSeconds` before that.
    One that replaces another may be missing for as long. Then the mean shows it for another eight minutes.
    """
    scope = subject.scope
    desired, ready = scope.pick(DESIRED), scope.pick(READY)
    mean, since = f"avg_over_time({ready}[15m])", duration(subject.startup_seconds + 900)
    return _alert(
        "TritonModelServersMissing", "warning", duration(subject.startup_seconds + 480),
        f"(min_over_time({desired}[{since}]) - {mean} > 0.25)\nand on ({PER_MODEL}) {mean} > 0",
        f"{_WHO} has too few ready servers: {_number('$value')} missing on average in the last 15 minutes",
        "The other servers get their load. Run `kubectl triton status` to see why a server isn't ready. Usual reasons: "
        "the cluster has no room for it, or it crashes repeatedly.",
    )  # fmt: skip


def _server_restarts(subject: Subject) -> Rule:
    """Returns the alert. A server's counters restart from 0 when it restarts.

    One in which a request ends a process again and again restarts every ten minutes (`render/start.sh`).
    """
    restarts = f"resets({subject.scope.pick('nv_inference_request_success', *subject.entry)}[45m])"
    return _alert(
        "TritonModelServerRestarts", "warning", "",
        f"max by ({PER_MODEL}, pod) ({restarts}) >= 3",
        f"The server {{{{ $labels.pod }}}} of {_WHO} restarted {_number('$value')} times in 45 minutes",
        "Requests in progress failed. Read the end of the log of its container `triton` (kubectl logs --previous), and "
        "check in `kubectl describe pod` if it was OOMKilled, or if its exit code is 139: a fault in a library, or a "
        "client that sends a large body with curl's default Content-Type.",
        keep="5m",
    )  # fmt: skip


def _qps_overflow(subject: Subject) -> Rule:
    scope, kind, name = subject.scope, thresholds.MAX_QPS.name, "TritonModelQpsOverflow"
    demand, limit = scope.pick(DEMAND), limits(scope, kind)
    if subject.enforced:
        # The demand that the Gateway lets pass is the limit itself, and its rate is more at times.
        of_model, of_versions = (
            scope.pick(EFFECTIVE, equal("kind", kind), version)
            for version in (equal("version", ""), unequal("version", ""))
        )
        limit = f"({number(RATE_TOLERANCE * subject.enforced)} * {of_model} or {of_versions})"
    factor = _factor(limits(scope, thresholds.ENSEMBLE_COEFFICIENT.name))
    version = _VERSION_OR_CANARY if subject.canary else _VERSION
    return _alert(
        name, "critical", f"{_FOR_SECONDS}s",
        _above(
            scope, name, demand, lambda span: f"max_over_time({demand}[{span}])", limit,
            f"{PER_MODEL}, version",
        ),
        f"{_WHO}{version} gets {_compared('$value')} requests/s{factor}, more than its max-qps of "
        f"{_effective(scope, kind)}",
        f"The demand, which includes failed and queued requests, is above the limit; the number is its highest of the "
        f"last {_CALM}. Find the client that sends more "
        "than agreed and reduce its load, add servers, or raise the annotation tritonoperator.io/max-qps if the "
        f"servers have the capacity. The alert ends when the demand has been below the limit for {_CALM}, or at once "
        "when the limit is raised above it.",
    )  # fmt: skip


def _qps_peak(subject: Subject) -> Rule:
    scope, kind = subject.scope, thresholds.MAX_QPS_PEAK.name
    return _alert(
        "TritonModelQpsPeak", "warning", "",
        f"{scope.pick(PEAK)} > on ({PER_MODEL}) {limits(scope, kind)}",
        f"{_WHO} got {_compared('$value')} requests/s for a moment, more than its max-qps-peak of "
        f"{_effective(scope, kind)}",
        f"That is the demand between two scrapes, {subject.scrape_seconds} s. In a minute it may be below max-qps, but "
        "its requests wait in the queues. Find the client that sends many requests at once, and let it spread them; "
        "or raise the annotation tritonoperator.io/max-qps-peak if the queues can hold them.",
        keep="2m",
    )  # fmt: skip


def _at_max_qps(subject: Subject) -> Rule:
    """Returns the alert that the Gateway lets pass nearly as many requests as it may, and so rejects others.

    Envoy doesn't count by route what a proxy rejects by itself. While the demand of a minute is lower, it rejects only
    what comes at one moment, or from a client with a part of the limit.
    """
    scope, kind = subject.scope, thresholds.MAX_QPS.name
    demand = scope.pick(DEMAND, equal("version", ""))
    limit = scope.pick(EFFECTIVE, equal("kind", kind), equal("version", ""))
    routes = f"(http|grpc)route/{scope.namespace}/{scope.name}/rule/.*"
    together = f'sum(rate(envoy_cluster_upstream_rq{{envoy_response_code="429",envoy_cluster_name=~"{routes}"}}[2m]))'
    alone = "sum(rate(envoy_http_local_rate_limit_rate_limited[2m]))"
    return _alert(
        AT_MAX_QPS, "warning", f"{_FOR_SECONDS}s",
        f"{demand} >= on ({PER_MODEL}) {_AT_LIMIT} * {limit}",
        f"The servers of {_WHO} get {_number('$value')} requests/s, nearly its max-qps of "
        f"{_effective(scope, kind)}, and the Gateway rejects more",
        f"{_rejected(together, 'requests/s of it are rejected by all proxies together')}"
        f"{_rejected(alone, 'requests/s are rejected by single proxies, also of other TritonModels')}"
        "Clients get 429 or RESOURCE_EXHAUSTED. Find the client that sends more than agreed, add servers, or raise "
        "the annotation tritonoperator.io/max-qps if the servers have the capacity. tritonoperator.io/enforce=false "
        "lets all requests pass.",
        keep="2m",
    )  # fmt: skip


def _rejected(query: str, what: str) -> str:
    """Returns a template with the rate of rejected requests, if Prometheus scrapes Envoy and there are some."""
    return f"{{{{ range query {quote(f'{query} > 0')} }}}}{_number('.Value')} {what}. {{{{ end }}}}"


def _tps_overflow(subject: Subject) -> Rule:
    scope, kind, name = subject.scope, thresholds.MAX_TPS.name, "TritonModelTpsOverflow"
    per_second, factor = tokens(scope), _factor(limits(scope, thresholds.TOKEN_COEFFICIENT.name))
    step = subject.monitoring.evaluation_seconds
    return _alert(
        name, "critical", f"{_FOR_SECONDS}s",
        _above(
            scope, name, per_second, lambda span: f"max_over_time(({per_second})[{span}:{step}s])",
            limits(scope, kind), PER_MODEL,
        ),
        f"{_WHO} generates {_compared('$value')} tokens/s{factor}, more than its max-tps of "
        f"{_effective(scope, kind)}",
        "Find the client that requests more or longer answers than agreed, add servers, or raise the annotation "
        "tritonoperator.io/max-tps if the servers have the capacity.",
    )  # fmt: skip


def _factor(coefficient: str) -> str:
    """Returns a template that prints how often a request or token counts, if that isn't once."""
    return f"{{{{ range query {quote(f'{coefficient} != 1')} }}}} (each counts {_number('.Value')} times){{{{ end }}}}"


def _qps_spike(subject: Subject) -> Rule:
    """Returns the alert, which compares the demand with the mean of the ten minutes before the last one.

    - At least half of the ten minutes need samples, so that the first requests after a start aren't a spike.
    - The demand must be above a minimum, and above a fraction of the limit.
    """
    scope = subject.scope
    demand = scope.pick(DEMAND, equal("version", ""))
    before = f"{demand}[10m] offset 1m"
    mean = f"sum_over_time({before}) / (count_over_time({before}) >= {300 // subject.monitoring.evaluation_seconds})"
    factor = limits(scope, thresholds.SPIKE_FACTOR.name)
    limit = scope.pick(EFFECTIVE, equal("kind", thresholds.MAX_QPS.name), equal("version", ""))
    return _alert(
        "TritonModelQpsSpike", "warning", "30s",
        f"({demand} >= {_SPIKE_MIN_RATE}\n  unless on ({PER_MODEL}) "
        f"{demand} < on ({PER_MODEL}) {_SPIKE_MIN_RATIO} * {limit})\n> on ({PER_MODEL}) ({mean})\n"
        f"* on ({PER_MODEL}) max by ({PER_MODEL}) ({factor})",
        f"The demand of {_WHO} has jumped to {_number('$value')} requests/s",
        f"That is more than {_effective(scope, thresholds.SPIKE_FACTOR.name)} times the mean of the previous ten "
        "minutes. Check if a client retries without backoff, if a job has started, and if the autoscaler adds servers. "
        "To change this factor, set the annotation tritonoperator.io/spike-factor.",
        keep="2m",
    )  # fmt: skip


def _limit_missing(subject: Subject) -> Rule:
    scope = subject.scope
    qps, tps = thresholds.MAX_QPS.name, thresholds.MAX_TPS.name
    any_limit = scope.pick(EFFECTIVE, one_of("kind", qps, tps), equal("version", ""))
    own = scope.pick(EFFECTIVE, equal("kind", qps), unequal("version", ""))
    return _alert(
        "TritonModelQpsLimitMissing", "info", "5m",
        f"sum by ({PER_MODEL}) (\n  ({scope.pick(DEMAND, subject.of_versions)} > 0)\n"
        f"  unless on ({PER_MODEL}, version) {own}\n  unless on ({PER_MODEL}) {any_limit}\n)",
        f"{_WHO} gets {_number('$value')} requests/s without a limit",
        "No alert fires when it gets too many. Set the annotation tritonoperator.io/max-qps (or max-tps) on the "
        "TritonModel; this restarts no servers.",
    )  # fmt: skip


def _metrics_absent(subject: Subject) -> Rule:
    """Returns the alert, which compares the scraped servers with the ready servers."""
    scope = subject.scope
    ready = f"({scope.pick(READY)} > 0)"
    series = scope.pick("nv_inference_request_success", *subject.entry)
    scraped = f"count by ({PER_MODEL}) (count by ({PER_MODEL}, pod, instance) ({series}))"
    return _alert(
        "TritonModelMetricsAbsent", "warning", "5m",
        f"{ready} - on ({PER_MODEL}) ({scraped}\n  or {ready} * 0) > 0",
        f"Prometheus has no metrics of {{{{ if eq $value 1.0 }}}}a ready server{{{{ else }}}}{_number('$value')} ready "
        f"servers{{{{ end }}}} of {_WHO}",
        "Their requests are missing in every rate: alerts about load or failures are late or missing, and the "
        "autoscaler doesn't scale or adds too few servers. Look at the targets of the PodMonitor in Prometheus. Is the "
        "PodMonitor selected (spec.monitoring.labels)? Can Prometheus reach port 8002 (NetworkPolicy)? Is the entry "
        "model loaded? If the target's error is an exceeded limit (sampleLimit and others), Prometheus drops all "
        "samples: expose fewer metrics, or ask an administrator to raise SAMPLE_LIMIT of the operator.",
    )  # fmt: skip


def _not_counted(subject: Subject) -> Rule:
    """Returns the alert. A backend that reports no statistics leaves every counter at 0, but Triton counts its queue.

    The queue of a model that hangs doesn't get shorter, and Triton itself counts requests that it rejects or cancels.
    """
    scope, span = subject.scope, duration(max(600, 60 * subject.scrape_seconds))
    by = f"{PER_MODEL}, model"
    falls = f"max by ({by}) (resets({scope.pick('nv_inference_pending_request_count')}[{span}]))"
    counters = ("nv_inference_request_success", "nv_inference_request_failure")
    counted = " or ".join(f"max by ({by}) (max_over_time({scope.pick(name)}[{span}])) > 0" for name in counters)
    return _alert(
        NOT_COUNTED, "warning", "5m",
        f"({falls} >= {_FALLS})\nunless on ({by}) ({counted})",
        f"{_WHO} answers requests of model {{{{ $labels.model }}}}, but Triton doesn't count them",
        "The model's queue gets shorter, but its counters are 0. So the demand, the alerts about requests and the "
        "autoscaler see no requests of this model. Its backend must call TRITONBACKEND_ModelInstanceReportStatistics "
        "for each request.",
    )  # fmt: skip


def _disagreement(subject: Subject) -> Rule:
    """Returns the alert, which compares the operator's metric with the fallback values, and the replicas' metrics.

    The fallback value follows the annotation within about two minutes. If it doesn't, the operator can't write the
    PrometheusRule or Prometheus doesn't load it. Replicas differ if the watch of one hangs.
    """
    scope = subject.scope
    effective, fallback = scope.pick(EFFECTIVE), scope.pick(FALLBACK)
    gauge, by = subject.of_operator("triton_operator_threshold"), f"{PER_MODEL}, kind, version"
    minimum, maximum = (_queried(f"{end} by ({by}) ({gauge})", "kind", "version") for end in ("min", "max"))
    return _alert(
        "TritonModelThresholdDisagreement", "warning", "5m",
        f"({effective} != on ({by}) {fallback})\nor ({effective} unless on ({by}) {fallback})\n"
        f"or ({fallback} unless on ({by}) {effective})\n"
        f"or (max by ({by}) ({gauge}) != min by ({by}) ({gauge}))",
        f"The operator and the PrometheusRule of {_WHO} have different thresholds: {{{{ $labels.kind }}}}{_VERSION}",
        f"For five minutes, the operator's replicas have had {minimum} to {maximum}, and the PrometheusRule "
        f"{_queried(fallback, 'kind', 'version')} (empty: no threshold). Alerts use the operator's value; without "
        "the operator, they use the rule's. Look at the TritonModel's conditions and at the operator's log, and check "
        "if Prometheus has loaded the PrometheusRule (prometheus_config_last_reload_successful).",
    )  # fmt: skip


def _at_max_replicas(subject: Subject) -> Rule:
    """Returns the alert. It ignores servers above the maximum, which are surge pods of a rollout."""
    scope, maximum = subject.scope, subject.max_replicas
    up, desired = f"sum by ({PER_MODEL}) ({scope.pick('up')})", scope.pick(DESIRED)
    at_max = f"({desired} or count by ({PER_MODEL}) ({scope.pick('up')})) >= {maximum}"
    return _alert(
        "TritonModelAtMaxReplicas", "warning", "2m",
        f"{scope.pick(LOAD)}\n/ on ({PER_MODEL}) (clamp_max({up}, {maximum}) and on ({PER_MODEL}) "
        f"({at_max}))\n> {number(round(subject.utilization * _TOLERANCE, 6))}",
        f"{_WHO} has its maximum number of servers, {maximum}, and is overloaded",
        "Each server has a load of {{ $value | humanizePercentage }} of its capacity, and the autoscaler can't add "
        "servers. Raise spec.autoscaling.max if the cluster has room, or reduce the load.",
        keep="2m",
    )  # fmt: skip


def _queue_duration(subject: Subject) -> Rule:
    limit, scope = subject.monitoring.queue_milliseconds, subject.scope
    served = rate(scope.pick("nv_inference_request_success"), window(60, subject.scrape_seconds))
    return _alert(
        "TritonModelQueueDuration", "warning", "1m",
        f"{scope.pick(QUEUE)} > {number(limit / 1000)}\n"
        f"and on ({PER_MODEL}, model) sum by ({PER_MODEL}, model) {served} * 60 >= {_MIN_REQUESTS}",
        f"Requests of {_WHO} wait {{{{ $value | humanizeDuration }}}} in the queue of model {{{{ $labels.model }}}}",
        f"The allowed mean is {{{{ humanizeDuration {limit / 1000} }}}} (spec.monitoring.queueMilliseconds). The model "
        "is the bottleneck: add servers or instances (instance_group), enable dynamic_batching, or find out why the "
        "model is slow.",
        keep="2m",
    )  # fmt: skip


def _request_failures(subject: Subject) -> Rule:
    scope, span = subject.scope, window(300, subject.scrape_seconds)
    by = f"sum by ({PER_MODEL}, model, reason)"

    def rates(*matchers: str) -> str:
        failures = scope.pick("nv_inference_request_failure", *matchers, unequal("reason", CANCELED))
        return f"{by} {rate(failures, span)}"

    failed = rates()
    if subject.ensemble:
        # A failure of a step is one of each ensemble around it, too: OTHER. The entrypoint's counts only if the steps
        # don't explain it, those of ensembles between never.
        steps = rates(unequal("model", subject.entrypoint), unequal("reason", "OTHER"))
        entry = subject.once(rates(*subject.entry))
        explained = f"sum by ({PER_MODEL}) ({entry}) <= {RATE_TOLERANCE} * sum by ({PER_MODEL}) ({steps})"
        failed = f"({steps}\nor ({entry} unless on ({PER_MODEL}) ({explained})))"
    requests = f"sum by ({PER_MODEL}) ({scope.pick(REQUESTS)}) > 0"
    return _alert(
        "TritonModelRequestFailures", "warning", "1m",
        f"({failed} * 300 >= {_MIN_FAILURES}) / 300\n/ on ({PER_MODEL}) group_left () ({requests})\n"
        f"> {_FAILURES_RATIO}",
        f"{{{{ $value | humanizePercentage }}}} of the requests of {_WHO} fail in model {{{{ $labels.model }}}}: "
        "{{ $labels.reason }}",
        "REJECTED: they waited too long in the model's queue. BACKEND: the model's code or its backend failed. OTHER: "
        "a step of the ensemble failed. Read the servers' logs for the error.",
        keep="2m",
    )  # fmt: skip


def _server_fails(subject: Subject) -> Rule:
    """Returns the alert. The reason BACKEND is never a client's: Triton counts an exception or a dead process so.

    For one version of a model on one server, because the others may still answer. Its own failures count, not those of
    the ensembles that call it (OTHER). A counter of successes that is no number shows nothing.
    """
    scope, span = subject.scope, window(120, subject.scrape_seconds)
    failures = rate(scope.pick("nv_inference_request_failure", equal("reason", "BACKEND")), span)
    successes = f"sum by ({_ONE}) (rate({scope.pick('nv_inference_request_success')}[{span}]))"
    return _alert(
        FAILS, "warning", "1m",
        f"(sum by ({_ONE}) {failures} * 120 >= {_MIN_FAILURES}) / 120\nunless on ({_ONE}) {successes} != 0",
        f"The server {{{{ $labels.pod }}}} of {_WHO} answers every request to model {{{{ $labels.model }}}}{_VERSION} "
        "with an error",
        f"{_number('$value')} requests per second fail in the model's backend, and none succeeds. If other servers "
        "answer requests to the model, delete the pod: a new server replaces it. If all servers fail, the model, its "
        "input or the last change is to blame. The server's log has the error.",
    )  # fmt: skip


def _server_hangs(subject: Subject) -> Rule:
    """Returns the alert. An execution is counted when it has ended, so a model with long ones is silent, too.

    That is strange for a model whose executions were short in the hour before. For one version of the model, because
    another one may work. A gauge or a counter that is no number shows nothing.
    """
    scope, span, hour = subject.scope, window(_HANG_SECONDS, subject.scrape_seconds), "1h"
    before = f"offset {span}"
    waits = f"max by ({_ONE}) (min_over_time({scope.pick('nv_inference_pending_request_count')}[{span}]))"
    executions, microseconds = (
        scope.pick(name) for name in ("nv_inference_exec_count", "nv_inference_compute_infer_duration_us")
    )
    count, took = (f"sum by ({_ONE}) (increase({each}[{hour}] {before}))" for each in (executions, microseconds))
    return _alert(
        HANGS, "warning", "",
        f"({waits} > 0 < Inf)\nunless on ({_ONE}) sum by ({_ONE}) (increase({executions}[{span}])) != 0\n"
        f"and on ({_ONE}) {took} / ({count} > 0) < {_MAX_EXECUTION_SECONDS}e6",
        f"The model {{{{ $labels.model }}}}{_VERSION} hangs on the server {{{{ $labels.pod }}}} of {_WHO}: "
        f"{_plural('1 request waits', 'requests wait')}",
        f"It has executed nothing for {_HANG_SECONDS // 60} minutes, and its executions took less than "
        f"{_MAX_EXECUTION_SECONDS} s on average in the hour before. Delete the pod: a new server replaces it. If it "
        "happens again, look for a lock, an endless loop or a call without a time limit in the model's code.",
    )  # fmt: skip


def _error_budget_burn(subject: Subject) -> list[Rule]:
    """Returns one alert for each severity, because the windows of one incident overlap."""
    objective = subject.monitoring.objective
    advice = {
        "critical": "At this rate the error budget of a month is used up within days. Find out which model fails and "
        "why (TritonModelRequestFailures, the servers' logs), and roll back the last change.",
        "warning": "This isn't urgent, but the objective will be missed: plan time to find the cause.",
    }
    return [
        _alert(
            "TritonModelErrorBudgetBurn", severity, "",
            "\nor ".join(_burns(subject, budget(objective), *burn) for burn in burns),
            f"{{{{ $value | humanizePercentage }}}} of the requests of {_WHO} failed in the last "
            f"{' or '.join(long for _, long, _, _ in burns)}",
            f"{objective} % should succeed (spec.monitoring.objective). {advice[severity]}",
        )
        for severity, burns in _BURNS.items()
    ]  # fmt: skip


def _burns(subject: Subject, allowed: Decimal, burn: Decimal, long: str, short: str, age: str) -> str:
    """Returns the condition of one burn rate.

    It needs a minimum number of failures: of five requests in an hour, one failure is 20 % but unimportant.
    """
    scope, maximum = subject.scope, error_ratio(allowed, burn)
    failed = f"sum_over_time({scope.pick(FAILED)}[{long}])"
    parts = [
        f"({ratio(scope, long)} > {maximum})",
        f"({ratio(scope, short)} > {maximum})",
        f"(sum by ({PER_MODEL}) ({failed}) * {subject.slow_seconds} >= {_MIN_BURN_FAILURES})",
        *([f"{scope.pick(REQUESTS)} offset {age}"] if age else []),
    ]
    return "(\n  " + f"\n  and on ({PER_MODEL}) ".join(parts) + "\n)"


def _latency_budget_burn(subject: Subject) -> list[Rule]:
    """Returns one alert for each severity. The label `kind` says which objective it is about."""
    wanted = objectives(subject)
    advice = {
        "critical": "Look at the panels of latency: does a step of the model take longer than before, or do requests "
        "wait in a queue? Then add servers, or roll back the last change.",
        "warning": "This isn't urgent, but the objective will be missed: plan time to find the cause.",
    }
    return [
        _alert(
            "TritonModelLatencyBudgetBurn", severity, "",
            "\nor ".join(_slow_burns(subject, one, *burn) for one in wanted for burn in burns),
            f"{{{{ $value | humanizePercentage }}}} of the requests of {_WHO} took longer than "
            "spec.monitoring.latency allows ({{ $labels.kind }}) in the last "
            + " or ".join(long for _, long, _, _ in burns),
            advice[severity],
        )
        for severity, burns in _BURNS.items()
        if wanted
    ]  # fmt: skip


def _slow_burns(subject: Subject, objective: LatencyObjective, burn: Decimal, long: str, short: str, age: str) -> str:
    """Returns the condition of one burn rate. It needs a minimum number of slow requests among the sampled ones."""
    scope, maximum = subject.scope, error_ratio(1 - Decimal(objective.quantile), burn)
    over_long = slow_ratio(subject, objective, long)
    samples = f"sum_over_time({scope.pick(SAMPLED)}[{long}]) * {subject.slow_seconds}"
    parts = [
        f"({over_long} > {maximum})",
        f"({slow_ratio(subject, objective, short)} > {maximum})",
        f"({over_long} * on ({PER_MODEL}) group_left () ({samples}) >= {_MIN_BURN_FAILURES})",
        *([f"{of(subject, TIMED, objective)} offset {age}"] if age else []),
    ]
    return "(\n  " + f"\n  and on ({PER_MODEL}) ".join(parts) + "\n)"


def _latency_not_measured(subject: Subject) -> Rule:
    """Returns the alert about servers that Prometheus scrapes, and whose latency nothing measures."""
    scope = subject.scope
    scraped, works = (f"max by ({PER_MODEL}, pod) ({scope.pick(name)}) > 0" for name in ("up", WORKS))
    return _alert(
        "TritonModelLatencyNotMeasured", "warning", "15m",
        f"count by ({PER_MODEL}) (\n  {scraped}\n  unless on ({PER_MODEL}, pod) {works}\n)",
        f"The latency of {_plural('one server', 'servers')} of {_WHO} isn't measured",
        "Their requests are missing in the latency, its objectives and their alerts. Read the log of the container "
        f"`{names.CONTAINER_LATENCY}`: Triton before {'.'.join(map(str, OLDEST))} isn't measured. Can Prometheus reach "
        f"its port {names.LATENCY_PORT} (NetworkPolicy)?",
    )  # fmt: skip


def _memory_grows(subject: Subject) -> Rule:
    """Returns the alert. Its value is when the first server reaches its limit; process_exporter/growth.py finds it."""
    full = subject.scope.pick(MEMORY_FULL)
    first = f"min by ({PER_MODEL}) ({full})"
    of_each = quote(f"sort(min by (pod) ({full}))")
    each = (
        f"{{{{ range query {of_each} }}}}{{{{ .Labels.pod }}}} at {{{{ .Value | humanizeTimestamp }}}}; {{{{ end }}}}"
    )
    return _alert(
        "TritonModelMemoryGrows", "warning", "1m", first,
        f"The memory of a server of {_WHO} grows steadily, and reaches its limit at about "
        "{{ $value | humanizeTimestamp }}",
        f"Then the kernel ends one of its processes, and its requests fail. By server: {each}"
        "The dashboard Triton / Resources shows which process grows. With spec.memoryGrowth: Replace the operator "
        "starts new servers before, and .status says so or why not; otherwise change spec.rollout.restartedAt. To have "
        "more time, raise spec.server.resources.limits.memory.",
        keep="2m",
    )  # fmt: skip


def _above(scope: Scope, name: str, value: str, peak: Callable[[str], str], limit: str, on: str) -> str:
    """Returns the condition that `value` is above `limit`.

    While the alert `name` is pending or fires, it compares `peak`, the maximum in a time range: the rate of a
    server is a sixth lower while one of its scrapes is missing.
    """
    fires = scope.pick("ALERTS", equal("alertname", name), equal("alertstate", "firing"))
    pending = f"time() - {scope.pick('ALERTS_FOR_STATE', equal('alertname', name))} < {_FOR_SECONDS}"
    held = f"({peak(_CALM)} and on ({on}) {fires})\n  or ({peak(_GAP)} and on ({on}) ({pending}))"
    return f"(\n  {held}\n  or {value}\n)\n> on ({on}) {limit}"


def _queried(expr: str, *labels: str) -> str:
    """Returns a template that prints the value of `expr` with the labels of the alert.

    The query is a constant. It has no label values, because servers choose them and could inject a query.
    """
    names = labels or ("version",)
    same = "".join(f"{{{{ if eq .Labels.{name} $labels.{name} }}}}" for name in names)
    return f"{{{{ range query {quote(expr)} }}}}{same}{_compared('.Value')}{'{{ end }}' * len(names)}{{{{ end }}}}"


def _effective(scope: Scope, kind: str) -> str:
    """Returns a template that prints the effective threshold for the version of the alert."""
    return _queried(limits(scope, kind))


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
    """Returns `rule` with the user's labels and the URL of its runbook.

    It drops labels that alerts have themselves, and invalid ones, because Prometheus would refuse all rules.
    """
    own = subject.monitoring.alert_labels.items()
    more = {k: escape_template(v) for k, v in own if k not in ALERTS_OWN_LABELS and _LABEL.fullmatch(k)}
    page = escape_template(f"{subject.runbooks.rstrip('/')}/{rule['alert']}.md")
    return {
        **rule,
        "labels": {**more, **rule["labels"]},
        "annotations": {**rule["annotations"], "runbook_url": page},
    }
