"""Why a TritonModel isn't acted on, in the words of a condition."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from triton_operator.api import names
from triton_operator.cluster.shallow import MAX_BYTES, most_values
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
    model = next((o for o in large if o.kind == names.KIND), None)
    if model is not None:
        return Problem(
            "TooLarge",
            f"{_sized(model)}, and the operator reads a {names.KIND} of up to {_most(LARGEST)}: make the spec smaller, "
            f"for example spec.podTemplate, spec.server.args or spec.server.env; {_UNTOUCHED}",
        )
    return Problem(
        "TooLarge",
        f"{', '.join(map(_sized, large[:_TOLD]))}, and the operator reads objects of up to {_most(MAX_BYTES)}: take "
        f"away what others have added, or delete the object, which is then made anew; {_UNTOUCHED}",
    )


def _sized(large: Large) -> str:
    size = large.size
    return f"{large.kind} {large.name} has {_about(size.bytes >> 10)} KiB of JSON with {_about(size.values)} values"


def _about(number: int) -> int:
    """`number` with two digits. A listing and an event differ in what they have around an object, and the message of a
    condition that nothing has happened to stays as it is."""
    return int(float(f"{number:.2g}"))


def _most(size: int) -> str:
    return f"{size >> 10} KiB with {most_values(size)} values"


def invalid(error: ValidationError) -> Problem:
    """Where the schema in the cluster lets something in that the types here don't."""
    faults = [
        f"{'.'.join(map(str, fault['loc']))}: {fault['msg'].removeprefix('Value error, ')}"
        for fault in error.errors(include_url=False, include_context=False, include_input=False)[:_TOLD]
    ]
    more = [f"and {error.error_count() - _TOLD} more faults"] if error.error_count() > _TOLD else []
    return Problem("SpecInvalid", f"the spec can't be read: {'; '.join(faults + more)}")
