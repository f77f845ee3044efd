"""The condition ThresholdLive: whether Prometheus uses the accepted thresholds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from triton_operator.api.monitoring import PrometheusAnswer
from triton_operator.api.series import series_by_threshold
from triton_operator.api.status import THRESHOLD_LIVE, Condition, ThresholdStatus, Truth
from triton_operator.api.thresholds import MAX_QPS, OF_TOKENS, ThresholdKey, text
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.pods import Pod
from triton_operator.render import Facts

from .conditions import condition

THRESHOLD_INVALID = "ThresholdInvalid"
NOT_QUERIED = "the operator hasn't queried Prometheus yet"
_MEASURED_SECONDS = 600


@dataclass(frozen=True)
class _Case:
    """What the checks look at. `states`: the accepted thresholds. `before`: this condition until now."""

    snapshot: Snapshot
    facts: Facts
    states: Sequence[ThresholdStatus]
    before: Condition | None
    now: str

    @property
    def answer(self) -> PrometheusAnswer:
        """Returns Prometheus' last answer; an empty one before the first."""
        return self.snapshot.answer or PrometheusAnswer()

    @property
    def expected(self) -> dict[ThresholdKey, float]:
        return _compared(self.snapshot, self.facts)


def threshold_live(
    snapshot: Snapshot,
    facts: Facts,
    states: Sequence[ThresholdStatus],
    before: Condition | None,
    now: str,
) -> Condition | None:
    """ThresholdLive: whether Prometheus uses the accepted thresholds. `before`: this condition until now.

    Returns None if there is nothing to report: monitoring is disabled, and all thresholds are valid.
    """
    case = _Case(snapshot, facts, states, before, now)
    if not snapshot.requested.invalid and not snapshot.model.spec.monitoring.enabled:
        return None
    return next((problem for check in _CHECKS if (problem := check(case))), None) or _live(case)


def _is(status: Truth, reason: str, message: str) -> Condition:
    return condition(THRESHOLD_LIVE, status, reason, message)


def _invalid(case: _Case) -> Condition | None:
    invalid = case.snapshot.requested.invalid
    if not invalid:
        return None
    accepted = {ThresholdKey(state.kind, state.version) for state in case.states}
    has_accepted = any(threshold.threshold in accepted for threshold in invalid)
    more = "; the last accepted value stays in effect" if has_accepted else ""
    return _is("False", THRESHOLD_INVALID, "; ".join(threshold.message for threshold in invalid) + more)


def _not_monitored(case: _Case) -> Condition | None:
    if case.snapshot.installed is not None:
        return None
    return _is("Unknown", "NotMonitored", "no Prometheus evaluates the thresholds; see MonitoringAvailable")


def _without_entrypoint(case: _Case) -> Condition | None:
    has_entrypoint = case.facts.entrypoint or case.snapshot.model.spec.entrypoint
    if has_entrypoint or not any(_ambiguous(pod) for pod in case.snapshot.pods):
        return None
    return _is(
        "False", "NoEntrypoint",
        "the repository has several possible entrypoints, so the operator doesn't know whose "
        "requests to count, and creates no rules: set spec.entrypoint",
    )  # fmt: skip


def _without_rules(case: _Case) -> Condition | None:
    if case.facts.entrypoint:
        return None
    return _is(
        "Unknown", "Starting", "the operator creates the rules when it has read the repository of the first server"
    )


def _without_prometheus(case: _Case) -> Condition | None:
    if case.snapshot.answer is not None:
        return None
    return _is("Unknown", "NoPrometheus", "no known Prometheus selects the rules; see MonitoringAvailable")


def _unreachable(case: _Case) -> Condition | None:
    return _is("Unknown", "PrometheusUnreachable", case.answer.error) if case.answer.error else None


def _before_the_first_query(case: _Case) -> Condition | None:
    return _is("Unknown", "Starting", NOT_QUERIED) if case.answer.is_missing else None


def _added_up(case: _Case) -> Condition | None:
    """Returns the condition if the rules count other servers, too, or some twice."""
    origins = case.answer.origins
    if origins.clusters > 1:
        return _is(
            "False", "AddedUp",
            f"Prometheus has the series of {origins.clusters} TritonModels of this namespace and name, of different "
            "clusters, so the rules mix their thresholds and add up their load: let the Prometheus of each cluster "
            "evaluate the rules, or use another namespace in one",
        )  # fmt: skip
    if origins.copies > 1:
        return _is(
            "False", "AddedUp",
            f"Prometheus has each series {origins.copies} times, so the rules see {origins.copies} times the load: "
            "let a Prometheus evaluate them that scrapes the servers itself, or remove the label of its replicas",
        )  # fmt: skip
    return None


def _without_series(case: _Case) -> Condition | None:
    """Returns the condition if a threshold needs a series that Prometheus doesn't have. Needs a ready server."""
    if not any(pod.is_ready for pod in case.snapshot.pods):
        return None
    requested = case.snapshot.requested.requested
    for kind, named in series_by_threshold(case.snapshot.model.spec.monitoring).items():
        missing = [series.metric for series in named if case.answer.metrics.isdisjoint(series.names)]
        if not missing or ThresholdKey(kind.name) not in requested:
            continue
        if kind in OF_TOKENS:
            return _is(
                "False", "TokenCounterMissing",
                f"Prometheus has no counter {missing[0]} of these servers (spec.monitoring.tokenCounter), so limits of "
                "tokens have no effect",
            )  # fmt: skip
        return _is(
            "False", "GaugeMissing",
            f"Prometheus has no gauge {' and no gauge '.join(sorted(set(missing)))} of these servers "
            f"(spec.monitoring.streaming), which {kind.name} needs",
        )  # fmt: skip
    return None


def _propagating(case: _Case) -> Condition | None:
    behind = _behind(case.expected, case.answer)
    return _is("False", "Propagating", _still(behind, case.expected, case.answer.values)) if behind else None


_CHECKS: tuple[Callable[[_Case], Condition | None], ...] = (
    _invalid,
    _not_monitored,
    _without_entrypoint,
    _without_rules,
    _without_prometheus,
    _unreachable,
    _before_the_first_query,
    _added_up,
    _without_series,
    _propagating,
)
"""What keeps a threshold from being live. The condition reports the first one that applies."""


def _live(case: _Case) -> Condition:
    """Returns the condition if Prometheus has the values, unless its answer may be older than the last change."""
    limits = ", ".join(f"{s} {text(v)}" for s, v in sorted(case.expected.items()) if not math.isinf(v)) or "no limit"
    message, before = f"Prometheus uses {limits}", case.before
    if before is not None and before.status == "True" and before.message.partition(";")[0] == message:
        return before
    if outdated(case.answer, case.states, case.now):
        return _is("False", "Propagating", "the operator hasn't queried Prometheus since the threshold changed")
    return _is("True", "Live", message + _measured(case.states, before, case.now))


def outdated(answer: PrometheusAnswer, states: Sequence[ThresholdStatus], now: str) -> bool:
    """Returns whether a threshold changed after the query, so that the answer may contain its previous value.

    A change in the future counts as old: the clock was set back, or another node's clock was ahead.
    """
    return answer.at < max((t.since for t in states if t.since <= now), default="")


def _measured(states: Sequence[ThresholdStatus], before: Condition | None, now: str) -> str:
    """Returns the time from the annotation to Prometheus, as text.

    Empty if something else caused the delay: the rules were new, Prometheus was unreachable, or a threshold was
    removed.
    """
    since = max((t.since for t in states), default="")
    if before is None or before.reason != "Propagating" or since[:19] < (before.last_transition_time or "")[:19]:
        return ""
    seconds = (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds()
    return f"; {seconds:.1f} s after it was set" if 0 <= seconds <= _MEASURED_SECONDS else ""


def _ambiguous(pod: Pod) -> bool:
    report = pod.check_report
    return report is not None and bool(report.models) and report.entrypoint is None


def _compared(snapshot: Snapshot, facts: Facts) -> dict[ThresholdKey, float]:
    """Returns the thresholds that Prometheus should use: the requested ones, and max-qps (infinite if it isn't set)."""
    return {
        s: v
        for s, v in facts.thresholds.items()
        if s in snapshot.requested.requested or s == ThresholdKey(MAX_QPS.name)
    }


def _behind(expected: Mapping[ThresholdKey, float], answer: PrometheusAnswer) -> ThresholdKey | None:
    """Returns the first threshold for which Prometheus has a different value; None if all are equal.

    The rules record at least one value of every TritonModel, but no infinite values.
    """
    return next((s for s, v in expected.items() if not answer.values or answer.values.get(s, math.inf) != v), None)


def _still(
    threshold: ThresholdKey, expected: Mapping[ThresholdKey, float], values: Mapping[ThresholdKey, float]
) -> str:
    has = f"still uses {text(values[threshold])}" if threshold in values else "doesn't have it yet"
    return f"{threshold} is {text(expected[threshold])}; Prometheus {has}"
