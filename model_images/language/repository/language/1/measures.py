"""The metrics that Triton's vLLM backend has, with its names and labels, so that dashboards and rules fit both."""

from typing import Any

import triton_python_backend_utils as pb_utils

# Upper bounds in seconds and in tokens: those of vLLM, with smaller ones for this small model. Above them is +Inf.
FIRST_TOKEN = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
LATER_TOKEN = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5]
REQUEST = [0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480]
TOKENS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]


class TritonMeasures:
    """See scheduler.Measures."""

    def __init__(self, labels: dict[str, str]) -> None:
        """Creates the metrics at 0."""
        # Keep the families: a metric raises at its next use after its family was garbage-collected.
        self._families: list[Any] = []
        family = pb_utils.MetricFamily

        def make(name: str, kind: Any, description: str, buckets: list[float] | None = None) -> Any:
            metric_family = family(name=f"vllm:{name}", description=description, kind=kind)
            self._families.append(metric_family)
            return (
                metric_family.Metric(labels=labels, buckets=buckets) if buckets else metric_family.Metric(labels=labels)
            )

        counter, gauge, histogram = family.COUNTER, family.GAUGE, family.HISTOGRAM
        self._prompt = make("prompt_tokens_total", counter, "Number of prefill tokens processed.")
        self._generation = make("generation_tokens_total", counter, "Number of generation tokens processed.")
        self._first = make(
            "time_to_first_token_seconds", histogram, "Histogram of time to first token in seconds.", FIRST_TOKEN
        )
        self._later = make(
            "time_per_output_token_seconds", histogram, "Histogram of time per output token in seconds.", LATER_TOKEN
        )
        self._whole = make(
            "e2e_request_latency_seconds", histogram, "Histogram of end to end request latency in seconds.", REQUEST
        )
        self._queue = make(
            "request_queue_time_seconds", histogram, "Histogram of time spent in WAITING phase for request.", REQUEST
        )
        self._prompts = make("request_prompt_tokens", histogram, "Number of prefill tokens processed.", TOKENS)
        self._generations = make(
            "request_generation_tokens", histogram, "Number of generation tokens processed.", TOKENS
        )
        self._running = make("num_requests_running", gauge, "Number of requests currently running.")
        self._waiting = make("num_requests_waiting", gauge, "Number of requests waiting to be processed.")
        self._cache = make("gpu_cache_usage_perc", gauge, "KV-cache usage. 1 means 100 percent usage.")

    def prompt(self, tokens: int, waited: float) -> None:
        """See scheduler.Measures, as for the others."""
        self._prompt.increment(tokens)
        self._queue.observe(waited)

    def step(self, tokens: int) -> None:
        self._generation.increment(tokens)

    def first_token(self, seconds: float) -> None:
        self._first.observe(seconds)

    def later_token(self, seconds: float) -> None:
        self._later.observe(seconds)

    def finished(self, prompt_tokens: int, tokens: int, seconds: float) -> None:
        self._whole.observe(seconds)
        self._prompts.observe(prompt_tokens)
        self._generations.observe(tokens)

    def state(self, running: int, waiting: int, used: float) -> None:
        self._running.set(running)
        self._waiting.set(waiting)
        self._cache.set(used)
