"""How a TritonModel is scaled: what its engine decides, and the change from one engine to another."""

from __future__ import annotations

from collections.abc import Iterable

from triton_operator import engines
from triton_operator.engines import Scaled
from triton_operator.engines.engine import Decided
from triton_operator.render import Facts
from triton_operator.render.scalers import known

from .snapshot import Object, Snapshot, find_kind
from .steps import WakeUp


def scaled(snapshot: Snapshot, facts: Facts) -> Scaled:
    """Returns the TritonModel as its engine sees it. `facts`: those of the group that every TritonModel has."""
    objects = {scaler.kind: snapshot.child(scaler.kind) for scaler in engines.SCALERS}
    main, engine = snapshot.main, engines.of(snapshot.model)
    return Scaled(
        model=snapshot.model,
        known=known(facts),
        objects={kind: obj for kind, obj in objects.items() if obj is not None},
        deployment=main.deployment,
        limits=facts.thresholds,
        is_ready=any(pod.is_ready for pod in snapshot.pods),
        rolls_out=len(main.living) > len(main.current),
        histories=None if engine is None or engine.counts is None else snapshot.histories_of(main),
    )


def decide_scale(snapshot: Snapshot, facts: Facts, state: object | None, elapsed: float) -> Decided:
    """Returns the decision of the TritonModel's engine.

    `state`: that of the last decision, None before the first one. `elapsed`: the prober's monotonic clock, in seconds.
    """
    engine, there = engines.of(snapshot.model), scaled(snapshot, facts)
    return Decided(there.known) if engine is None else engine.decide(there, state, elapsed)


def wake_up(snapshot: Snapshot, desired: Iterable[Object]) -> WakeUp | None:
    """Returns the step that starts servers if an engine, or a minimum above 0, follows one that has scaled to zero.

    A HorizontalPodAutoscaler scales from zero only what it has scaled to zero itself, and before Kubernetes 1.36 only
    with a minimum of 0. This comes before the object of the previous engine is deleted and for as long as it exists,
    because until then that engine may scale to zero again. KEDA itself starts servers when its own minimum is raised.

    `desired`: the objects that the TritonModel should have.
    """
    engine, scaling, deployment = engines.of(snapshot.model), snapshot.model.scaling, snapshot.main.deployment
    if engine is None or scaling is None or deployment is None or deployment["spec"]["replicas"]:
        return None
    own = find_kind(desired, engine.scaler.kind)
    # The cluster, or spec.autoscaling.behavior, may allow no 0.
    least = own["spec"][engine.scaler.minimum] if own else scaling.min
    for scaler in engines.SCALERS:
        if scaler is engine.scaler and (scaler.owner or not least):
            continue
        there = snapshot.child(scaler.kind)
        if there is not None and not there["spec"].get(scaler.minimum):
            return WakeUp(deployment, max(least, 1))
    return None
