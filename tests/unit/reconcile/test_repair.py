"""Which server is evicted because it has stopped answering spec.healthRequest, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import gen
from triton_operator.api.status import MAX_EVICTIONS, TritonModelStatus
from triton_operator.pods import Pod
from triton_operator.reconcile.repair import next_allowed, repair
from triton_operator.reconcile.steps import Evict, ReconcileAfter

NOW = datetime(2026, 1, 1, 2, tzinfo=UTC)
REQUEST = {"file": "detector/health.json"}
MINUTE = timedelta(minutes=1)


def server(number: int, *modifiers: gen.Modifier, **more: Any) -> Pod:
    return Pod(gen.pod(*modifiers, name=f"server-{number}", **more))


def stopped(number: int, since: timedelta = MINUTE) -> Pod:
    return server(number, gen.stopped_answering(text(NOW - since)))


def text(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def steps(
    *pods: Pod, replicas: int | None = None, evictions: tuple[timedelta, ...] = (), now: datetime = NOW, **spec: Any
) -> list[str | float]:
    """Returns the name of the evicted pod, or the seconds until the next look. `evictions`: how long ago they were."""
    snapshot: Any = SimpleNamespace(
        model=gen.model(**{"healthRequest": REQUEST, **spec}),
        pods=pods,
        deployment={"spec": {"replicas": len(pods) if replicas is None else replicas}},
        before=TritonModelStatus(evictions=[text(now - ago) for ago in evictions]),
        time=now,
    )
    return [
        step.pod.name if isinstance(step, Evict) else step.seconds
        for step in repair(snapshot, gen.TEMPLATE)
        if isinstance(step, Evict | ReconcileAfter)
    ]


def test_evicts_the_server_that_stopped_first() -> None:
    assert steps(server(1), stopped(2), stopped(3, 2 * MINUTE)) == ["server-3"]


def test_evicts_the_only_server() -> None:
    assert steps(stopped(1)) == ["server-1"]


def test_waits_half_a_minute() -> None:
    assert steps(server(1), stopped(2, timedelta(seconds=10))) == [20]


def test_waits_longer_if_requests_are_rare() -> None:
    """A kubelet that has restarted sends the first one within `everySeconds`."""
    slow = {**REQUEST, "everySeconds": 300, "timeoutSeconds": 10}
    assert steps(server(1), stopped(2), healthRequest=slow) == [300 + 3 * 10 + 5 - 60]


def test_a_server_without_a_node_keeps_no_other_from_being_replaced() -> None:
    assert steps(server(1), stopped(2), server(3, gen.unschedulable("no GPU"))) == ["server-2"]


@pytest.mark.parametrize("text", ["soon", "2026-01-01t00:00:00z", "2026-01-01T00:00:00", "0000-01-01T00:00:00Z"])
def test_ignores_a_time_in_the_status_that_is_none(text: str) -> None:
    assert next_allowed([text], NOW) in (NOW, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=2))


def test_ignores_evictions_in_the_future() -> None:
    """The clock was set back, or that of an earlier leader was ahead."""
    assert steps(server(1), stopped(2), evictions=(-6 * 60 * MINUTE,)) == ["server-2"]
    assert steps(server(1), stopped(2), evictions=(-6 * 60 * MINUTE, MINUTE)) == [60]


NEVER = {
    "every server has stopped": steps(stopped(1), stopped(2)),
    "all answer": steps(server(1), server(2)),
    "one is starting": steps(server(1), stopped(2), server(3, gen.not_ready)),
    "one is missing": steps(server(1), stopped(2), replicas=3),
    "one is ending": steps(server(1), stopped(2), server(3, gen.deleting)),
    "one has the former template": steps(server(1), stopped(2), server(3, template="former")),
    "it never answered": steps(server(1), server(2, gen.stopped_answering("2025-12-31T00:00:00Z"))),
    "without a health request": steps(server(1), stopped(2), healthRequest=None),
    "only reported": steps(server(1), stopped(2), repair="Report"),
}


@pytest.mark.parametrize("result", NEVER.values(), ids=NEVER.keys())
def test_evicts_none(result: list[str | float]) -> None:
    assert result == []


def test_ended_pods_do_not_count() -> None:
    ended = server(3, gen.put("status.phase", "Failed"))
    assert steps(server(1), stopped(2), ended, replicas=2) == ["server-2"]


def test_the_pauses_grow() -> None:
    minutes = [
        steps(server(1), stopped(2), evictions=tuple(timedelta(hours=2 * n) for n in reversed(range(number))))
        for number in range(1, MAX_EVICTIONS)
    ]
    assert minutes == [[120], [600], [3600], [14400]]


def test_no_more_than_five_in_a_day() -> None:
    evictions = tuple(timedelta(hours=hours) for hours in (23, 20, 16, 12, 8))
    assert steps(server(1), stopped(2), evictions=evictions) == [3600]
    assert steps(server(1), stopped(2), evictions=(timedelta(hours=24), *evictions[1:])) == ["server-2"]


@given(st.data(), st.integers(1, 4))
def test_a_day_of_failures(data: st.DataObject, number: int) -> None:
    """Servers stop and recover as they like. There are never more than the allowed evictions, and never all at once."""
    now, evictions = NOW, list[datetime]()
    since: dict[int, datetime] = {}
    for _ in range(15):
        now += timedelta(minutes=data.draw(st.sampled_from([0.1, 1, 5, 30, 120])))
        down = data.draw(st.sets(st.integers(1, number)))
        since = {n: since.get(n, now) for n in down}
        pods = [
            server(n, *([gen.stopped_answering(text(since[n]))] if n in down else [])) for n in range(1, number + 1)
        ]
        result = steps(*pods, now=now, evictions=tuple(now - time for time in evictions[-MAX_EVICTIONS:]))
        names = [step for step in result if isinstance(step, str)]
        assert len(result) <= 1
        if names:
            assert {int(names[0].removeprefix("server-"))} <= down
            assert number == 1 or len(down) < number
            evictions.append(now)
            since = {}
        assert sum(now - time < timedelta(days=1) for time in evictions) <= MAX_EVICTIONS
