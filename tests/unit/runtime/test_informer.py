"""The informer against an API server that answers as told."""

from __future__ import annotations

import contextlib
import http.server
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes
import pytest

from support.api import eventually
from triton_operator.api.kinds import DEPLOYMENT
from triton_operator.cluster.api import KubernetesApi
from triton_operator.runtime.informer import Informer

Answer = Callable[["ApiServer", http.server.BaseHTTPRequestHandler], None]


def event(what: str, version: int, name: str = "a") -> bytes:
    metadata = {"name": name, "resourceVersion": str(version)}
    return json.dumps({"type": what, "object": {"kind": "Deployment", "metadata": metadata}}).encode() + b"\n"


def watch(*events: bytes, parts: int = 1) -> Answer:
    """An answer with these events that ends as usual; each event in some parts."""

    def answer(_: ApiServer, request: http.server.BaseHTTPRequestHandler) -> None:
        begin(request)
        for data in events:
            step = -(-len(data) // parts)
            for start in range(0, len(data), step):
                send(request, data[start : start + step])
        request.wfile.write(b"0\r\n\r\n")

    return answer


def broken(*events: bytes) -> Answer:
    """An answer whose connection ends in the middle of an event."""

    def answer(_: ApiServer, request: http.server.BaseHTTPRequestHandler) -> None:
        begin(request)
        for data in events:
            send(request, data)
        send(request, event("ADDED", 99)[:20])
        request.close_connection = True

    return answer


def unchunked(*events: bytes) -> Answer:
    """An answer without chunks that stays open, as from some proxies."""

    def answer(server: ApiServer, request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        for data in events:
            request.wfile.write(data)
            request.wfile.flush()
        server.over.wait(600)  # longer than a test waits
        request.close_connection = True

    return answer


def refused(code: int) -> Answer:
    def answer(_: ApiServer, request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_error(code)

    return answer


def idle(server: ApiServer, request: http.server.BaseHTTPRequestHandler) -> None:
    """An answer that sends nothing until the end of the test."""
    begin(request)
    server.over.wait(60)
    request.close_connection = True


def begin(request: http.server.BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Transfer-Encoding", "chunked")
    request.end_headers()


def send(request: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    request.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
    request.wfile.flush()


class ApiServer:
    """Gives one answer after the other, and then `idle` ones.

    `versions`, `times`: the resourceVersions of the requests, and when they came.
    """

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.over = list(answers), threading.Event()
        self.versions, self.times = list[str](), list[float]()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                assert query["watch"] == ["true"]
                outer.times.append(time.monotonic())
                outer.versions.append(query.get("resourceVersion", [""])[0])
                (outer.answers.pop(0) if outer.answers else idle)(outer, self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


class Watched:
    """What an informer reported: (type, resourceVersion) of each event, and "begin"."""

    def __init__(self, server: ApiServer, refuses: str = "") -> None:
        self.seen: list[Any] = []
        self._refuses = refuses
        configuration = kubernetes.client.Configuration(host=f"http://127.0.0.1:{server.http.server_port}")
        api = KubernetesApi(kubernetes.client.ApiClient(configuration))
        self.informer = Informer(api, DEPLOYMENT, None, "a=b", self._event, lambda: self.seen.append("begin"))

    def _event(self, what: str, obj: dict[str, Any]) -> None:
        if obj["metadata"]["name"] == self._refuses:
            raise ValueError("a malformed object")
        self.seen.append((what, int(obj["metadata"]["resourceVersion"])))


@contextlib.contextmanager
def watching(*answers: Answer, refuses: str = "") -> Iterator[tuple[ApiServer, Watched]]:
    """Runs an informer until it has used all answers."""
    server = ApiServer(*answers)
    watched = Watched(server, refuses)
    try:
        eventually(lambda: len(server.versions) > len(answers), 60, lambda: (server.versions, watched.seen))
        yield server, watched
    finally:
        watched.informer.stop()
        server.over.set()
        server.http.shutdown()
        server.http.server_close()


@pytest.mark.parametrize("parts", [1, 7])
def test_goes_on_after_the_usual_end_of_a_watch(parts: int) -> None:
    first = watch(event("ADDED", 5), event("MODIFIED", 7), event("BOOKMARK", 9), parts=parts)
    with watching(first, watch(event("DELETED", 11))) as (server, watched):
        assert server.versions == ["", "9", "11"]
        assert watched.seen == ["begin", ("ADDED", 5), ("MODIFIED", 7), ("DELETED", 11)]


def test_goes_on_after_a_broken_connection() -> None:
    with watching(broken(event("ADDED", 6), event("MODIFIED", 7)), watch(event("ADDED", 9))) as (server, watched):
        assert server.versions == ["", "7", "9"]
        assert watched.seen == ["begin", ("ADDED", 6), ("MODIFIED", 7), ("ADDED", 9)]
        assert watched.informer.watches


def test_begins_again_if_the_connection_breaks_among_the_first_objects() -> None:
    """They come in any order, so none of their versions says which ones are missing."""
    with watching(broken(event("ADDED", 100)), watch(event("ADDED", 100), event("ADDED", 50))) as (server, watched):
        assert server.versions == ["", "", ""]
        assert watched.seen[:4] == ["begin", ("ADDED", 100), "begin", ("ADDED", 100)]


GONE = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}).encode() + b"\n"


@pytest.mark.parametrize("answer", [refused(410), watch(GONE), refused(503), refused(403), refused(429)])
def test_begins_again_when_objects_may_have_been_missed(answer: Answer) -> None:
    begun = watch(event("ADDED", 4), event("BOOKMARK", 5))
    with watching(begun, answer, watch(event("ADDED", 2), event("BOOKMARK", 3))) as (server, watched):
        assert server.versions == ["", "5", "", "3"]
        assert watched.seen == ["begin", ("ADDED", 4), "begin", ("ADDED", 2)]


def test_a_malformed_object_does_not_hide_others() -> None:
    with watching(watch(event("ADDED", 5, "bad"), event("MODIFIED", 6)), refuses="bad") as (server, watched):
        assert watched.seen == ["begin", ("MODIFIED", 6)]
        assert server.versions == ["", "6"]


def test_does_not_watch_while_it_is_refused() -> None:
    with watching(watch(event("ADDED", 5)), *[refused(403)] * 2) as (server, watched):
        eventually(lambda: watched.informer.watches, 60, "the watch that is accepted again")
        server.answers += [refused(403)] * 50
        server.over.set()  # ends the idle answer
        eventually(lambda: not watched.informer.watches, 60, "the refused watch")


def test_stops_at_once_while_nothing_is_sent() -> None:
    with watching(watch(event("ADDED", 5))) as (server, watched):
        eventually(lambda: watched.informer.watches, 60, "the watch")
        threads = [t for t in threading.enumerate() if t.name == "watch-deployments"]
        watched.informer.stop()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert not server.over.is_set()


def test_reports_events_at_once_also_without_chunks() -> None:
    server = ApiServer(unchunked(event("ADDED", 5)))
    watched = Watched(server)
    eventually(lambda: ("ADDED", 5) in watched.seen, 30, lambda: watched.seen)
    watched.informer.stop()
    server.over.set()
    server.http.shutdown()


def test_does_not_flood_an_api_server_that_ends_every_watch_or_says_that_all_is_gone() -> None:
    with watching(*[watch()] * 3, *[refused(410)] * 3) as (server, _):
        assert all(after - before > 0.3 for before, after in itertools.pairwise(server.times))
