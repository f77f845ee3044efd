"""What is known of one Triton server, and what it says of its models."""

from __future__ import annotations

from dataclasses import dataclass

from . import names


@dataclass(frozen=True)
class IndexEntry:
    """One line of Triton's repository index. `state` is empty for a model that was never asked to load."""

    name: str
    version: str
    state: str
    reason: str

    @property
    def counts(self) -> bool:
        """Whether it shall be loaded: "unloaded" is Triton's reason for what was taken away on purpose."""
        return bool(self.state) and self.reason != "unloaded"


Index = tuple[IndexEntry, ...]


@dataclass(frozen=True)
class Server:
    """A server that has started. `host`: the pod's IP address, in brackets for IPv6. `epoch`: the container's restart
    count and readiness; its models may have changed when this changes."""

    uid: str
    pod: str
    host: str
    epoch: tuple[int, bool]

    @property
    def address(self) -> str:
        """host:port of HTTP."""
        return f"{self.host}:{names.PORTS['http']}"

    @property
    def metrics(self) -> str:
        """host:port of the metrics."""
        return f"{self.host}:{names.PORTS['metrics']}"


@dataclass(frozen=True)
class Counters:
    """Requests of one model on one server since it started: served, failed, and waiting at the moment."""

    success: float = 0.0
    failure: float = 0.0
    pending: float = 0.0
