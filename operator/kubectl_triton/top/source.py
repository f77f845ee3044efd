"""Reads what `kubectl triton top` shows, from the cluster and from Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from . import detail, fleet

if TYPE_CHECKING:
    from kubectl_triton.cluster import Cluster
    from kubectl_triton.samples import Samples

Object = dict[str, Any]
T = TypeVar("T")
MAX_MODELS, _MAX_PODS, _MAX_EVENTS = 2000, 200, 200
"""Maximum number of TritonModels, of pods of one TritonModel, and of its Events, in one round."""


@dataclass(frozen=True)
class Overview:
    """All TritonModels. `notes`: what couldn't be read, and why."""

    rows: Sequence[fleet.Row]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Source:
    """Reads from the cluster, and from Prometheus if there is a URL. Raises UnreachableError.

    `namespace`: None means all namespaces.
    """

    cluster: Cluster
    namespace: str | None
    prometheus: str = ""

    def overview(self) -> Overview:
        """Returns a row for each TritonModel."""
        models = self.cluster.models(self.namespace, MAX_MODELS)
        notes: list[str] = []
        scalers = _optional(lambda: self.cluster.autoscalers(self.namespace, MAX_MODELS), notes, "autoscalers")
        samples = self._samples(self.namespace, notes)
        if len(models) == MAX_MODELS:
            notes.append(f"only the first {MAX_MODELS} TritonModels are shown")
        return Overview(fleet.rows(models, scalers, samples), notes)

    def reading(self, key: str) -> detail.Reading:
        """Returns what is known about the TritonModel with this namespace/name."""
        namespace, name = key.split("/")
        connection = self.cluster.within(namespace)
        model, notes = connection.model(name), list[str]()
        pods = _optional(lambda: connection.pods(model, _MAX_PODS), notes, "pods")
        events = _optional(lambda: connection.events(model, _MAX_EVENTS), notes, "Events")
        samples = self._samples(namespace, notes)
        return detail.Reading(model, pods, events, connection.autoscaler(model), samples, notes)

    def _samples(self, namespace: str | None, notes: list[str]) -> Samples:
        from kubectl_triton import samples  # imports the HTTP client

        values = samples.read(self.prometheus, namespace) if self.prometheus else samples.Samples()
        notes += [values.error] if values.error else []
        return values


def _optional(read: Callable[[], list[T]], notes: list[str], what: str) -> list[T]:
    """Returns what the user may read: nothing without the permission. Viewers of TritonModels may read only these."""
    from kubectl_triton.cluster import UnreachableError

    try:
        return read()
    except UnreachableError as error:
        if not error.forbidden:
            raise
        notes.append(f"without {what}: you have no permission to list them")
        return []
