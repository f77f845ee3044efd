"""What happens when the API server refuses an eviction."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import gen
from triton_operator.cluster.errors import ApiError
from triton_operator.decisions.memory import Memory
from triton_operator.decisions.outcome import Eviction, Outcome
from triton_operator.pods import Pod
from triton_operator.reconcile.evict import Evictor

LOG = logging.LoggerAdapter(logging.getLogger(__name__))
POD = Pod(gen.pod(gen.stopped_answering()))


class Refusing:
    """An API server that answers evictions with `error`."""

    def __init__(self, error: ApiError) -> None:
        self.error, self.evictions = error, 0

    def evict(self, _: Any) -> None:
        self.evictions += 1
        raise self.error


@pytest.mark.parametrize("code", [403, 429, 500])
def test_a_refusal_is_reported_all_the_time_and_tried_again_after_a_minute(code: int) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    api, memory = Refusing(ApiError(code, "", "no")), Memory()
    evictor = Evictor(api, lambda: now)
    for _ in range(3):
        outcome = Outcome()
        evictor.evict(POD, memory.eviction_refusal, outcome, LOG)
        memory = outcome.remember(memory, now)
        assert outcome.refused["Pod"].reason == "RepairRefused"
        assert outcome.requeue_after == 60
    assert api.evictions == 1
    now += timedelta(minutes=1)
    evictor.evict(POD, memory.eviction_refusal, Outcome(), LOG)
    assert api.evictions == 2
    assert memory.evicted is None


def test_a_refusal_is_no_reason_to_wait_after_the_clock_is_set_back() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    api, before, outcome = Refusing(ApiError(403, "", "no")), Outcome(), Outcome()
    evictor = Evictor(api, lambda: now)
    evictor.evict(POD, None, before, LOG)
    now -= timedelta(days=1)
    evictor.evict(POD, before.remember(Memory(), now).eviction_refusal, outcome, LOG)
    assert (api.evictions, outcome.requeue_after) == (2, 60)


@pytest.mark.parametrize("code", [404, 409])
def test_a_server_that_has_changed_meanwhile_is_left_alone(code: int) -> None:
    outcome = Outcome()
    Evictor(Refusing(ApiError(code, "", "no")), lambda: datetime.now(UTC)).evict(POD, None, outcome, LOG)
    assert (outcome.refused, outcome.eviction) == ({}, Eviction())


def test_without_an_answer_the_reconcile_ends() -> None:
    with pytest.raises(ApiError):
        Evictor(Refusing(ApiError(0, "", "no answer")), lambda: datetime.now(UTC)).evict(POD, None, Outcome(), LOG)
