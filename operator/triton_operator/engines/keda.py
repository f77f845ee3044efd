"""The engine KEDA: a ScaledObject, for which KEDA reads the load from Prometheus and makes the autoscaler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from triton_operator.api import kinds, names, quantity
from triton_operator.api.kinds import NewerField
from triton_operator.api.series import ARRIVALS, AUTOSCALER_LOAD, DESIRED
from triton_operator.api.status import Truth
from triton_operator.api.types import Autoscaling, TritonModel
from triton_operator.promql import Scope
from triton_operator.scaling import ScaleDecision

from .engine import BEHAVIOR, Decided, Engine, Known, Scaled, Scaler, Setting, Verdict

_FAILURES = 3
"""Failed queries in a row after which KEDA uses the fallback."""
_POLLING_SECONDS = 10
"""How often KEDA looks whether to scale to zero or from zero."""
_COOLDOWN_SECONDS = 300
"""The default window of scaleDown."""
_SHORTEST_COOLDOWN_SECONDS = 60
"""So long a first server has at least before its load is in Prometheus."""
_UNITS = (("", 1), ("m", 10**3), ("u", 10**6), ("n", 10**9))
_ANY_DEMAND = "1000000000"
"""Target of the arrivals. It is so large that they start one server; the load decides about more."""

_AUTHENTICATION = "KEDA_AUTHENTICATION"
_STARTING = "KEDA hasn't reported a status of the ScaledObject yet; check that KEDA's operator runs"

_COPIED = "spec.advanced.horizontalPodAutoscalerConfig.behavior"


def _spec(model: TritonModel, known: Known) -> dict[str, Any] | None:
    """Returns the spec of the ScaledObject, if the cluster has KEDA and a Prometheus is known.

    KEDA creates the HorizontalPodAutoscaler under the name that ours has with the other engines. So there is never a
    second one.

    Contains no field with its zero value, such as restoreToOriginalReplicaCount: false. KEDA removes these when it
    writes the object, and the operator would add them again.
    """
    scaling = model.scaling
    if scaling is None or kinds.SCALED_OBJECT in known.missing or not known.prometheus:
        return None
    spec: dict[str, Any] = {
        "scaleTargetRef": {
            "apiVersion": kinds.DEPLOYMENT.api_version,
            "kind": kinds.DEPLOYMENT.kind,
            "name": model.name,
        },
        "minReplicaCount": scaling.min,
        "maxReplicaCount": scaling.max,
        "fallback": {
            "failureThreshold": _FAILURES,
            "replicas": max(scaling.min, 1),
            "behavior": "currentReplicasIfHigher",
        },
        "advanced": {
            "horizontalPodAutoscalerConfig": {
                "name": model.name,
                "behavior": _as_keda_writes(scaling.behavior or BEHAVIOR),
            },
        },
        "triggers": [
            _authenticated(trigger, known.settings.get(_AUTHENTICATION, ""))
            for trigger in _triggers(Scope(model.namespace, model.name), scaling, known.prometheus)
        ],
    }
    if not scaling.min:
        cooldown = _cooldown(scaling)
        spec |= {
            "pollingInterval": _POLLING_SECONDS,
            "cooldownPeriod": cooldown,
            "initialCooldownPeriod": cooldown,
        }
    return spec


def _annotations(model: TritonModel) -> dict[str, str]:
    """Returns the annotation that keeps our labels from KEDA's HorizontalPodAutoscaler, which isn't the operator's."""
    return {"scaledobject.keda.sh/hpa-excluded-labels": ",".join(names.labels(model.name))}


def _decide(scaled: Scaled, _: object | None, __: float) -> Decided:
    """Keeps the last Prometheus while none is known."""
    known = scaled.known
    last = known.prometheus or address(scaled.objects.get(kinds.SCALED_OBJECT))
    return Decided(replace(known, prometheus=last))


def address(scaled_object: Mapping[str, Any] | None) -> str:
    """Returns the URL of the Prometheus in a ScaledObject; "" if it has none."""
    triggers = (scaled_object or {}).get("spec", {}).get("triggers", [])
    return str(triggers[0].get("metadata", {}).get("serverAddress", "")) if triggers else ""


def _triggers(scope: Scope, scaling: Autoscaling, prometheus: str) -> list[dict[str, Any]]:
    """Returns the triggers: the load and, to scale from zero, the requests that arrive.

    The load is the one that prometheus-adapter serves, without NaN and infinity. At zero servers there is none, so it
    is 0 then. Every other missing value is an error: KEDA removes no server then.
    """
    load = f"max(clamp_max({scope.pick(AUTOSCALER_LOAD)} >= 0, 1e6))"
    if scaling.min:
        return [_trigger("load", prometheus, load, _target(scaling.utilization))]
    return [
        _trigger("load", prometheus, f"{load} or max({scope.pick(DESIRED)} == 0)", _target(scaling.utilization)),
        _trigger("arrivals", prometheus, f"max({scope.pick(ARRIVALS)} >= 0)", _ANY_DEMAND),
    ]


def _trigger(name: str, prometheus: str, query: str, target: str) -> dict[str, Any]:
    metadata = {"serverAddress": prometheus, "query": query, "threshold": target, "ignoreNullValues": "false"}
    return {"type": "prometheus", "name": name, "metricType": "AverageValue", "metadata": metadata}


def _authenticated(trigger: dict[str, Any], authentication: str) -> dict[str, Any]:
    """Returns the trigger with a reference to the administrator's credentials, which the tenant can't read."""
    mode, _, name = authentication.partition("/")
    if not name:
        return trigger
    reference = {"kind": "ClusterTriggerAuthentication", "name": name}
    return {**trigger, "metadata": {**trigger["metadata"], "authModes": mode}, "authenticationRef": reference}


def _target(utilization: float) -> str:
    """Returns the target in thousandths, as the HorizontalPodAutoscaler has it with the other engines."""
    return f"{max(1, round(utilization * 1000)) / 1000:g}"


def _as_keda_writes(behavior: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the scaling speed in the form in which KEDA writes it: without empty fields, quantities in short form."""
    out = {direction: {k: v for k, v in rules.items() if v not in (None, [])} for direction, rules in _parts(behavior)}
    for rules in out.values():
        if "tolerance" in rules:
            rules["tolerance"] = _canonical(rules["tolerance"])
    return out


def _parts(behavior: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns the rules of each direction. The API server allows null."""
    return [(direction, rules) for direction, rules in behavior.items() if rules is not None]


def _canonical(amount: Any) -> Any:
    """Returns a quantity as Kubernetes writes it, such as 50m for 0.05; other values as they are."""
    try:
        number = quantity.parse(amount)
    except ValueError:
        return amount
    return next((f"{n:.0f}{unit}" for unit, size in _UNITS if (n := number * size) % 1 == 0), amount)


def _cooldown(scaling: Autoscaling) -> int:
    """Returns the seconds without requests after which the last server is removed: the window of scaleDown."""
    window = dict(_parts(scaling.behavior or {})).get("scaleDown", {}).get("stabilizationWindowSeconds")
    return max(_COOLDOWN_SECONDS if window is None else int(window), _SHORTEST_COOLDOWN_SECONDS)


def _parse_authentication(name: str, value: str) -> str:
    """Returns how KEDA authenticates to Prometheus, as MODE/NAME of a ClusterTriggerAuthentication; "" without."""
    if value and not re.fullmatch(r"(basic|bearer|tls|custom)/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", value):
        raise ValueError(
            f"{name} must be MODE/NAME, with the mode basic, bearer, tls or custom and the name of a "
            f"ClusterTriggerAuthentication, such as bearer/prometheus, not {value!r}"
        )
    return value


def _obstacle(scaled: Scaled) -> Verdict | None:
    """Returns why KEDA can't begin: it or Prometheus is missing, or it hasn't released the last ScaledObject."""
    if kinds.SCALED_OBJECT in scaled.known.missing:
        return Verdict(
            "False", "KEDAMissing",
            "the cluster has no CRD for ScaledObject, so the number of servers stays: install KEDA, or choose another "
            "spec.autoscaling.engine; serving works without it",
        )  # fmt: skip
    if not scaled.known.prometheus:
        return Verdict(
            "False", "NoPrometheus",
            "no known Prometheus has the load for KEDA, so the number of servers stays; see MonitoringAvailable, or "
            "set PROMETHEUS_URL of the operator",
        )  # fmt: skip
    scaled_object = scaled.objects.get(kinds.SCALED_OBJECT)
    if scaled_object is not None and kinds.is_deleting(scaled_object):
        return Verdict(
            "Unknown", SCALER.waiting,
            "the ScaledObject was deleted, and KEDA hasn't released it yet; check that KEDA's operator runs. Until "
            "then the number of servers stays",
        )  # fmt: skip
    return None


def _says(scaled: Scaled, _: ScaleDecision | None) -> Verdict:
    """Returns what KEDA reports about the ScaledObject."""
    scaled_object = scaled.objects.get(kinds.SCALED_OBJECT, {})
    conditions = {c["type"]: c for c in scaled_object.get("status", {}).get("conditions", [])}
    ready, active, fallback = (conditions.get(kind, {}) for kind in ("Ready", "Active", "Fallback"))
    if ready.get("status", "Unknown") == "Unknown" and not ready.get("reason"):
        return Verdict("Unknown", "Starting", _STARTING)
    if conditions.get("Paused", {}).get("status") == "True":
        return _quote("False", conditions["Paused"], "; the number of servers stays")
    if fallback.get("status") == "True":
        if not scaled.is_ready:
            return Verdict("Unknown", "Starting", "no server is ready yet, so there is no load")
        return _quote("False", fallback, _hint(scaled_object))
    if ready.get("status") != "True":
        return _quote("False" if ready.get("status") == "False" else "Unknown", ready, _hint({}))
    if active.get("status") not in ("True", "False"):
        return Verdict("Unknown", "Starting", "KEDA hasn't read the load yet")
    asleep = (scaled.deployment or {}).get("spec", {}).get("replicas") == 0
    return _quote("True", active, f"; a server starts when {ARRIVALS} is above 0" if asleep else "")


def _quote(status: Truth, words: Mapping[str, Any], hint: str = "") -> Verdict:
    """Returns a condition of KEDA, which may lack the reason and the message."""
    reason, message = words.get("reason") or "Unknown", words.get("message") or "KEDA gives no reason"
    return Verdict(status, str(reason), str(message) + hint)


def _hint(scaled_object: Mapping[str, Any]) -> str:
    triggers = scaled_object.get("spec", {}).get("triggers", [])
    also = f", and the series {ARRIVALS} of your gateway's requests" if len(triggers) > 1 else ""
    return (
        "; KEDA can't read all values from Prometheus, so it removes no server: check that MonitoringAvailable is "
        f"True, and that KEDA can reach the Prometheus and finds the load{also}"
    )


SCALER = Scaler(
    kinds.SCALED_OBJECT,
    _spec,
    minimum="minReplicaCount",
    copied=_COPIED,
    newer=(
        # Without `behavior` KEDA would reduce the servers to fallback.replicas. Without a fallback their number stays.
        NewerField("spec.fallback.behavior", "KEDA 2.17", left_out="spec.fallback"),
        NewerField("spec.initialCooldownPeriod", "KEDA 2.14", left_out="spec.initialCooldownPeriod"),
        *(NewerField(f"{_COPIED}.{rules}.tolerance", "KEDA 2.18") for rules in BEHAVIOR),
        NewerField("spec.advanced.horizontalPodAutoscalerConfig.name", "KEDA 2.8"),
        NewerField("spec.triggers.metricType", "KEDA 2.7"),
    ),
    annotations=_annotations,
    owner="KEDA",
    waiting="WaitingForKEDA",
)
ENGINE = Engine(
    "KEDA",
    SCALER,
    _says,
    obstacle=_obstacle,
    to_zero=True,
    decide=_decide,
    settings=(Setting(_AUTHENTICATION, _parse_authentication),),
)
