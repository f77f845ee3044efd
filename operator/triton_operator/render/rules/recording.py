"""What is recorded at every evaluation: demand, thresholds in force, load.

All are in one group and in this order: within a group Prometheus evaluates one rule after the other, so that a new
threshold or a new sample has gone through all of them, and through the alerts, in a single evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping

from triton_operator.api import thresholds
from triton_operator.api.thresholds import ThresholdKey

from .promql import PER_MODEL, Rule, Scope, duration, equal, number, record, tag, unequal, window
from .subject import Subject

HOLD = "5m"
"""How long the last threshold of an operator that is gone, and the last load of servers that are, still count."""
_SEEN = "triton_operator_resource_version"
_AHEAD_SECONDS = 120
"""How far ahead load is predicted: about what a new server takes from the first sample to its first request."""


def recording(subject: Subject) -> list[Rule]:
    return [*_thresholds(subject), *_servers(subject), *_demand(subject), *_load(subject), *_queue(subject)]


def limits(scope: Scope, kind: str) -> str:
    """The finite thresholds of `kind`: of the model, and of each version that has its own."""
    return f"({scope.pick('triton:threshold', equal('kind', kind))} < Inf)"


def demand_by_limit(scope: Scope) -> str:
    """Demand of the model (without the label `version`) and of each version, to be joined with the limits."""
    return scope.pick("triton:demand_by_limit:rate1m")


def tokens(scope: Scope) -> str:
    return f"sum by ({PER_MODEL}) ({scope.pick('triton:tokens:rate1m')})"


def _thresholds(subject: Subject) -> list[Rule]:
    """The threshold in force is the operator's, as scraped; for 5 minutes after the operator has gone its last; then
    the one that was written into this rule.

    Of the operator's replicas the one counts that has seen the newest state of the TritonModel: a change is there
    when the first of them has been scraped, and a replica whose watch hangs never wins.

    One series, that of max-qps, is there for every TritonModel while any operator lives. While it is there no limit of
    a version falls back, so that a removed one goes at once. A kind that isn't there at all falls back: an operator of
    another version doesn't know it. The last values come from the previous evaluation and not from `last_over_time`,
    which would bring back what had been removed before the operator went.
    """
    scope = subject.scope
    model_wide = (equal("kind", thresholds.MAX_QPS.name), equal("version", ""))
    live = scope.pick("triton:threshold:live")
    heartbeat = scope.pick("triton:threshold:live", *model_wide)
    last, gauge = scope.pick("triton:threshold:last"), subject.of_operator("triton_operator_threshold")
    return [
        record(
            "triton:threshold:live",
            _of_newest(subject, gauge, f"{PER_MODEL}, kind, version"),
        ),
        record(
            "triton:threshold:last",
            f"{live}\nor (\n  ({last} unless on ({PER_MODEL}) {heartbeat})\n"
            f"  and on ({PER_MODEL}) last_over_time({heartbeat}[{HOLD}])\n)",
        ),
        *_literals(scope, subject.thresholds),
        record(
            "triton:threshold",
            f"{last}\nor (\n  {scope.pick('triton:threshold:literal', equal('version', ''))}\n"
            f"  unless on ({PER_MODEL}, kind) {scope.pick('triton:threshold:last', equal('version', ''))}\n)\n"
            f"or (\n  {scope.pick('triton:threshold:literal', unequal('version', ''))}\n"
            f"  unless on ({PER_MODEL}) {scope.pick('triton:threshold:last', *model_wide)}\n)",
        ),
    ]


def _of_newest(subject: Subject, gauge: str, by: str) -> str:
    """`gauge` by the replicas of the operator that have seen the newest state; by all, where none tells which state."""
    seen = subject.of_operator(_SEEN)
    newest = f"{seen} == on ({PER_MODEL}) group_left () max by ({PER_MODEL}) ({seen})"
    return (
        f"max by ({by}) (\n  {gauge} and on ({PER_MODEL}, instance) ({newest})\n"
        f"  or {gauge} unless on ({PER_MODEL}) {seen}\n)"
    )


def _literals(scope: Scope, values: Mapping[ThresholdKey, float]) -> list[Rule]:
    return [
        record(
            "triton:threshold:literal",
            f"vector({number(value)})",
            namespace=scope.namespace,
            tritonmodel=scope.name,
            kind=slot.kind,
            **({"version": slot.version} if slot.version else {}),
        )
        for slot, value in sorted(values.items())
    ]


def _servers(subject: Subject) -> list[Rule]:
    """How many servers there shall be, and how many are ready, by the operator's word. While there is no operator, the
    last number that was wanted counts, and those servers are ready whose metrics can be scraped."""
    scope = subject.scope
    wanted, ready = (
        _of_newest(subject, subject.of_operator("triton_operator_replicas", equal("state", state)), PER_MODEL)
        for state in ("wanted", "ready")
    )
    last = scope.pick("triton:servers:wanted")
    return [
        record("triton:servers:wanted", f"{wanted}\nor {last}"),
        record(
            "triton:servers:ready", f"{ready}\nor (sum by ({PER_MODEL}) ({scope.pick('up')}) and {last})\nor {last} * 0"
        ),
    ]


def _demand(subject: Subject) -> list[Rule]:
    scope, span = subject.scope, window(60, subject.scrape_seconds)
    entry = subject.entry
    by = f"sum by ({PER_MODEL}, model, version)"
    served = f"{by} (rate({scope.pick('nv_inference_request_success', *entry)}[{span}]))"
    failed = f"{by} (rate({scope.pick('nv_inference_request_failure', *entry)}[{span}]))"
    coefficient = scope.pick("triton:threshold", equal("kind", thresholds.ENSEMBLE_COEFFICIENT.name))
    out = [
        record("triton:qps:rate1m", served),
        # The name by which others know it.
        record("triton:my_qps_threshold:1m", scope.pick("triton:qps:rate1m")),
        record(
            "triton:demand:rate1m",
            f"{by} (\n  {tag(scope.pick('triton:qps:rate1m'), 'of', 'served')}\n"
            f"  or {tag(subject.once(failed), 'of', 'failed')}\n"
            f"  or {tag(_pending(subject, span), 'of', 'pending')}\n)\n"
            f"* on ({PER_MODEL}) group_left () {coefficient}",
        ),
    ]
    demand = scope.pick("triton:demand:rate1m")
    by_limit = f"sum by ({PER_MODEL}) ({demand})\nor sum by ({PER_MODEL}, version) ({demand})"
    out.append(record("triton:demand_by_limit:rate1m", by_limit))
    if subject.token_counter:
        made = f"rate({scope.pick_named(subject.token_counter)}[{span}])"
        out.append(record("triton:tokens:rate1m", f"{by} ({made})"))
    return out


def _pending(subject: Subject, span: str) -> str:
    """By how much the queues grow a second: requests that came and were neither served nor refused. An ensemble is
    never pending itself; its steps are, and what waits for them counts for the version of the ensemble that serves
    most.

    A queue that shrinks doesn't count: that of a server that crashed would take away the demand of this server, or
    hide the growing queue of another one."""
    scope, seconds = subject.scope, max(60, 4 * subject.scrape_seconds)
    if not subject.ensemble:
        pending = scope.pick("nv_inference_pending_request_count", *subject.entry)
        return f"sum by ({PER_MODEL}, model, version) (clamp_min(delta({pending}[{span}]), 0)) / {seconds}"
    pending = scope.pick("nv_inference_pending_request_count", unequal("model", subject.entrypoint))
    of_server = f"sum by ({PER_MODEL}, pod, instance) (delta({pending}[{span}]))"
    growth = f"sum by ({PER_MODEL}) (clamp_min({of_server}, 0)) / {seconds}"
    version = f"topk by ({PER_MODEL}) (1, {scope.pick('triton:qps:rate1m')})"
    return f"{growth} + on ({PER_MODEL}) group_right () 0 * {version}"


def _load(subject: Subject) -> list[Rule]:
    scope = subject.scope
    demand = scope.pick("triton:demand_by_limit:rate1m", equal("version", ""))
    used = [f"{demand_by_limit(scope)} / on ({PER_MODEL}, version) {limits(scope, thresholds.MAX_QPS.name)}"]
    load = [f"{demand} / on ({PER_MODEL}) {limits(scope, thresholds.MAX_QPS_PER_REPLICA.name)}"]
    if subject.token_counter:
        for parts, kind in ((used, thresholds.MAX_TPS), (load, thresholds.MAX_TPS_PER_REPLICA)):
            parts.append(tag(f"{tokens(scope)} / on ({PER_MODEL}) {limits(scope, kind.name)}", "of", "tokens"))
    return [
        record("triton:utilization:ratio", _most(used)),
        record("triton:load:replicas", _most(load)),
        record("triton:load_predicted:replicas", _predicted(scope)),
        record("triton:autoscaler_load:replicas", _autoscaler_load(subject)),
    ]


def _most(parts: list[str]) -> str:
    return f"max by ({PER_MODEL}) (\n  " + "\n  or ".join(parts) + "\n)"


def _predicted(scope: Scope) -> str:
    """The load in two minutes by the trend of the last five; never below the present load, never above twice it."""
    load = scope.pick("triton:load:replicas")
    trend = f"predict_linear({load}[5m], {_AHEAD_SECONDS})"
    return f"(({trend} > {load}) <= 2 * {load})\nor (2 * {load} < {trend})\nor {load}"


def _autoscaler_load(subject: Subject) -> str:
    """What the autoscaler reads. A server that isn't scraped often enough for a rate takes its load out of the sum:
    meanwhile the load stays what it was at most in the last minutes.

    Not for a scrape or two that fail, nor for a target that is gone: so ends every server that is no longer wanted,
    and what it once carried would bring it back."""
    scope, scrape = subject.scope, subject.scrape_seconds
    now = scope.pick("triton:load_predicted:replicas" if subject.predict else "triton:load:replicas")
    up, span = scope.pick("up"), max(60, 4 * scrape)
    scrapes = span // scrape
    missing = f"(sum_over_time({up}[{duration(span)}]) < {scrapes - max(scrapes // 4, 1)} and {up})"
    held = f"max_over_time({scope.pick('triton:autoscaler_load:replicas')}[{HOLD}]) and on ({PER_MODEL}) {missing}"
    return _most([now, tag(held, "of", "held")])


def _queue(subject: Subject) -> list[Rule]:
    """How long a request waited for a free instance. Of an ensemble the steps say it; its own time reads 0."""
    scope, span = subject.scope, window(60, subject.scrape_seconds)
    models = (unequal("model", subject.entrypoint),) if subject.ensemble else ()
    waited = f"rate({scope.pick('nv_inference_queue_duration_us', *models)}[{span}])"
    served = f"rate({scope.pick('nv_inference_request_success', *models)}[{span}])"
    by = f"sum by ({PER_MODEL}, model)"
    return [record("triton:queue_duration_seconds:avg1m", f"{by} ({waited}) / ({by} ({served}) > 0) / 1e6")]
