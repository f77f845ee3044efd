"""When the memory of servers reaches the limit, as the operator reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from triton_operator.api.servers import MemoryGrowth, RunningServer
from triton_operator.probe import memory
from triton_operator.probe.fetch import FetchError, HttpClient
from triton_operator.probe.polls import Polls

NAME = "triton_container_memory_full_time_seconds"
KEY = "vision/detection"
GROWS = MemoryGrowth(datetime(2026, 12, 1, tzinfo=UTC))
ONE, OTHER = (RunningServer(pod, pod, "127.0.0.1", (0, True)) for pod in ("one", "other"))


def test_reads_the_time() -> None:
    page = f"# HELP {NAME} x\ntriton_container_memory_used_bytes 5.0\n{NAME} 1.7e+09\n"
    assert memory.parse(page.encode()) == MemoryGrowth(datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC))


@pytest.mark.parametrize(
    ("used", "limit", "nearly_full"), [("9.0e+08", "1e+09", True), ("8.99e+08", "1e+09", False), ("1", "0", False)]
)
def test_reads_whether_most_of_the_limit_is_used(used: str, limit: str, nearly_full: bool) -> None:
    lines = {"used_bytes": used, "limit_bytes": limit, "full_time_seconds": "1.7e+09"}
    page = "".join(f"triton_container_memory_{name} {value}\n" for name, value in lines.items())
    found = memory.parse(page.encode())
    assert found is not None
    assert found.nearly_full is nearly_full


@pytest.mark.parametrize("page", [b"", b"triton_process_works 1\n", b"\xff\xfe", f"{NAME}_x 5\n".encode()])
def test_a_page_without_a_time_says_that_memory_does_not_grow(page: bytes) -> None:
    assert memory.parse(page) is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300"])
def test_another_value_is_no_answer(value: str) -> None:
    with pytest.raises(FetchError):
        memory.parse(f"{NAME} {value}\n".encode())


class Answers:
    """Servers that answer with `values`, by pod; one without a value doesn't answer."""

    def __init__(self) -> None:
        self.values: dict[str, MemoryGrowth | None] = {"one": None}
        self.changed: list[str] = []
        self.polls = 0

    async def read(self, _: HttpClient, server: RunningServer, __: None) -> MemoryGrowth | None:
        self.polls += 1
        if server.pod not in self.values:
            raise FetchError("no answer")
        return self.values[server.pod]


def run(steps: Callable[[Answers, Polls[None, Any, Any], Callable[[], Awaitable[None]]], Awaitable[None]]) -> Answers:
    """Runs `steps` beside the polls; its last argument waits until each server has been polled again."""
    answers = Answers()
    polls: Polls[None, Any, Any] = Polls(0.01, answers.read, memory.Latest, on_change=answers.changed.append)

    async def main() -> None:
        async def polled() -> None:
            before = answers.polls
            while answers.polls < before + 4:
                await asyncio.sleep(0.01)

        running = asyncio.create_task(polls.run(HttpClient()))
        await asyncio.sleep(0)
        await asyncio.wait_for(steps(answers, polls, polled), 30)
        running.cancel()

    asyncio.run(main())
    return answers


def test_a_change_is_reported_once() -> None:
    async def steps(answers: Answers, polls: Polls[None, Any, Any], polled: Callable[[], Awaitable[None]]) -> None:
        polls.track(KEY, [ONE], None)
        assert polls.is_pending(KEY)
        await polled()
        assert not polls.is_pending(KEY)
        assert answers.changed == [KEY], "it was polled for the first time"
        answers.values["one"] = GROWS
        await polled()
        await polled()
        assert answers.changed == [KEY] * 2
        assert polls.track(KEY, [ONE], None) == {"one": GROWS}

    run(steps)


def test_a_server_that_does_not_answer_is_pending_no_longer() -> None:
    async def steps(answers: Answers, polls: Polls[None, Any, Any], polled: Callable[[], Awaitable[None]]) -> None:
        polls.track(KEY, [ONE, OTHER], None)
        await polled()
        assert not polls.is_pending(KEY)
        assert polls.track(KEY, [ONE, OTHER], None) == {"one": None, "other": None}

    run(steps)


def test_a_server_that_restarts_is_pending_again() -> None:
    async def steps(answers: Answers, polls: Polls[None, Any, Any], polled: Callable[[], Awaitable[None]]) -> None:
        answers.values["one"] = GROWS
        polls.track(KEY, [ONE], None)
        await polled()
        again = RunningServer("one", "one", "127.0.0.1", (1, True))
        assert polls.track(KEY, [again], None) == {"one": None}
        assert polls.is_pending(KEY)

    run(steps)


def test_nothing_is_pending_of_what_is_not_polled() -> None:
    assert not memory.memory_probes(lambda _: None).is_pending(KEY)
