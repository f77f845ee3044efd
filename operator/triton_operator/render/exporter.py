"""What describes a container of the pods that Prometheus scrapes, beside Triton's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from triton_operator.api.types import TritonModel


@dataclass(frozen=True)
class Exporter:
    """A container beside the server that exposes metrics of what the server writes into a folder.

    - `is_on`: whether a TritonModel has it.
    - `field`: the field of spec.monitoring that adds it.
    - `container`, `port_name`, `port`: its name, and those of the port of its page.
    - `series`: a regular expression for the names of its metrics.
    - `command`: its program, in the operator's image.
    - `resources`: requests and limits, so that pods keep the QoS class that the server's resources give them.
    - `volume`, `folder`, `size`: the volume that both containers have, where it is mounted, and its maximum size. It is
      in memory: a full one takes no more files, while Kubernetes evicts a pod whose folder on disk is too large.
    - `read_by_operator`: whether the operator reads its page, too.
    - `flags`: those of tritonserver that it needs.
    - `without`: how to do without it, as the end of a sentence.
    """

    is_on: Callable[[TritonModel], bool]
    field: str
    container: str
    port_name: str
    port: int
    series: str
    command: tuple[str, ...]
    resources: Mapping[str, str]
    volume: str
    folder: str
    size: str
    flags: tuple[str, ...]
    without: str
    read_by_operator: bool = False
