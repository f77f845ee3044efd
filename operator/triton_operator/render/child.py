"""What the operator knows about one kind of object that it makes for TritonModels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from triton_operator.api.kinds import Kind
from triton_operator.api.status import PROGRESSING
from triton_operator.api.types import TritonModel

from .choices import Choices

Object = dict[str, Any]


@dataclass(frozen=True)
class Child:
    """One kind of child object, with everything that is special about it.

    `render`: the objects of this kind that a TritonModel asks for. `always`: every TritonModel has them, under the same
    names. `condition`: the condition that reports a refused write; servers run without a kind whose condition isn't
    Progressing. `unchecked`: fields of the spec that become part of it without a schema, for the error message.
    `needs_entrypoint`: it is rendered once the entry model is known, and kept while another one isn't known yet.
    `status`: the part of its status that the operator reads; the rest is not stored, and a change of it is no event.
    None: it reads nothing.
    """

    kind: Kind
    render: Callable[[TritonModel, Choices], Iterable[Object]]
    always: bool = False
    condition: str = PROGRESSING
    unchecked: str = ""
    needs_entrypoint: bool = False
    status: Callable[[Mapping[str, Any]], Object] | None = None
