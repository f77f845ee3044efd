"""Watches objects with kopf, which handles reconnects and credentials. Only this module imports kopf.

Only `on.event` handlers are registered, so that kopf writes nothing: no annotation, no finalizer, no status. They only
declare what to watch. Events go directly from kopf's streams to `seen`, because kopf's own processing (a task for each
object, copies to compute differences) took most of the operator's CPU time (docs/benchmarks.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import kopf

# Not public; the version of kopf is pinned.
from kopf._cogs.aiokits.aiotoggles import Toggle, ToggleSet
from kopf._cogs.clients import api, fetching, watching
from kopf._cogs.clients.errors import APIError
from kopf._cogs.clients.watching import WatchingError
from kopf._cogs.structs.references import Insights, Namespace, Resource
from kopf._core.reactor import queueing

from triton_operator.api import names
from triton_operator.api.kinds import TRITON_MODEL, Kind
from triton_operator.cluster import pages, shallow
from triton_operator.cluster.api import ApiError

Object = dict[str, Any]
OnEvent = Callable[[str | None, Object], None]
_log = logging.getLogger(__name__)
_RESTART_SECONDS = (1, 2, 5, 10, 30)
_DISCOVERY_SECONDS = 30


class _Endless:
    """An endless series of pauses between retries, in seconds, so that the watches survive any outage."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1)
        while True:
            yield random.uniform(2, 5)  # noqa: S311


async def watch(
    on_event: OnEvent,
    kinds: Callable[[], Awaitable[Collection[Kind]]],
    namespaces: Collection[str],
    stop: asyncio.Event,
    restart: asyncio.Event,
    ready: asyncio.Event,
) -> None:
    """Calls `on_event(type, object)` for every event of `kinds` until `stop` is set.

    - `type`: ADDED, MODIFIED or DELETED, or None for an object in a listing.
    - `namespaces`: empty means all.
    - `restart`: the caller sets it to restart the watches, for instance because `kinds` would return other kinds.
    - `ready`: set while all kinds are watched.
    """
    failures = 0
    while not stop.is_set():
        stop_on_signals(stop)
        started = asyncio.get_running_loop().time()
        try:
            restart.clear()
            await _run(on_event, await kinds(), namespaces, stop, restart, ready)
        except Exception as error:
            # kopf ends on some errors of the API server. Start it again.
            if asyncio.get_running_loop().time() - started > 300:
                failures = 0
            pause = _RESTART_SECONDS[min(failures, len(_RESTART_SECONDS) - 1)]
            failures += 1
            expected = isinstance(error, _EXPECTED)
            _log.log(
                logging.WARNING if expected else logging.ERROR,
                "the watches ended: %s; starting them again in %s s",
                error or type(error).__name__,
                pause,
                exc_info=not expected,
            )
            stop_on_signals(stop)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stop.wait()


async def _run(
    on_event: OnEvent,
    kinds: Collection[Kind],
    namespaces: Collection[str],
    stop: asyncio.Event,
    restart: asyncio.Event,
    ready: asyncio.Event,
) -> None:
    """Runs kopf once. Raises WatchIncompleteError if it doesn't watch all kinds."""
    up, over, insights = asyncio.Event(), asyncio.Event(), Insights()
    # Created before kopf starts, because kopf waits at its end for tasks that were created meanwhile.
    ends = [asyncio.create_task(event.wait()) for event in (stop, restart)]
    guard = asyncio.create_task(_guard(insights, kinds, up, ends, stop, ready, over))
    queueing.watcher = _direct_watcher(on_event)  # type: ignore[assignment]
    # kopf uses only these two functions of `json` and `fetching`. The originals parse objects of any size.
    api.json = SimpleNamespace(loads=_event)  # type: ignore[attr-defined, assignment]
    fetching.fetch_objs = _listed  # type: ignore[assignment]
    try:
        await kopf.operator(
            registry=_registry(kinds),
            settings=_settings(kinds),
            insights=insights,
            # The default needs the user's name, which a container without an /etc/passwd entry lacks.
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
    if restart.is_set() and not stop.is_set():
        return
    if over.is_set() and not stop.is_set():
        raise WatchIncompleteError(f"kopf watches only {sorted(_watched(insights))}")
    stop.set()  # in case kopf caught the signal


class WatchIncompleteError(Exception):
    """kopf discovered the resources while the API server didn't report all of them."""


_EXPECTED = (
    WatchIncompleteError,
    ApiError,
    APIError,
    WatchingError,
    aiohttp.ClientError,
    json.JSONDecodeError,
    TimeoutError,
)
"""Expected failures of a watch."""


class _ExpectedErrorFilter(logging.Filter):
    """Drops kopf's log records of expected watch errors. kopf logs each error several times; `watch` logs it once."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], _EXPECTED))


for _name in ("kopf._core.reactor.orchestration", "kopf._core.reactor.running", "asyncio"):
    logging.getLogger(_name).addFilter(_ExpectedErrorFilter())


async def _guard(
    insights: Insights,
    kinds: Collection[Kind],
    up: asyncio.Event,
    ends: Collection[asyncio.Task[Any]],
    stop: asyncio.Event,
    ready: asyncio.Event,
    over: asyncio.Event,
) -> None:
    """Sets `ready` when every kind is watched. Sets `over` if that fails, or when one of `ends` is done."""
    while not up.is_set():
        # kopf replaces our signal handlers, and with its own ones it needs 5 s longer to stop. Restore ours.
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
    """Sets `stop` on SIGTERM and SIGINT. Process 1 has no default handlers, and kopf installs its own."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


def _direct_watcher(on_event: OnEvent) -> Callable[..., Awaitable[None]]:
    """Replaces kopf's watcher of one kind in one namespace: passes the events of its stream directly to `on_event`."""

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
        async for event in _while_open(stream):
            if event is watching.Bookmark.LISTED and operator_indexed is not None and resource_indexed is not None:
                await operator_indexed.drop_toggle(resource_indexed)
            if isinstance(event, watching.Bookmark) or event["type"] == "BOOKMARK":
                continue
            obj = cast(Object, event["object"])
            try:
                on_event(event["type"], obj)
            except Exception:
                # One malformed object must not end the watch of all others.
                _log.exception("could not process an event of %s", resource)
            # kopf's generators keep a reference to the object until the next event, which may take hours.
            obj.clear()

    return watcher


async def _while_open(stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Yields the items of `stream`. Raises an aiohttp.ClientError if kopf has closed the session meanwhile.

    When kopf stops, it closes the session before all watchers have ended. aiohttp then raises an AssertionError or a
    RuntimeError, depending on the state of the request.
    """
    try:
        async for event in stream:
            yield event
    except (AssertionError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and str(error) != "Session is closed":
            raise
        raise aiohttp.ClientConnectionError("the session is closed") from error


def _event(line: str) -> Any:
    """One line of a watch."""
    return shallow.loads(line, ("object",))


async def _listed(
    *, settings: kopf.OperatorSettings, resource: Resource, namespace: Namespace, logger: Any
) -> AsyncIterator[tuple[list[Object], str]]:
    """Yields pages of all objects of `resource` with the list's resourceVersion.

    Replaces kopf's `fetch_objs`. cluster/pages decides the size of a page.
    """
    selectors = sorted(set(settings.watching.label_selectors.collect(resource)))
    selected = {"labelSelector": ",".join(selectors)} if selectors else {}
    limit, token = pages.MAX_LIMIT, ""
    while True:
        params = {"limit": str(limit), **selected, **({"continue": token} if token else {})}
        url = resource.get_url(namespace=namespace, params=params)
        async with await api.request("get", url, settings=settings, logger=logger) as response:
            data = await _body(response, None if limit == 1 else shallow.MAX_BYTES)
        if limit > 1 and not shallow.size(data).fits():
            limit = pages.smaller(limit)
            continue
        page = shallow.loads(data, ("items", 0))
        items: list[Object] = page["items"] or []
        kind = {"apiVersion": page["apiVersion"], "kind": page["kind"].removesuffix("List")}
        yield [{**kind, **item} for item in items], page["metadata"]["resourceVersion"]
        token = page["metadata"].get("continue", "")
        if not token:
            return
        limit = pages.following(limit, len(items), len(data))
        del page, items


async def _body(response: aiohttp.ClientResponse, max_bytes: int | None) -> bytes:
    """Returns the body of the answer, cut off after about `max_bytes`."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if max_bytes is not None and len(body) > max_bytes:
            break
    return bytes(body)


def _registry(kinds: Collection[Kind]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_via_client)

    async def watched(**_: Any) -> None:
        """Never called. Registering it makes kopf watch the kind."""

    for kind in kinds:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)(watched)
    return registry


def _settings(kinds: Collection[Kind]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    # Scanning for CRDs and namespaces would need cluster-wide permissions that nothing else here needs.
    settings.scanning.disabled = True
    settings.networking.error_backoffs = _Endless()
    settings.networking.request_timeout = 60
    # Respect HTTPS_PROXY and NO_PROXY, as all other requests to the API server do.
    settings.networking.trust_env = True
    settings.process.ultimate_exiting_timeout = None
    for kind in kinds:
        if kind == TRITON_MODEL:
            continue
        settings.watching.label_selectors[kind.group, kind.version, kind.plural] = names.MANAGED_SELECTOR
    return settings
