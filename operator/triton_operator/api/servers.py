"""The state of one Triton server and of its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from . import names


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A model in Triton's repository index. `reason`: Triton's message if the model isn't READY."""

    name: str
    version: str
    state: str
    reason: str


Index = tuple[IndexEntry, ...]
Uncounted = tuple[tuple[str, str], ...]
"""Models that answer requests without Triton counting them, each with the evidence."""


@dataclass(frozen=True)
class Server:
    """A server that has started.

    - `host`: the pod's IP address, in brackets for IPv6.
    - `epoch`: the container's restart count and readiness. When it changes, the loaded models may have changed.
    """

    uid: str
    pod: str
    host: str
    epoch: tuple[int, bool]

    @property
    def address(self) -> str:
        """Returns host:port for HTTP."""
        return f"{self.host}:{names.PORTS['http']}"

    @property
    def grpc(self) -> str:
        """Returns host:port for gRPC."""
        return f"{self.host}:{names.PORTS['grpc']}"

    @property
    def metrics(self) -> str:
        """Returns host:port for the metrics."""
        return f"{self.host}:{names.PORTS['metrics']}"


@dataclass(frozen=True)
class Counters:
    """Requests of one model on one server: served and failed since the start, and waiting now."""

    success: float = 0.0
    failure: float = 0.0
    pending: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The requests that a server has answered or failed since its start, and the ones that wait.

    `at`: seconds of a monotonic clock.
    """

    at: float
    requests: float
    waiting: float


@dataclass(frozen=True)
class Subject:
    """Whose requests count.

    - `entrypoint`: the model that clients call.
    - `steps`: the other models, if it is an ensemble. Its requests wait at them.
    - `failures_per_request`: how often the server counts one failed request.
    """

    entrypoint: str
    steps: frozenset[str] = frozenset()
    failures_per_request: int = 1

    def sample(self, at: float, counters: Mapping[str, Counters]) -> Sample:
        """Returns a sample of these counters. One number each takes less memory than the counters of all steps."""
        entry = counters.get(self.entrypoint, Counters())
        queues = [counters[step].pending for step in self.steps if step in counters] if self.steps else [entry.pending]
        return Sample(at, entry.success + entry.failure / self.failures_per_request, sum(queues))


History = tuple[Sample, ...]
"""The samples of one server in the last minute, the oldest first. It begins again when the server restarts."""


@dataclass(frozen=True)
class Change:
    """A change of the models of one server.

    - `load`: models to load, in this order. `unload`: models to unload when all of `load` are ready.
    - `keep`: models that must stay. What they need stays, too.
    - `seconds`: maximum time for each model.
    """

    load: tuple[str, ...]
    unload: tuple[str, ...]
    keep: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """The result of a change so far.

    - `state`: Running. Done. Refused: Triton refuses a model, `message` has its words, and another attempt makes no
      difference. Stuck: a model stays LOADING. Unreachable: there is no answer, and the prober tries again.
    - `loaded`, `unloaded`: the models of the change that are done. One that another model needs counts as unloaded,
      although it stays.
    """

    state: Literal["Running", "Done", "Refused", "Stuck", "Unreachable"]
    message: str = ""
    loaded: tuple[str, ...] = ()
    unloaded: tuple[str, ...] = ()
