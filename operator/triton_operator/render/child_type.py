"""The descriptor of a child kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from triton_operator.api.kinds import Kind, NewerField
from triton_operator.api.status import PROGRESSING
from triton_operator.api.types import TritonModel

from .facts import Facts

Object = dict[str, Any]


@dataclass(frozen=True)
class Child:
    """The properties of a child kind.

    - `render`: returns the objects of this kind that a TritonModel needs.
    - `always`: whether every TritonModel has them, under the same names.
    - `of_each_group`: whether each group of servers has its own; otherwise all groups share them.
    - `needed`: whether a TritonModel can't do without them; for one that can, no right to read the kind is needed.
    - `condition`: the condition that reports a refused write. Serving needs the kind if this is Progressing.
    - `unchecked`: fields of the spec that are copied into the object without validation, for the error message.
      `copied`: where they are in the object; "" if they may be anywhere.
    - `newer`: fields that a cluster may not know.
    - `needs_entrypoint`: whether it can be rendered only when the entrypoint is known. Until then an existing object is
      kept.
    - `status`: returns the part of its status that the operator reads. The rest is not stored, and a change of it
      causes no reconcile. None: the operator reads nothing.
    """

    kind: Kind
    render: Callable[[TritonModel, Facts], Iterable[Object]]
    always: bool = False
    of_each_group: bool = False
    needed: Callable[[TritonModel], bool] = lambda _: True
    condition: str = PROGRESSING
    unchecked: str = ""
    copied: str = ""
    newer: tuple[NewerField, ...] = ()
    needs_entrypoint: bool = False
    status: Callable[[Mapping[str, Any]], Object] | None = None
