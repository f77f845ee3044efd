"""What is known of one Triton server, and what it says of its models."""

from __future__ import annotations

from dataclasses import dataclass


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
    """A server that has started. `address` is host:port (HTTP); `epoch` changes when it may have other models
    than before."""

    uid: str
    pod: str
    address: str
    epoch: tuple[int, bool]
