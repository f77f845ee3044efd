"""Watches the objects of one kind, in a thread of its own."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from triton_operator.api.kinds import Kind
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError

_log = logging.getLogger(__name__)
_PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Seconds before another try after the first, second, … failure, and after all others. They vary by a quarter."""
_SHORTEST_SECONDS = 1.0
"""How long a watch lasts at least."""


class Informer:
    """Calls `on_event(type, object)` for each change of the objects of `kind` in one namespace, or in all.

    A watch begins with all objects that exist, as ADDED, and goes on from the last change when it ends or breaks. If
    the API server doesn't answer or refuses it, it begins again, because etcd may have been restored from a backup.
    `on_begin` is called before it begins, because objects may have been deleted meanwhile. Both functions are called in
    the informer's thread.
    """

    def __init__(
        self,
        api: KubernetesApi,
        kind: Kind,
        namespace: str | None,
        selector: str,
        on_event: Callable[[str, dict[str, Any]], None],
        on_begin: Callable[[], None],
    ) -> None:
        self._api, self._kind, self._namespace, self._selector = api, kind, namespace, selector
        self._on_event, self._on_begin = on_event, on_begin
        self._over, self._version = threading.Event(), ""
        self._end: Callable[[], None] = lambda: None
        self.watches = False
        """Whether the API server has accepted the last watch."""
        name = f"watch-{kind.plural}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def stop(self) -> None:
        """Ends the watch without waiting for its thread."""
        self._over.set()
        self._end()

    def _run(self) -> None:
        failures, told = 0, ""
        while not self._over.is_set():
            began = time.monotonic()
            try:
                self._follow()
                failures, told = 0, ""
                # A watch that ends at once isn't one, for instance behind a proxy.
                self._over.wait(max(0.0, began + _SHORTEST_SECONDS - time.monotonic()))
            except Exception as error:
                if self._over.is_set():
                    return
                self.watches = self.watches and bool(self._version)
                if str(error) != told:
                    level = logging.DEBUG if _is_too_old(error) else logging.WARNING
                    _log.log(level, "the watch of %s failed: %s", self._kind.plural, error, exc_info=_is_a_fault(error))
                told = str(error)
                if _is_too_old(error):
                    self._version = ""
                pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
                failures += 1
                self._over.wait(pause * random.uniform(0.75, 1.25))  # noqa: S311

    def _follow(self) -> None:
        """Follows one watch until its usual end.

        The objects at the beginning come in any order. So the first bookmark or change gives the version to go on from.
        """
        version, self._version = self._version, ""
        with self._api.watch(self._kind, self._namespace, self._selector, version) as (events, end):
            self._version, self._end, self.watches = version, end, True
            if self._over.is_set():
                return
            if not version:
                self._on_begin()
            for what, obj in events:
                if self._version or what != "ADDED":
                    self._version = obj["metadata"]["resourceVersion"]
                if what != "BOOKMARK":
                    self._report(what, obj)

    def _report(self, event: str, obj: dict[str, Any]) -> None:
        try:
            self._on_event(event, obj)
        except Exception:
            # One malformed object must not end the watch of all others.
            _log.exception("could not process an event of %s", self._kind.plural)


def _is_too_old(error: Exception) -> bool:
    """Returns whether the API server doesn't have the changes since the last one any more."""
    return isinstance(error, ApiError) and error.code == 410


def _is_a_fault(error: Exception) -> bool:
    return not isinstance(error, ApiError)
