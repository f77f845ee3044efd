"""Leader election by a Lease, with client-go's protocol and timings.

The clocks of other holders don't matter: a lease expires a fixed time after this process saw it change. The election of
the `kubernetes` package uses the wall clock and doesn't release the lease (docs/decisions/0004-lease.md).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar

from triton_operator.api.kinds import Kind
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError

LEASES = Kind("coordination.k8s.io", "v1", "Lease", "leases")
LEASE_SECONDS = 15
RENEW_SECONDS = 10
RETRY_SECONDS = 2.0
RELEASE_SECONDS = 6.0
ATTEMPT_SECONDS = 5.0
"""Time limit of one attempt. It leaves time for a second attempt on a new connection."""
_THREADS = 8
"""More than the number of attempts that can hang at the same time."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


class Elector:
    """Campaigns for one Lease as `identity`. `leading` is set while it is held.

    `on_version_rollback` is called, in a thread, when the Lease has a lower resourceVersion than before: etcd was
    restored from a backup.
    """

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
        on_version_rollback: Callable[[], None] = lambda: None,
    ) -> None:
        self._api, self._namespace, self._name, self._identity, self._clock = api, namespace, name, identity, clock
        self._on_version_rollback, self._version = on_version_rollback, 0
        self._seen: tuple[Any, Any] = (None, None)
        self._seen_at = clock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="lease")
        self._over = False
        self._until = float("-inf")
        self.leading = asyncio.Event()
        self.held = False
        """Whether we may hold the lease: we hold it, or a request for it is in flight."""

    async def run(self) -> None:
        """Waits for the lease, then renews it. Returns when it could not renew the lease in time."""
        while True:
            renewed = self._clock()
            if await self._attempt():
                break
            await asyncio.sleep(RETRY_SECONDS)
        _log.info("leading", extra={"identity": self._identity})
        self._until = renewed + RENEW_SECONDS
        self.leading.set()
        try:
            while (seconds := self._until - self._clock()) > 0:
                await asyncio.sleep(min(RETRY_SECONDS, seconds))
                started = self._clock()
                # Never wait past the deadline, because then another replica may lead.
                if await self._attempt(min(ATTEMPT_SECONDS, self._until - started)):
                    self._until = started + RENEW_SECONDS
        finally:
            self._until = float("-inf")
            self.leading.clear()
        self.held = False
        _log.error("the lease belongs to another replica, or wasn't renewed within %s s: not leading", RENEW_SECONDS)

    def may_write(self) -> bool:
        """Returns whether this process leads according to the clock.

        Thread-safe, and correct before the event loop has noticed the end of the lease.
        """
        return self._clock() < self._until

    async def release(self) -> None:
        """Releases the lease, so that the next holder doesn't have to wait until it expires. Never takes it again."""
        self._over = True
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                for pause in (0.1, 0.5, 2.0):
                    try:
                        return await self._in_thread(self._give_back)
                    except ApiError as error:
                        # A renewal was in flight, or the connection broke.
                        if error.code != 409 and not error.transient:
                            raise
                    await asyncio.sleep(pause)
                await self._in_thread(self._give_back)
        except ApiError as error:
            _log.warning("could not release the lease: %s", error.message)
        except TimeoutError:
            _log.warning("could not release the lease: no answer from the API server")

    def _give_back(self) -> None:
        lease = self._api.get(LEASES, self._namespace, self._name)
        if lease["spec"].get("holderIdentity") == self._identity:
            lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
            self._api.replace(LEASES, self._namespace, self._name, lease)
            _log.info("released the lease")

    async def _attempt(self, seconds: float = ATTEMPT_SECONDS) -> bool:
        """Takes or renews the lease; False if another replica holds it, or the request fails."""
        try:
            async with asyncio.timeout(seconds):
                return await self._in_thread(self._take)
        except ApiError as error:
            if error.code != 409:
                _log.warning("lease: %s", error.message)
        except TimeoutError:
            _log.warning("lease: no answer from the API server")
        return False

    async def _in_thread(self, step: Callable[[], T]) -> T:
        """Runs `step` in a thread of the elector's own pool, so that hanging requests elsewhere don't delay it."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, step)

    def _take(self) -> bool:
        version = self._version
        try:
            lease = self._api.get(LEASES, self._namespace, self._name)
        except ApiError as error:
            if error.code != 404:
                raise
            # Someone has deleted the lease. Its holder doesn't know that yet, and creates it again.
            if self._is_held(self._seen[0], LEASE_SECONDS) or not self._may_take():
                return False
            self._api.create(LEASES, self._namespace, self._new())
            return True
        self._version = int(lease["metadata"]["resourceVersion"])
        if self._version < version:
            self._on_version_rollback()
        spec = lease.setdefault("spec", {})
        record = (spec.get("holderIdentity"), spec.get("renewTime"))
        if record != self._seen:
            self._seen, self._seen_at = record, self._clock()
        holder = spec.get("holderIdentity")
        if self._is_held(holder, spec.get("leaseDurationSeconds", LEASE_SECONDS)):
            # If we lead, someone has deleted or edited the lease, and the other one leads too.
            self._until = float("-inf")
            return False
        if holder != self._identity:
            spec |= {"acquireTime": _now(), "leaseTransitions": spec.get("leaseTransitions", 0) + 1}
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": _now()}
        if not self._may_take():
            return False
        self._api.replace(LEASES, self._namespace, self._name, lease)
        return True

    def _is_held(self, holder: str | None, seconds: float) -> bool:
        """Returns whether another replica holds the lease: it has renewed it within `seconds`."""
        return bool(holder) and holder != self._identity and self._clock() - self._seen_at < seconds

    def _may_take(self) -> bool:
        """Returns whether the lease may be taken. False after `release`, in case an attempt is still in flight."""
        if not self._over:
            self.held = True
        return not self._over

    def _new(self) -> dict[str, Any]:
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": LEASE_SECONDS,
                "acquireTime": _now(),
                "renewTime": _now(),
                "leaseTransitions": 0,
            },
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
