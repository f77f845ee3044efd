"""A proxy between an operator and the API server that injects faults of the network and of a busy API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from .api import MIN_WAIT_SECONDS

WRITES = ("POST", "PUT", "PATCH", "DELETE")
ALL = (*WRITES, "GET", "LIST", "WATCH")
_PASSED_ON = ("Authorization", "Accept", "Content-Type", "User-Agent")


@dataclass(frozen=True)
class Fault:
    """A fault for a `share` of the requests with these `verbs` to these `resources` (empty: all).

    Values of `how`:

    - `answer`: responds with `code` and doesn't forward the request
    - `slow`: waits `seconds` and forwards the request
    - `late`: forwards the request when the faults end, whether or not the client still waits
    - `hang`: doesn't forward the request and doesn't respond
    - `reset`: resets the connection and doesn't forward the request
    - `lost`: forwards the request and resets the connection instead of responding
    - `truncated`: forwards the request, sends half of the response and resets the connection
    - `garbled`: forwards the request and sends half of the response as if it were complete
    """

    how: str
    code: int = 500
    seconds: float = 0.0
    retry_after: str = ""
    share: float = 1.0
    verbs: Collection[str] = ALL
    resources: Collection[str] = ()
    but: Collection[str] = ()
    """Resources without the fault."""
    pause: float = 0.0
    """The minimum seconds between two occurrences."""


@dataclass(frozen=True)
class Write:
    """A successful write that the proxy forwarded. Times are time.monotonic()."""

    began: float
    ended: float
    verb: str
    resource: str


@dataclass(eq=False)
class _Watch:
    """An open watch. `dead`: it stays open, and the proxy forwards no more events."""

    request: web.BaseRequest
    dead: bool = False


@dataclass(eq=False)
class FaultProxy:
    """A proxy that listens on `url` in plain HTTP.

    - `faults`: the current faults
    - `watches_paused`: new watches get no events
    """

    kubeconfig: Path
    seed: int = 0
    url: str = ""
    faults: tuple[Fault, ...] = ()
    watches_paused: bool = False
    cut_off: bool = False
    """Whether the proxy accepts connections but never answers."""
    provoked: dict[str, int] = field(default_factory=dict)
    """The number of occurrences of each fault."""
    writes: list[Write] = field(default_factory=list)
    watches_begun: list[tuple[float, str]] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """The requests with the fault `late` that were forwarded, each with its body and what became of it."""

    def __post_init__(self) -> None:
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._behind = cluster["server"]
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._random = random.Random(self.seed)
        self._watches: set[_Watch] = set()
        self._happened: dict[Fault, float] = {}
        self._healed: asyncio.Event
        self._closed: asyncio.Event
        up = threading.Event()
        # A daemon, so that hanging requests don't outlive the tests.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(up)), daemon=True)
        self._thread.start()
        assert up.wait(MIN_WAIT_SECONDS), "the proxy doesn't listen"

    # Interface for tests

    @contextlib.contextmanager
    def faulty(self, *faults: Fault) -> Iterator[None]:
        """Injects these faults while the context lasts. At its end it resets hanging connections."""
        self.faults = faults
        try:
            yield
        finally:
            self.heal()

    def heal(self) -> None:
        self.faults, self.watches_paused, self.cut_off = (), False, False
        self._loop.call_soon_threadsafe(self._let_go)

    def drop_watches(self) -> int:
        """Closes all open watches, as an API server does when it ends. Returns their number."""
        watches = list(self._watches)
        for watch in watches:
            self._loop.call_soon_threadsafe(_abort, watch.request)
        return len(watches)

    def freeze_watches(self) -> int:
        """Keeps all open watches open, but forwards no more events. Returns their number."""
        for watch in list(self._watches):
            watch.dead = True
        return len(self._watches)

    def kubeconfig_through(self, folder: Path) -> Path:
        """Returns a kubeconfig with the same rights that connects through the proxy."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {"server": self.url}
        target = folder / f"kubeconfig-through-{self.url.rpartition(':')[2]}"
        target.write_text(json.dumps(config))
        return target

    def close(self) -> None:
        self.heal()
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(MIN_WAIT_SECONDS)

    # Implementation

    async def _serve(self, up: threading.Event) -> None:
        self._loop, self._healed, self._closed = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        # No timeouts in the proxy, so that the operator's timeouts apply.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        # Without compression, because the proxy doesn't forward the header Content-Encoding.
        headers = {"Accept-Encoding": "identity"}
        runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as self._session:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            up.set()
            await self._closed.wait()
            await runner.cleanup()

    def _let_go(self) -> None:
        self._healed.set()
        self._healed = asyncio.Event()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        verb, resource = _meaning(request)
        if self.cut_off:
            return await self._hang(request)
        fault = self._chosen(verb, resource)
        if fault is not None:
            self.provoked[fault.how] = self.provoked.get(fault.how, 0) + 1
            if fault.how == "answer":
                return _refusal(fault)
            if fault.how == "slow":
                await asyncio.sleep(fault.seconds)
            elif fault.how == "late":
                await self._healed.wait()
            elif fault.how == "hang":
                return await self._hang(request)
            elif fault.how == "reset":
                return _abort(request)
        began = time.monotonic()
        try:
            headers = {k: request.headers[k] for k in _PASSED_ON if k in request.headers}
            answer = await self._session.request(
                request.method, self._behind + request.raw_path, data=body or None, headers=headers
            )
            async with answer:
                if verb == "WATCH" and answer.status == 200:
                    return await self._stream(request, resource, answer)
                data = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._note(fault, request, body, repr(error))
            return _abort(request)
        self._note(fault, request, body, f"{answer.status} {data[:300]!r}")
        if verb in WRITES and answer.status < 300:
            self.writes.append(Write(began, time.monotonic(), verb, resource))
        if self.cut_off:  # cut off after the request was forwarded
            return await self._hang(request)
        if fault is not None and fault.how == "lost":
            return _abort(request)
        headers, half = {"Content-Type": answer.headers["Content-Type"]}, data[: len(data) // 2]
        if fault is not None and fault.how == "truncated":
            response = web.StreamResponse(status=answer.status, headers=headers)
            response.content_length = len(data)
            await response.prepare(request)
            await response.write(half)
            return _abort(request)
        garbled = fault is not None and fault.how == "garbled"
        return web.Response(status=answer.status, headers=headers, body=half if garbled else data)

    async def _stream(
        self, request: web.BaseRequest, resource: str, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        watch = _Watch(request, dead=self.watches_paused)
        self._watches.add(watch)
        self.watches_begun.append((time.monotonic(), resource))
        try:
            response = web.StreamResponse(headers={"Content-Type": answer.headers["Content-Type"]})
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                if not watch.dead and not self.cut_off:
                    await response.write(chunk)
                else:
                    watch.dead = True  # an event is lost, so no later event may follow
            if watch.dead:
                await asyncio.sleep(3600)
        except (aiohttp.ClientError, OSError):
            return _abort(request)
        finally:
            self._watches.discard(watch)
        return response

    def _note(self, fault: Fault | None, request: web.BaseRequest, body: bytes, result: str) -> None:
        if fault is not None and fault.how == "late":
            self.late.append(f"{request.method} {request.path_qs}\n{body!r}\n{result}\n")

    async def _hang(self, request: web.BaseRequest) -> web.StreamResponse:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3600):
                await self._healed.wait()
        return _abort(request)

    def _chosen(self, verb: str, resource: str) -> Fault | None:
        for fault in self.faults:
            applies = resource in fault.resources if fault.resources else resource not in fault.but
            rests = time.monotonic() < self._happened.get(fault, float("-inf")) + fault.pause
            if applies and verb in fault.verbs and not rests and self._random.random() < fault.share:
                self._happened[fault] = time.monotonic()
                return fault
        return None


@contextlib.contextmanager
def between(kubeconfig: Path, seed: int = 0) -> Iterator[FaultProxy]:
    """Runs a proxy to the API server of `kubeconfig` while the context lasts."""
    proxy = FaultProxy(kubeconfig, seed)
    try:
        yield proxy
    finally:
        proxy.close()


def _meaning(request: web.BaseRequest) -> tuple[str, str]:
    """Returns the verb and the resource of a request, with the subresource."""
    parts = request.path.strip("/").split("/")
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    resource = "/".join(parts[:1] + parts[2:3])
    if request.method != "GET":
        return request.method, resource
    if "watch" in request.query:
        return "WATCH", resource
    return ("GET" if len(parts) > 1 else "LIST"), resource


def _refusal(fault: Fault) -> web.Response:
    reasons = {409: "Conflict", 429: "TooManyRequests", 503: "ServiceUnavailable"}
    status: dict[str, Any] = {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.code,
        "reason": reasons.get(fault.code, "InternalError"), "message": f"a provoked {fault.code}",
    }  # fmt: skip
    headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
    return web.json_response(status, status=fault.code, headers=headers)


def _abort(request: web.BaseRequest) -> web.StreamResponse:
    """Resets the connection. The returned response is never sent."""
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response()
