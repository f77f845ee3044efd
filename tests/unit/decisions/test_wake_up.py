"""When the operator starts servers that another engine, or another minimum, has scaled to zero."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from support.observing import seen
from triton_operator.decisions.scale import wake_up
from triton_operator.render import Facts, render
from triton_operator.render.children import BY_NAME
from triton_operator.render.newer_fields import without_lacking

HPA, SCALED_OBJECT = "HorizontalPodAutoscaler", "ScaledObject"
PERCENT = {"scaleUp": {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}}
FACTS = Facts("tools:1", "Copy", prometheus="http://p")


def started(
    there: dict[str, dict[str, Any]], servers: int = 0, lacks: tuple[tuple[str, str], ...] = (), **scaling: Any
) -> int | None:
    """Returns how many servers are started. `there`: kind → the spec of the object that scales now."""
    model = gen.model(autoscaling={"max": 4, **scaling})
    desired = [without_lacking(BY_NAME[obj["kind"]], obj, lacks)[0] for obj in render(model, FACTS)]
    snapshot, _, _ = seen(
        model,
        deployment={"spec": {"replicas": servers}},
        autoscaler={"spec": there[HPA]} if HPA in there else None,
        scaled_object={"spec": there[SCALED_OBJECT]} if SCALED_OBJECT in there else None,
    )
    step = wake_up(snapshot, desired)
    return None if step is None else step.replicas


ASLEEP_BY_HPA, ASLEEP_BY_KEDA = {HPA: {"minReplicas": 0}}, {SCALED_OBJECT: {"minReplicaCount": 0}}


@pytest.mark.parametrize(
    ("there", "scaling", "expected"),
    [
        (ASLEEP_BY_HPA, {"min": 0}, None),
        (ASLEEP_BY_HPA, {"min": 2}, 2),
        (ASLEEP_BY_HPA, {"min": 0, "behavior": PERCENT}, 1),
        (ASLEEP_BY_HPA, {"min": 2, "engine": "Direct"}, 2),
        (ASLEEP_BY_HPA, {"min": 0, "engine": "KEDA"}, 1),
        (ASLEEP_BY_HPA, {"min": 0, "engine": "None"}, None),
        (ASLEEP_BY_KEDA, {"min": 0}, 1),
        (ASLEEP_BY_KEDA, {"min": 3}, 3),
        # KEDA does that itself, unless a person has paused it.
        (ASLEEP_BY_KEDA, {"min": 1, "engine": "KEDA"}, None),
        # A person has scaled these to zero.
        ({HPA: {"minReplicas": 1}}, {"min": 1}, None),
        ({HPA: {"minReplicas": 1}}, {"min": 0}, None),
        ({}, {"min": 1}, None),
    ],
)
def test_starts_what_an_autoscaler_has_scaled_to_zero(
    there: dict[str, dict[str, Any]], scaling: dict[str, Any], expected: int | None
) -> None:
    assert started(there, **scaling) == expected


def test_starts_a_server_where_the_cluster_allows_no_zero_any_more() -> None:
    assert started(ASLEEP_BY_HPA, lacks=((HPA, "spec.minReplicas"),), min=0) == 1


def test_starts_none_beside_others() -> None:
    assert started(ASLEEP_BY_HPA, servers=1, min=2) is None
