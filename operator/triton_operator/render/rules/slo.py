"""Error ratios over windows of up to three days, and the error budget.

The long windows are sums of the recorded five-minute rates. So each step has the weight of its requests, and three days
have a few thousand samples instead of every counter of every pod.
"""

from __future__ import annotations

from decimal import Decimal

from triton_operator.api.series import CANCELED
from triton_operator.promql import PER_MODEL, Rule, Scope, rate, record, unequal, window

from .streaming import failed_streams
from .subject import Subject

FAILED = "tritonmodel:requests_failed:rate5m"
REQUESTS = "tritonmodel:requests:rate5m"
RECORDED = ("5m", "3d")
"""Windows of the recorded error ratios. Alerts and dashboards compute the others."""
MAX_RATIO = 0.9
"""Maximum of an alert's error ratio. With a low objective, the burn rates would need ratios above 1."""


def slo_recording(subject: Subject) -> list[Rule]:
    scope, span = subject.scope, window(300, subject.scrape_seconds)
    by = f"sum by ({PER_MODEL}, model)"
    served = f"{by} {rate(scope.pick('nv_inference_request_success', *subject.entry), span)}"
    failures = scope.pick("nv_inference_request_failure", *subject.entry, unequal("reason", CANCELED))
    failed = f"{by} {rate(failures, span)}"
    counted = f"{subject.once(failed)}\nor {served} * 0"
    requests = f"{served}\n+ {scope.pick(FAILED)}"
    if streams := failed_streams(subject, span):
        # Triton counts them as successes, so they are requests already; but perhaps long before they fail.
        streams = f"({streams} or {served} * 0)"
        counted = f"({counted})\n+ {streams}"
        requests = f"({requests}\n- {streams}) > {scope.pick(FAILED)}\nor {scope.pick(FAILED)}"
    return [
        record(FAILED, counted),
        record(REQUESTS, requests),
        *(record(f"tritonmodel:error_ratio:rate{w}", _ratio(scope, w)) for w in RECORDED),
    ]


def ratio(scope: Scope, span: str) -> str:
    """Returns the error ratio over `span`. It has no sample if there were no requests."""
    return scope.pick(f"tritonmodel:error_ratio:rate{span}") if span in RECORDED else f"({_ratio(scope, span)})"


def error_ratio(budget: Decimal, burn: Decimal) -> str:
    """Returns the error ratio at which the error budget burns `burn` times as fast as allowed."""
    return f"{min(float(budget * burn), MAX_RATIO):.6g}"


def budget(objective: str) -> Decimal:
    """Returns the ratio of requests that may fail. `objective` is a percentage."""
    return 1 - Decimal(objective) / 100


def _ratio(scope: Scope, span: str) -> str:
    failed, all_ = (
        scope.pick(s) if span == "5m" else f"sum_over_time({scope.pick(s)}[{span}])" for s in (FAILED, REQUESTS)
    )
    return f"sum by ({PER_MODEL}) ({failed})\n/ (sum by ({PER_MODEL}) ({all_}) > 0)"
