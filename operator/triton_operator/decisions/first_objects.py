"""The objects of a TritonModel that isn't deployed yet. Pure."""

from __future__ import annotations

from dataclasses import replace

from triton_operator.api.status import TritonModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.render import Facts, choose, render

from . import groups
from .canary import with_shares
from .enforcement import with_enforced
from .snapshot import Object


def first_objects(model: TritonModel, facts: Facts) -> list[Object]:
    """Returns the objects that the operator creates for a new TritonModel, in the order in which it applies them."""
    chosen = choose(model, None, facts)
    main, *others = groups.wanted(model, TritonModelStatus(), chosen.replicas)
    canary = model.spec.canary
    weight = None if canary is None else canary.weights[0]
    return render(
        model,
        with_enforced(model, with_shares(chosen, [main, *others], (), (), weight), None),
        [(group.model, choose(group.model, None, replace(facts, group=group.name, replicas=1))) for group in others],
    )
