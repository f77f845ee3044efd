"""Leader election with a Lease in memory and a clock of the test. tests/integration uses a real API server."""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from typing import Any

import pytest

from support import clock as idle
from triton_operator.api.kinds import Kind
from triton_operator.cluster.errors import ApiError
from triton_operator.runtime import elector as module
from triton_operator.runtime.elector import Elector

Object = dict[str, Any]


class Leases:
    """An API server with one Lease and optimistic locking."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.down = False
        self.writes = 0

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        self._check_reachable()
        if self.lease is None:
            raise ApiError(404, "NotFound", "no lease")
        return copy.deepcopy(self.lease)

    def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        self._check_reachable()
        if self.lease is not None:
            raise ApiError(409, "AlreadyExists", "already exists")
        return self._write(body)

    def replace(self, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        self._check_reachable()
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(409, "Conflict", "changed meanwhile")
        return self._write(body)

    @property
    def spec(self) -> Object:
        assert self.lease is not None
        return self.lease["spec"]

    def _check_reachable(self) -> None:
        if self.down:
            raise ApiError(0, "NoAnswer", "no answer")

    def _write(self, body: Object) -> Object:
        self.version += 1
        self.writes += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def candidate(leases: Leases, name: str, clock: Clock | None = None) -> Elector:
    return Elector(leases, "ns", "lease", name, clock or Clock())  # type: ignore[arg-type]


def attempt(elector: Elector) -> bool:
    return asyncio.run(elector._attempt())


def test_first_candidate_leads_and_the_second_waits() -> None:
    leases = Leases()
    assert attempt(candidate(leases, "a"))
    assert leases.spec["holderIdentity"] == "a"
    second = candidate(leases, "b")
    assert not attempt(second)
    assert not attempt(second)
    assert leases.spec["holderIdentity"] == "a"


def test_renewal_keeps_the_acquire_time() -> None:
    leases, clock = Leases(), Clock()
    first = candidate(leases, "a", clock)
    assert attempt(first)
    acquired = leases.spec["acquireTime"]
    clock.now += 5
    assert attempt(first)
    assert (leases.spec["acquireTime"], leases.spec["leaseTransitions"], leases.writes) == (acquired, 0, 2)


def test_lease_of_a_dead_holder_expires_by_the_candidates_own_clock() -> None:
    leases, clock = Leases(), Clock()
    assert attempt(candidate(leases, "a"))
    leases.spec["renewTime"] = "2001-01-01T00:00:00.000000Z"  # a holder whose clock is far behind
    second = candidate(leases, "b", clock)
    assert not attempt(second)
    clock.now += module.LEASE_SECONDS - 0.1
    assert not attempt(second)
    clock.now += 0.2
    assert attempt(second)
    assert (leases.spec["holderIdentity"], leases.spec["leaseTransitions"]) == ("b", 1)


def test_nobody_takes_a_lease_that_is_renewed() -> None:
    leases, clock = Leases(), Clock()
    first, second = candidate(leases, "a", clock), candidate(leases, "b", clock)
    assert attempt(first)
    for number in range(20):
        clock.now += 10
        assert attempt(first)
        leases.spec["renewTime"] = f"renewed {number}"  # the real clock may not have moved between two renewals
        assert not attempt(second)


def test_released_lease_can_be_taken_at_once() -> None:
    leases = Leases()
    first, second = candidate(leases, "a"), candidate(leases, "b")
    assert attempt(first)
    assert not attempt(second)
    asyncio.run(first.release())
    assert leases.spec["holderIdentity"] == ""
    assert attempt(second)


def test_a_candidate_leaves_a_deleted_lease_to_its_holder() -> None:
    leases, clock = Leases(), Clock()
    first, second = candidate(leases, "a", clock), candidate(leases, "b", clock)
    assert attempt(first)
    assert not attempt(second)
    leases.lease = None
    clock.now += module.RENEW_SECONDS
    assert not attempt(second)
    assert attempt(first)
    assert not attempt(second)
    leases.lease = None
    clock.now += module.LEASE_SECONDS + 0.1
    assert attempt(second), "the holder is dead"


def test_a_leader_stops_when_it_sees_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new candidate doesn't know who held the lease that was deleted, so it leads."""
    leases, clock = Leases(), Clock()
    first, new = candidate(leases, "a", clock), candidate(leases, "b", clock)
    slept = asyncio.sleep

    async def sleep(seconds: float) -> None:
        clock.now += seconds
        await slept(0)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)

    async def main() -> float:
        task = asyncio.create_task(first.run())
        await first.leading.wait()
        leases.lease = None
        assert await new._attempt()
        since = clock.now
        await task
        return clock.now - since

    assert asyncio.run(main()) <= module.RETRY_SECONDS
    assert not first.may_write()
    assert not first.held
    assert leases.spec["holderIdentity"] == "b"


def test_only_the_holder_can_release_the_lease() -> None:
    leases = Leases()
    assert attempt(candidate(leases, "a"))
    asyncio.run(candidate(leases, "b").release())
    assert leases.spec["holderIdentity"] == "a"


def test_failed_release_raises_no_error() -> None:
    leases = Leases()
    first = candidate(leases, "a")
    assert attempt(first)
    leases.down = True
    asyncio.run(first.release())


def test_only_one_of_two_concurrent_candidates_leads() -> None:
    leases = Leases()
    first, second = candidate(leases, "a"), candidate(leases, "b")
    read = leases.get

    def get_before_the_other_creates(*args: Any) -> Object:
        leases.get = read  # type: ignore[method-assign]
        assert attempt_sync(second)
        raise ApiError(404, "NotFound", "stale read")

    def attempt_sync(elector: Elector) -> bool:
        return elector._take()

    leases.get = get_before_the_other_creates  # type: ignore[method-assign]
    assert not attempt(first)
    assert leases.spec["holderIdentity"] == "b"


def test_leader_stops_before_its_lease_expires_if_the_api_server_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader must stop before another candidate can lead."""
    leases, clock = Leases(), Clock()
    elector = candidate(leases, "a", clock)
    slept = asyncio.sleep

    async def sleep(seconds: float) -> None:
        clock.now += seconds
        await slept(0)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)

    async def main() -> float:
        task = asyncio.create_task(elector.run())
        await elector.leading.wait()
        for _ in range(100):
            await slept(0)
        leases.down, lost = True, clock.now
        await task
        return clock.now - lost

    took = asyncio.run(main())
    assert not elector.leading.is_set()
    assert not elector.held
    assert took + module.RETRY_SECONDS >= module.RENEW_SECONDS
    assert took < module.LEASE_SECONDS


def test_leader_stops_before_its_lease_expires_if_requests_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another candidate can lead one lease duration after the last renewal. A hanging attempt must end before."""
    for name, seconds in (("RENEW_SECONDS", 0.5), ("RETRY_SECONDS", 0.1), ("ATTEMPT_SECONDS", 0.3)):
        monkeypatch.setattr(module, name, seconds)
    leases, hang = Leases(), threading.Event()
    elector = candidate(leases, "a", time.monotonic)  # type: ignore[arg-type]
    read = leases.get

    async def main() -> float:
        task = asyncio.create_task(elector.run())
        await elector.leading.wait()
        began = idle.of_an_idle_machine()
        leases.get = lambda *args: (hang.wait(20), read(*args))[1]  # type: ignore[method-assign]
        await task
        return idle.of_an_idle_machine() - began

    took = asyncio.run(main())
    hang.set()
    # Long before the answer. On a busy machine it may be over before the first request hangs.
    assert took < 10, took


def test_leader_survives_one_hanging_request(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("RENEW_SECONDS", 10.0), ("RETRY_SECONDS", 0.1), ("ATTEMPT_SECONDS", 0.3)):
        monkeypatch.setattr(module, name, seconds)
    leases, hang = Leases(), threading.Event()
    elector = candidate(leases, "a", time.monotonic)  # type: ignore[arg-type]
    read = leases.get

    def hang_once(*args: Any) -> Object:
        leases.get = read  # type: ignore[method-assign]
        hang.wait(60)
        return read(*args)

    async def main() -> bool:
        task = asyncio.create_task(elector.run())
        await elector.leading.wait()
        leases.get = hang_once  # type: ignore[method-assign]
        async with asyncio.timeout(30):
            while leases.get == hang_once:
                await asyncio.sleep(0.01)
            writes = leases.writes
            while leases.writes == writes:
                await asyncio.sleep(0.01)
        leading = elector.leading.is_set()
        task.cancel()
        return leading

    try:
        assert asyncio.run(main())
    finally:
        hang.set()


def test_releases_the_lease_despite_a_concurrent_renewal() -> None:
    leases = Leases()
    first = candidate(leases, "a")
    assert attempt(first)
    replace = leases.replace

    def replace_after_a_renewal(*args: Any) -> Object:
        leases.replace = replace  # type: ignore[method-assign]
        leases._write(leases.lease or {})
        return replace(*args)

    leases.replace = replace_after_a_renewal  # type: ignore[method-assign]
    asyncio.run(first.release())
    assert leases.spec["holderIdentity"] == ""


def test_attempt_that_ends_after_the_release_does_not_take_the_lease() -> None:
    leases = Leases()
    first = candidate(leases, "a")
    assert attempt(first)
    read = leases.get

    def get_after_the_release(*args: Any) -> Object:
        leases.get = read  # type: ignore[method-assign]
        asyncio.run(first.release())
        return read(*args)

    leases.get = get_after_the_release  # type: ignore[method-assign]
    assert not attempt(first)
    assert leases.spec["holderIdentity"] == ""


def test_reports_once_that_the_resource_version_of_the_lease_fell() -> None:
    leases, clock, rollbacks = Leases(), Clock(), []
    leases.version = 1000
    elector = Elector(leases, "ns", "lease", "a", clock, on_version_rollback=lambda: rollbacks.append(clock.now))  # type: ignore[arg-type]
    assert [attempt(elector), attempt(elector), attempt(elector)] == [True, True, True]
    assert rollbacks == []
    backup = copy.deepcopy(leases.lease)
    assert backup is not None
    backup["metadata"]["resourceVersion"], leases.version, leases.lease = "50", 50, backup
    attempt(elector)
    assert rollbacks == [clock.now]
    attempt(elector)
    assert rollbacks == [clock.now], "the rollback was reported twice"


def test_may_not_write_after_the_renew_deadline_even_before_the_event_loop_notices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a pause of the process, its threads can continue before its event loop does."""
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.05)
    leases, clock = Leases(), Clock()
    elector = candidate(leases, "a", clock)

    async def run() -> None:
        assert not elector.may_write()
        lead = asyncio.create_task(elector.run())
        await elector.leading.wait()
        assert elector.may_write()
        clock.now += module.RENEW_SECONDS - 1
        assert elector.may_write()
        # The first of these writes may have begun before the clock moved, and the last one isn't noticed yet.
        writes = leases.writes
        async with asyncio.timeout(180):
            while leases.writes < writes + 3:
                await asyncio.sleep(0.01)
        clock.now += module.RENEW_SECONDS - 1
        assert elector.may_write()
        clock.now += 1.1
        assert not elector.may_write(), "the event loop hasn't run since the deadline"
        await asyncio.wait_for(lead, 5)
        assert not elector.may_write()

    asyncio.run(run())


def test_may_not_write_after_a_release() -> None:
    leases, clock = Leases(), Clock()
    elector = candidate(leases, "a", clock)

    async def run() -> None:
        lead = asyncio.create_task(elector.run())
        await elector.leading.wait()
        lead.cancel()
        await asyncio.gather(lead, return_exceptions=True)
        await elector.release()
        assert not elector.may_write()

    asyncio.run(run())
