"""kopf, for what it does best: watching, with reconnects and credentials. The only module that imports it.

Nothing but `on.event` handlers are registered, so that kopf writes nothing: no annotation, no finalizer, no status.
They only say what is watched: events go from kopf's streams straight to `seen`. What kopf does on an event's way to a
handler (a task and a memory for each object, copies to find what changed) took most of the operator's CPU time
(docs/scale.md), and serves handlers of other sorts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import signal
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any, cast

import aiohttp
import kopf

# Not public; the version of kopf is pinned.
from kopf._cogs.aiokits.aiotoggles import Toggle, ToggleSet
from kopf._cogs.clients import api, watching
from kopf._cogs.clients.errors import APIError
from kopf._cogs.clients.watching import WatchingError
from kopf._cogs.structs.references import Insights, Namespace, Resource
from kopf._core.reactor import queueing

from triton_operator.api import names
from triton_operator.api.kinds import TRITON_MODEL, Kind
from triton_operator.cluster import shallow
from triton_operator.cluster.api import ApiError

Object = dict[str, Any]
OnEvent = Callable[[str | None, Object], None]
_log = logging.getLogger(__name__)
_RESTART_SECONDS = (1, 2, 5, 10, 30)
_DISCOVERY_SECONDS = 30


class _Endless:
    """Pauses between retries that never run out: an API server that is away for an hour, or rights that are, are
    waited for. A dozen watches don't hammer it, so they are short."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1)
        while True:
            yield random.uniform(2, 5)  # noqa: S311


async def watch(
    seen: OnEvent,
    kinds: Callable[[], Awaitable[Collection[Kind]]],
    namespaces: Collection[str],
    stop: asyncio.Event,
    anew: asyncio.Event,
    ready: asyncio.Event,
) -> None:
    """Calls `seen(type, object)` for every event of `kinds` until `stop` is set.

    `type` is ADDED, MODIFIED or DELETED, or None for what a listing shows. `namespaces`: none means all. `anew` is
    set where `kinds` would give others: kopf looks for them once, when it starts. `ready` tells that all are watched.
    """
    failures = 0
    while not stop.is_set():
        stop_on_signals(stop)
        started = asyncio.get_running_loop().time()
        try:
            anew.clear()
            await _run(seen, await kinds(), namespaces, stop, anew, ready)
        except Exception as error:
            # kopf gives up on some errors of the API server; an operator that others rely on doesn't.
            if asyncio.get_running_loop().time() - started > 300:
                failures = 0
            pause = _RESTART_SECONDS[min(failures, len(_RESTART_SECONDS) - 1)]
            failures += 1
            foreseen = isinstance(error, _FORESEEN)
            _log.log(
                logging.WARNING if foreseen else logging.ERROR,
                "the watches ended: %s; starting them again in %s s",
                error or type(error).__name__,
                pause,
                exc_info=not foreseen,
            )
            stop_on_signals(stop)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stop.wait()


async def _run(
    seen: OnEvent,
    kinds: Collection[Kind],
    namespaces: Collection[str],
    stop: asyncio.Event,
    anew: asyncio.Event,
    ready: asyncio.Event,
) -> None:
    """One life of kopf. Raises DeafError where it runs and doesn't watch."""
    up, over, insights = asyncio.Event(), asyncio.Event(), Insights()
    # Made before kopf starts: at its end it waits for tasks that were made while it ran.
    ends = [asyncio.create_task(event.wait()) for event in (stop, anew)]
    guard = asyncio.create_task(_guard(insights, kinds, up, ends, stop, ready, over))
    queueing.watcher = _direct_watcher(seen)  # type: ignore[assignment]
    api.json = shallow  # type: ignore[attr-defined]  # a third of the time; all that is used is `loads`
    try:
        await kopf.operator(
            registry=_registry(kinds),
            settings=_settings(kinds),
            insights=insights,
            # By itself kopf asks for the user's name, which a container without /etc/passwd entry hasn't.
            identity=names.FIELD_MANAGER,  # type: ignore[arg-type]
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=over,
            ready_flag=up,
        )
    finally:
        ready.clear()
        for task in (guard, *ends):
            task.cancel()
    if anew.is_set() and not stop.is_set():
        return
    if over.is_set() and not stop.is_set():
        raise WatchIncompleteError(f"kopf watches only {sorted(_watched(insights))}")
    stop.set()  # also where kopf caught the signal itself


class WatchIncompleteError(Exception):
    """kopf looked for the resources once, while the API server didn't answer for all of them."""


_FORESEEN = (
    WatchIncompleteError,
    ApiError,
    APIError,
    WatchingError,
    aiohttp.ClientError,
    json.JSONDecodeError,
    TimeoutError,
)
"""What the API server, or the way to it, can do to a watch."""


class _Brief(logging.Filter):
    """kopf tells of an error that ends a watch with a traceback, once in each of its tasks that it passes. It comes
    to `watch` in the end, which says what becomes of it."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], _FORESEEN))


for _name in ("kopf._core.reactor.orchestration", "kopf._core.reactor.running", "asyncio"):
    logging.getLogger(_name).addFilter(_Brief())


async def _guard(
    insights: Insights,
    kinds: Collection[Kind],
    up: asyncio.Event,
    ends: Collection[asyncio.Task[Any]],
    stop: asyncio.Event,
    ready: asyncio.Event,
    over: asyncio.Event,
) -> None:
    """Sets `ready` once every kind is watched, and `over` where that doesn't come true, or when one of `ends` does."""
    while not up.is_set():
        # kopf sets handlers of its own, after which it waits 5 s for its waiter on the stop flag.
        stop_on_signals(stop)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await up.wait()
    stop_on_signals(stop)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCOVERY_SECONDS):
            await insights.ready_resources.wait()
    if {(kind.group, kind.plural) for kind in kinds} <= _watched(insights):
        ready.set()
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    over.set()


def _watched(insights: Insights) -> set[tuple[str, str]]:
    return {(resource.group, resource.plural) for resource in insights.watched_resources}


def stop_on_signals(stop: asyncio.Event) -> None:
    """While kopf runs it has handlers of its own; process 1 of a container has none by default."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


def _direct_watcher(seen: OnEvent) -> Callable[..., Awaitable[None]]:
    """kopf's watcher of one kind in one namespace, with `seen` in place of all that comes after the stream."""

    async def watcher(
        *,
        resource: Resource,
        namespace: Namespace,
        settings: kopf.OperatorSettings,
        operator_paused: ToggleSet | None = None,
        operator_indexed: ToggleSet | None = None,
        resource_indexed: Toggle | None = None,
        **_: Any,
    ) -> None:
        stream = watching.infinite_watch(
            settings=settings, resource=resource, namespace=namespace, operator_paused=operator_paused
        )
        async for event in stream:
            if event is watching.Bookmark.LISTED and operator_indexed is not None and resource_indexed is not None:
                await operator_indexed.drop_toggle(resource_indexed)
            if isinstance(event, watching.Bookmark) or event["type"] == "BOOKMARK":
                continue
            try:
                seen(event["type"], cast(Object, event["object"]))
            except Exception:
                # One object that can't be dealt with must not end the watch of all others.
                _log.exception("an event of %s could not be taken in", resource)

    return watcher


def _registry(kinds: Collection[Kind]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_via_client)

    async def watched(**_: Any) -> None:
        """Never called: it makes kopf watch the kind."""

    for kind in kinds:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)(watched)
    return registry


def _settings(kinds: Collection[Kind]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    # Looking for CRDs and namespaces would need rights over the cluster that nothing else here does.
    settings.scanning.disabled = True
    settings.networking.error_backoffs = _Endless()
    settings.networking.request_timeout = 60
    # As the other requests: by HTTPS_PROXY and NO_PROXY.
    settings.networking.trust_env = True
    settings.watching.chunk_size = 100
    settings.process.ultimate_exiting_timeout = None
    for kind in kinds:
        if kind == TRITON_MODEL:
            continue
        settings.watching.label_selectors[kind.group, kind.version, kind.plural] = names.MANAGED_SELECTOR
    return settings
