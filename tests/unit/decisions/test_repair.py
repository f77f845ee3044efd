"""Which server is evicted because it has stopped answering spec.healthRequest, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import gen
from triton_operator.api.servers import ServerAnswers
from triton_operator.api.status import MAX_EVICTIONS, TritonModelStatus
from triton_operator.decisions.memory import SilentServers
from triton_operator.decisions.repair import Repair, look, next_allowed, repair
from triton_operator.decisions.steps import Evict
from triton_operator.pods import Pod
from triton_operator.pods.group import Group

NOW = datetime(2026, 1, 1, 2, tzinfo=UTC)
REQUEST = {"file": "detector/health.json"}
MINUTE = timedelta(minutes=1)


def server(number: int, *modifiers: gen.Modifier, **more: Any) -> Pod:
    return Pod(gen.pod(*modifiers, name=f"server-{number}", **more))


def stopped(number: int, since: timedelta = MINUTE) -> Pod:
    return server(number, gen.stopped_answering(text(NOW - since)))


def text(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


class Seen:
    """What was seen before."""

    silent = SilentServers()


def decided(
    *pods: Pod,
    replicas: int | None = None,
    evictions: tuple[timedelta, ...] = (),
    now: datetime = NOW,
    quota: bool = False,
    changes_models: bool = False,
    seen: Seen | None = None,
    not_ready: tuple[int, ...] = (),
    not_asked: tuple[int, ...] = (),
    **spec: Any,
) -> Repair:
    """Returns the decision. `evictions`: how long ago they were. `quota`: it refuses further pods.

    `not_ready`: the servers that say this themselves. `not_asked`: those that were not asked yet.
    """
    refused = [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}] if quota else []
    model = gen.model(**{"healthRequest": REQUEST, **spec})
    deployment = {
        "spec": {"replicas": sum(not pod.is_deleting for pod in pods) if replicas is None else replicas},
        "status": {"conditions": refused},
    }
    groups = [Group(deployment, pods, gen.TEMPLATE, model=model)]
    snapshot: Any = SimpleNamespace(
        model=model,
        pods=pods,
        ending=(),
        before=TritonModelStatus(evictions=[text(now - ago) for ago in evictions]),
        servers=ServerAnswers(
            not_ready={f"server-{n}": True for n in not_ready} | dict.fromkeys(f"server-{n}" for n in not_asked)
        ),
        time=now,
    )
    seen = seen or Seen()
    seen.silent = look(snapshot, groups, seen.silent)
    return repair(snapshot, groups, seen.silent, changes_models=changes_models)


def steps(*pods: Pod, **more: Any) -> list[str | float]:
    """Returns the name of the evicted pod, or the seconds until the next look."""
    step = decided(*pods, **more).step
    return [] if step is None else [step.pod.name if isinstance(step, Evict) else step.seconds]


def test_evicts_the_server_that_stopped_first() -> None:
    assert steps(server(1), stopped(2), stopped(3, 2 * MINUTE)) == ["server-3"]


def test_evicts_none_that_says_itself_that_it_is_not_ready() -> None:
    assert steps(server(1), stopped(2), not_ready=(2,)) == []
    note = decided(server(1), stopped(2), not_ready=(2,)).note
    assert note.startswith("server-2 isn't evicted, because it says itself that it isn't ready")
    assert steps(server(1), stopped(2), stopped(3, 2 * MINUTE), not_ready=(3,)) == ["server-2"]


def test_a_new_leader_asks_before_it_evicts() -> None:
    assert steps(server(1), stopped(2, 10 * MINUTE), not_asked=(2,)) == []
    assert steps(server(1), stopped(2, 10 * MINUTE)) == ["server-2"]


def test_patience_begins_when_it_no_longer_says_so() -> None:
    seen, pods = Seen(), (server(1), stopped(2, 10 * MINUTE))
    assert steps(*pods, not_ready=(2,), seen=seen) == []
    assert steps(*pods, now=NOW + timedelta(seconds=10), seen=seen) == [20]
    assert steps(*pods, now=NOW + timedelta(seconds=30), seen=seen) == ["server-2"]


STARTED = gen.condition("Ready", "True", lastTransitionTime="2026-01-01T00:03:00Z")
"""Three minutes after its creation."""


def test_evicts_the_only_server_after_the_time_of_a_start() -> None:
    """A database that is away for two minutes isn't worth a start of ten."""
    assert steps(stopped(1)) == [9 * 60], "the time of a start isn't known"
    assert steps(stopped(1, 10 * MINUTE)) == ["server-1"]
    assert steps(stopped(1), rollout={"startupSeconds": 80}) == [20]
    seen = Seen()
    assert steps(server(1, STARTED), seen=seen) == []
    assert steps(stopped(1), seen=seen) == [2 * 60]
    late = gen.condition("Ready", "True", lastTransitionTime="2026-01-01T01:00:00Z")
    assert steps(server(1, late), seen=seen) == []
    assert steps(stopped(1), seen=seen) == [2 * 60], "a later time is that of a server that answered again"
    assert steps(server(1, STARTED, template="former")) == []
    assert steps(stopped(1), server(2, gen.unschedulable("no GPU")), seen=seen) == [2 * 60]


def test_says_what_comes_next() -> None:
    assert decided(server(1), stopped(2)).note == ""
    soon = stopped(2, timedelta(seconds=10))
    assert decided(server(1), soon).note == "server-2 is evicted at 02:00:20 UTC unless it answers"
    assert decided(stopped(1)).note == "server-1 is evicted at 02:09:00 UTC unless it answers"
    assert decided(stopped(1), stopped(2)).note == (
        "server-1 isn't evicted, because no server answers: the request, the model or what it depends on is to blame"
    )
    assert decided(server(1), stopped(2), evictions=(MINUTE,)).note == (
        "a server was evicted in the last 24 hours, so server-2 is evicted at 02:01:00 UTC unless it answers"
    )
    day = tuple(timedelta(hours=hours) for hours in (23, 20, 16, 12, 8))
    assert decided(server(1), stopped(2), evictions=day).note == (
        "5 servers were evicted in the last 24 hours, so server-2 is evicted at 03:00:00 UTC unless it answers"
    )
    assert decided(server(1), stopped(2), replicas=3).note == "server-2 isn't evicted while a server is missing"
    ends = gen.put("metadata.deletionTimestamp", text(NOW))
    assert decided(server(1), stopped(2), server(3, ends)).note == "server-2 isn't evicted while server-3 ends"
    assert decided(server(1), stopped(2), changes_models=True).note == (
        "server-2 isn't evicted while the models of a server change"
    )
    assert decided(server(1), stopped(2), repair="Report").note == ""


def test_waits_half_a_minute() -> None:
    assert steps(server(1), stopped(2, timedelta(seconds=10))) == [20]


def test_waits_longer_if_requests_are_rare() -> None:
    """A kubelet that has restarted sends the first one within `everySeconds`."""
    slow = {**REQUEST, "everySeconds": 300, "timeoutSeconds": 10}
    assert steps(server(1), stopped(2), healthRequest=slow) == [300 + 3 * 10 + 5 - 60]


CRASHING = gen.state("triton", ready=False, started=False, state={"waiting": {"reason": "CrashLoopBackOff"}},
                     lastState={"terminated": {"exitCode": 1}})  # fmt: skip
STARTING = gen.state("triton", ready=False, started=False, state={"running": {"startedAt": text(NOW - MINUTE)}})
PULLING = gen.state("triton", ready=False, started=False, state={"waiting": {"reason": "PodInitializing"}})
LEFT_BEHIND = gen.put("metadata.deletionTimestamp", text(NOW - 2 * MINUTE))
LATE = gen.put("metadata.creationTimestamp", text(NOW - 29 * MINUTE))
HOPELESS = {
    "no node": server(3, gen.unschedulable("no GPU")),
    "no image": server(3, gen.not_ready, gen.waiting("triton", "ImagePullBackOff", "not found")),
    "a crash in each start": server(3, CRASHING),
    "too long a start": server(3, gen.not_ready),
    "too long a pull": server(3, PULLING),
    "its node is dead": server(3, gen.condition("Ready", "False")),
    "its node is dead, and it ends": server(3, LEFT_BEHIND),
    "a former template": server(3, template="former"),
}


@pytest.mark.parametrize("other", HOPELESS.values(), ids=HOPELESS.keys())
def test_what_does_not_get_better_keeps_no_server_from_being_replaced(other: Pod) -> None:
    assert steps(server(1), stopped(2), other) == ["server-2"]
    assert steps(stopped(2, 10 * MINUTE), other) == ["server-2"]


def test_a_quota_keeps_no_server_from_being_replaced() -> None:
    assert steps(server(1), stopped(2), replicas=3, quota=True) == ["server-2"]


def test_waits_for_another_server_only_as_long_as_it_may_take() -> None:
    assert steps(server(1), stopped(2), server(3, STARTING)) == [600]
    assert steps(server(1), stopped(2), server(3, PULLING, LATE)) == [60]
    ends = gen.put("metadata.deletionTimestamp", text(NOW + MINUTE))
    assert steps(server(1), stopped(2), server(3, ends)) == [120]


def test_a_sidecar_that_was_not_ready_before_does_not_count() -> None:
    """The pod's condition is as old as that of the sidecar."""
    sidecar = gen.injected("mesh", ready=False, state={"running": {}})
    two, seen = server(2, gen.stopped_answering(text(NOW - 60 * MINUTE)), sidecar), Seen()
    assert steps(server(1), two, seen=seen) == [30]
    assert steps(server(1), two, seen=seen, now=NOW + timedelta(seconds=20)) == [10]
    assert steps(server(1), two, seen=seen, now=NOW + timedelta(seconds=30)) == ["server-2"]


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
    "one is missing": steps(server(1), stopped(2), replicas=3),
    "models change": steps(server(1), stopped(2), changes_models=True),
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
        if names:
            assert {int(names[0].removeprefix("server-"))} <= down
            assert number == 1 or len(down) < number
            evictions.append(now)
            since = {}
        assert sum(now - time < timedelta(days=1) for time in evictions) <= MAX_EVICTIONS
