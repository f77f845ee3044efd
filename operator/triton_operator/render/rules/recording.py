"""The recording rules of thresholds, servers, demand, load and queues.

Names follow level:metric:operations. The level `tritonmodel` has the labels `namespace` and `tritonmodel`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from triton_operator.api import names, thresholds
from triton_operator.api.series import ARRIVALS, AUTOSCALER_LOAD, DESIRED
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.promql import PER_MODEL, Rule, Scope, duration, equal, number, rate, record, tag, unequal, window

from .streaming import gauge_means, queue_time
from .subject import Subject

HOLD = "5m"
"""How long the rules use the last thresholds without an operator, and the last load of servers without metrics."""
EFFECTIVE = "tritonmodel:threshold:effective"
FALLBACK = "tritonmodel:threshold:fallback"
DEMAND = "tritonmodel:demand:rate1m"
PEAK = "tritonmodel:demand:irate"
SERVED = "tritonmodel:requests_served:rate1m"
LOAD = "tritonmodel:load_replicas:max"
READY = "tritonmodel:servers:ready"
QUEUE = "tritonmodel:queue_duration_seconds:avg1m"
_PREDICTED = "tritonmodel:load_replicas:predict2m"
_SEEN = "triton_operator_resource_version"
_DRAIN = 1.05
"""A server's queue shrinks at most by the rate of its answers times this. A faster one vanished in a crash."""
RATE_TOLERANCE = 1.1
"""Tolerance of comparisons of rates, whose samples have different times."""
_BY_CHANCE = 3
"""How many more health requests than on average may be in the window of a rate, or seem to be. The window may begin
right before one and end right after one, one may be in the queue, and Prometheus extrapolates to the window's ends."""
_TRACE = 0.001
"""The smallest load that prometheus-adapter serves: it counts in thousandths."""
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
    - max-qps-peak is effective only together with the rules that it needs, so that ThresholdLive waits for them.
    - The last values come from the previous evaluation. `last_over_time` of the metric would restore thresholds that
      were deleted before the operator stopped.
    """
    scope, versions = subject.scope, subject.of_operator(_SEEN)
    fallback, recent = scope.pick(FALLBACK), f"last_over_time({versions}[{HOLD}])"
    known = () if subject.has_peak else (unequal("kind", thresholds.MAX_QPS_PEAK.name),)
    gauge = subject.of_operator("triton_operator_threshold", *known)
    newest = _of_newest(subject, gauge, f"{PER_MODEL}, kind, version")
    return [
        record(
            EFFECTIVE,
            "(\n  "
            + "\n  or ".join(
                (
                    newest,
                    f"({scope.pick(EFFECTIVE)} unless on ({PER_MODEL}) {versions} and on ({PER_MODEL}) {recent})",
                    scope.pick(FALLBACK, equal("version", "")),
                    f"({fallback} unless on ({PER_MODEL}) {recent})",
                )
            )
            + "\n) < Inf",
        ),
    ]


def peak_recording(subject: Subject) -> list[Rule]:
    """Returns the rule of the demand between two scrapes, which only max-qps-peak needs."""
    if not subject.has_peak:
        return []
    demand = _whole(subject, _Between(subject.scope, subject.scrape_seconds), PER_MODEL)
    coefficient = limits(subject.scope, thresholds.ENSEMBLE_COEFFICIENT.name)
    return [record(PEAK, f"{demand}\n* on ({PER_MODEL}) group_left () {coefficient}")]


def recording(subject: Subject) -> list[Rule]:
    """Returns the rules of the fallback values, demand and load."""
    return [_fallback(subject.scope, subject.thresholds), *_demand(subject), *_load(subject)]


def _of_newest(subject: Subject, gauge: str, by: str) -> str:
    """Returns `gauge` of the operator's replicas with the newest resource version."""
    versions = subject.of_operator(_SEEN)
    newest = f"{versions} == on ({PER_MODEL}) group_left () max by ({PER_MODEL}) ({versions})"
    return f"max by ({by}) ({gauge} and on ({PER_MODEL}, instance) ({newest}))"


def _fallback(scope: Scope, values: Mapping[ThresholdKey, float]) -> Rule:
    def series(key: ThresholdKey, value: float) -> str:
        out = tag(f"vector({number(value)})", "kind", key.kind)
        return tag(out, "version", key.version) if key.version else out

    parts = [series(key, value) for key, value in sorted(values.items()) if not math.isinf(value)]
    return record(FALLBACK, "\nor ".join(parts), namespace=scope.namespace, tritonmodel=scope.name)


def server_recording(subject: Subject) -> list[Rule]:
    """Returns the rules of the desired and ready servers, from the operator's metrics.

    Without an operator, they use the last desired number, and count the servers that can be scraped as ready. With an
    autoscaler, which works without the operator too, the servers that Prometheus should scrape are the desired ones.
    If it should scrape none, none is desired only if there was no load, so that the autoscaler has removed the last.
    Otherwise Prometheus has lost its targets.
    """
    scope = subject.scope
    desired, ready = (
        _of_newest(subject, subject.of_operator("triton_operator_replicas", equal("state", state)), PER_MODEL)
        for state in ("wanted", "ready")
    )
    last = scope.pick(DESIRED)
    others = last
    if subject.max_replicas is not None:
        idle = f"({last} * 0 and on ({PER_MODEL}) {scope.pick(AUTOSCALER_LOAD)} <= {_TRACE})\nor "
        counted = f"(count by ({PER_MODEL}) ({scope.pick('up')}) and {last})"
        others = f"{counted}\nor {idle if subject.to_zero else ''}{last}"
    return [
        record(DESIRED, f"{desired}\nor {others}"),
        record(READY, f"{ready}\nor (sum by ({PER_MODEL}) ({scope.pick('up')}) and {last})\nor {last} * 0"),
    ]


def _demand(subject: Subject) -> list[Rule]:
    scope, minute = subject.scope, _Minute(subject.scrape_seconds)
    entry = subject.entry
    by = f"sum by ({PER_MODEL}, version)"
    answers = minute.rate(scope.pick("nv_inference_request_success", *entry))
    served = f"sum by ({PER_MODEL}, model, version) {answers}"
    failed = f"{by} {minute.rate(scope.pick('nv_inference_request_failure', *entry))}"
    coefficient = limits(scope, thresholds.ENSEMBLE_COEFFICIENT.name)
    out = [
        record(SERVED, served),
        # An alias, for existing dashboards and rules.
        record("triton:my_qps_threshold:1m", scope.pick(SERVED)),
        record(
            DEMAND,
            f"clamp_min({by} (\n  {tag(scope.pick(SERVED), 'of', 'served')}\n"
            f"  or {tag(subject.once(failed), 'of', 'failed')}\n"
            f"  or {tag(_pending(subject, minute), 'of', 'pending')}\n), 0)\n"
            f"* on ({PER_MODEL}) group_left () {coefficient}",
        ),
        record(DEMAND, f"sum by ({PER_MODEL}) ({scope.pick(DEMAND, subject.of_versions)})"),
        *([_of_canary(subject, subject.canary)] if subject.canary else []),
    ]
    if subject.token_counter:
        generated = minute.rate(scope.pick_named(subject.token_counter))
        counted = f"sum by ({PER_MODEL}, model, version) {generated}"
        factor = limits(scope, thresholds.TOKEN_COEFFICIENT.name)
        out.append(
            record("tritonmodel:tokens:rate1m", f"{counted} * on ({PER_MODEL}) group_left () {factor}\nor {counted}")
        )
    return out


def _of_canary(subject: Subject, canary: Scope) -> Rule:
    """Returns the demand of the canary's servers alone, which has a limit of its own: max-qps.canary."""
    own = replace(subject, scope=canary)
    demand = _whole(own, _Minute(subject.scrape_seconds), "namespace")
    coefficient = limits(subject.scope, thresholds.ENSEMBLE_COEFFICIENT.name)
    return record(
        DEMAND,
        f"{demand}\n* on (namespace) group_left () {coefficient}",
        tritonmodel=subject.scope.name,
        version=names.CANARY,
    )


class _Time(Protocol):
    """The time over which requests are counted."""

    def rate(self, counter: str) -> str:
        """Returns what is counted per second."""

    def growth(self, gauge: str) -> str:
        """Returns by how much a gauge grows per second, without servers whose gauge is NaN or infinite."""


@dataclass(frozen=True)
class _Minute:
    """The last minute, or four scrapes if that is longer."""

    scrape_seconds: int

    def rate(self, counter: str) -> str:
        return rate(counter, window(60, self.scrape_seconds))

    def growth(self, gauge: str) -> str:
        return f"{_real(f'delta({gauge}[{window(60, self.scrape_seconds)}])')} / {max(60, 4 * self.scrape_seconds)}"


@dataclass(frozen=True)
class _Between:
    """The time between a server's last two scrapes.

    If one fails, the next is two intervals after the one before. `irate` knows that; the growth doesn't count then.
    """

    scope: Scope
    scrape_seconds: int

    def rate(self, counter: str) -> str:
        return f"(irate({counter}[{duration(3 * self.scrape_seconds)}]) >= 0 < Inf)"

    def growth(self, gauge: str) -> str:
        growth = _real(f"idelta({gauge}[{duration(3 * self.scrape_seconds)}])")
        scraped = f"min_over_time({self.scope.pick('up')}[{duration(2 * self.scrape_seconds)}])"
        return f"({growth} / {self.scrape_seconds} * on (pod, instance) group_left () {scraped})"


def _whole(subject: Subject, time: _Time, by: str) -> str:
    """Returns the demand of all versions together, without the coefficient."""
    growth = time.growth(subject.scope.pick("nv_inference_pending_request_count", *subject.entry))
    if subject.ensemble:
        growth = f"(\n    {_own_queues(subject, time)}\n  )"
    pending = _without_crashes(subject, time, PER_MODEL, f"sum by ({PER_MODEL}, pod, instance) {growth}")
    return (
        f"clamp_min(sum by ({by}) (\n  {tag(_answers(subject, time, PER_MODEL), 'of', 'answered')}\n"
        f"  or {tag(pending, 'of', 'pending')}\n), 0)"
    )


def _pending(subject: Subject, time: _Time) -> str:
    """Returns the growth of the queues in requests per second: requests that arrived but were not answered.

    It is negative while a server drains its queue, because these requests have counted when they were queued. A queue
    that gets shorter faster than the server answers has vanished in a crash, and doesn't count.
    """
    scope = subject.scope
    if not subject.ensemble:
        by, pending = f"{PER_MODEL}, version", scope.pick("nv_inference_pending_request_count", *subject.entry)
        growth = f"sum by ({by}, pod, instance) {time.growth(pending)}"
        return _without_crashes(subject, time, by, growth)
    # An ensemble has no pending requests itself. Those of its steps count for the version that serves most.
    growth = f"sum by ({PER_MODEL}, pod, instance) (\n    {_own_queues(subject, time)}\n  )"
    version = f"topk by ({PER_MODEL}) (1, {scope.pick(SERVED)})"
    return f"{_without_crashes(subject, time, PER_MODEL, growth)} + on ({PER_MODEL}) group_right () 0 * {version}"


def _real(number: str) -> str:
    return f"({number} < Inf > -Inf)"


def _without_crashes(subject: Subject, time: _Time, by: str, growth: str) -> str:
    """Returns the sum of `growth`, which is that of each server, without queues that vanished in a crash."""
    answers = _answers(subject, time, f"{by}, pod, instance")
    return f"sum by ({by}) (\n  {growth}\n  >= -{_DRAIN} * {answers}\n)"


def _answers(subject: Subject, time: _Time, by: str) -> str:
    """Returns the rate of the entry model's requests that were answered, with success or not."""
    served, failed = (
        time.rate(subject.scope.pick(f"nv_inference_request_{how}", *subject.entry)) for how in ("success", "failure")
    )
    # Before Triton 24.08 the failures have no label `reason`, so both can have the same labels.
    return f"sum by ({by}) ({served} or {tag(subject.once(failed), 'of', 'failed')})"


def _own_queues(subject: Subject, time: _Time) -> str:
    """Returns the growth of the queues of an ensemble's steps, without models that others use.

    Others use a step too if it serves more than a tenth more requests than the ensemble answers and keeps in the queues
    of its other steps. A model is no step if it serves a tenth less than the ensemble.
    """
    scope = subject.scope
    steps = unequal("model", subject.entrypoint)
    by_server, by_step = f"{PER_MODEL}, pod, instance", f"{PER_MODEL}, pod, instance, model"
    pending = scope.pick("nv_inference_pending_request_count", steps)
    growth = f"sum by ({by_step}) {time.growth(pending)}"
    served = f"sum by ({by_step}) {time.rate(scope.pick('nv_inference_request_success', steps))}"
    queued = f"clamp_min({growth}, 0)"
    requests = f"({_answers(subject, time, by_server)} + sum by ({by_server}) ({queued}))"
    shared = f"{served} + {RATE_TOLERANCE} * {queued} > on ({by_server}) group_left () {RATE_TOLERANCE} * {requests}"
    entry = f"sum by ({by_server}) {time.rate(scope.pick('nv_inference_request_success', *subject.entry))}"
    foreign = f"{RATE_TOLERANCE} * {served} < on ({by_server}) group_left () {entry}"
    return f"{growth}\n    unless ({shared})\n    unless ({foreign})"


def _load(subject: Subject) -> list[Rule]:
    scope = subject.scope
    load = [f"{_counted_demand(subject)} / on ({PER_MODEL}) {limits(scope, thresholds.MAX_QPS_PER_REPLICA.name)}"]
    others = gauge_means(subject)
    if subject.token_counter:
        others = {thresholds.MAX_TPS_PER_REPLICA: tokens(scope), **others}
    load += [
        tag(f"{measured} / on ({PER_MODEL}) {limits(scope, kind.name)}", "of", kind.name)
        for kind, measured in others.items()
    ]
    return [
        record(LOAD, _maximum(load)),
        *([record(_PREDICTED, _predicted(scope))] if subject.predict else []),
        *([record(AUTOSCALER_LOAD, _autoscaler_load(subject))] if subject.max_replicas is not None else []),
    ]


def _counted_demand(subject: Subject) -> str:
    """Returns the demand that is load.

    If the last server may be removed, it is 0 while that one gets no more than its health requests, which would
    otherwise keep it. With several servers, or without their number, it is the demand.
    """
    scope, seconds = subject.scope, max(60, 4 * subject.scrape_seconds)
    demand = scope.pick(DEMAND, equal("version", ""))
    if not subject.to_zero or not subject.health_rate:
        return demand
    most = number(round(subject.health_rate + _BY_CHANCE / seconds, 6))
    alone = f"(count by ({PER_MODEL}) ({scope.pick('up')} == 1) == 1)"
    coefficient = limits(scope, thresholds.ENSEMBLE_COEFFICIENT.name)
    no_more = f"{demand} <= on ({PER_MODEL}) ({most} * {alone} * on ({PER_MODEL}) {coefficient})"
    return f"(\n    ({demand} unless on ({PER_MODEL}) {no_more})\n    or {demand} * 0\n  )"


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
    minutes. It doesn't for one or two failed scrapes, for a target that has disappeared, or if as many servers are
    scraped as are desired: this is how each removed server ends, and keeping its load would add it again.

    When Prometheus begins, its rates are too low until it has scraped a server for as long as they look back. Until
    then the rule keeps the highest load, too. If Prometheus has none, the rule has a value only if it needs more
    servers than there are.
    """
    scope, scrape = subject.scope, subject.scrape_seconds
    now = scope.pick(_PREDICTED if subject.predict else LOAD)
    up, span = scope.pick("up"), max(60, 4 * scrape)
    scrapes, on = span // scrape, f"on ({PER_MODEL})"
    succeeded, least = f"sum_over_time({up}[{duration(span)}])", scrapes - max(scrapes // 4, 1)
    missing = f"({succeeded} < {least} and {up})"
    enough = f"count by ({PER_MODEL}) ({succeeded} >= {least} and {up}) >= {on} {scope.pick(DESIRED)}"
    earlier = f"count_over_time({up}[{duration(2 * scrape)}] offset {duration(span - scrape)})"
    highest = f"max_over_time({scope.pick(AUTOSCALER_LOAD)}[{HOLD}])"
    held = f"{highest} and {on} ({missing} or ({up} unless {on} {earlier})) unless {on} ({enough})"
    more = f"{now} > {on} {scope.pick(DESIRED)}"
    load = f"{_maximum([now, tag(held, 'of', 'held')])}\nand {on} (\n  {earlier}\n  or {highest}\n  or {more}\n)"
    return _with_arrivals(scope, load) if subject.load_wakes else load


def _with_arrivals(scope: Scope, load: str) -> str:
    """Returns the load for an autoscaler that knows nothing else: 0 at zero servers, and above 0 while requests arrive.

    A trace of load starts the first server and keeps the last. Without the series of the arrivals nothing would start
    one, so there is a trace, too, but not for a gap: a gateway that restarts would start a server of every TritonModel.
    Where the load is missing otherwise, it stays missing.
    """
    arrivals = scope.pick(ARRIVALS)
    arrive = f"scalar(max({arrivals} >= 0 or last_over_time({arrivals}[{HOLD}]) >= 0) > bool 0 or vector(1))"
    return f"clamp_min(\n({load})\nor {scope.pick(DESIRED)} == 0,\n{_TRACE} * {arrive}\n)"


def queue_recording(subject: Subject) -> list[Rule]:
    """Returns the rule of the mean time in a queue. For an ensemble it uses the steps, because its own time is 0.

    A model that streams may have a queue of its own, in which a request waits after Triton's.

    Requests that Triton answers from its cache don't wait, and don't count.
    """
    scope, span = subject.scope, window(60, subject.scrape_seconds)
    models = (unequal("model", subject.entrypoint),) if subject.ensemble else ()
    waited, served, hits = (
        rate(scope.pick(name, *models), span)
        for name in (
            "nv_inference_queue_duration_us",
            "nv_inference_request_success",
            "nv_cache_num_hits_per_model",
        )
    )
    by = f"sum by ({PER_MODEL}, model)"
    executed = f"{by} ({served} or {tag(f'-{hits}', 'of', 'hits')})"
    queue = f"{by} {waited} / ({executed} > 0) / 1e6"
    own = queue_time(subject, span)
    return [record(QUEUE, f"{by} (\n  {queue}\n  or {own}\n)" if own else queue)]
