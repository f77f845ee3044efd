"""Reads the traces that Triton writes. Pure: a file is untrusted text of a bounded length."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard

_RECEIVED = ("HTTP_RECV_START", "GRPC_WAITREAD_END")
"""When a client's request begins. Before GRPC_WAITREAD_END, a gRPC stream waits for the request."""
_SENT = ("HTTP_SEND_END", "GRPC_SEND_END")
_START, _END = "REQUEST_START", "REQUEST_END"
_QUEUED, _EXECUTED, _DONE = "QUEUE_START", "COMPUTE_START", "COMPUTE_END"
_ONCE = {"HTTP_RECV_START", "HTTP_SEND_END", "GRPC_WAITREAD_END", _START, _END, _QUEUED, _EXECUTED, _DONE}
"""Times that Triton writes once for each request. A gRPC stream has a GRPC_SEND_END for each response."""
_MAX_SECONDS = 86400.0
_MAX_NS = 2**63


class Times(NamedTuple):
    """How long one request to one model took, in seconds. A step of an ensemble is a request of its own.

    - `request`: for a client's request from its receipt until its response is handed over for sending; for others,
      which other models send, the time in Triton.
    - `queue`, `compute`: the part in the queue, and in the backend; None for a model without them, e.g. an ensemble.
    """

    model: str
    version: str
    request: float
    queue: float | None
    compute: float | None


class Trace(NamedTuple):
    """A client's request, and the steps that it caused. `began`: its first time, in nanoseconds of CLOCK_MONOTONIC."""

    began: int
    times: list[Times]


def read(text: str) -> Trace:
    """Returns the trace in a file.

    Raises ValueError if the text isn't the whole trace of one request, as in a file that Triton still writes.
    Format: https://github.com/triton-inference-server/server/blob/main/docs/user_guide/trace.md

    Triton writes a client's request ID without escapes, so a client can add items to the list. Those that would change
    the times of the request, or add another request than a step, make the file invalid.
    """
    try:
        items = json.loads(text)
    except RecursionError:
        items = None
    if not isinstance(items, list):
        raise ValueError("not a list of traces")  # noqa: TRY004 - the content of a file
    models: dict[int, tuple[str, str]] = {}
    stamps: dict[int, dict[str, int]] = {}
    roots = 0
    for item in items:
        if not isinstance(item, dict) or not _is_number(number := item.get("id")):
            raise ValueError("not a trace")
        if "model_name" in item:
            name, version = item["model_name"], item.get("model_version")
            if number in models or not isinstance(name, str) or not _is_number(version):
                raise ValueError("not the model of a trace")
            models[number] = (name, str(version))
            roots += "parent_id" not in item
        _add(stamps.setdefault(number, {}), item.get("timestamps", []))
    if roots != 1:
        raise ValueError("not the trace of one request")
    began = min((at for times in stamps.values() for at in times.values()), default=0)
    times = (_times(*model, stamps[number]) for number, model in models.items())
    return Trace(began, [t for t in times if t is not None])


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value < _MAX_NS


def _add(stamps: dict[str, int], listed: Any) -> None:
    """Adds the listed times to those of a request. Raises ValueError for a time that is no time, or there twice."""
    if not isinstance(listed, list):
        raise ValueError("not a list of times")  # noqa: TRY004 - the content of a file
    for stamp in listed:
        name, at = (stamp.get("name"), stamp.get("ns")) if isinstance(stamp, dict) else (None, None)
        if not isinstance(name, str) or not _is_number(at) or (name in _ONCE and name in stamps):
            raise ValueError("not a time")
        stamps[name] = at


def _times(model: str, version: str, at: Mapping[str, int]) -> Times | None:
    # REQUEST_END may be milliseconds after the response was sent.
    request = _seconds(at, _RECEIVED, _SENT)
    if request is None:
        request = _seconds(at, (_START,), (_END,))
    if request is None:
        return None
    return Times(model, version, request, _seconds(at, (_QUEUED,), (_EXECUTED,)), _seconds(at, (_EXECUTED,), (_DONE,)))


def _seconds(at: Mapping[str, int], starts: Iterable[str], ends: Iterable[str]) -> float | None:
    """Returns the time between the first of `starts` and the first of `ends` that the trace has."""
    start, end = (next((at[name] for name in names if name in at), None) for names in (starts, ends))
    if start is None or end is None:
        return None
    seconds = (end - start) / 1e9
    return seconds if 0 <= seconds <= _MAX_SECONDS else None
