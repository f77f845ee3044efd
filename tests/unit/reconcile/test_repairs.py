"""Each repair of a server is reported once."""

from __future__ import annotations

from support import gen
from triton_operator.api.status import RepairStatus
from triton_operator.pods import Pod
from triton_operator.reconcile.cache import ReconcileCache
from triton_operator.reconcile.repairs import unreported

EARLY, TIME, LATER = "2026-01-01T00:00:04Z", "2026-01-01T00:00:05Z", "2026-01-01T00:10:00Z"


def restarted(name: str, time: str) -> Pod:
    ended = {"exitCode": 0, "message": "a backend process died: /models/a/1/model.py", "finishedAt": time}
    state = gen.put("status.containerStatuses.0.lastState", {"terminated": ended})
    return Pod(gen.pod(gen.put("metadata.name", name), state))


def repair(time: str, server: str = "gone") -> RepairStatus:
    return RepairStatus(reason="HealthRequestFailed", server=server, message="it was evicted", time=time)


def test_reports_each_once() -> None:
    cache, pods = ReconcileCache(), [restarted("a", TIME), restarted("b", TIME), Pod(gen.pod())]
    assert [r.server for r in unreported(pods, None, cache)] == ["a", "b"]
    assert unreported(pods, None, cache) == []
    # One kubelet was late, and a server restarts again.
    pods = [restarted("a", LATER), restarted("b", TIME), restarted("c", EARLY)]
    assert [r.server for r in unreported(pods, repair(TIME, "a"), cache)] == ["c", "a"]
    assert unreported(pods[1:], repair(LATER, "a"), cache) == []


def test_a_new_leader_reports_what_came_after_the_last_one_in_the_status() -> None:
    pods = [restarted("a", EARLY), restarted("b", TIME), restarted("c", LATER)]
    assert [r.server for r in unreported(pods, repair(TIME, "b"), ReconcileCache())] == ["c"]


def test_reports_an_eviction_until_it_is_in_the_status() -> None:
    cache = ReconcileCache(evicted=repair(TIME))
    assert [r.server for r in unreported([], None, cache)] == ["gone"]
    assert unreported([], None, cache) == []
    cache.evicted = None
    assert unreported([], repair(TIME), cache) == []
