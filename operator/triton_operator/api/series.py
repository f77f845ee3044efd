"""Series in Prometheus: of servers that stream, by the fields of spec.monitoring, and those that autoscalers read."""

from __future__ import annotations

from collections.abc import Mapping

from .monitoring import Series
from .thresholds import MAX_CACHE_USAGE_PER_REPLICA, MAX_STREAMS_PER_REPLICA, OF_TOKENS, ThresholdKind
from .types import Monitoring, Streaming

AUTOSCALER_LOAD = "tritonmodel:autoscaler_load_replicas:max"
"""The load as a number of servers at full use, from the recording rules. Autoscalers read it."""
DESIRED = "tritonmodel:servers:desired"
"""The Deployment's desired number of servers, from the recording rules."""
ARRIVALS = "tritonmodel:arrivals:rate1m"
"""Requests that arrive at a gateway. No rule of the operator records it; users do, to scale from zero."""
CANCELED = "CANCELED"
"""Triton's reason for a failed request that the client canceled. It doesn't count as a failure."""
FAILURES_PER_REQUEST = 2
"""Increase of an ensemble's failure counter for one failed request."""
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


def series_by_threshold(monitoring: Monitoring) -> dict[ThresholdKind, tuple[Series, ...]]:
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
