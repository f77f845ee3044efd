"""Polls the tracked servers of TritonModels in equal intervals, and keeps what they answer."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from triton_operator.api.servers import RunningServer

from .fetch import FetchError, HttpClient
from .lanes import Lane
from .schedule import jittered

_log = logging.getLogger(__name__)

PATIENCE_SECONDS = 4.0
_CONCURRENT_POLLS, _CONCURRENT_SLOW_POLLS = 64, 16
_CONCURRENT_SERVERS = 16
"""Servers of one TritonModel that are polled at the same time."""
_SubjectT = TypeVar("_SubjectT")
_AnswerT = TypeVar("_AnswerT")
_AnswerT_contra = TypeVar("_AnswerT_contra", contravariant=True)
_KnownT = TypeVar("_KnownT")
_KnownT_co = TypeVar("_KnownT_co", covariant=True)


class Kept(Protocol[_AnswerT_contra, _KnownT_co]):
    """What is kept of the answers of one server. Not thread-safe."""

    def add(self, at: float, answer: _AnswerT_contra, /) -> None:
        """Adds an answer that came `at` this time of the event loop."""

    def known(self) -> _KnownT_co:
        """Returns what is known from the answers."""


@dataclass(eq=False)
class _Target(Generic[_AnswerT, _KnownT]):
    server: RunningServer
    kept: Kept[_AnswerT, _KnownT]
    polled: bool = False


@dataclass(eq=False)
class _Group(Generic[_SubjectT, _AnswerT, _KnownT]):
    """The servers of one TritonModel.

    `slow`: whether a server didn't answer in the last poll, or took longer than the interval.
    """

    key: str
    subject: _SubjectT
    targets: dict[str, _Target[_AnswerT, _KnownT]] = field(default_factory=dict)
    slow: bool = False
    removed: bool = False
    polled: bool = False


class Polls(Generic[_SubjectT, _AnswerT, _KnownT]):
    """The answers of the servers of tracked TritonModels.

    `track` and `forget` are for the reconcile's threads and never wait; `run` belongs to the prober's event loop.

    - `seconds`: the interval.
    - `read(client, server, subject)`: polls a server. Raises FetchError.
    - `keep(subject)`: returns an object for the answers of one server.
    - `on_poll(key)`: called in that loop after each poll of the servers of `key`.
    - `on_change(key)`: the same, if what is known of one of them has changed, or it was polled for the first time.

    A poll lasts at most PATIENCE_SECONDS. Nothing is kept of a server that doesn't answer in that time. TritonModels
    whose poll takes longer than the interval, or with a server that doesn't answer, are polled in a slow lane, so that
    they don't delay others. In each lane the namespaces take turns.
    """

    def __init__(
        self,
        seconds: float,
        read: Callable[[HttpClient, RunningServer, _SubjectT], Awaitable[_AnswerT]],
        keep: Callable[[_SubjectT], Kept[_AnswerT, _KnownT]],
        on_poll: Callable[[str], None] = lambda _: None,
        on_change: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._seconds, self._read, self._keep, self._on_poll = seconds, read, keep, on_poll
        self._on_change = on_change
        self._lock = threading.Lock()
        self._groups: dict[str, _Group[_SubjectT, _AnswerT, _KnownT]] = {}
        self._wake: Callable[[], None] = lambda: None

    def track(self, key: str, servers: Iterable[RunningServer], subject: _SubjectT) -> Mapping[str, _KnownT]:
        """Returns what is known of these servers of the TritonModel `key`, by pod name.

        From now on polls these servers about `subject`, and no others of `key`.
        """
        with self._lock:
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group(key, subject)
            targets: dict[str, _Target[_AnswerT, _KnownT]] = {}
            old_targets = group.targets if group.subject == subject else {}
            for server in servers:
                target = old_targets.get(server.uid)
                if target is None or target.server.epoch[0] != server.epoch[0]:
                    # A restarted server has forgotten what it said.
                    target = _Target(server, self._keep(subject))
                target.server = server
                targets[server.uid] = target
            group.targets, group.subject = targets, subject
            known = {t.server.pod: t.kept.known() for t in targets.values()}
            polled = group.polled
        if not polled:
            self._wake()
        return known

    def is_pending(self, key: str) -> bool:
        """Returns whether a server of the TritonModel `key` hasn't been polled yet."""
        with self._lock:
            group = self._groups.get(key)
            return group is not None and not all(target.polled for target in group.targets.values())

    def forget(self, key: str) -> None:
        """Stops polling the servers of `key`."""
        with self._lock:
            group = self._groups.pop(key, None)
            if group is not None:
                group.removed = True

    async def run(self, http: HttpClient) -> None:
        """Polls until it is cancelled."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        fast, slow = Lane(_CONCURRENT_POLLS, http.turns), Lane(_CONCURRENT_SLOW_POLLS, http.turns)
        with self._lock:
            for group in self._groups.values():
                group.polled = False
        self._wake = wake
        async with asyncio.TaskGroup() as tasks:
            while True:
                woken.clear()
                with self._lock:
                    groups = [group for group in self._groups.values() if not group.polled]
                    for group in groups:
                        group.polled = True
                for group in groups:
                    tasks.create_task(self._poll(http.of(_namespace(group.key)), group, fast, slow))
                await woken.wait()

    async def _poll(
        self, http: HttpClient, group: _Group[_SubjectT, _AnswerT, _KnownT], fast: Lane, slow: Lane
    ) -> None:
        """Polls the servers of one TritonModel until it is forgotten."""
        loop = asyncio.get_running_loop()
        while not group.removed:
            began = loop.time()
            async with (slow if group.slow else fast).place(_namespace(group.key)):
                started = loop.time()
                before = self._known(group)
                answered = await self._poll_once(http, group)
            group.slow = not answered or loop.time() - started > self._seconds
            if not group.removed:
                self._on_poll(group.key)
                if self._known(group) != before:
                    self._on_change(group.key)
            await asyncio.sleep(max(0.0, began + jittered(self._seconds) - loop.time()))

    def _known(self, group: _Group[_SubjectT, _AnswerT, _KnownT]) -> dict[str, tuple[bool, _KnownT]]:
        with self._lock:
            return {uid: (target.polled, target.kept.known()) for uid, target in group.targets.items()}

    async def _poll_once(self, http: HttpClient, group: _Group[_SubjectT, _AnswerT, _KnownT]) -> bool:
        """Polls each server once; returns whether all answered."""
        loop, places = asyncio.get_running_loop(), asyncio.Semaphore(_CONCURRENT_SERVERS)
        with self._lock:
            targets, subject = list(group.targets.values()), group.subject
        end = loop.time() + PATIENCE_SECONDS

        async def poll(target: _Target[_AnswerT, _KnownT]) -> bool:
            try:
                async with asyncio.timeout_at(end), places:
                    answer = await self._read(http, target.server, subject)
                # A busy server counts at the end of its answer, after the request has waited.
                at = loop.time()
            except (FetchError, TimeoutError) as error:
                _log.debug("no answer from %s: %s", target.server.pod, error or "timeout")
                return False
            except Exception:
                _log.exception("polling %s failed", target.server.pod, extra={"key": group.key})
                return False
            finally:
                target.polled = True
            with self._lock:
                target.kept.add(at, answer)
            return True

        return all(await asyncio.gather(*map(poll, targets)))


def _namespace(key: str) -> str:
    return key.partition("/")[0]
