"""How long requests take, over all servers of a TritonModel, and the ratio of requests that take too long.

From the histograms of the containers that measure latency. Each sampled request counts there for the requests that it
stands for, so servers with different loads can be added up.
"""

from __future__ import annotations

from bisect import bisect_left

from latency_sampler.series import REQUEST, REQUEST_BOUNDS, SAMPLES, label
from triton_operator.api.types import LatencyObjective
from triton_operator.promql import PER_MODEL, Rule, equal, number, rate, record, unequal, window

from .subject import Subject

DURATION = "tritonmodel:request_duration_seconds:quantile5m"
TIMED = "tritonmodel:requests_timed:rate5m"
SLOW = "tritonmodel:requests_slow:rate5m"
SAMPLED = "tritonmodel:latency_samples:rate5m"
QUANTILES = ("0.5", "0.9", "0.99")


def objectives(subject: Subject) -> list[LatencyObjective]:
    """Returns the objectives of the entry model's latency. A model that streams has none: its requests end late."""
    latency = subject.monitoring.latency
    return latency.objectives if latency is not None and subject.entrypoint not in subject.decoupled else []


def latency_recording(subject: Subject) -> list[Rule]:
    if subject.monitoring.latency is None:
        return []
    scope, span = subject.scope, window(300, subject.scrape_seconds)
    models = [unequal("model", model) for model in subject.decoupled]
    buckets = f"sum by ({PER_MODEL}, model, le) {rate(scope.pick(f'{REQUEST}_bucket', *models), span)}"
    rules = [record(DURATION, f"histogram_quantile({q}, {buckets}) >= 0", quantile=q) for q in QUANTILES]
    rules.append(record(SAMPLED, _sum(subject, f"{SAMPLES}_total", span)))
    timed = _sum(subject, f"{REQUEST}_count", span)
    for objective in objectives(subject):
        # Another objective has series of its own, so that its windows begin when it is set.
        rules += [
            record(TIMED, timed, kind=objective.name),
            record(SLOW, f"clamp_min({timed} - ({_within(subject, objective, span)}), 0)", kind=objective.name),
        ]
    return rules


def of(subject: Subject, series: str, objective: LatencyObjective) -> str:
    """Returns a recorded series of the objective."""
    return subject.scope.pick(series, equal("kind", objective.name))


def slow_ratio(subject: Subject, objective: LatencyObjective, span: str) -> str:
    """Returns the ratio of requests that took longer than the objective over `span`. No sample without requests."""
    slow, timed = (
        series if span == "5m" else f"sum_over_time({series}[{span}])"
        for series in (of(subject, name, objective) for name in (SLOW, TIMED))
    )
    return f"{slow} / ({timed} > 0)"


def _sum(subject: Subject, counter: str, span: str, *matchers: str) -> str:
    return f"sum by ({PER_MODEL}) {rate(subject.scope.pick(counter, *subject.entry, *matchers), span)}"


def _within(subject: Subject, objective: LatencyObjective, span: str) -> str:
    """Returns the rate of requests that took at most the objective's time.

    Between two bounds it interpolates, as histogram_quantile does.
    """
    seconds = float(objective.seconds)
    after = min(bisect_left(REQUEST_BOUNDS, seconds), len(REQUEST_BOUNDS) - 1)
    upper = REQUEST_BOUNDS[after]
    within = _sum(subject, f"{REQUEST}_bucket", span, equal("le", label(upper)))
    if seconds >= upper or not after:
        return within
    lower = REQUEST_BOUNDS[after - 1]
    share = (seconds - lower) / (upper - lower)
    below = _sum(subject, f"{REQUEST}_bucket", span, equal("le", label(lower)))
    return f"{number(round(1 - share, 6))} * {below}\n  + {number(round(share, 6))} * {within}"
