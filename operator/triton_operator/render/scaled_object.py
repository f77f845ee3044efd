"""The ScaledObject of KEDA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_operator.api import kinds, names, quantity
from triton_operator.api.kinds import NewerField
from triton_operator.api.series import ARRIVALS, AUTOSCALER_LOAD, DESIRED
from triton_operator.api.status import AUTOSCALER_ACTIVE
from triton_operator.api.types import Autoscaling, TritonModel
from triton_operator.promql import Scope

from .autoscaler import BEHAVIOR
from .child_type import Child
from .common import obj, only_conditions
from .facts import Facts

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

_COPIED = "spec.advanced.horizontalPodAutoscalerConfig.behavior"


def scaled_objects(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    """Returns a ScaledObject with `engine: KEDA`, if the cluster has KEDA and a Prometheus is known.

    KEDA creates the HorizontalPodAutoscaler under the name that ours has with the other engines. So there is never a
    second one. It gets none of our labels, because the operator doesn't manage it.

    Contains no field with its zero value, such as restoreToOriginalReplicaCount: false. KEDA removes these when it
    writes the object, and the operator would add them again.
    """
    scaling = model.scaling
    if scaling is None or not (model.is_keda and facts.cluster.keda and facts.prometheus):
        return []
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
            _authenticated(trigger, facts.settings.keda_authentication)
            for trigger in _triggers(Scope(model.namespace, model.name), scaling, facts.prometheus)
        ],
    }
    if not scaling.min:
        cooldown = _cooldown(scaling)
        spec |= {
            "pollingInterval": _POLLING_SECONDS,
            "cooldownPeriod": cooldown,
            "initialCooldownPeriod": cooldown,
        }
    excluded = {"scaledobject.keda.sh/hpa-excluded-labels": ",".join(names.labels(model.name))}
    return [obj(model, kinds.SCALED_OBJECT, annotations=excluded, spec=spec)]


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


CHILD = Child(
    kinds.SCALED_OBJECT,
    scaled_objects,
    condition=AUTOSCALER_ACTIVE,
    unchecked="check spec.autoscaling.behavior, which the operator copies unchanged",
    copied=_COPIED,
    newer=(
        # Without `behavior` KEDA would reduce the servers to fallback.replicas. Without a fallback their number stays.
        NewerField("spec.fallback.behavior", "KEDA 2.17", left_out="spec.fallback"),
        NewerField("spec.initialCooldownPeriod", "KEDA 2.14", left_out="spec.initialCooldownPeriod"),
        *(NewerField(f"{_COPIED}.{rules}.tolerance", "KEDA 2.18") for rules in BEHAVIOR),
        NewerField("spec.advanced.horizontalPodAutoscalerConfig.name", "KEDA 2.8"),
        NewerField("spec.triggers.metricType", "KEDA 2.7"),
    ),
    # KEDA counts failures and notes the time of the last activity.
    status=only_conditions,
)
