"""The state of one Triton server and of its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Literal

from . import names
from .monitoring import Series


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A model in Triton's repository index. `reason`: Triton's message if the model isn't READY."""

    name: str
    version: str
    state: str
    reason: str


Index = tuple[IndexEntry, ...]
UNLOADED = "unloaded"
"""Triton's reason for a model that was unloaded through its API."""
Uncounted = tuple[tuple[str, str], ...]
"""Models that answer requests without Triton counting them, each with the evidence."""


@dataclass(frozen=True)
class MemoryGrowth:
    """The memory of a server that grows steadily.

    - `full`: when it will reach the limit, at the present pace.
    - `nearly_full`: whether 90 % of the limit is used.
    """

    full: datetime
    nearly_full: bool = False


LoadTimes = Mapping[tuple[str, str], float]
"""A model and its version → the seconds that its last load took."""
NO_LOAD_TIMES: LoadTimes = MappingProxyType({})


@dataclass(frozen=True)
class ServerAnswers:
    """The last answers of a TritonModel's servers.

    - `indexes`: pod name → models, also unloaded ones, for the servers with a usable answer.
    - `unusable`: pod name → why the server's answer can't be used.
    - `pending`: whether a server hasn't been polled since it started or since its readiness changed.
    - `on_cpu`: pod name → a model that Triton runs on the CPU, and would run on a GPU if it saw one.
    - `not_ready`: pod whose readiness probe has failed → whether its server says itself, at once, that it isn't ready;
      None before it has answered that.
    - `versions`: pod name → the version of Triton, e.g. 2.51.0.
    - `load_times`: pod name → how long its models took to load, for the servers that measure it.
    """

    indexes: Mapping[str, Index] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)
    pending: bool = False
    uncounted: Uncounted = ()
    on_cpu: Mapping[str, str] = field(default_factory=dict)
    not_ready: Mapping[str, bool | None] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    load_times: Mapping[str, LoadTimes] = field(default_factory=dict)


@dataclass(frozen=True)
class RunningServer:
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
    """Requests of one model on one server: served and failed since the start, and waiting now.

    - `microseconds`: the sum of the times of those that were served.
    - `canceled`: how many of those that failed were canceled by their clients.
    """

    success: float = 0.0
    failure: float = 0.0
    pending: float = 0.0
    microseconds: float = 0.0
    canceled: float = 0.0


@dataclass(frozen=True)
class ServerCounters:
    """The counters of one server.

    - `models`: the requests of each model, by its name.
    - `tokens`: the tokens of all models since the server's start.
    - `streams`: the streams that run or wait now.
    - `cache`: the share of the KV cache that is in use now, 0 to 1.
    """

    models: Mapping[str, Counters]
    tokens: float = 0.0
    streams: float = 0.0
    cache: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The entrypoint's requests that a server has answered or failed since its start, and the ones that wait.

    - `at`: seconds of a monotonic clock.
    - `tokens`, `streams`, `cache`: as in ServerCounters.
    - `failed`: how many of the requests failed. `seconds`: the sum of the times of the others.
    - `canceled`: how many of those that failed were canceled by their clients.
    """

    at: float
    requests: float
    waiting: float
    tokens: float = 0.0
    streams: float = 0.0
    cache: float = 0.0
    failed: float = 0.0
    seconds: float = 0.0
    canceled: float = 0.0


@dataclass(frozen=True)
class Subject:
    """Whose requests count, and which other series.

    - `entrypoint`: the model that clients call.
    - `steps`: the other models, if it is an ensemble. Its requests wait at those that are its steps.
    - `failures_per_request`: how often the server counts one failed request.
    - `tokens`, `streams`, `cache`: the series of these fields of ServerCounters; empty if the spec names none.
    """

    entrypoint: str
    steps: frozenset[str] = frozenset()
    failures_per_request: int = 1
    tokens: tuple[Series, ...] = ()
    streams: tuple[Series, ...] = ()
    cache: tuple[Series, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """What the answers of a canary's server have in common with those of the other servers, since it started.

    - `exact`, `close`, `different`: numbers of answers, see answer_comparison.answers.Likeness.
    - `varying`: how often two answers of the other servers differed.
    - `outputs`: output → in how many answers it differs.
    - `reasons`: why answers couldn't be compared → how many.
    """

    exact: float = 0.0
    close: float = 0.0
    different: float = 0.0
    varying: float = 0.0
    outputs: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, float] = field(default_factory=dict)


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
class ChangeOutcome:
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
