"""Polls the repository index of every Triton server."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from triton_operator.api.servers import NO_LOAD_TIMES, LoadTimes, RunningServer, ServerAnswers, Uncounted

from .answer_cache import AnswerCache
from .fetch import FetchError, HttpClient, UnusableError
from .lanes import Lanes
from .load_times import has_load_times
from .schedule import Schedule, server_delay, unready_delay, wait
from .triton import LOADING, READY, IndexAnswer, repository_index

_log = logging.getLogger(__name__)

REST_SECONDS = 300.0
EXPLICIT_REST_SECONDS = 60.0
"""With model control `explicit` a model can be unloaded through Triton's API, which causes no Kubernetes event."""
_NO_ROOM = (
    "can't be stored: the stored answers of the servers in this namespace already use the namespace's share of the "
    "operator's memory"
)
Read = Callable[[HttpClient, str], Awaitable[IndexAnswer]]
Count = Callable[[HttpClient, str, str], Awaitable[Uncounted]]
RunsOnCpu = Callable[[HttpClient, str, str], Awaitable[bool]]
Version = Callable[[HttpClient, str], Awaitable[str]]
SaysNotReady = Callable[[HttpClient, str, str], Awaitable[bool]]
ReadLoadTimes = Callable[[HttpClient, str], Awaitable[LoadTimes]]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a server has answered.

    - `answer`: its models, by the last poll; None without a usable answer. `unusable`: why that can't be used.
    - `uncounted`: see `ServerAnswers`.
    - `on_cpu`: one of `_Target.gpu_models` that it runs on the CPU; "" if it runs them on a GPU, None while that isn't
      known.
    - `version`: of Triton; "" while it isn't known.
    - `says_not_ready`: whether Triton says that itself, if its probe has failed; None before it has answered that.
    - `load_times`: of its models; None while they haven't been read since the models changed.
    """

    answer: IndexAnswer | None = None
    unusable: str = ""
    uncounted: Uncounted = ()
    on_cpu: str | None = None
    version: str = ""
    says_not_ready: bool | None = None
    load_times: LoadTimes | None = None


@dataclass(eq=False, slots=True)
class _Target:
    """One server and its last answers.

    - `entrypoint`: the model that clients call; "" if it is unknown.
    - `gpu_models`: the models that it puts on its GPUs unless it sees none.
    - `readiness`: the path of Triton's readiness if its probe has failed; otherwise "".
    - `repeats`: number of polls in a row in which not all models were ready.
    - `changes`: number of times that its models were changed.
    """

    key: str
    server: RunningServer
    rest_seconds: float
    entrypoint: str = ""
    gpu_models: tuple[str, ...] = ()
    readiness: str = ""
    seen: _Seen = _Seen()
    pending: bool = True
    repeats: int = 0
    changes: int = 0
    polling: bool = False
    removed: bool = False


class ServerProbes:
    """The repository indexes of all servers.

    `track` and `forget` are for the reconcile's threads and never wait; `run` belongs to the prober's event loop.

    - `on_change(key)`: called in that loop when there is an answer that the last `track` of `key` didn't return.
    - `on_answer(answered)`: called after each poll.
    - `count`: finds the uncounted models of a server whose models are all ready.
    - `runs_on_cpu`: returns whether a model runs on the CPU. Triton decides it when it loads the model, so a server
      gets this request once for each start.
    - `says_not_ready`: returns whether Triton says that it isn't ready.
    - `version`: returns the version of Triton, once for each start of a server.
    - `load_times`: returns how long the models of a server took to load, once for each change of its models.
    - `cache`: limits the memory of all answers together.

    If one server of a TritonModel gives no usable answer, all its servers are polled in a slow lane, so that they don't
    delay others.
    """

    def __init__(
        self,
        on_change: Callable[[str], None],
        read: Read = repository_index,
        on_answer: Callable[[bool], None] = lambda _: None,
        cache: AnswerCache | None = None,
        count: Count | None = None,
        runs_on_cpu: RunsOnCpu | None = None,
        says_not_ready: SaysNotReady | None = None,
        version: Version | None = None,
        load_times: ReadLoadTimes | None = None,
    ) -> None:
        self._on_change, self._read, self._on_answer = on_change, read, on_answer
        self._count, self._runs_on_cpu, self._says_not_ready = count, runs_on_cpu, says_not_ready
        self._version, self._load_times = version, load_times
        self._cache = cache or AnswerCache()
        self._lock = threading.Lock()
        self._targets: dict[str, dict[str, _Target]] = {}
        self._silent: dict[str, set[str]] = {}
        self._due_now: deque[_Target] = deque()
        self._wake: Callable[[], None] = lambda: None

    def track(
        self,
        key: str,
        servers: Iterable[RunningServer],
        *,
        explicit: bool = False,
        entrypoint: str = "",
        gpu_models: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        readiness: Mapping[str, str] = MappingProxyType({}),
    ) -> ServerAnswers:
        """Returns the last answers of these servers of the TritonModel `key`.

        From now on polls these servers, and no others of `key`. `explicit`: whether the model control is `explicit`.
        `entrypoint`: the model that clients call; "" if it is unknown. `gpu_models`: uid of a server → the models that
        it puts on its GPUs unless it sees none. `readiness`: uid of a server whose readiness probe has failed → the
        path of Triton's readiness.
        """
        rest = EXPLICIT_REST_SECONDS if explicit else REST_SECONDS
        with self._lock:
            old_targets, targets = self._targets.pop(key, {}), {}
            for server in servers:
                target = old_targets.pop(server.uid, None)
                if target is None:
                    target = _Target(key, server, rest)
                    self._due_now.append(target)
                elif target.server != server:
                    if target.server.epoch[0] != server.epoch[0]:
                        # The server restarted, so its last answer is out of date.
                        self._set(target, _Seen())
                    target.server, target.pending, target.repeats = server, True, 0
                    self._due_now.append(target)
                target.rest_seconds, target.entrypoint = rest, entrypoint
                target.gpu_models, target.readiness = gpu_models.get(server.uid, ()), readiness.get(server.uid, "")
                if not target.readiness:
                    target.seen = replace(target.seen, says_not_ready=None)
                targets[server.uid] = target
            for target in old_targets.values():
                self._remove(target)
            if targets:
                self._targets[key] = targets
            seen = {target.server.pod: target.seen for target in targets.values()}
            not_ready = {t.server.pod: t.seen.says_not_ready for t in targets.values() if t.readiness}
            pending = any(target.pending for target in targets.values())
            wake = bool(self._due_now)
        if wake:
            self._wake()
        return ServerAnswers(
            indexes={pod: s.answer.index + s.answer.unloaded for pod, s in seen.items() if s.answer},
            unusable={pod: s.unusable for pod, s in seen.items() if s.unusable},
            pending=pending,
            uncounted=tuple(sorted({pair for s in seen.values() for pair in s.uncounted})),
            on_cpu={pod: s.on_cpu for pod, s in seen.items() if s.on_cpu},
            not_ready=not_ready,
            versions={pod: s.version for pod, s in seen.items() if s.version},
            load_times={pod: s.load_times for pod, s in seen.items() if s.load_times},
        )

    def refresh(self, key: str, uid: str) -> None:
        """Polls this server of `key` at once, because its models were changed."""
        with self._lock:
            target = self._targets.get(key, {}).get(uid)
            if target is None:
                return
            target.pending, target.repeats, target.changes = True, 0, target.changes + 1
            target.seen = replace(target.seen, load_times=None)
            self._due_now.append(target)
        self._wake()

    def forget(self, key: str) -> None:
        """Stops polling the servers of `key`."""
        self.track(key, ())

    def _remove(self, target: _Target) -> None:
        target.removed = True
        self._set(target, _Seen())
        silent = self._silent.get(target.key, set())
        silent.discard(target.server.uid)
        if not silent:
            self._silent.pop(target.key, None)

    async def run(self, http: HttpClient) -> None:
        """Polls until it is cancelled."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        self._wake = wake
        schedule: Schedule[_Target] = Schedule()
        lanes = Lanes(http.turns)
        with self._lock:
            for target in (target for group in self._targets.values() for target in group.values()):
                target.polling = False
                self._due_now.append(target)
        async with asyncio.TaskGroup() as tasks:
            while True:
                woken.clear()
                while self._due_now:
                    target = self._due_now.popleft()
                    if not target.polling:
                        schedule.put(target, loop.time())
                for target in schedule.due(loop.time()):
                    if not target.removed:
                        target.polling = True
                        client = http.of(target.key.partition("/")[0])
                        tasks.create_task(self._probe(client, target, schedule, lanes, woken))
                await wait(woken, schedule.next())

    async def _probe(
        self,
        client: HttpClient,
        target: _Target,
        schedule: Schedule[_Target],
        lanes: Lanes,
        woken: asyncio.Event,
    ) -> None:
        """Polls one server once, and schedules the next poll. Never raises."""
        loop = asyncio.get_running_loop()
        async with lanes.place(target.key, slow=target.key in self._silent):
            server, changes = target.server, target.changes
            seen = replace(target.seen, answer=None, unusable="", says_not_ready=None)
            if not target.removed:
                try:
                    if target.readiness and self._says_not_ready is not None:
                        not_ready = await self._says_not_ready(client, server.address, target.readiness)
                        seen = replace(seen, says_not_ready=not_ready)
                    answer = await self._read(client, server.address)
                    seen = replace(seen, answer=answer)
                    seen = replace(seen, uncounted=await self._uncounted(client, target, answer))
                    seen = replace(seen, on_cpu=await self._on_cpu(client, target, answer))
                    seen = replace(seen, version=await self._version_of(client, target))
                    seen = replace(seen, load_times=await self._load_times_of(client, target, answer, seen.version))
                except UnusableError as error:
                    seen = replace(seen, unusable=str(error))
                except FetchError as error:
                    # The server is starting or stopping. If it hangs, the missing answer shows that.
                    _log.debug("no repository index from %s: %s", server.pod, error)
                except Exception:
                    _log.exception("polling %s failed", server.pod, extra={"key": target.key})
        changed = self._record(target, server, changes, seen)
        if target.removed:
            return
        self._on_answer(seen.answer is not None)
        current = (target.server, target.changes) == (server, changes)
        delay = server_delay(target.seen.answer, target.repeats, target.rest_seconds) if current else 0.0
        if target.readiness:
            delay = unready_delay(delay)
        schedule.put(target, loop.time() + delay)
        woken.set()
        if changed:
            self._on_change(target.key)

    async def _uncounted(self, client: HttpClient, target: _Target, answer: IndexAnswer) -> Uncounted:
        """Returns the uncounted models of a server; the last ones if it doesn't answer."""
        if self._count is None or not target.entrypoint or not answer.all_ready:
            return target.seen.uncounted
        try:
            return await self._count(client, target.server.address, target.entrypoint)
        except FetchError as error:
            _log.debug("no statistics from %s: %s", target.server.pod, error)
            return target.seen.uncounted

    async def _on_cpu(self, client: HttpClient, target: _Target, answer: IndexAnswer) -> str | None:
        """Returns the model that runs on the CPU although Triton prefers a GPU for it, as in `_Target.on_cpu`."""
        loaded = {entry.name for entry in answer.index if entry.state == READY}
        model = next((name for name in target.gpu_models if name in loaded), None)
        if self._runs_on_cpu is None or model is None or target.seen.on_cpu is not None:
            return target.seen.on_cpu
        try:
            return model if await self._runs_on_cpu(client, target.server.address, model) else ""
        except FetchError as error:
            _log.debug("no configuration of %s from %s: %s", model, target.server.pod, error)
            return None

    async def _version_of(self, client: HttpClient, target: _Target) -> str:
        """Returns the version of Triton, as in `_Seen`."""
        if self._version is None or target.seen.version:
            return target.seen.version
        try:
            return await self._version(client, target.server.address)
        except FetchError as error:
            _log.debug("no version from %s: %s", target.server.pod, error)
            return ""

    async def _load_times_of(
        self, client: HttpClient, target: _Target, answer: IndexAnswer, version: str
    ) -> LoadTimes | None:
        """Returns how long the models of a server took to load, as in `_Seen`; not before all loads have ended."""
        if self._load_times is None or not version or any(entry.state == LOADING for entry in answer.index):
            return None
        if not has_load_times(version):
            return NO_LOAD_TIMES
        if target.seen.load_times is not None and answer == target.seen.answer:
            return target.seen.load_times
        try:
            return await self._load_times(client, target.server.metrics)
        except FetchError as error:
            _log.debug("no load times from %s: %s", target.server.pod, error)
            return None

    def _record(self, target: _Target, server: RunningServer, changes: int, seen: _Seen) -> bool:
        """Stores what a server has answered; returns whether it differs from the last answers."""
        with self._lock:
            target.polling = False
            if target.removed or (target.server, target.changes) != (server, changes):
                return False
            before, pending = target.seen, target.pending
            was_ready = before.answer is not None and before.answer.all_ready
            target.repeats = 0 if pending or was_ready else target.repeats + 1
            target.pending = False
            self._set(target, seen)
            if target.seen.answer is None:
                self._silent.setdefault(target.key, set()).add(server.uid)
            elif silent := self._silent.get(target.key):
                silent.discard(server.uid)
                if not silent:
                    del self._silent[target.key]
            return pending or before != target.seen

    def _set(self, target: _Target, seen: _Seen) -> None:
        """Stores what this server has answered, its models only if there is room for them."""
        before = target.seen.answer
        if seen.answer == before:
            target.seen = replace(seen, answer=before)
            return
        if before is not None:
            self._cache.release(target.key, before)
        answer = None if seen.answer is None else self._cache.add(target.key, seen.answer)
        no_room = seen.answer is not None and answer is None
        target.seen = replace(seen, answer=answer, unusable=_NO_ROOM if no_room else seen.unusable)
