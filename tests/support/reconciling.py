"""A reconciler for unit tests, with an API server that accepts every write and a prober with fixed answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from support import gen
from triton_operator.api.kinds import SCALED_OBJECT, Kind
from triton_operator.api.monitoring import Installed, PrometheusAnswer
from triton_operator.api.servers import RunningServer, ServerAnswers
from triton_operator.cluster.store import Store
from triton_operator.reconcile import Cluster, Reconciler
from triton_operator.render import Facts
from triton_operator.render.facts import Capabilities

KEY = f"{gen.NAMESPACE}/{gen.NAME}"
FACTS = Facts("tools:1", "Copy")
MONITORED = Cluster(installed=Installed((), searched=("monitoring",)))
"""A cluster with prometheus-operator and without a Prometheus."""
Object = dict[str, Any]


class Accepting:
    """An API server that accepts every write. `meanwhile`: changes by others just before the status is written."""

    def __init__(self, *meanwhile: gen.Modifier) -> None:
        self.meanwhile, self._version, self.answers = meanwhile, 100, list[Object]()

    def apply_new(self, _: Kind, body: Object) -> Object:
        return self.answer(gen.live(body))

    def apply(self, _: Kind, body: Object, uid: str, *, manager: str = "", subresource: str = "") -> Object:
        if not subresource:
            return self.answer(gen.live(body))
        return self.answer(gen.raw(gen.put("status", body["status"]), *self.meanwhile))

    def create(self, *_: Any) -> None:
        """An Event."""

    def delete(self, *_: Any, **__: Any) -> bool:
        """Deletes an object at once."""
        return False

    def list(self, *_: Any, **__: Any) -> tuple[Object, ...]:
        """No Prometheus resources, and no ReplicaSets."""
        return ()

    def answer(self, obj: Object) -> Object:
        self._version += 1
        self.answers.append(gen.modified(obj, gen.put("metadata.resourceVersion", str(self._version))))
        return self.answers[-1]


class Answers:
    """The prober's last answers. `waits`, `outdated`: the arguments of the last `set_waiting`."""

    def __init__(self) -> None:
        self.servers = self.prometheuses = self.loads = self.comparisons = self.memory = self.changes = self
        self.of_servers, self.of_prometheus = ServerAnswers(), PrometheusAnswer()
        self.waits = self.outdated = False

    def outcomes(self, *_: object) -> dict[str, Any]:
        """No change of models."""
        return {}

    def track(self, key: str, target: str | Iterable[RunningServer], _: str = "", **__: object) -> Any:
        return self.of_prometheus if isinstance(target, str) else self.of_servers

    def set_waiting(self, _: str, *, waits: bool, outdated: bool) -> None:
        self.waits, self.outdated = waits, outdated

    def is_pending(self, _: str) -> bool:
        return False

    def forget(self, key: str) -> None:
        """Does nothing."""


def reconciler(api: Accepting, store: Store | None = None, **more: Any) -> Reconciler:
    store = store or Store()
    store.put(gen.raw())
    client: Any = api
    more = {
        "progress_seconds": 0.0,
        "cluster": lambda: Cluster(Capabilities(monitoring=False, missing=frozenset({SCALED_OBJECT}))),
        **more,
    }
    answers: Any = more.pop("answers", Answers())
    return Reconciler(client, store, answers, FACTS, **more)
