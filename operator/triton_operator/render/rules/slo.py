"""Error ratios over windows of up to three days, and the error budget.

The long windows are sums of the recorded five-minute rates. So each step has the weight of its requests, and three days
have a few thousand samples instead of every counter of every pod.
"""

from __future__ import annotations

from decimal import Decimal

from .promql import PER_MODEL, Rule, Scope, record, unequal, window
from .subject import Subject

CANCELED = "CANCELED"
"""Triton's reason for a request that the client canceled. It doesn't count as a failure."""
WINDOWS = ("5m", "30m", "1h", "6h", "3d")
MOST_RATIO = 0.9
"""Maximum of an alert's error ratio. With a low objective, the burn rates would need ratios above 1."""


def slo_recording(subject: Subject) -> list[Rule]:
    scope, span = subject.scope, window(300, subject.scrape_seconds)
    by = f"sum by ({PER_MODEL}, model)"
    served = f"{by} (rate({scope.pick('nv_inference_request_success', *subject.entry)}[{span}]))"
    failures = scope.pick("nv_inference_request_failure", *subject.entry, unequal("reason", CANCELED))
    failed = f"{by} (rate({failures}[{span}]))"
    return [
        record("triton:failures:rate5m", f"{subject.once(failed)}\nor {served} * 0"),
        record("triton:requests:rate5m", f"{served}\n+ {scope.pick('triton:failures:rate5m')}"),
        *(record(f"triton:error_ratio:{w}", _ratio(scope, w)) for w in WINDOWS),
    ]


def error_ratio(budget: Decimal, burn: Decimal) -> str:
    """Returns the error ratio at which the error budget burns `burn` times as fast as allowed."""
    return f"{min(float(budget * burn), MOST_RATIO):.6g}"


def budget(objective: str) -> Decimal:
    """Returns the ratio of requests that may fail. `objective` is a percentage."""
    return 1 - Decimal(objective) / 100


def _ratio(scope: Scope, span: str) -> str:
    """Returns the error ratio, without a sample if there were no requests."""
    series = ("triton:failures:rate5m", "triton:requests:rate5m")
    failed, all_ = (scope.pick(s) if span == "5m" else f"sum_over_time({scope.pick(s)}[{span}])" for s in series)
    return f"sum by ({PER_MODEL}) ({failed})\n/ (sum by ({PER_MODEL}) ({all_}) > 0)"
