"""Takes copies of requests, and sends some of them to the canary's server and to the others."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from prometheus_client import CollectorRegistry, Counter, generate_latest
from yarl import URL

from .answers import Likeness, Output, compare, outputs

_log = logging.getLogger(__name__)

REQUEST_BYTES = 32 << 20
_ANSWER_BYTES = 4 << 20
_ANSWER_JSON_BYTES = 1 << 20
"""Maximum size of the JSON in an answer, which takes many times more memory when it is read."""
_REQUEST_SECONDS = 10.0
_SECONDS = 60.0
_PAUSE_SECONDS = 1.0
_MAX_WORDS = 20
"""Maximum number of names of outputs, and of reasons, that are counted by themselves."""
_WORDS_LENGTH = 200
_OTHERS = "others"
_INFERENCE = re.compile(r"/v2/models/[^/]+(/versions/[0-9]+)?/(infer|generate)")
_UNIQUE = (b'"sequence_id"', b'"shared_memory_region"')
"""Fields of a request that another server can't answer in the same way."""
_NOT_FORWARDED = frozenset(
    {
        "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te",
        "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_LENGTH = "Inference-Header-Content-Length"
_DIGITS = 10
_OK, _TOO_MANY, _UNAVAILABLE = 200, 429, 503


class NotComparedError(Exception):
    """The answers to a request can't be compared. The message says why."""


@dataclass(frozen=True)
class Sent:
    """A request to send. `path`: with the query, encoded."""

    path: str
    headers: CIMultiDict[str]
    body: bytes


class Counts:
    """What was found, as Prometheus counters. operator/triton_operator/probe/comparisons.py reads them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._answers = Counter(
            "triton_operator_compared_answers", "Answers that were compared.", ["result"], registry=self.registry
        )
        self._outputs = Counter(
            "triton_operator_different_outputs", "Answers whose output differs.", ["output"], registry=self.registry
        )
        self._not_compared = Counter(
            "triton_operator_answers_not_compared", "Requests whose answers couldn't be compared.", ["reason"],
            registry=self.registry,
        )  # fmt: skip
        self._seen: dict[Counter, set[str]] = {self._outputs: set(), self._not_compared: set()}

    def compared(self, found: Mapping[str, Likeness]) -> None:
        """Counts the answers to a request, by the likeness of each output."""
        self._answers.labels(max(found.values(), default=Likeness.EXACT).name.lower()).inc()
        for name, likeness in found.items():
            if likeness == Likeness.DIFFERENT:
                self._count(self._outputs, name)

    def varying(self) -> None:
        """Counts a request to which the same servers give different answers."""
        self._answers.labels("varying").inc()

    def not_compared(self, reason: str) -> None:
        self._count(self._not_compared, reason)

    def _count(self, counter: Counter, words: str) -> None:
        seen = self._seen[counter]
        # JSON may have half of a pair of code units, which is no text.
        words = words[:_WORDS_LENGTH].encode("utf-8", "replace").decode()
        words = words if words in seen or len(seen) < _MAX_WORDS else _OTHERS
        seen.add(words)
        counter.labels(words).inc()


class Comparer:
    """Compares the answers to one request at a time, and for at most half of the time.

    `own`, `others`: URLs of the canary's server in this pod, and of the Service of the other servers.
    """

    def __init__(self, own: str, others: str, pause_seconds: float = _PAUSE_SECONDS) -> None:
        self._own, self._others, self._pause = own, others, pause_seconds
        self.counts = Counts()
        self._busy, self._after = False, 0.0
        self._task: asyncio.Task[None] | None = None

    def app(self) -> web.Application:
        """Returns the HTTP server: it takes copies of Triton's requests, and answers /metrics."""
        app = web.Application(client_max_size=REQUEST_BYTES)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_route("*", "/{path:.*}", self._take)
        return app

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self.counts.registry), content_type="text/plain")

    async def _take(self, request: web.Request) -> web.Response:
        """Answers at once, because a Gateway that copies a request waits for the answer, too."""
        loop = asyncio.get_running_loop()
        is_inference = request.method == "POST" and _INFERENCE.fullmatch(request.rel_url.raw_path)
        if self._busy or loop.time() < self._after or not is_inference:
            return web.Response(status=204)
        self._busy = True
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            self.counts.not_compared(f"a request is larger than {REQUEST_BYTES >> 20} MiB")
            return web.Response(status=204)
        except (TimeoutError, OSError):
            return web.Response(status=204)
        else:
            headers = CIMultiDict(
                (name, value) for name, value in request.headers.items() if name.lower() not in _NOT_FORWARDED
            )
            headers["Accept-Encoding"] = "identity"
            self._task = asyncio.create_task(self._compare_once(Sent(request.rel_url.raw_path_qs, headers, body)))
        finally:
            if self._task is None:
                self._busy = False
        return web.Response(status=204)

    async def _compare_once(self, sent: Sent) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._compare(sent)
        except NotComparedError as error:
            self.counts.not_compared(str(error))
        except Exception:
            _log.exception("answers can't be compared")
            self.counts.not_compared("an internal error, see the log of the container")
        finally:
            self._after = loop.time() + max(self._pause, loop.time() - began)
            self._task, self._busy = None, False

    async def _compare(self, sent: Sent) -> None:
        """Compares the answers to one request. Raises NotComparedError."""
        if sent.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise NotComparedError("a request is compressed")
        if any(field in sent.body for field in _UNIQUE):
            raise NotComparedError("a request is of a sequence or has shared memory")
        # Each on a connection of its own, so that kube-proxy chooses a server for each.
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=_SECONDS),
        ) as session:
            first = await _of_others(session, self._others, sent)
            status, own = await _answer(session, self._own, sent, "the canary's server")
            second = await _of_others(session, self._others, sent)
        loop = asyncio.get_running_loop()
        # Large tensors take time, in which metrics are read.
        found = await loop.run_in_executor(None, _found, first, own if status == _OK else None, second)
        if found is None:
            self.counts.varying()
        else:
            self.counts.compared(found)


Answered = tuple[bytes, int | None]
"""The body of an answer, and how many of its bytes are JSON if binary data follow."""


def _found(first: Answered, own: Answered | None, second: Answered) -> Mapping[str, Likeness] | None:
    """Returns the likeness of the outputs of the canary and of the others; None if those vary themselves.

    `own`: None if the canary answers with an error. Raises NotComparedError.
    """
    try:
        others = outputs(*first)
        if Likeness.DIFFERENT in compare(others, outputs(*second)).values():
            return None
        mine: Mapping[str, Output] = {} if own is None else outputs(*own)
        if own is None:
            return {"an error instead of an answer": Likeness.DIFFERENT}
        return compare(others, mine)
    except ValueError as error:
        raise NotComparedError(str(error)) from None


async def _of_others(session: aiohttp.ClientSession, url: str, sent: Sent) -> Answered:
    status, answer = await _answer(session, url, sent, "the other servers")
    if status != _OK:
        raise NotComparedError(f"HTTP status {status} of the other servers")
    return answer


async def _answer(session: aiohttp.ClientSession, url: str, sent: Sent, who: str) -> tuple[int, Answered]:
    """Returns the status and the answer of a server. Raises NotComparedError if it has none of a model."""
    target, body = URL(url + sent.path, encoded=True), bytearray()
    try:
        async with session.post(target, data=sent.body, headers=sent.headers, allow_redirects=False) as response:
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > _ANSWER_BYTES:
                    raise NotComparedError(f"an answer is larger than {_ANSWER_BYTES >> 20} MiB")
            text = response.headers.get(_LENGTH, "")
    except TimeoutError:
        raise NotComparedError(f"no answer of {who} within {_SECONDS:g} s") from None
    except aiohttp.ClientConnectorDNSError as error:
        raise NotComparedError(f"the name of {who} can't be resolved: {error.os_error}") from None
    except (aiohttp.ClientError, OSError) as error:
        raise NotComparedError(f"no connection to {who}: {type(error).__name__}") from None
    if response.status in (_TOO_MANY, _UNAVAILABLE):
        raise NotComparedError(f"HTTP status {response.status} of {who}")
    length = int(text) if text.isdecimal() and len(text) < _DIGITS else None
    if (len(body) if length is None else length) > _ANSWER_JSON_BYTES:
        raise NotComparedError(f"an answer has more than {_ANSWER_JSON_BYTES >> 20} MiB of JSON")
    return response.status, (bytes(body), length)
