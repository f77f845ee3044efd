"""What is known of one Triton server, and what it says of its models."""

from __future__ import annotations

from dataclasses import dataclass

from . import names


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A model that a server shall have loaded, as Triton's repository index lists it. `reason` is Triton's own words on
    why it isn't READY."""

    name: str
    version: str
    state: str
    reason: str


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
