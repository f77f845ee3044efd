"""Leader election by a Lease, with client-go's protocol and timings.

Other holders' clocks are never trusted: a lease counts from when this process saw it change. The election in the
`kubernetes` package measures with the wall clock and doesn't release the lease (docs/decisions/0004-lease.md).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from triton_operator.api.kinds import Kind
from triton_operator.cluster.api import ApiError, KubernetesApi

LEASES = Kind("coordination.k8s.io", "v1", "Lease", "leases")
LEASE_SECONDS = 15
RENEW_SECONDS = 10
RETRY_SECONDS = 2.0
_log = logging.getLogger(__name__)


class Elector:
    """Campaigns for one Lease as `identity`. `leading` is set while it is held."""

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._namespace, self._name, self._identity, self._clock = api, namespace, name, identity, clock
        self._seen: tuple[Any, Any] = (None, None)
        self._seen_at = clock()
        self.leading = asyncio.Event()
        self.held = False

    async def run(self) -> None:
        """Campaigns until the lease is won, then renews; returns when it could not be renewed in time."""
        while not await self._attempt():
            await asyncio.sleep(RETRY_SECONDS)
        _log.info("leading", extra={"identity": self._identity})
        self.held = True
        self.leading.set()
        try:
            renewed = self._clock()
            while self._clock() - renewed < RENEW_SECONDS:
                await asyncio.sleep(RETRY_SECONDS)
                asked = self._clock()
                if await self._attempt():
                    renewed = asked
        finally:
            self.leading.clear()
        self.held = False
        _log.error("the lease could not be renewed in %s s: leading no more", RENEW_SECONDS)

    async def release(self) -> None:
        """Gives the lease back, so that the next holder needs not wait for it to run out."""
        try:
            lease = await asyncio.to_thread(self._api.get, LEASES, self._namespace, self._name)
            if lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                await asyncio.to_thread(self._api.replace, LEASES, self._namespace, self._name, lease)
                _log.info("released the lease")
        except ApiError as error:
            _log.warning("the lease could not be released: %s", error.message)

    async def _attempt(self) -> bool:
        """Wins or renews the lease; False where another holds it, or the API server doesn't let us."""
        try:
            async with asyncio.timeout(RENEW_SECONDS):
                return await asyncio.to_thread(self._take)
        except ApiError as error:
            if error.code != 409:
                _log.warning("lease: %s", error.message)
        except TimeoutError:
            _log.warning("lease: no answer from the API server")
        return False

    def _take(self) -> bool:
        try:
            lease = self._api.get(LEASES, self._namespace, self._name)
        except ApiError as error:
            if error.code != 404:
                raise
            self._api.create(LEASES, self._namespace, self._new())
            return True
        spec = lease.setdefault("spec", {})
        seen = (spec.get("holderIdentity"), spec.get("renewTime"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        holder = spec.get("holderIdentity")
        running = self._clock() - self._seen_at < spec.get("leaseDurationSeconds", LEASE_SECONDS)
        if holder and holder != self._identity and running:
            return False
        if holder != self._identity:
            spec |= {"acquireTime": _now(), "leaseTransitions": spec.get("leaseTransitions", 0) + 1}
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": _now()}
        self._api.replace(LEASES, self._namespace, self._name, lease)
        return True

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
