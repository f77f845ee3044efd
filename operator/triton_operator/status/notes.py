"""What a condition also says: fields that are missing in its objects, and what comes next."""

from __future__ import annotations

from triton_operator.api import kubernetes_versions
from triton_operator.api.status import PROGRESSING, READY, Condition
from triton_operator.decisions.decide import Decision
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.render.child_type import Child
from triton_operator.render.children import CHILDREN

from .conditions import condition
from .writes import Writes

MAX_NAMED = 3
"""How many of the fields that the API server dropped are named."""


def with_notes(now: Condition, snapshot: Snapshot, decision: Decision, writes: Writes) -> Condition:
    """Adds what the cluster's version means for the objects that this condition is about, and the next repair."""
    of_children = [child for child in CHILDREN if child.condition == now.type]
    kubernetes, delivery = decision.facts.cluster.kubernetes, decision.facts.delivery
    notes = [
        note
        for child in of_children
        for note in (
            _dropped(child, writes, kubernetes, delivery),
            _left_out(child, writes),
            writes.contested.get(child.kind.kind, ""),
        )
    ]
    if now.type == PROGRESSING or (now.type == READY and now.status == "False"):
        notes.append(decision.repair.note)
    if now.type == PROGRESSING:
        notes += [decision.replacement.warning, snapshot.refused_if_new, kubernetes_versions.too_old(kubernetes)]
    if not any(notes):
        return now
    return condition(now.type, now.status, now.reason, "; ".join(note for note in (now.message, *notes) if note))


def _left_out(child: Child, writes: Writes) -> str:
    kind = child.kind.kind
    of_crd = "'s CRD" if child.kind.optional else ""
    # If it is refused, it isn't there at all.
    fields = () if kind in writes.refused else writes.left_out.get(kind, ())
    return "; ".join(
        f"the {kind} {field.loss}, because this cluster{of_crd} {field.why}: "
        f"{field.since} and later have it{field.means}"
        for field in fields
    )


def _dropped(child: Child, writes: Writes, kubernetes: tuple[int, int], delivery: str) -> str:
    paths = [path.removeprefix(".") for path in writes.dropped.get(child.kind.kind, ())]
    if not paths:
        return ""
    more = " and others" if len(paths) > MAX_NAMED else ""
    fields = f"{', '.join(paths[:MAX_NAMED])}{more} of the {child.kind.kind}"
    if child.kind.optional:
        return f"a webhook removed {fields}"
    cluster = kubernetes_versions.cluster(kubernetes)
    note = f"{cluster} dropped {fields}, because its feature gate is off, or a webhook removed it"
    has_volume = delivery == "ImageVolume" and any(".volumes[" in path for path in paths)
    if has_volume and kubernetes < kubernetes_versions.IMAGE_VOLUMES:
        note += (
            f"; image volumes need Kubernetes {kubernetes_versions.name(kubernetes_versions.IMAGE_VOLUMES)} or the "
            "feature gate ImageVolume: set spec.modelImage.delivery to Copy"
        )
    return note
