"""Reads specs, and the problems of those that can't be read: they are too large, or invalid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from triton_operator.api import faults, kinds, names
from triton_operator.api.fields import RUNNING
from triton_operator.api.kinds import Kind
from triton_operator.api.status import PROGRESSING
from triton_operator.api.types import TritonModel
from triton_operator.cluster.entry import LARGEST, Large
from triton_operator.cluster.shallow import MAX_BYTES, max_values
from triton_operator.decisions.snapshot import is_needed
from triton_operator.pods import Pod, Problem
from triton_operator.pods.group import Servers, by_group, deployment_of, template_of
from triton_operator.render import runs
from triton_operator.render.children import BY_NAME

SPEC_INVALID = "SpecInvalid"
_MAX_NAMED = 5
"""Maximum number of faults, or of objects, that a message names."""
UNTOUCHED = "until then the operator changes nothing and repairs no server, and the servers keep running"


def observe(children: Sequence[dict[str, Any]], pods: Iterable[Pod], name: str) -> list[Servers]:
    """Returns the servers of a TritonModel, which is all that is known without its spec, by group.

    `children`: what it owns. `name`: its name.
    """
    groups = [(deployment_of(children, names.deployment(name, at)), mine) for at, mine in by_group(pods).items()]
    return [Servers(deployment, mine, template_of(deployment)) for deployment, mine in groups]


def too_large(large: Sequence[Large]) -> Problem:
    """Returns the problem of a TritonModel with objects that are too large. `large`: see `Store.large`."""
    crowded = [f"{o.kind} {o.name}" for o in large if o.crowded]
    if crowded:
        return Problem(
            "NoRoom",
            f"the operator has no memory left for {', '.join(crowded[:_MAX_NAMED])}: the objects of this namespace use "
            "more than its share. Delete TritonModels of this namespace, make them smaller, or raise the operator's "
            f"memory limit; {UNTOUCHED}",
        )
    model = next((o for o in large if o.kind == names.KIND), None)
    if model is not None:
        return Problem(
            "TooLarge",
            f"{_sized(model)}, but a {names.KIND} may have at most {_max_size(LARGEST)}: make the spec "
            f"smaller, for example spec.podTemplate, spec.server.args or spec.server.env; {UNTOUCHED}",
        )
    return Problem(
        "TooLarge",
        f"{', '.join(map(_sized, large[:_MAX_NAMED]))}, but an object may have at most {_max_size(MAX_BYTES)}: remove "
        f"the fields that others have added, or delete the object, and the operator creates it again; {UNTOUCHED}",
    )


def is_essential(kind: str, model: TritonModel) -> bool:
    """Returns whether the operator must be able to read this kind before it changes anything of the TritonModel."""
    return kind == kinds.POD.kind or (BY_NAME[kind].condition == PROGRESSING and is_needed(kind, model))


def unreadable(refused: Mapping[Kind, str]) -> dict[str, Problem]:
    """Returns the problem of each kind that the operator can't read. `refused`: the API server's answers."""
    return {
        kind.kind: Problem(
            "NotPermitted",
            f"the operator can't read {kind.plural}, so it doesn't change any: {message}. Install the roles of this "
            "version of the operator",
        )
        for kind, message in refused.items()
    }


def _sized(large: Large) -> str:
    size = large.size
    return f"{large.kind} {large.name} has {_about(size.bytes >> 10)} KiB of JSON with {_about(size.values)} values"


def _about(number: int) -> int:
    """Returns `number` rounded to two digits, so that the message doesn't change between a listing and an event."""
    return int(float(f"{number:.2g}"))


def _max_size(size: int) -> str:
    return f"{size >> 10} KiB with {max_values(size)} values"


def read(raw: Mapping[str, Any], deployment: Mapping[str, Any] | None) -> tuple[TritonModel, str] | Problem:
    """Returns the TritonModel `raw`, and what of it is refused if it is new; "" if nothing is.

    What servers run with already stays in effect: an earlier version of the operator accepted it. Otherwise it is a
    problem, as is a spec that can't be read at all.
    """
    try:
        return TritonModel.model_validate(raw), ""
    except ValidationError as error:
        refused = error
    try:
        model = TritonModel.model_validate(raw, context=RUNNING)
    except ValidationError:
        return invalid(refused)
    if not runs(model, deployment):
        return invalid(refused)
    note = (
        f"{_named(refused)}. An earlier version of the operator accepted this, so the servers keep it, but the next "
        "change of the servers' spec is refused until it is corrected"
    )
    return model, note


def invalid(error: ValidationError) -> Problem:
    """Returns the problem of a spec that the cluster's CRD allows and this version of the operator doesn't."""
    return Problem(SPEC_INVALID, f"the spec can't be read: {_named(error)}; {UNTOUCHED}")


def _named(error: ValidationError) -> str:
    all_faults = faults.of(error)
    named = [str(fault) for fault in all_faults[:_MAX_NAMED]]
    more = [f"and {len(all_faults) - _MAX_NAMED} more faults"] if len(all_faults) > _MAX_NAMED else []
    return "; ".join(named + more)
