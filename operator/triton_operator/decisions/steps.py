"""The steps of a reconcile: all that it writes, in the order of `decide.POLICIES`. `execute.py` does them.

`action`: the step as a phrase, for messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from triton_operator.api.servers import Change, RunningServer
from triton_operator.plan import Apply, Delete, Identity
from triton_operator.pods import Pod
from triton_operator.scaling import ScaleDecision

from .contests import HeldBack, Place

Object = dict[str, Any]


@dataclass(frozen=True)
class ChangeModels:
    """Begin to change the models of one server to `models`, unless the API server refused the ConfigMap with them."""

    action: ClassVar = "to change the models of a server"
    server: RunningServer
    change: Change
    models: tuple[str, ...]


@dataclass(frozen=True)
class WakeUp:
    """Scale the Deployment from zero to `replicas`, because the engine doesn't scale it any more that has done that."""

    action: ClassVar = "to start the minimum of servers"
    deployment: Object
    replicas: int


@dataclass(frozen=True)
class ReadLost:
    """Read the objects that have lost the label that the watches select."""

    action: ClassVar = "to read objects without their label"
    objects: tuple[Identity, ...]


@dataclass(frozen=True)
class DeleteLeftovers:
    """Delete the leftovers of a deleted TritonModel with this name, after a grace period."""

    action: ClassVar = "to delete what is left of a deleted TritonModel with this name"


@dataclass(frozen=True)
class WriteChildren:
    """Apply and delete children, and name the other writers of the fields that aren't set back now.

    `set_back`: where these writes undo changes by other writers.
    """

    action: ClassVar = "to write the objects of this TritonModel"
    plan: tuple[Apply | Delete, ...]
    set_back: tuple[Place, ...] = ()
    held: tuple[HeldBack, ...] = ()


@dataclass(frozen=True)
class ScaleUp:
    """Add the servers of the engine's decision."""

    action: ClassVar = "to add servers"
    deployment: Object
    decision: ScaleDecision


@dataclass(frozen=True)
class Evict:
    """Evict the pod of a server that has stopped answering spec.healthRequest."""

    action: ClassVar = "to evict a server"
    pod: Pod


@dataclass(frozen=True)
class ReconcileAfter:
    """Reconcile again after this time at the latest."""

    action: ClassVar = "to plan the next reconcile"
    seconds: float


@dataclass(frozen=True)
class DeleteLeftoverPods:
    """Delete the pods of earlier Deployments with this name, after a grace period."""

    action: ClassVar = "to delete pods of earlier Deployments"


Step = (
    WakeUp | ReadLost | DeleteLeftovers | WriteChildren | ChangeModels | ScaleUp | Evict | ReconcileAfter
    | DeleteLeftoverPods
)  # fmt: skip
