"""Polls the request counters of the tracked servers every two seconds."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from triton_operator.api.servers import History, RunningServer, ServerCounters, Subject

from .counters import LIMITS, counters
from .fetch import FetchError, HttpClient
from .lanes import Lane
from .samples import Samples
from .schedule import jittered

_log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
PATIENCE_SECONDS = LIMITS.total_seconds
HISTORY_SECONDS = 60.0
_MAX_SAMPLES = int(HISTORY_SECONDS / POLL_SECONDS) * 2
_CONCURRENT_POLLS, _CONCURRENT_SLOW_POLLS = 64, 16
_CONCURRENT_SERVERS = 16
"""Servers of one TritonModel that are polled at the same time."""
Read = Callable[[HttpClient, str, Subject], Awaitable[ServerCounters]]


@dataclass(eq=False)
class _Target:
    server: RunningServer
    samples: Samples


@dataclass(eq=False)
class _Group:
    """The servers of one TritonModel.

    `slow`: whether a server didn't answer in the last poll, or took longer than POLL_SECONDS.
    """

    key: str
    subject: Subject
    targets: dict[str, _Target] = field(default_factory=dict)
    slow: bool = False
    removed: bool = False
    polled: bool = False


class LoadProbes:
    """The request counters of the servers of tracked TritonModels.

    `track` and `forget` are for the reconcile's threads and never wait; `run` belongs to the prober's event loop.

    `on_poll(key)` is called in that loop after each poll of the servers of `key`.

    A poll lasts at most PATIENCE_SECONDS. A server that doesn't answer in that time gets no sample. TritonModels whose
    poll takes longer than POLL_SECONDS, or with a server that doesn't answer, are polled in a slow lane, so that they
    don't delay others. In each lane the namespaces take turns.
    """

    def __init__(self, on_poll: Callable[[str], None], read: Read = counters) -> None:
        self._on_poll, self._read = on_poll, read
        self._lock = threading.Lock()
        self._groups: dict[str, _Group] = {}
        self._wake: Callable[[], None] = lambda: None

    def track(self, key: str, servers: Iterable[RunningServer], subject: Subject) -> Mapping[str, History]:
        """Returns the samples of these servers of the TritonModel `key`, by pod name.

        From now on polls the counters of `subject` on these servers, and on no others of `key`.
        """
        with self._lock:
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group(key, subject)
            old_targets, targets = group.targets if group.subject == subject else {}, {}
            for server in servers:
                target = old_targets.get(server.uid)
                if target is None or target.server.epoch[0] != server.epoch[0]:
                    # The counters of a restarted server begin at zero.
                    target = _Target(server, Samples(subject, _MAX_SAMPLES))
                target.server = server
                targets[server.uid] = target
            group.targets, group.subject = targets, subject
            histories = {t.server.pod: t.samples.history() for t in targets.values()}
            polled = group.polled
        if not polled:
            self._wake()
        return histories

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

    async def _poll(self, http: HttpClient, group: _Group, fast: Lane, slow: Lane) -> None:
        """Polls the servers of one TritonModel until it is forgotten."""
        loop = asyncio.get_running_loop()
        while not group.removed:
            began = loop.time()
            async with (slow if group.slow else fast).place(_namespace(group.key)):
                started = loop.time()
                answered = await self._poll_once(http, group)
            group.slow = not answered or loop.time() - started > POLL_SECONDS
            if not group.removed:
                self._on_poll(group.key)
            await asyncio.sleep(max(0.0, began + jittered(POLL_SECONDS) - loop.time()))

    async def _poll_once(self, http: HttpClient, group: _Group) -> bool:
        """Polls each server once; returns whether all answered."""
        loop, places = asyncio.get_running_loop(), asyncio.Semaphore(_CONCURRENT_SERVERS)
        with self._lock:
            targets, subject = list(group.targets.values()), group.subject
        end = loop.time() + PATIENCE_SECONDS

        async def poll(target: _Target) -> bool:
            try:
                async with asyncio.timeout_at(end), places:
                    counts = await self._read(http, target.server.metrics, subject)
                # A busy server counts at the end of its answer, after the request has waited.
                at = loop.time()
            except (FetchError, TimeoutError) as error:
                _log.debug("no metrics from %s: %s", target.server.pod, error or "timeout")
                return False
            except Exception:
                _log.exception("polling %s failed", target.server.pod, extra={"key": group.key})
                return False
            with self._lock:
                target.samples.add(at, counts, HISTORY_SECONDS)
            return True

        return all(await asyncio.gather(*map(poll, targets)))


def _namespace(key: str) -> str:
    return key.partition("/")[0]
