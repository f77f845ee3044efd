"""The recording rules of thresholds, servers, demand, load and queues.

All are in one group, in this order. Prometheus evaluates the rules of a group one after the other, so a new threshold
or sample reaches all of them, and the alerts, in a single evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping

from triton_operator.api import thresholds
from triton_operator.api.thresholds import ThresholdKey

from .promql import PER_MODEL, Rule, Scope, duration, equal, number, record, tag, unequal, window
from .subject import Subject

HOLD = "5m"
"""How long the rules use the last thresholds without an operator, and the last load of servers without metrics."""
_SEEN = "triton_operator_resource_version"
_AHEAD_SECONDS = 120
"""How far ahead the load is predicted: about the time in which a new server starts to serve."""


def recording(subject: Subject) -> list[Rule]:
    return [*_thresholds(subject), *_servers(subject), *_demand(subject), *_load(subject), *_queue(subject)]


def limits(scope: Scope, kind: str) -> str:
    """Returns the finite thresholds of `kind`: of the model, and of each version that has one."""
    return f"({scope.pick('triton:threshold', equal('kind', kind))} < Inf)"


def demand_by_limit(scope: Scope) -> str:
    """Returns the demand of the model (without the label `version`) and of each version, to join with the limits."""
    return scope.pick("triton:demand_by_limit:rate1m")


def tokens(scope: Scope) -> str:
    return f"sum by ({PER_MODEL}) ({scope.pick('triton:tokens:rate1m')})"


def _thresholds(subject: Subject) -> list[Rule]:
    """Returns the rules of the effective thresholds.

    - The threshold is the operator's metric. For five minutes after the metric has disappeared it is the last value,
      and then the fallback value in this rule.
    - Of several replicas of the operator, the rule uses the ones that have seen the newest resource version of the
      TritonModel. So a change takes effect when the first replica is scraped, and a replica whose watch hangs is
      ignored.
    - While an operator runs, every TritonModel has the series of max-qps. While this series exists, limits of versions
      have no fallback, so that a deleted limit ends at once. A missing kind has a fallback, because an operator of
      another version may not know the kind.
    - The last values come from the previous evaluation. `last_over_time` would restore thresholds that were deleted
      before the operator stopped.
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
    """Returns `gauge` of the operator's replicas with the newest resource version, or of all if none reports one."""
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
    """Returns the rules of the desired and ready servers, from the operator's metrics.

    Without an operator, they use the last desired number, and count the servers that can be scraped as ready.
    """
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
        # An alias, for existing dashboards and rules.
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
    """Returns the growth of the queues in requests per second: requests that arrived but were not answered.

    An ensemble has no pending requests itself, only its steps have. They count for the version of the ensemble that
    serves most. A shrinking queue doesn't count, because the vanished queue of a crashed server would reduce the
    demand, or hide the growing queue of another server.
    """
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
    """Returns the load in two minutes by the trend of the last five, between the current load and twice that."""
    load = scope.pick("triton:load:replicas")
    trend = f"predict_linear({load}[5m], {_AHEAD_SECONDS})"
    return f"(({trend} > {load}) <= 2 * {load})\nor (2 * {load} < {trend})\nor {load}"


def _autoscaler_load(subject: Subject) -> str:
    """Returns the load for the autoscaler.

    While the scrapes of a server fail, its load is missing in the sum. The rule then keeps the highest load of the last
    minutes. It doesn't for one or two failed scrapes, or for a target that has disappeared, because this is how each
    removed server ends, and keeping its load would add it again.
    """
    scope, scrape = subject.scope, subject.scrape_seconds
    now = scope.pick("triton:load_predicted:replicas" if subject.predict else "triton:load:replicas")
    up, span = scope.pick("up"), max(60, 4 * scrape)
    scrapes = span // scrape
    missing = f"(sum_over_time({up}[{duration(span)}]) < {scrapes - max(scrapes // 4, 1)} and {up})"
    held = f"max_over_time({scope.pick('triton:autoscaler_load:replicas')}[{HOLD}]) and on ({PER_MODEL}) {missing}"
    return _most([now, tag(held, "of", "held")])


def _queue(subject: Subject) -> list[Rule]:
    """Returns the rule of the mean time in a queue. For an ensemble it uses the steps, because its own time is 0."""
    scope, span = subject.scope, window(60, subject.scrape_seconds)
    models = (unequal("model", subject.entrypoint),) if subject.ensemble else ()
    waited = f"rate({scope.pick('nv_inference_queue_duration_us', *models)}[{span}])"
    served = f"rate({scope.pick('nv_inference_request_success', *models)}[{span}])"
    by = f"sum by ({PER_MODEL}, model)"
    return [record("triton:queue_duration_seconds:avg1m", f"{by} ({waited}) / ({by} ({served}) > 0) / 1e6")]
