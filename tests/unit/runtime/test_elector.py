"""The lease, on a clock that the test turns and leases in memory. tests/integration has it on a real API server."""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from typing import Any

import pytest

from triton_operator.api.kinds import Kind
from triton_operator.cluster.api import ApiError
from triton_operator.runtime import elector as module
from triton_operator.runtime.elector import Elector

Object = dict[str, Any]


class Leases:
    """Leases with optimistic locking, as an API server keeps them."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.down = False
        self.writes = 0

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        self._answer()
        if self.lease is None:
            raise ApiError(404, "NotFound", "no lease")
        return copy.deepcopy(self.lease)

    def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        self._answer()
        if self.lease is not None:
            raise ApiError(409, "AlreadyExists", "there is one")
        return self._write(body)

    def replace(self, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        self._answer()
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(409, "Conflict", "changed meanwhile")
        return self._write(body)

    @property
    def spec(self) -> Object:
        assert self.lease is not None
        return self.lease["spec"]

    def _answer(self) -> None:
        if self.down:
            raise ApiError(0, "NoAnswer", "no answer")

    def _write(self, body: Object) -> Object:
        self.version += 1
        self.writes += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def candidate(leases: Leases, name: str, clock: Clock | None = None) -> Elector:
    return Elector(leases, "ns", "lease", name, clock or Clock())  # type: ignore[arg-type]


def attempt(elector: Elector) -> bool:
    return asyncio.run(elector._attempt())


def test_the_first_wins_and_the_second_waits() -> None:
    leases = Leases()
    assert attempt(candidate(leases, "a"))
    assert leases.spec["holderIdentity"] == "a"
    second = candidate(leases, "b")
    assert not attempt(second)
    assert not attempt(second)
    assert leases.spec["holderIdentity"] == "a"


def test_renewing_keeps_the_time_of_the_win() -> None:
    leases, clock = Leases(), Clock()
    first = candidate(leases, "a", clock)
    assert attempt(first)
    acquired = leases.spec["acquireTime"]
    clock.now += 5
    assert attempt(first)
    assert (leases.spec["acquireTime"], leases.spec["leaseTransitions"], leases.writes) == (acquired, 0, 2)


def test_a_dead_holders_lease_runs_out_by_the_watchers_own_clock() -> None:
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


def test_a_holder_that_renews_is_never_deposed() -> None:
    leases, clock = Leases(), Clock()
    first, second = candidate(leases, "a", clock), candidate(leases, "b", clock)
    assert attempt(first)
    for number in range(20):
        clock.now += 10
        assert attempt(first)
        leases.spec["renewTime"] = f"renewed {number}"  # the real clock may not have moved between two renewals
        assert not attempt(second)


def test_a_released_lease_is_free_at_once() -> None:
    leases = Leases()
    first, second = candidate(leases, "a"), candidate(leases, "b")
    assert attempt(first)
    assert not attempt(second)
    asyncio.run(first.release())
    assert leases.spec["holderIdentity"] == ""
    assert attempt(second)


def test_only_the_holder_releases() -> None:
    leases = Leases()
    assert attempt(candidate(leases, "a"))
    asyncio.run(candidate(leases, "b").release())
    assert leases.spec["holderIdentity"] == "a"


def test_releasing_without_an_answer_is_only_logged() -> None:
    leases = Leases()
    first = candidate(leases, "a")
    assert attempt(first)
    leases.down = True
    asyncio.run(first.release())


def test_of_two_that_take_at_once_one_wins() -> None:
    leases = Leases()
    first, second = candidate(leases, "a"), candidate(leases, "b")
    read = leases.get

    def both_see_nothing(*args: Any) -> Object:
        leases.get = read  # type: ignore[method-assign]
        assert attempt_sync(second)
        raise ApiError(404, "NotFound", "as it was a moment ago")

    def attempt_sync(elector: Elector) -> bool:
        return elector._take()

    leases.get = both_see_nothing  # type: ignore[method-assign]
    assert not attempt(first)
    assert leases.spec["holderIdentity"] == "b"


def test_the_lead_ends_in_time_when_the_api_server_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anyone else may lead, this one must have stopped."""
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


def test_the_lead_ends_in_time_when_the_api_server_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that hangs must not outlast the lead: others count from the last renewal, and then begin."""
    for name, seconds in (("RENEW_SECONDS", 0.5), ("RETRY_SECONDS", 0.1), ("ATTEMPT_SECONDS", 0.3)):
        monkeypatch.setattr(module, name, seconds)
    leases, hang = Leases(), threading.Event()
    elector = candidate(leases, "a", time.monotonic)  # type: ignore[arg-type]
    read = leases.get

    async def main() -> float:
        task = asyncio.create_task(elector.run())
        await elector.leading.wait()
        began = time.monotonic()
        leases.get = lambda *args: (hang.wait(20), read(*args))[1]  # type: ignore[method-assign]
        await task
        return time.monotonic() - began

    took = asyncio.run(main())
    hang.set()
    # Not at the first that fails, and long before the answer; on a busy machine half a second takes longer.
    assert 0.1 < took < 10, took


def test_one_request_that_hangs_does_not_cost_the_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("RENEW_SECONDS", 10.0), ("RETRY_SECONDS", 0.1), ("ATTEMPT_SECONDS", 0.3)):
        monkeypatch.setattr(module, name, seconds)
    leases, hang = Leases(), threading.Event()
    elector = candidate(leases, "a", time.monotonic)  # type: ignore[arg-type]
    read = leases.get

    def once(*args: Any) -> Object:
        leases.get = read  # type: ignore[method-assign]
        hang.wait(60)
        return read(*args)

    async def main() -> bool:
        task = asyncio.create_task(elector.run())
        await elector.leading.wait()
        leases.get = once  # type: ignore[method-assign]
        async with asyncio.timeout(30):
            while leases.get == once:
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


def test_a_renewal_between_the_two_halves_of_a_release_does_not_keep_the_lease() -> None:
    leases = Leases()
    first = candidate(leases, "a")
    assert attempt(first)
    replace = leases.replace

    def renewed_meanwhile(*args: Any) -> Object:
        leases.replace = replace  # type: ignore[method-assign]
        leases._write(leases.lease or {})
        return replace(*args)

    leases.replace = renewed_meanwhile  # type: ignore[method-assign]
    asyncio.run(first.release())
    assert leases.spec["holderIdentity"] == ""


def test_an_attempt_that_outlives_the_release_takes_nothing() -> None:
    leases = Leases()
    first = candidate(leases, "a")
    assert attempt(first)
    read = leases.get

    def released_meanwhile(*args: Any) -> Object:
        leases.get = read  # type: ignore[method-assign]
        asyncio.run(first.release())
        return read(*args)

    leases.get = released_meanwhile  # type: ignore[method-assign]
    assert not attempt(first)
    assert leases.spec["holderIdentity"] == ""


def test_a_lease_that_goes_back_in_time_is_told() -> None:
    leases, clock, told = Leases(), Clock(), []
    leases.version = 1000
    one = Elector(leases, "ns", "lease", "a", clock, on_version_rollback=lambda: told.append(clock.now))  # type: ignore[arg-type]
    assert [attempt(one), attempt(one), attempt(one)] == [True, True, True]
    assert told == []
    backup = copy.deepcopy(leases.lease)
    assert backup is not None
    backup["metadata"]["resourceVersion"], leases.version, leases.lease = "50", 50, backup
    attempt(one)
    assert told == [clock.now]
    attempt(one)
    assert told == [clock.now], "once"


def test_nothing_may_be_written_after_the_end_of_the_lead_also_where_the_loop_has_not_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the process was stopped for a while: its threads go on before its event loop does."""
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.05)
    leases, clock = Leases(), Clock()
    one = candidate(leases, "a", clock)

    async def run() -> None:
        assert not one.may_write()
        lead = asyncio.create_task(one.run())
        await one.leading.wait()
        assert one.may_write()
        clock.now += module.RENEW_SECONDS - 1
        assert one.may_write()
        await asyncio.sleep(0.5)  # renewed
        clock.now += module.RENEW_SECONDS - 1
        assert one.may_write()
        clock.now += 1.1
        assert not one.may_write(), "no task has run meanwhile"
        await asyncio.wait_for(lead, 5)
        assert not one.may_write()

    asyncio.run(run())


def test_nothing_may_be_written_after_a_release() -> None:
    leases, clock = Leases(), Clock()
    one = candidate(leases, "a", clock)

    async def run() -> None:
        lead = asyncio.create_task(one.run())
        await one.leading.wait()
        lead.cancel()
        await asyncio.gather(lead, return_exceptions=True)
        await one.release()
        assert not one.may_write()

    asyncio.run(run())
