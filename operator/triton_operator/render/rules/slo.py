"""How many requests fail, over windows up to three days, and what that does to the error budget.

The long windows are sums over the recorded five-minute rates: each step weighs as much as the requests that came in
it, and three days are a few thousand samples instead of every counter of every pod.
"""

from __future__ import annotations

from decimal import Decimal

from .promql import PER_MODEL, Rule, Scope, record, unequal, window
from .subject import Subject

CANCELED = "CANCELED"
"""Triton's reason where a client gave up. It is no failure of the server."""
WINDOWS = ("5m", "30m", "1h", "6h", "3d")
MOST_RATIO = 0.9
"""A loose objective has burn rates that can't be reached; where this part of all requests fails it burns anyway."""


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
    """The part of all requests that fails when the error budget goes `burn` times as fast as it may."""
    return f"{min(float(budget * burn), MOST_RATIO):.6g}"


def budget(objective: str) -> Decimal:
    """The part of all requests that may fail; `objective` is a percentage."""
    return 1 - Decimal(objective) / 100


def _ratio(scope: Scope, span: str) -> str:
    """Nothing where no request came."""
    series = ("triton:failures:rate5m", "triton:requests:rate5m")
    failed, all_ = (scope.pick(s) if span == "5m" else f"sum_over_time({scope.pick(s)}[{span}])" for s in series)
    return f"sum by ({PER_MODEL}) ({failed})\n/ (sum by ({PER_MODEL}) ({all_}) > 0)"
