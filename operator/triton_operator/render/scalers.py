"""The objects that scale the servers, of the engines' kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton_operator import engines
from triton_operator.api.status import AUTOSCALER_ACTIVE
from triton_operator.api.types import TritonModel
from triton_operator.engines import Known, Scaler

from .child_type import Child
from .common import obj, only
from .facts import Facts


def known(facts: Facts) -> Known:
    """Returns what an engine gets to know."""
    return Known(facts.prometheus, facts.autoscaler_floor, facts.cluster.missing, facts.settings.engines)


def _child(scaler: Scaler) -> Child:
    return Child(
        scaler.kind,
        _renders(scaler),
        condition=AUTOSCALER_ACTIVE,
        unchecked="check spec.autoscaling.behavior, which the operator copies unchanged",
        copied=scaler.copied,
        newer=scaler.newer,
        # The rest changes with the load.
        status=only("conditions"),
    )


def _renders(scaler: Scaler) -> Callable[[TritonModel, Facts], list[dict[str, Any]]]:
    def render(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
        """Returns the object if the engine of the TritonModel scales with this kind."""
        engine = engines.of(model)
        spec = scaler.spec(model, known(facts)) if engine is not None and engine.scaler is scaler else None
        return [] if spec is None else [obj(model, scaler.kind, annotations=scaler.annotations(model), spec=spec)]

    return render


CHILDREN = tuple(_child(scaler) for scaler in engines.SCALERS)
