"""The recording rules of models that stream. Series of different servers get the same names.

Triton measures a request until `execute` returns, which may be long before the last response.
"""

from __future__ import annotations

from collections.abc import Callable

from triton_operator.api.monitoring import Series
from triton_operator.api.series import series, series_by_threshold
from triton_operator.api.thresholds import (
    MAX_CACHE_USAGE_PER_REPLICA,
    MAX_STREAMS_PER_REPLICA,
    ThresholdKind,
)
from triton_operator.promql import PER_MODEL, Rule, equal, rate, record, tag, window

from .subject import Subject

DECOUPLED = "tritonmodel:decoupled:info"
"""1 for each model whose latency Triton doesn't measure. Queries of latency leave these models out."""
FIRST_RESPONSE = "tritonmodel:time_to_first_token_seconds:quantile1m"
BETWEEN_RESPONSES = "tritonmodel:time_per_token_seconds:quantile1m"
DURATION = "tritonmodel:stream_duration_seconds:quantile1m"
STREAMS = "tritonmodel:streams:sum"
ALL_STREAMS = "tritonmodel:all_streams:sum"
CACHE = "tritonmodel:cache_usage:max"
CACHES = "tritonmodel:cache_usage:sum"
QUANTILES = ("0.5", "0.9", "0.99")
_BY = f"{PER_MODEL}, model"


def decoupled_recording(subject: Subject) -> list[Rule]:
    """Returns one rule for each decoupled model."""
    scope = subject.scope
    return [
        record(DECOUPLED, "vector(1)", namespace=scope.namespace, tritonmodel=scope.name, model=model)
        for model in subject.decoupled
    ]


def streaming_recording(subject: Subject) -> list[Rule]:
    """Returns the rules of times, open streams and the cache, for the fields that have a series."""
    span = window(60, subject.scrape_seconds)
    named = series(subject.monitoring.streaming)
    quantiles = (
        (FIRST_RESPONSE, "time_to_first_token"),
        (BETWEEN_RESPONSES, "time_per_token"),
        (DURATION, "duration"),
    )
    rules = [
        record(name, _quantile(subject, named[field], quantile, span), quantile=quantile)
        for name, field in quantiles
        if field in named
        for quantile in QUANTILES
    ]
    rules += [
        record(STREAMS, f"sum by ({_BY}) ({_gauge(subject, named[state])})", state=state)
        for state in ("running", "waiting")
        if state in named
    ]
    if "running" in named:
        # With the streams that wait alone, busy servers without a queue would have no load, and be removed.
        streams, running = subject.scope.pick(STREAMS), subject.scope.pick(STREAMS, equal("state", "running"))
        rules.append(record(ALL_STREAMS, f"sum by ({PER_MODEL}) ({streams}) and on ({PER_MODEL}) {running}"))
    if "cache_usage" in named:
        usage = _gauge(subject, named["cache_usage"])
        servers = f"max by ({PER_MODEL}, pod, instance) ({usage})"
        rules += [record(CACHE, f"max by ({_BY}) ({usage})"), record(CACHES, f"sum by ({PER_MODEL}) ({servers})")]
    return rules


def gauge_means(subject: Subject) -> dict[ThresholdKind, str]:
    """Returns the mean of a minute of the gauges that have limits: open streams, and caches in use, of all servers.

    It is the mean of sums. In a sum of means, a server or model that ended would count for a minute beside the one that
    replaces it.
    """
    span, named = window(60, subject.scrape_seconds), series_by_threshold(subject.monitoring)
    sums = {MAX_STREAMS_PER_REPLICA: ALL_STREAMS, MAX_CACHE_USAGE_PER_REPLICA: CACHES}
    return {
        kind: f"sum by ({PER_MODEL}) (avg_over_time({subject.scope.pick(name)}[{span}]))"
        for kind, name in sums.items()
        if named[kind]
    }


def queue_time(subject: Subject, span: str) -> str:
    """Returns the mean seconds that requests wait in the model itself; "" if nothing measures it."""
    queue = series(subject.monitoring.streaming).get("queue_time")
    if queue is None:
        return ""
    total, count = (f"sum by ({_BY}) ({_rate(subject, _part(queue, part), span)})" for part in ("sum", "count"))
    return tag(f"{total} / ({count} > 0)", "of", "own")


def failed_streams(subject: Subject, span: str) -> str:
    """Returns the rate of the entry model's failed streams; "" if nothing counts them.

    Triton counts a failure of an ensemble's step as one of the ensemble.
    """
    failed = series(subject.monitoring.streaming).get("failed")
    if failed is None or subject.ensemble:
        return ""
    own = f"sum by ({_BY}) ({_rate(subject, failed, span)})"
    return f"({own} and on (model) {tag('vector(1)', 'model', subject.entrypoint)})"


def _quantile(subject: Subject, histogram: Series, quantile: str, span: str) -> str:
    """Returns the quantile over all servers. It has no sample if no stream was measured."""
    return (
        f"histogram_quantile({quantile}, sum by ({_BY}, le) ({_rate(subject, _part(histogram, 'bucket'), span)})) >= 0"
    )


def _part(histogram: Series, part: str) -> Series:
    return histogram._replace(
        metric=f"{histogram.metric}_{part}", renamed=f"{histogram.renamed}_{part}" if histogram.renamed else ""
    )


def _rate(subject: Subject, counter: Series, span: str) -> str:
    return _of_model(subject, _either(subject, counter, lambda series: rate(series, span)))


def _gauge(subject: Subject, gauge: Series) -> str:
    """Returns the gauge without servers that expose NaN, infinity or less than 0."""
    return _of_model(subject, _either(subject, gauge, lambda series: f"{series} >= 0 < Inf"))


def _either(subject: Subject, of: Series, expr: Callable[[str], str]) -> str:
    """Returns `expr` of the series; of those that a server exposes by both names, only the first counts."""
    labels = [equal(*label) for label in of.labels]
    return " or ".join(expr(subject.scope.pick_named(name, *labels)) for name in of.names)


def _of_model(subject: Subject, expr: str) -> str:
    """Gives series without the label `model` that of the entry model."""
    return tag(expr, "model", subject.entrypoint, only_without=True)
