"""A proxy between an operator and the API server that does what a bad network and a busy API server do."""

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

WRITES = ("POST", "PUT", "PATCH", "DELETE")
ALL = (*WRITES, "GET", "LIST", "WATCH")
_PASSED_ON = ("Authorization", "Accept", "Content-Type", "User-Agent")


@dataclass(frozen=True)
class Fault:
    """What happens to a `share` of the requests with these `verbs` to these `resources` (none: all).

    `how`: `answer` with `code`, without doing it; `slow`: wait `seconds`, then do it; `hang`: no answer, and not done;
    `reset`: the connection is reset before it is done; `lost`: it is done, and the connection is reset instead of an
    answer; `truncated`: half of the answer, then a reset; `garbled`: half of the answer, as if it were whole.
    """

    how: str
    code: int = 500
    seconds: float = 0.0
    retry_after: str = ""
    share: float = 1.0
    verbs: Collection[str] = ALL
    resources: Collection[str] = ()
    but: Collection[str] = ()
    """Resources that are spared."""
    pause: float = 0.0
    """Seconds for which it doesn't happen again."""


@dataclass(frozen=True)
class Write:
    """A request other than a read that was passed on and has been answered with success; times are monotonic."""

    began: float
    ended: float
    verb: str
    resource: str


@dataclass(eq=False)
class _Watch:
    """A watch on its way. `dead`: it stays open, and nothing comes through any more."""

    request: web.BaseRequest
    dead: bool = False


@dataclass(eq=False)
class FaultProxy:
    """Listens on `url`, in plain HTTP. `faults` are what happens now; `frozen`: watches go silent and stay so."""

    kubeconfig: Path
    seed: int = 0
    url: str = ""
    faults: tuple[Fault, ...] = ()
    frozen: bool = False
    cut_off: bool = False
    """Whether nothing at all comes through: connections are taken, and never answered."""
    provoked: dict[str, int] = field(default_factory=dict)
    """How often each fault came true."""
    done: list[Write] = field(default_factory=list)
    watches_begun: list[tuple[float, str]] = field(default_factory=list)

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
        # Its end also ends what hangs for a client that is long gone.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(up)), daemon=True)
        self._thread.start()
        up.wait(10)

    # What tests do

    @contextlib.contextmanager
    def faulty(self, *faults: Fault) -> Iterator[None]:
        """These faults, as long as the context lasts. What hangs is let go at its end, by a reset."""
        self.faults = faults
        try:
            yield
        finally:
            self.heal()

    def heal(self) -> None:
        self.faults, self.frozen, self.cut_off = (), False, False
        self._loop.call_soon_threadsafe(self._let_go)

    def drop_watches(self) -> int:
        """Closes every watch that is open, as an API server does when it goes; how many there were."""
        dropped = list(self._watches)
        for watch in dropped:
            self._loop.call_soon_threadsafe(_abort, watch.request)
        return len(dropped)

    def freeze_watches(self) -> int:
        """From now on nothing comes through the watches that are open, which stay open; how many they are."""
        for watch in list(self._watches):
            watch.dead = True
        return len(self._watches)

    def kubeconfig_through(self, folder: Path) -> Path:
        """The kubeconfig of whoever shall come through here, with the same rights."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {"server": self.url}
        target = folder / f"kubeconfig-through-{self.url.rpartition(':')[2]}"
        target.write_text(json.dumps(config))
        return target

    def close(self) -> None:
        self.heal()
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(10)

    # Between the two

    async def _serve(self, up: threading.Event) -> None:
        self._loop, self._healed, self._closed = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        # Without limits of its own: what times out is the operator.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        # An API server packs long answers for whoever can unpack them; what is passed on says nothing of it.
        plain = {"Accept-Encoding": "identity"}
        runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=plain) as self._session:
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
            elif fault.how == "hang":
                return await self._hang(request)
            elif fault.how == "reset":
                return _abort(request)
        began = time.monotonic()
        try:
            headers = {k: request.headers[k] for k in _PASSED_ON if k in request.headers}
            behind = await self._session.request(
                request.method, self._behind + request.raw_path, data=body or None, headers=headers
            )
            async with behind:
                if verb == "WATCH" and behind.status == 200:
                    return await self._stream(request, resource, behind)
                data = await behind.read()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return _abort(request)
        if verb in WRITES and behind.status < 300:
            self.done.append(Write(began, time.monotonic(), verb, resource))
        if self.cut_off:  # it came through before, its answer doesn't
            return await self._hang(request)
        if fault is not None and fault.how == "lost":
            return _abort(request)
        headers, half = {"Content-Type": behind.headers["Content-Type"]}, data[: len(data) // 2]
        if fault is not None and fault.how == "truncated":
            cut = web.StreamResponse(status=behind.status, headers=headers)
            cut.content_length = len(data)
            await cut.prepare(request)
            await cut.write(half)
            return _abort(request)
        garbled = fault is not None and fault.how == "garbled"
        return web.Response(status=behind.status, headers=headers, body=half if garbled else data)

    async def _stream(
        self, request: web.BaseRequest, resource: str, behind: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        watch = _Watch(request, dead=self.frozen)
        self._watches.add(watch)
        self.watches_begun.append((time.monotonic(), resource))
        try:
            response = web.StreamResponse(headers={"Content-Type": behind.headers["Content-Type"]})
            await response.prepare(request)
            async for chunk in behind.content.iter_any():
                if not watch.dead and not self.cut_off:
                    await response.write(chunk)
                else:
                    watch.dead = True  # what was swallowed is lost: nothing may follow it
            if watch.dead:
                await asyncio.sleep(3600)
        except (aiohttp.ClientError, OSError):
            return _abort(request)
        finally:
            self._watches.discard(watch)
        return response

    async def _hang(self, request: web.BaseRequest) -> web.StreamResponse:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3600):
                await self._healed.wait()
        return _abort(request)

    def _chosen(self, verb: str, resource: str) -> Fault | None:
        for fault in self.faults:
            here = resource in fault.resources if fault.resources else resource not in fault.but
            rests = time.monotonic() < self._happened.get(fault, float("-inf")) + fault.pause
            if here and verb in fault.verbs and not rests and self._random.random() < fault.share:
                self._happened[fault] = time.monotonic()
                return fault
        return None


@contextlib.contextmanager
def between(kubeconfig: Path, seed: int = 0) -> Iterator[FaultProxy]:
    """A proxy to the API server of `kubeconfig` that has ended when the context has."""
    proxy = FaultProxy(kubeconfig, seed)
    try:
        yield proxy
    finally:
        proxy.close()


def _meaning(request: web.BaseRequest) -> tuple[str, str]:
    """(verb, resource) of a request, the resource with its subresource."""
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
    """Resets the connection; what is returned goes nowhere."""
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response()
