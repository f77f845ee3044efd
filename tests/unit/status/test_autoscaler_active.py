"""AutoscalerActive with the engine KEDA, in KEDA's own words, and at zero servers."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from support.observing import seen
from triton_operator.api.status import Condition
from triton_operator.api.thresholds import MAX_QPS_PER_REPLICA, ThresholdKey
from triton_operator.pods import Pod, Problem
from triton_operator.status.autoscaler_active import autoscaler_active
from triton_operator.status.writes import writes_of

READY = ("Ready", "True", "ScaledObjectReady")
ACTIVE = ("Active", "True", "ScalerActive")
FALLBACK = ("Fallback", "True", "FallbackExists")
UNKNOWN = [{"type": t, "status": "Unknown"} for t in ("Ready", "Active", "Fallback", "Paused")]
"""What KEDA writes first: without reasons and messages."""


def scaled_object(*conditions: tuple[str, str, str], triggers: int = 1, **metadata: Any) -> dict[str, Any]:
    entries = [{"type": t, "status": s, "reason": r, "message": f"words of {r}"} for t, s, r in conditions]
    return {"metadata": metadata, "spec": {"triggers": [{}] * triggers}, "status": {"conditions": entries}}


def judge(engine: str = "KEDA", **fields: Any) -> Condition:
    known = {"prometheus": "http://p", "thresholds": {ThresholdKey(MAX_QPS_PER_REPLICA.name): 20.0}}
    facts = {name: fields.pop(name, value) for name, value in known.items()}
    scaling = {name: fields.pop(name) for name in ("min", "behavior") if name in fields}
    model = gen.model(autoscaling={"engine": engine, "max": 4, **scaling})
    snapshot, decision, outcome = seen(model, facts=facts, **fields)
    condition = autoscaler_active(snapshot, decision, writes_of(snapshot, decision, outcome, decision.memory))
    assert condition is not None
    return condition


@pytest.mark.parametrize(
    ("obj", "expected", "part"),
    [
        (None, ("Unknown", "Starting"), "check that KEDA's operator runs"),
        ({"metadata": {}, "status": {"conditions": UNKNOWN}}, ("Unknown", "Starting"), "hasn't reported"),
        (scaled_object(READY, ACTIVE), ("True", "ScalerActive"), "words of ScalerActive"),
        (scaled_object(READY, ("Active", "False", "ScalerNotActive")), ("True", "ScalerNotActive"), "words of"),
        (scaled_object(READY, ("Active", "True", "ScalerCooldown")), ("True", "ScalerCooldown"), "words of"),
        (scaled_object(READY, ("Active", "Unknown", "")), ("Unknown", "Starting"), "hasn't read the load"),
        (scaled_object(("Fallback", "False", "NoFallbackFound")), ("Unknown", "Starting"), "hasn't reported"),
        (scaled_object(("Ready", "False", "ScaledObjectCheckFailed")), ("False", "ScaledObjectCheckFailed"),
         "words of ScaledObjectCheckFailed; KEDA can't read"),
        (scaled_object(("Ready", "Unknown", "PartialTriggerError"), ACTIVE), ("Unknown", "PartialTriggerError"),
         "removes no server"),
        (scaled_object(READY, ACTIVE, FALLBACK), ("False", "FallbackExists"), "words of FallbackExists; KEDA can't"),
        (scaled_object(READY, FALLBACK, triggers=2), ("False", "FallbackExists"), "tritonmodel:arrivals:rate1m"),
        (scaled_object(READY, ACTIVE, ("Paused", "True", "ScaledObjectPaused")), ("False", "ScaledObjectPaused"),
         "the number of servers stays"),
        ({"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}, ("False", "Unknown"),
         "KEDA gives no reason"),
    ],
)  # fmt: skip
def test_quotes_keda(obj: Any, expected: tuple[str, str], part: str) -> None:
    condition = judge(scaled_object=obj, pods=(Pod(gen.pod()),))
    assert (condition.status, condition.reason) == expected
    assert part in condition.message


def test_says_what_starts_a_server_from_zero() -> None:
    obj = scaled_object(READY, ("Active", "False", "ScalerNotActive"))
    asleep, awake = (judge(scaled_object=obj, deployment={"spec": {"replicas": n}}).message for n in (0, 1))
    assert awake == "words of ScalerNotActive"
    assert asleep == f"{awake}; a server starts when tritonmodel:arrivals:rate1m is above 0"


def hpa(*conditions: tuple[str, str, str]) -> dict[str, Any]:
    return {"status": scaled_object(("AbleToScale", "True", "ReadyForNewScale"), *conditions)["status"]}


@pytest.mark.parametrize(("servers", "expected"), [(0, "False"), (1, "Unknown")])
def test_a_missing_load_is_a_problem_at_zero_servers(servers: int, expected: str) -> None:
    obj = hpa(("ScalingActive", "False", "FailedGetObjectMetric"))
    assert judge("HPA", min=0, autoscaler=obj, deployment={"spec": {"replicas": servers}}).status == expected


def test_says_what_starts_a_server_from_zero_with_the_engine_hpa() -> None:
    obj, percent = hpa(("ScalingActive", "True", "ValidMetricFound")), {"type": "Percent", "value": 100}
    asleep, awake = (judge("HPA", min=0, autoscaler=obj, deployment={"spec": {"replicas": n}}) for n in (0, 1))
    assert asleep.message == f"{awake.message}; a server starts when tritonmodel:arrivals:rate1m is above 0"
    stuck = judge("HPA", min=0, behavior={"scaleUp": {"policies": [percent]}}, autoscaler=obj)
    assert stuck.message.startswith(f"{awake.message}; at least one server stays, because spec.autoscaling.behavior")


def test_fallback_is_a_problem_only_if_a_server_is_ready() -> None:
    condition = judge(scaled_object=scaled_object(READY, FALLBACK), pods=(Pod(gen.pod(gen.not_ready)),))
    assert (condition.status, condition.reason) == ("Unknown", "Starting")


@pytest.mark.parametrize(
    ("engine", "fields", "expected"),
    [
        ("KEDA", {"keda": False, "prometheus": ""}, ("False", "KEDAMissing")),
        ("KEDA", {"prometheus": ""}, ("False", "NoPrometheus")),
        ("KEDA", {"scaled_object": scaled_object(READY, deletionTimestamp="now")}, ("Unknown", "WaitingForKEDA")),
        ("HPA", {"scaled_object": scaled_object(READY, deletionTimestamp="now")}, ("Unknown", "WaitingForKEDA")),
        ("Direct", {"scaled_object": scaled_object(READY)}, ("Unknown", "WaitingForKEDA")),
        ("HPA", {"keda": False}, ("Unknown", "Starting")),
        ("KEDA", {"scaled_object": scaled_object(READY, ACTIVE), "thresholds": {}}, ("False", "NoThreshold")),
        ("KEDA", {"refused": {"ScaledObject": Problem("ApplyRefused", "denied")}}, ("False", "ApplyRefused")),
    ],
)
def test_reports_why_an_engine_cannot_begin(engine: str, fields: Any, expected: tuple[str, str]) -> None:
    condition = judge(engine, **fields)
    assert (condition.status, condition.reason) == expected


def test_says_that_the_number_of_servers_stays_without_keda() -> None:
    for fields in ({"keda": False}, {"prometheus": ""}):
        assert "the number of servers stays" in judge(**fields).message
