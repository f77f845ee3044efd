"""The recording rules of thresholds, servers, demand, load and queues.

Names follow level:metric:operations. The level `tritonmodel` has the labels `namespace` and `tritonmodel`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from triton_operator.api import thresholds
from triton_operator.api.thresholds import ThresholdKey

from .promql import PER_MODEL, Rule, Scope, duration, equal, number, record, tag, unequal, window
from .subject import Subject

HOLD = "5m"
"""How long the rules use the last thresholds without an operator, and the last load of servers without metrics."""
EFFECTIVE = "tritonmodel:threshold:effective"
FALLBACK = "tritonmodel:threshold:fallback"
DEMAND = "tritonmodel:demand:rate1m"
SERVED = "tritonmodel:requests_served:rate1m"
LOAD = "tritonmodel:load_replicas:max"
AUTOSCALER_LOAD = "tritonmodel:autoscaler_load_replicas:max"
ARRIVALS = "tritonmodel:arrivals:rate1m"
"""Requests that arrive at a gateway. No rule of the operator records it; users do, to scale from zero."""
DESIRED, READY = "tritonmodel:servers:desired", "tritonmodel:servers:ready"
QUEUE = "tritonmodel:queue_duration_seconds:avg1m"
_PREDICTED = "tritonmodel:load_replicas:predict2m"
_SEEN = "triton_operator_resource_version"
_AHEAD_SECONDS = 120
"""How far ahead the load is predicted: about the time in which a new server starts to serve."""


def limits(scope: Scope, kind: str) -> str:
    """Returns the thresholds of `kind`: of the model, and of each version that has one."""
    return scope.pick(EFFECTIVE, equal("kind", kind))


def tokens(scope: Scope) -> str:
    return f"sum by ({PER_MODEL}) ({scope.pick('tritonmodel:tokens:rate1m')})"


def threshold_recording(subject: Subject) -> list[Rule]:
    """Returns the rule of the effective thresholds. A kind without a limit has no series.

    - The threshold is the operator's metric. For five minutes after the metric has disappeared it is the last value,
      and then the fallback value, which another rule contains.
    - Of several replicas of the operator, the rule uses the ones that have seen the newest resource version of the
      TritonModel. So a change takes effect when the first replica is scraped, and a replica whose watch hangs is
      ignored.
    - The operator exposes every kind, with +Inf for no limit. So a removed limit ends at once, and a fallback value
      replaces only a kind that an operator of another version doesn't expose. Limits of versions have no such series:
      their fallback values count only without an operator.
    - The last values come from the previous evaluation. `last_over_time` of the metric would restore thresholds that
      were deleted before the operator stopped.
    """
    scope, seen = subject.scope, subject.of_operator(_SEEN)
    fallback, recent = scope.pick(FALLBACK), f"last_over_time({seen}[{HOLD}])"
    newest = _of_newest(subject, subject.of_operator("triton_operator_threshold"), f"{PER_MODEL}, kind, version")
    return [
        record(
            EFFECTIVE,
            "(\n  "
            + "\n  or ".join(
                (
                    newest,
                    f"({scope.pick(EFFECTIVE)} unless on ({PER_MODEL}) {seen} and on ({PER_MODEL}) {recent})",
                    scope.pick(FALLBACK, equal("version", "")),
                    f"({fallback} unless on ({PER_MODEL}) {recent})",
                )
            )
            + "\n) < Inf",
        ),
    ]


def recording(subject: Subject) -> list[Rule]:
    """Returns the rules of the fallback values, demand and load."""
    return [_fallback(subject.scope, subject.thresholds), *_demand(subject), *_load(subject)]


def _of_newest(subject: Subject, gauge: str, by: str) -> str:
    """Returns `gauge` of the operator's replicas with the newest resource version."""
    seen = subject.of_operator(_SEEN)
    newest = f"{seen} == on ({PER_MODEL}) group_left () max by ({PER_MODEL}) ({seen})"
    return f"max by ({by}) ({gauge} and on ({PER_MODEL}, instance) ({newest}))"


def _fallback(scope: Scope, values: Mapping[ThresholdKey, float]) -> Rule:
    def series(key: ThresholdKey, value: float) -> str:
        out = tag(f"vector({number(value)})", "kind", key.kind)
        return tag(out, "version", key.version) if key.version else out

    found = [series(key, value) for key, value in sorted(values.items()) if not math.isinf(value)]
    return record(FALLBACK, "\nor ".join(found), namespace=scope.namespace, tritonmodel=scope.name)


def server_recording(subject: Subject) -> list[Rule]:
    """Returns the rules of the desired and ready servers, from the operator's metrics.

    Without an operator, they use the last desired number, and count the servers that can be scraped as ready.
    """
    scope = subject.scope
    desired, ready = (
        _of_newest(subject, subject.of_operator("triton_operator_replicas", equal("state", state)), PER_MODEL)
        for state in ("wanted", "ready")
    )
    last = scope.pick(DESIRED)
    return [
        record(DESIRED, f"{desired}\nor {last}"),
        record(READY, f"{ready}\nor (sum by ({PER_MODEL}) ({scope.pick('up')}) and {last})\nor {last} * 0"),
    ]


def _demand(subject: Subject) -> list[Rule]:
    scope, span = subject.scope, window(60, subject.scrape_seconds)
    entry = subject.entry
    by = f"sum by ({PER_MODEL}, version)"
    served = (
        f"sum by ({PER_MODEL}, model, version) (rate({scope.pick('nv_inference_request_success', *entry)}[{span}]))"
    )
    failed = f"{by} (rate({scope.pick('nv_inference_request_failure', *entry)}[{span}]))"
    coefficient = limits(scope, thresholds.ENSEMBLE_COEFFICIENT.name)
    out = [
        record(SERVED, served),
        # An alias, for existing dashboards and rules.
        record("triton:my_qps_threshold:1m", scope.pick(SERVED)),
        record(
            DEMAND,
            f"{by} (\n  {tag(scope.pick(SERVED), 'of', 'served')}\n"
            f"  or {tag(subject.once(failed), 'of', 'failed')}\n"
            f"  or {tag(_pending(subject, span), 'of', 'pending')}\n)\n"
            f"* on ({PER_MODEL}) group_left () {coefficient}",
        ),
        record(DEMAND, f"sum by ({PER_MODEL}) ({scope.pick(DEMAND, unequal('version', ''))})"),
    ]
    if subject.token_counter:
        generated = f"rate({scope.pick_named(subject.token_counter)}[{span}])"
        out.append(record("tritonmodel:tokens:rate1m", f"sum by ({PER_MODEL}, model, version) ({generated})"))
    return out


def _pending(subject: Subject, span: str) -> str:
    """Returns the growth of the queues in requests per second: requests that arrived but were not answered.

    An ensemble has no pending requests itself, only its steps have. They count for the version of the ensemble that
    serves most. A shrinking queue doesn't count, because the vanished queue of a crashed server would reduce the
    demand, or hide the growing queue of another server.
    """
    scope, seconds = subject.scope, max(60, 4 * subject.scrape_seconds)
    if not subject.ensemble:
        pending = scope.pick("nv_inference_pending_request_count", *subject.entry)
        return f"sum by ({PER_MODEL}, version) (clamp_min(delta({pending}[{span}]), 0)) / {seconds}"
    pending = scope.pick("nv_inference_pending_request_count", unequal("model", subject.entrypoint))
    of_server = f"sum by ({PER_MODEL}, pod, instance) (delta({pending}[{span}]))"
    growth = f"sum by ({PER_MODEL}) (clamp_min({of_server}, 0)) / {seconds}"
    version = f"topk by ({PER_MODEL}) (1, {scope.pick(SERVED)})"
    return f"{growth} + on ({PER_MODEL}) group_right () 0 * {version}"


def _load(subject: Subject) -> list[Rule]:
    scope = subject.scope
    demand = scope.pick(DEMAND, equal("version", ""))
    load = [f"{demand} / on ({PER_MODEL}) {limits(scope, thresholds.MAX_QPS_PER_REPLICA.name)}"]
    if subject.token_counter:
        by_tokens = f"{tokens(scope)} / on ({PER_MODEL}) {limits(scope, thresholds.MAX_TPS_PER_REPLICA.name)}"
        load.append(tag(by_tokens, "of", "tokens"))
    return [
        record(LOAD, _maximum(load)),
        *([record(_PREDICTED, _predicted(scope))] if subject.predict else []),
        *([record(AUTOSCALER_LOAD, _autoscaler_load(subject))] if subject.max_replicas is not None else []),
    ]


def _maximum(parts: list[str]) -> str:
    return f"max by ({PER_MODEL}) (\n  " + "\n  or ".join(parts) + "\n)"


def _predicted(scope: Scope) -> str:
    """Returns the load in two minutes by the trend of the last five, between the current load and twice that."""
    load = scope.pick(LOAD)
    trend = f"predict_linear({load}[5m], {_AHEAD_SECONDS})"
    return f"(({trend} > {load}) <= 2 * {load})\nor (2 * {load} < {trend})\nor {load}"


def _autoscaler_load(subject: Subject) -> str:
    """Returns the load for the autoscaler.

    While the scrapes of a server fail, its load is missing in the sum. The rule then keeps the highest load of the last
    minutes. It doesn't for one or two failed scrapes, or for a target that has disappeared, because this is how each
    removed server ends, and keeping its load would add it again.

    When Prometheus begins, its rates are too low until it has scraped a server for as long as they look back. Until
    then the rule keeps the highest load, too. If Prometheus has none, the rule has a value only if it needs more
    servers than there are.
    """
    scope, scrape = subject.scope, subject.scrape_seconds
    now = scope.pick(_PREDICTED if subject.predict else LOAD)
    up, span = scope.pick("up"), max(60, 4 * scrape)
    scrapes, on = span // scrape, f"on ({PER_MODEL})"
    missing = f"(sum_over_time({up}[{duration(span)}]) < {scrapes - max(scrapes // 4, 1)} and {up})"
    earlier = f"count_over_time({up}[{duration(2 * scrape)}] offset {duration(span - scrape)})"
    highest = f"max_over_time({scope.pick(AUTOSCALER_LOAD)}[{HOLD}])"
    held = f"{highest} and {on} ({missing} or ({up} unless {on} {earlier}))"
    more = f"{now} > {on} {scope.pick(DESIRED)}"
    return f"{_maximum([now, tag(held, 'of', 'held')])}\nand {on} (\n  {earlier}\n  or {highest}\n  or {more}\n)"


def queue_recording(subject: Subject) -> list[Rule]:
    """Returns the rule of the mean time in a queue. For an ensemble it uses the steps, because its own time is 0."""
    scope, span = subject.scope, window(60, subject.scrape_seconds)
    models = (unequal("model", subject.entrypoint),) if subject.ensemble else ()
    waited = f"rate({scope.pick('nv_inference_queue_duration_us', *models)}[{span}])"
    served = f"rate({scope.pick('nv_inference_request_success', *models)}[{span}])"
    by = f"sum by ({PER_MODEL}, model)"
    return [record(QUEUE, f"{by} ({waited}) / ({by} ({served}) > 0) / 1e6")]
