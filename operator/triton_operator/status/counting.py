"""Models that answer requests without Triton counting them: their alerts and their autoscaler see no requests."""

from __future__ import annotations

from collections.abc import Mapping

from triton_operator.api.status import AUTOSCALER_ACTIVE, MONITORING_AVAILABLE, Condition
from triton_operator.api.thresholds import CAPACITIES, MAX_QPS_PER_REPLICA, has_limit
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.render import Facts

from .conditions import condition

NOT_COUNTED = "RequestsNotCounted"
_QUEUE = "its queue gets shorter, but its counters are 0"


def with_uncounted_models(before: Condition | None, snapshot: Snapshot, entrypoint: str) -> Condition | None:
    """Returns MonitoringAvailable: `before`, or False if it isn't a problem itself and a model isn't counted."""
    uncounted = _uncounted(snapshot)
    if before is None or before.status == "False" or not uncounted:
        return before
    named = "; ".join(f"{model} ({evidence})" for model, evidence in sorted(uncounted.items()))
    lost = (
        "the demand, the thresholds, the alerts about requests and the autoscaler see no requests"
        if entrypoint in uncounted
        else "the alerts about queues and failures see no requests of it. The requests of the entrypoint are counted"
    )
    return condition(
        MONITORING_AVAILABLE, "False", NOT_COUNTED,
        f"Triton doesn't count the requests that these models answer: {named}. So {lost}. The model's backend must "
        "call TRITONBACKEND_ModelInstanceReportStatistics for each request",
    )  # fmt: skip


def with_uncounted_entrypoint(
    before: Condition | None, snapshot: Snapshot, facts: Facts, entrypoint: str
) -> Condition | None:
    """Returns AutoscalerActive: `before`, or False if it isn't a problem itself and the entry model isn't counted.

    It isn't False with a capacity in something else than requests, such as streams.
    """
    if before is None or before.status != "True" or entrypoint not in _uncounted(snapshot):
        return before
    if has_limit(facts.thresholds, (kind for kind in CAPACITIES if kind is not MAX_QPS_PER_REPLICA)):
        return before
    return condition(
        AUTOSCALER_ACTIVE, "False", NOT_COUNTED,
        f"Triton doesn't count the requests that {entrypoint} answers, so the autoscaler sees too little load and "
        "adds no servers; see MonitoringAvailable",
    )  # fmt: skip


def _uncounted(snapshot: Snapshot) -> Mapping[str, str]:
    """Returns the uncounted models with the evidence: from Prometheus' alert, and from the servers themselves."""
    answer = snapshot.answer
    alerted = answer.uncounted if answer is not None else ()
    return {**dict.fromkeys(alerted, _QUEUE), **dict(snapshot.servers.uncounted)}
