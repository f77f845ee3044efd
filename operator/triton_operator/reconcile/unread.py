"""Why a TritonModel isn't acted on, in the words of a condition."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from triton_operator.cluster.shallow import most_values
from triton_operator.cluster.store import LARGEST, Large
from triton_operator.status.observation import Problem

_TOLD = 5
"""Faults, or objects, that are named."""
_UNTOUCHED = "until then the operator changes nothing, and the servers that run keep running"


def too_large(large: Sequence[Large]) -> Problem:
    """`large`: what the store keeps in brief of the TritonModel."""
    crowded = [f"{o.kind} {o.name}" for o in large if o.crowded]
    if crowded:
        return Problem(
            "NoRoom",
            f"the operator has no room for {', '.join(crowded[:_TOLD])}: the objects of this namespace take more than "
            "its share of the operator's memory: delete TritonModels of this namespace, make them smaller, or raise "
            f"the memory limit of the operator; {_UNTOUCHED}",
        )
    named = ", ".join(
        f"{o.kind} {o.name} has {o.size.bytes >> 10} KiB and {o.size.values} values" for o in large[:_TOLD]
    )
    return Problem(
        "TooLarge",
        f"{named}, and the operator reads objects of up to {LARGEST >> 10} KiB and {most_values(LARGEST)} values of "
        "JSON: make the spec smaller, for example spec.podTemplate, spec.server.args or spec.server.env; "
        f"{_UNTOUCHED}",
    )


def invalid(error: ValidationError) -> Problem:
    """Where the schema in the cluster lets something in that the types here don't."""
    faults = [
        f"{'.'.join(map(str, fault['loc']))}: {fault['msg'].removeprefix('Value error, ')}"
        for fault in error.errors(include_url=False, include_context=False, include_input=False)[:_TOLD]
    ]
    more = [f"and {error.error_count() - _TOLD} more faults"] if error.error_count() > _TOLD else []
    return Problem("SpecInvalid", f"the spec can't be read: {'; '.join(faults + more)}")
