"""Changes the models of servers in the background, for a change of spec.server.loadModels."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from triton_operator.api.servers import Change, ChangeOutcome, RunningServer

from .fetch import HttpClient
from .lanes import Lane
from .model_control import make
from .schedule import jittered

_log = logging.getLogger(__name__)
_PLACES = 256
"""Changes at the same time. Nearly all of them wait for a model to load."""
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.5, 300.0
_RUNNING = ChangeOutcome("Running")
_NOT_THERE = ChangeOutcome("Unreachable", "the API server doesn't confirm that its pod still has its address")
Make = Callable[[HttpClient, RunningServer, Change], Awaitable[ChangeOutcome]]


@dataclass(eq=False)
class _Target:
    """The change of the models of one server to `models`.

    `outcome`: None if another attempt may begin. `attempts`: how often the change was begun.
    """

    key: str
    server: RunningServer
    change: Change
    models: tuple[str, ...]
    outcome: ChangeOutcome | None = _RUNNING
    attempts: int = 0
    ended: bool = False


class ModelChanges:
    """The changes of all servers. `decide` starts one at a time for each TritonModel.

    `outcomes`, `start` and `forget` are for the reconcile's threads and never wait; `run` belongs to the prober's event
    loop. Both callbacks are called in that loop when a change has ended, or when a server doesn't answer:
    `refresh(key, uid)` before `outcomes` returns that, and then `on_change(key)`.
    `holds_address(key, server)`: called in a thread before each attempt; returns whether the server's pod still has its
    address. Another server, which may be another tenant's, must not get the change.
    """

    def __init__(
        self,
        on_change: Callable[[str], None],
        refresh: Callable[[str, str], None] = lambda *_: None,
        make: Make = make,
        holds_address: Callable[[str, RunningServer], bool] = lambda *_: True,
    ) -> None:
        self._on_change, self._refresh, self._make, self._holds_address = on_change, refresh, make, holds_address
        self._lock = threading.Lock()
        self._targets: dict[str, dict[str, _Target]] = {}
        self._new: deque[_Target] = deque()
        self._wake: Callable[[], None] = lambda: None

    def outcomes(self, key: str, servers: Iterable[tuple[RunningServer, Iterable[str]]]) -> Mapping[str, ChangeOutcome]:
        """Returns uid → the result of the change to the models so far, and ends all other changes of `key`.

        `servers`: each with the models that it should have.

        Call it before the models of the servers are read: it refreshes those of servers whose change has ended.
        """
        wanted = {server.uid: (server, tuple(models)) for server, models in servers}
        with self._lock:
            targets, ended = self._targets.get(key, {}), False
            for uid, target in list(targets.items()):
                server, models = wanted.get(uid, (None, ()))
                if server is None or target.models != models:
                    targets.pop(uid).ended = ended = True
                    # The server may have made a part of the change, or makes it now.
                    self._refresh(key, uid)
                elif server.epoch[0] != target.server.epoch[0]:
                    targets[uid], ended = _restarted(target, server), True
            if not targets:
                self._targets.pop(key, None)
            outcomes = {uid: target.outcome for uid, target in targets.items() if target.outcome is not None}
        if ended:
            self._wake()
        return outcomes

    def start(self, key: str, server: RunningServer, change: Change, models: Iterable[str]) -> None:
        """Begins to change this server, unless that has begun already."""
        with self._lock:
            targets = self._targets.setdefault(key, {})
            target = targets.get(server.uid)
            if target is not None and target.outcome is not None:
                return
            attempts = target.attempts if target else 0
            target = targets[server.uid] = _Target(key, server, change, tuple(models), attempts=attempts)
            self._new.append(target)
        self._wake()

    def forget(self, key: str) -> None:
        """Ends the changes of the servers of `key`."""
        with self._lock:
            targets = self._targets.pop(key, {})
            for target in targets.values():
                target.ended = True
        if targets:
            self._wake()

    async def run(self, http: HttpClient) -> None:
        """Makes changes until it is cancelled."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        lane, jobs = Lane(_PLACES, http.turns), dict[_Target, asyncio.Task[None]]()
        with self._lock:
            self._new = deque(t for group in self._targets.values() for t in group.values() if t.outcome == _RUNNING)

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        self._wake = wake
        async with asyncio.TaskGroup() as tasks:
            while True:
                woken.clear()
                while self._new:
                    target = self._new.popleft()
                    jobs[target] = tasks.create_task(self._change(http, target, lane))
                for target, task in list(jobs.items()):
                    if target.ended:
                        task.cancel()
                    if target.ended or task.done():
                        del jobs[target]
                await woken.wait()

    async def _change(self, http: HttpClient, target: _Target, lane: Lane) -> None:
        """Makes one change, again and again until the server answers. Raises only CancelledError."""
        namespace = target.key.partition("/")[0]
        while True:
            if target.attempts:
                await asyncio.sleep(jittered(min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0**target.attempts)))
            target.attempts = min(target.attempts + 1, 16)
            try:
                async with lane.place(namespace):
                    if await asyncio.to_thread(self._holds_address, target.key, target.server):
                        outcome = await self._make(http.of(namespace), target.server, target.change)
                    else:
                        outcome = _NOT_THERE
            except Exception:
                _log.exception("changing the models of %s failed", target.server.pod, extra={"key": target.key})
                outcome = ChangeOutcome("Unreachable", "the operator has a bug, see its log")
            self._refresh(target.key, target.server.uid)
            with self._lock:
                if target.ended:
                    return
                target.outcome = outcome
            log = _log.info if outcome.state == "Done" else _log.warning
            log("models of %s: %s %s", target.server.pod, outcome.state, outcome.message, extra={"key": target.key})
            self._on_change(target.key)
            if outcome.state != "Unreachable":
                return


def _restarted(target: _Target, server: RunningServer) -> _Target:
    """Returns the change after a restart of the server. There is no other attempt if a load may be the cause."""
    target.ended = True
    if target.outcome is not None and target.outcome.state in ("Running", "Unreachable"):
        outcome: ChangeOutcome | None = ChangeOutcome("Refused", "the server restarted while it loaded its models")
    else:
        # It was changed and began again with its old models. Or it refused a model, and does so again.
        outcome = target.outcome if target.outcome and target.outcome.state == "Refused" else None
    return _Target(target.key, server, target.change, target.models, outcome, target.attempts)
