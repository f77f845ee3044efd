"""Each repair of a server is reported once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from support import gen
from triton_operator.api import names
from triton_operator.api.status import RepairStatus
from triton_operator.decisions.memory import Memory
from triton_operator.pods import Pod
from triton_operator.reconcile.repairs import unreported

NOW = datetime(2026, 2, 1, tzinfo=UTC)
EARLY, TIME, LATER = "2026-01-01T00:00:04Z", "2026-01-01T00:00:05Z", "2026-01-01T00:10:00Z"


def restarted(name: str, time: str) -> Pod:
    ended = {"exitCode": 0, "message": "a backend process died: /models/a/1/model.py", "finishedAt": time}
    state = gen.put("status.containerStatuses.0.lastState", {"terminated": ended})
    return Pod(gen.pod(gen.put("metadata.name", name), state))


def repair(time: str, server: str = "gone") -> RepairStatus:
    return RepairStatus(reason="HealthRequestFailed", server=server, message="it was evicted", time=time)


class Reports:
    """Reports repairs as reconciles do. `memory`: what the last one remembers."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory or Memory()

    def of(
        self, pods: list[Pod], before: RepairStatus | None = None, deployment: dict[str, Any] | None = None
    ) -> list[str]:
        """Returns the servers whose repairs are reported. `before`: the last one in the status."""
        repairs, reported = unreported(pods, deployment, before, self.memory, NOW)
        self.memory = replace(self.memory, reported_repairs=reported)
        return [repair.server for repair in repairs]


def test_reports_each_once() -> None:
    reports, pods = Reports(), [restarted("a", TIME), restarted("b", TIME), Pod(gen.pod())]
    assert reports.of(pods) == ["a", "b"]
    assert reports.of(pods) == []
    # One kubelet was late, and a server restarts again.
    pods = [restarted("a", LATER), restarted("b", TIME), restarted("c", EARLY)]
    assert reports.of(pods, repair(TIME, "a")) == ["c", "a"]
    assert reports.of(pods[1:], repair(LATER, "a")) == []


def test_a_new_leader_reports_what_came_after_the_last_one_in_the_status() -> None:
    pods = [restarted("a", EARLY), restarted("b", TIME), restarted("c", LATER)]
    assert Reports().of(pods, repair(TIME, "b")) == ["c"]


def test_reports_an_eviction_until_it_is_in_the_status() -> None:
    reports = Reports(Memory(evicted=repair(TIME)))
    assert reports.of([]) == ["gone"]
    assert reports.of([]) == []
    reports.memory = replace(reports.memory, evicted=None)
    assert reports.of([], repair(TIME)) == []


def test_reports_a_replacement_once() -> None:
    deployment = {"spec": {"template": {"metadata": {"annotations": {names.ANNOTATION_MEMORY: f"{TIME} a"}}}}}
    reports = Reports()
    assert reports.of([], deployment=deployment) == ["a"]
    assert reports.of([], deployment=deployment) == []
    assert Reports().of([], repair(TIME, "a"), deployment) == []
    assert Reports().of([], repair(LATER), deployment) == []
    assert Reports().of([], repair(EARLY), deployment) == ["a"]
