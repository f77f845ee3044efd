"""Reads what answers of a canary have in common with the others', from the container that compares them."""

from __future__ import annotations

from triton_operator.api import names
from triton_operator.api.servers import Comparison, RunningServer

from .counters import lines
from .fetch import FetchError, HttpClient, Limits, fetch
from .polls import PATIENCE_SECONDS, Polls

_SECONDS = 10.0
_LIMITS = Limits(connect_seconds=1.0, total_seconds=PATIENCE_SECONDS, body_bytes=64 << 10)
_MOST = 1e12
_ANSWERS, _OUTPUTS, _NOT_COMPARED = (
    "triton_operator_compared_answers_total",
    "triton_operator_different_outputs_total",
    "triton_operator_answers_not_compared_total",
)
"""operator/answer_comparison/comparer.py writes them."""


class _Latest:
    """The last answer of one server."""

    def __init__(self, _: None) -> None:
        self._last: Comparison | None = None

    def add(self, _: float, answer: Comparison) -> None:
        self._last = answer

    def known(self) -> Comparison | None:
        return self._last


def comparison_probes() -> Polls[None, Comparison, Comparison | None]:
    """Returns the polls of the containers that compare answers."""
    return Polls(_SECONDS, comparison, _Latest)


async def comparison(client: HttpClient, server: RunningServer, _: None = None) -> Comparison:
    """Returns the numbers of one server of a canary. Raises FetchError."""
    page = await fetch(client, "GET", f"http://{server.host}:{names.ANSWERS_PORT}/metrics", _LIMITS)
    with client.taking_time():
        return parse(page)


def parse(page: bytes) -> Comparison:
    """Returns the same from a page, which may be another's. Raises FetchError."""
    found: dict[str, dict[str, float]] = {_ANSWERS: {}, _OUTPUTS: {}, _NOT_COMPARED: {}}
    for line in lines(page, found):
        if not line.is_count or line.value > _MOST:
            raise FetchError(f"not the numbers of compared answers: {line.metric} is {line.value}"[:300])
        # There is one label.
        found[line.metric]["".join(line.labels.values())] = line.value
    answers = found[_ANSWERS]
    return Comparison(
        answers.get("exact", 0.0),
        answers.get("close", 0.0),
        answers.get("different", 0.0),
        answers.get("varying", 0.0),
        found[_OUTPUTS],
        found[_NOT_COMPARED],
    )
