"""The descriptor of an engine, and of the object with which it scales."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from triton_operator.api.kinds import Kind, NewerField
from triton_operator.api.servers import History, Subject
from triton_operator.api.status import Truth
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.api.types import TritonModel
from triton_operator.scaling import ScaleDecision

Object = dict[str, Any]

BEHAVIOR: dict[str, Any] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Percent", "value": 100, "periodSeconds": 15},
            {"type": "Pods", "value": 2, "periodSeconds": 15},
        ],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 300,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Percent", "value": 25, "periodSeconds": 60},
            {"type": "Pods", "value": 1, "periodSeconds": 60},
        ],
    },
}
"""The default of spec.autoscaling.behavior."""


class Verdict(NamedTuple):
    """The condition AutoscalerActive, in the words of an engine."""

    status: Truth
    reason: str
    message: str


@dataclass(frozen=True)
class Known:
    """What an engine knows when its object is rendered, and isn't in the spec.

    - `prometheus`: URL of the Prometheus that has the load; "" if none is known.
    - `floor`: the least number of servers, by the engine's decision; 0 without one.
    - `missing`: the optional kinds that the cluster doesn't have.
    - `settings`: the operator's settings for engines, by the environment variable.
    """

    prometheus: str = ""
    floor: int = 0
    missing: Collection[Kind] = frozenset()
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scaled:
    """A TritonModel as its engine sees it.

    - `objects`: the objects that scale it, by their kind.
    - `deployment`: None before there is one.
    - `limits`: the effective thresholds.
    - `is_ready`: whether a server is ready. `rolls_out`: whether servers of another pod template run.
    - `histories`: the servers' counters, by pod; None if the engine doesn't count them.
    """

    model: TritonModel
    known: Known
    objects: Mapping[Kind, Object]
    deployment: Object | None
    limits: Mapping[ThresholdKey, float]
    is_ready: bool
    rolls_out: bool
    histories: Mapping[str, History] | None


@dataclass(frozen=True)
class Decided:
    """What an engine has decided.

    - `known`: what is known when its object is rendered.
    - `state`: what it remembers until its next decision.
    - `scale`: how the operator scales the servers itself; None if it doesn't.
    """

    known: Known
    state: object | None = None
    scale: ScaleDecision | None = None


@dataclass(frozen=True)
class Setting:
    """A setting of the operator for an engine: an environment variable, and what reads its value.

    `parse` gets the variable's name and its value, "" without one. It raises ValueError with the name.
    """

    variable: str
    parse: Callable[[str, str], str]


@dataclass(frozen=True)
class Scaler:
    """A kind of objects that scale a Deployment. Only one of them may exist for a TritonModel.

    - `spec`: returns an object's spec; None if the TritonModel can't have one now. `annotations`: returns its own.
    - `minimum`: the field of its spec with the minimum number of servers.
    - `copied`: the path of spec.autoscaling.behavior in it. `newer`: see `NewerField`.
    - `owner`: the component whose controller must release a deleted object before another one may scale; "" if none
      must. `waiting`: the reason for that in conditions.
    """

    kind: Kind
    spec: Callable[[TritonModel, Known], Object | None]
    minimum: str
    copied: str
    newer: tuple[NewerField, ...] = ()
    annotations: Callable[[TritonModel], Mapping[str, str] | None] = lambda _: None
    owner: str = ""
    waiting: str = ""


def _nothing(_: Scaled) -> None:
    return None


@dataclass(frozen=True)
class Engine:
    """A value of spec.autoscaling.engine.

    - `name`: the value. Several engines may have the same `scaler`.
    - `says`: returns what the engine's object and its decision say about scaling.
    - `obstacle`: returns why the engine can't begin; None if it can.
    - `to_zero`: whether spec.autoscaling.min may be 0. `load_wakes`: whether it starts the first server by the load, in
      which the rules then count the requests that arrive.
    - `counts`: returns which counters of the servers it reads, from the TritonModel, the entrypoint, and the other
      models if that is an ensemble, otherwise None. An engine that reads no counters has no `counts`.
    - `decide`: returns its decision, from the state after the last one and the prober's monotonic clock, in seconds.
    - `settings`: the operator's settings for it.
    """

    name: str
    scaler: Scaler
    says: Callable[[Scaled, ScaleDecision | None], Verdict]
    obstacle: Callable[[Scaled], Verdict | None] = _nothing
    to_zero: bool = False
    load_wakes: bool = False
    counts: Callable[[TritonModel, str, Collection[str] | None], Subject] | None = None
    decide: Callable[[Scaled, object | None, float], Decided] = lambda scaled, _, __: Decided(scaled.known)
    settings: tuple[Setting, ...] = ()
