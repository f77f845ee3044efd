"""Watches TritonModels with kopf, in a thread and an event loop of its own. Only this module imports kopf.

kopf has a handler of `on.event` alone, so that it writes nothing: no annotation, no finalizer, no status
(docs/decisions/0001-own-queue-under-kopf.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import kopf

from triton_operator.api import names
from triton_operator.api.kinds import TRITON_MODEL
from triton_operator.cluster.api import KubernetesApi

_log = logging.getLogger(__name__)
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before another start after the first, second, … failure of less than _WELL_SECONDS, and after all others."""
_WELL_SECONDS = 60.0
_SILENT_SECONDS = 60.0
"""How long kopf may report nothing while it should report something."""
_LEVELS = 12_000
"""Python's limit for nested calls. The API server accepts JSON with 10,000 levels, kopf parses it with `json`, and an
object that it can't parse would end the watch of all TritonModels."""
sys.setrecursionlimit(max(_LEVELS, sys.getrecursionlimit()))


class ModelWatch:
    """Calls `on_event(type, object)` for each change of a TritonModel in `namespaces`, or in all if there are none.

    kopf ends after some answers of the API server, and then starts again. It begins with all TritonModels, as ADDED,
    and `on_begin` is called, because some may have been deleted meanwhile. Both functions are called in its thread.
    """

    def __init__(
        self,
        api: KubernetesApi,
        namespaces: tuple[str, ...],
        on_event: Callable[[str, dict[str, Any]], None],
        on_begin: Callable[[], None],
    ) -> None:
        self._api, self._namespaces, self._on_event, self._on_begin = api, namespaces, on_event, on_begin
        self._over, self._ready, self._retries = threading.Event(), threading.Event(), _Retries()
        self._end: Callable[[], object] = lambda: None
        self._uids: set[str] = set()
        self._reported_at = time.monotonic()
        threading.Thread(target=self._run, name="kopf", daemon=True).start()

    def stop(self) -> None:
        """Ends kopf without waiting for its thread."""
        self._over.set()
        self._end_run()

    @property
    def watches(self) -> bool:
        """Whether kopf runs, and the API server answers its requests."""
        return self._ready.is_set() and not self._retries.failing

    def compare(self, uids: Collection[str]) -> None:
        """Starts kopf again if it doesn't report TritonModels that a listing has.

        kopf discovers kinds only when it starts, perhaps from an API server that doesn't know the CRD yet.
        """
        silent = time.monotonic() - self._reported_at > _SILENT_SECONDS
        if silent and self.watches and (missing := set(uids) - self._uids):
            _log.warning("kopf has not reported %d TritonModels: starting it again", len(missing))
            self._end_run()

    def _end_run(self) -> None:
        with contextlib.suppress(RuntimeError):  # Its event loop is closed already.
            self._end()

    def _run(self) -> None:
        failures = 0
        while not self._over.is_set():
            began = time.monotonic()
            try:
                self._wait_until_served()
                self._on_begin()
                try:
                    asyncio.run(self._operate())
                finally:
                    self._ready.clear()
                failures = 0
            except Exception as error:
                failures = 0 if time.monotonic() - began > _WELL_SECONDS else failures
                pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
                failures += 1
                _log.warning("the watch of TritonModels ended: %s; starting it again in %.0f s", error, pause)
                self._over.wait(pause)

    def _wait_until_served(self) -> None:
        """Waits until the API server lists the kind in its discovery."""
        is_told = False
        while not self._over.wait(0) and not self._api.discovers(TRITON_MODEL):
            if not is_told:
                _log.warning("the watch of TritonModels waits until the API server's discovery has them")
            is_told = True
            self._over.wait(random.uniform(0.5, 1.5))  # noqa: S311

    async def _operate(self) -> None:
        # For a threading.Event kopf waits in a thread, which would outlive a failure and keep the loop from closing.
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        self._end = functools.partial(loop.call_soon_threadsafe, end.set)
        if self._over.is_set():
            return
        self._uids, self._reported_at = set(), time.monotonic()
        await kopf.operator(
            registry=self._registry(),
            settings=_settings(self._retries),
            # The default needs the user's name, which a container without an /etc/passwd entry lacks.
            identity=names.FIELD_MANAGER,  # type: ignore[arg-type]
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            stop_flag=end,
            ready_flag=self._ready,
        )

    def _report(self, what: str | None, model: dict[str, Any]) -> None:
        """Reports an event. kopf gives an object of a listing no type, and may list again without an end."""
        now = time.monotonic()
        if what is None and now - self._reported_at > 1:
            self._on_begin()
        self._reported_at, uid = now, model["metadata"]["uid"]
        (self._uids.discard if what == "DELETED" else self._uids.add)(uid)
        self._on_event(what or "ADDED", model)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        def log_in(**arguments: Any) -> kopf.ConnectionInfo | None:
            # kopf knows no proxy of a kubeconfig, and would read the environment by a rule without CIDRs.
            info, proxy = kopf.login_via_client(**arguments), self._api.connection.proxy
            return info and dataclasses.replace(info, proxy_url=proxy and proxy.url)

        @kopf.on.event(TRITON_MODEL.group, TRITON_MODEL.version, TRITON_MODEL.plural, registry=registry)
        async def changed(*, event: Any, **_: Any) -> None:
            try:
                self._report(event["type"], event["object"])
            except Exception:
                # One malformed object must not end the watch of all others.
                _log.exception("could not process an event of a TritonModel")

        return registry


class _Retries:
    """An endless series of pauses between retries, in seconds, so that the watch survives any outage.

    `failing` has an item for each request that has failed and is tried again.
    """

    def __init__(self) -> None:
        self.failing: set[object] = set()

    def __iter__(self) -> Iterator[float]:
        yield 0.5
        request = object()
        self.failing.add(request)
        _log.warning("the API server has not answered the watch of TritonModels twice: trying again until it does")
        try:
            yield 1
            while True:
                yield random.uniform(2, 5)  # noqa: S311
        finally:
            self.failing.discard(request)


class _NoDifference(kopf.DiffBaseStorage):
    """Keeps no last handled state: `on.event` needs none, and its copies would cost as much as all other work."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        """Stores nothing."""


def _settings(retries: _Retries) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    # Scanning for CRDs and namespaces would need cluster-wide permissions that nothing else here needs.
    settings.scanning.disabled = True
    settings.networking.error_backoffs = retries
    settings.networking.request_timeout = 60
    # Users decide how large an object is. Four of the largest fit into the operator's memory.
    settings.watching.chunk_size = 4
    settings.persistence.diffbase_storage = _NoDifference()
    # kopf removes its finalizer from objects, and would try forever without the permission. No object has an empty one.
    settings.persistence.finalizer = ""
    settings.process.ultimate_exiting_timeout = None
    # An idle worker keeps its object in memory.
    settings.queueing.idle_timeout = 0.05
    return settings
