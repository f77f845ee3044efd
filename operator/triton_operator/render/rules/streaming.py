"""The recording rules of models that stream. Series of different servers get the same names.

Triton measures a request until `execute` returns, which may be long before the last response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from triton_operator.api.monitoring import Series
from triton_operator.api.thresholds import (
    MAX_CACHE_USAGE_PER_REPLICA,
    MAX_STREAMS_PER_REPLICA,
    OF_TOKENS,
    ThresholdKind,
)
from triton_operator.api.types import Monitoring, Streaming

from .promql import PER_MODEL, Rule, equal, rate, record, tag, window
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


_TENSORRT_LLM_REQUESTS, _TENSORRT_LLM_CACHE = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
NAMES: Mapping[str, Mapping[str, Series]] = {
    # https://github.com/triton-inference-server/vllm_backend#triton-metrics, and the gauges that vLLM has itself. vLLM
    # renamed two: vllm#18354 and, in 0.11, vllm#24110. It removed the old names later.
    "VLLM": {
        "time_to_first_token": Series("vllm:time_to_first_token_seconds"),
        "time_per_token": Series("vllm:time_per_output_token_seconds", renamed="vllm:inter_token_latency_seconds"),
        "duration": Series("vllm:e2e_request_latency_seconds"),
        "queue_time": Series("vllm:request_queue_time_seconds"),
        "running": Series("vllm:num_requests_running"),
        "waiting": Series("vllm:num_requests_waiting"),
        "cache_usage": Series("vllm:gpu_cache_usage_perc", renamed="vllm:kv_cache_usage_perc"),
    },
    # https://github.com/triton-inference-server/tensorrtllm_backend#triton-metrics. It has no histograms. Its active
    # requests are the scheduled ones and those that wait.
    "TensorRTLLM": {
        "running": Series(_TENSORRT_LLM_REQUESTS, (("request_type", "scheduled"),)),
        "waiting": Series(_TENSORRT_LLM_REQUESTS, (("request_type", "waiting"),)),
        "cache_usage": Series(_TENSORRT_LLM_CACHE, (("kv_cache_block_type", "fraction"),)),
    },
}
"""The series of a server by the fields of spec.monitoring.streaming."""


def series(streaming: Streaming | None) -> dict[str, Series]:
    """Returns the series by the field of spec.monitoring.streaming. A field without a series is missing."""
    if streaming is None:
        return {}
    own = streaming.model_dump(exclude={"names"}, exclude_none=True)
    return {**NAMES.get(streaming.names or "", {}), **{field: Series(metric) for field, metric in own.items()}}


def measured(monitoring: Monitoring) -> dict[ThresholdKind, tuple[Series, ...]]:
    """Returns the series that spec.monitoring names for the kinds of thresholds that need some.

    A kind has none if its first series is missing: the number of streams that wait isn't the load of the servers.
    """
    named, counter = series(monitoring.streaming), monitoring.token_counter
    tokens = (Series(counter),) if counter else ()
    gauges = {MAX_STREAMS_PER_REPLICA: ("running", "waiting"), MAX_CACHE_USAGE_PER_REPLICA: ("cache_usage",)}
    return {
        **dict.fromkeys(OF_TOKENS, tokens),
        **{
            kind: tuple(named[field] for field in fields if field in named) if fields[0] in named else ()
            for kind, fields in gauges.items()
        },
    }


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
    span, named = window(60, subject.scrape_seconds), measured(subject.monitoring)
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
