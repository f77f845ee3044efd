"""What a request is sent to, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A version of a model. `sequence_names`: whether the ids of its sequences are texts."""

    model: str
    version: str = ""
    streams: bool = False
    sequence_names: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor of a response. `fault`: why its content doesn't fit its data type and shape; "" if it does."""

    name: str
    kind: str
    shape: tuple[int, ...]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request.

    - `responses`: in their order.
    - `error`: Triton's words; "" if it was answered.
    - `is_late`: whether it wasn't answered in time, or a stream has not ended.
    - `seconds`: how long it took.
    """

    responses: tuple[tuple[Output, ...], ...] = ()
    error: str = ""
    is_late: bool = False
    seconds: float = 0.0
