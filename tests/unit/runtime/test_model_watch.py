"""kopf's watch of TritonModels against an API server that answers as told."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes
import pytest

from support.api import eventually
from triton_operator.api import names
from triton_operator.api.kinds import TRITON_MODEL
from triton_operator.cluster.api import KubernetesApi
from triton_operator.runtime import model_watch
from triton_operator.runtime.model_watch import ModelWatch

Object = dict[str, Any]
Answer = tuple[int, Object] | None
"""The status and body of an answer; None for a watch that stays open."""
API = f"/apis/{names.GROUP}/{names.VERSION}"
FORBIDDEN = (403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"})
GONE = (404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "no CRD"})


def model(name: str, **metadata: Any) -> Object:
    own = {"name": name, "namespace": "vision", "uid": f"uid-{name}", "resourceVersion": "5", **metadata}
    return {"apiVersion": TRITON_MODEL.api_version, "kind": names.KIND, "metadata": own, "spec": {}}


def _group(name: str, version: str) -> Object:
    served = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [served], "preferredVersion": served}


def _resource(plural: str, kind: str) -> Object:
    verbs = ["list", "watch", "patch"]
    return {"name": plural, "kind": kind, "singularName": "", "namespaced": kind == names.KIND, "verbs": verbs}


class ApiServer:
    """Lists `models`. `lists` and `watches` are the next answers to these requests before the usual ones.

    `requests` has the method and what was requested: "GET list", "GET watch", "PATCH …".
    """

    def __init__(self, *models: Object) -> None:
        self.models, self.lists, self.watches = list(models), list[Answer](), list[Answer]()
        self.requests, self.over = list[str](), threading.Event()
        self.kopf_knows_the_crd = True
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.get(self)

            def do_PATCH(self) -> None:
                outer.requests.append(f"PATCH {self.path}")
                self.rfile.read(int(self.headers["Content-Length"]))
                outer.answer(self, FORBIDDEN)

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def count(self, request: str) -> int:
        return self.requests.count(request)

    def get(self, request: http.server.BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        if url.path != f"{API}/{names.PLURAL}":
            return self.answer(request, self.discovery(url.path, "kopf" in request.headers.get("User-Agent", "")))
        watch = "watch" in parse_qs(url.query)
        self.requests.append("GET watch" if watch else "GET list")
        answers = self.watches if watch else self.lists
        page = {"kind": f"{names.KIND}List", "apiVersion": TRITON_MODEL.api_version, "items": self.models}
        usual: Answer = None if watch else (200, {**page, "metadata": {"resourceVersion": "10"}})
        return self.answer(request, answers.pop(0) if answers else usual)

    def discovery(self, path: str, is_kopf: bool) -> Answer:
        crds = ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
        ours = (names.GROUP, names.VERSION, names.PLURAL, names.KIND)
        groups = [crds, ours] if self.kopf_knows_the_crd or not is_kopf else [crds]
        answers: dict[str, Object] = {
            "/api": {"versions": ["v1"]},
            "/api/v1": {"resources": [_resource("namespaces", "Namespace")]},
            "/apis": {"groups": [_group(*group[:2]) for group in groups]},
            **{f"/apis/{group}/{version}": {"resources": [_resource(*kind)]} for group, version, *kind in groups},
        }
        return (200, answers[path]) if path in answers else GONE

    def answer(self, request: http.server.BaseHTTPRequestHandler, answer: Answer) -> None:
        request.send_response(answer[0] if answer else 200)
        request.send_header("Content-Type", "application/json")
        if answer is None:
            request.send_header("Transfer-Encoding", "chunked")
            request.end_headers()
            self.over.wait(120)
            return
        body = json.dumps(answer[1]).encode()
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


class Watched:
    """`seen`: what the watch reported: (type, name) of each event, and "begin"."""

    def __init__(self, server: ApiServer) -> None:
        self.seen: list[Any] = []
        configuration = kubernetes.client.Configuration(host=f"http://127.0.0.1:{server.http.server_port}")
        api = KubernetesApi(kubernetes.client.ApiClient(configuration))
        self.watch = ModelWatch(
            api, (), lambda what, obj: self.seen.append((what, obj["metadata"]["name"])),
            lambda: self.seen.append("begin"),
        )  # fmt: skip


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[ApiServer], Watched]]:
    with contextlib.ExitStack() as stack:

        def begin(server: ApiServer) -> Watched:
            config = {
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "users": [{"name": "u", "user": {"token": "t"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.http.server_port}"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }  # fmt: skip
            file = tmp_path / "kubeconfig"
            file.write_text(json.dumps(config))
            monkeypatch.setattr(kubernetes.config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
            monkeypatch.setenv("KUBECONFIG", str(file))
            watched = Watched(server)
            stack.callback(server.http.server_close)
            stack.callback(server.http.shutdown)
            stack.callback(server.over.set)
            stack.callback(watched.watch.stop)
            return watched

        yield begin


def test_begins_again_after_an_error_that_ends_kopf(start: Callable[[ApiServer], Watched]) -> None:
    server = ApiServer(model("a"))
    server.watches = [GONE]
    watched = start(server)
    eventually(lambda: server.count("GET watch") >= 2, 120, lambda: (server.requests, watched.seen))
    assert server.count("GET list") >= 2
    assert watched.seen.count("begin") >= 2
    # kopf's handlers run beside its watch.
    eventually(lambda: watched.seen.count(("ADDED", "a")) == server.count("GET list"), 60, lambda: watched.seen)
    eventually(lambda: watched.watch.watches, 60, "the watch")


def test_does_not_watch_while_its_requests_are_refused(start: Callable[[ApiServer], Watched]) -> None:
    server = ApiServer()
    server.lists = [FORBIDDEN] * 6
    watched = start(server)
    eventually(lambda: server.count("GET list") >= 3, 120, lambda: server.requests)
    assert not watched.watch.watches
    eventually(lambda: server.count("GET watch"), 120, lambda: server.requests)
    eventually(lambda: watched.watch.watches, 60, "the watch")


def test_writes_nothing_to_an_object_with_kopfs_finalizer(start: Callable[[ApiServer], Watched]) -> None:
    """A user may set it. kopf would try to remove it without an end, and report no event until then."""
    server = ApiServer(model("a", finalizers=["kopf.zalando.org/KopfFinalizerMarker"]), model("b"))
    watched = start(server)
    eventually(lambda: {("ADDED", "a"), ("ADDED", "b")} <= set(watched.seen), 120, lambda: watched.seen)
    eventually(lambda: server.count("GET watch"), 120, lambda: server.requests)
    assert not [request for request in server.requests if request.startswith("PATCH")]


def test_starts_again_if_a_listing_has_what_kopf_does_not_report(
    start: Callable[[ApiServer], Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """kopf asked an API server that doesn't know the CRD yet, so it watches nothing."""
    server = ApiServer(model("a"))
    server.kopf_knows_the_crd = False
    watched = start(server)
    eventually(lambda: watched.watch.watches, 120, "kopf's start")
    watched.watch.compare(["uid-a"])
    assert watched.watch.watches, "it may still list"
    monkeypatch.setattr(model_watch, "_SILENT_SECONDS", 0.0)
    server.kopf_knows_the_crd = True
    watched.watch.compare(["uid-a"])
    eventually(lambda: ("ADDED", "a") in watched.seen, 120, lambda: (server.requests, watched.seen))
    watched.watch.compare(["uid-a"])
    assert watched.watch.watches


def test_stops(start: Callable[[ApiServer], Watched]) -> None:
    server = ApiServer(model("a"))
    watched = start(server)
    eventually(lambda: server.count("GET watch"), 120, lambda: server.requests)
    threads = [thread for thread in threading.enumerate() if thread.name == "kopf"]
    watched.watch.stop()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
