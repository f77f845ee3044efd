"""Requests to the API server: transient errors, request bodies, retries, and the fence that blocks writes."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import threading
from collections.abc import Callable, Iterator
from urllib.parse import parse_qsl, urlsplit

import kubernetes
import pytest
import yaml
from urllib3 import HTTPConnectionPool, HTTPResponse

from triton_operator.api.kinds import POD
from triton_operator.cluster import shallow
from triton_operator.cluster.api import KubernetesApi, _yaml
from triton_operator.cluster.errors import ApiError, refusal

MALFORMED = "failed to create typed patch object (a/b; apps/v1, Kind=Deployment): .spec.foo: field not declared"


def answer(body: bytes) -> HTTPResponse:
    return HTTPResponse(io.BytesIO(body), status=200, preload_content=False)


@pytest.mark.parametrize(
    ("code", "message", "transient"),
    [
        (0, "no answer", True), (408, "", True), (429, "", True), (500, "etcd timed out", True), (503, "", True),
        (400, "", False), (403, "exceeded quota", False), (404, "", False), (409, "", False), (422, "", False),
        (500, MALFORMED, False), (500, "etcdserver: request is too large", False), (500, "etcdserver: timeout", True),
        (500, "failed to convert new object (a/b; apps/v1, Kind=Deployment) to proper version: unable to…", False),
        (500, "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)", False),
    ],
)  # fmt: skip
def test_classifies_errors_as_transient_or_permanent(code: int, message: str, transient: bool) -> None:
    assert ApiError(code, "", message).transient is transient


@pytest.mark.parametrize(
    "text", ["plain", "é ü 漢字", "😀", "\\ud83d \\", "\x7f\x85\u2028\ufeff", 'a"b\n\t\x01', "😀\x7f😀"]
)
def test_request_body_is_valid_json_and_valid_yaml(text: str) -> None:
    body = _yaml({"a": text, text: "a"})
    assert json.loads(body) == {"a": text, text: "a"}
    assert yaml.safe_load(body) == {"a": text, text: "a"}
    assert b"\\ud83d\\u" not in body  # the API server's YAML parser rejects surrogate pairs


@pytest.mark.parametrize("body", [b"", b'{"kind": "Lea', b"<html>bad gateway</html>", b"\xff"])
def test_response_that_is_not_json_is_a_transient_error(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    """A proxy can return such a response. It must not end the process."""
    client = kubernetes.client.ApiClient(kubernetes.client.Configuration("https://api.example.com"))
    monkeypatch.setattr(HTTPConnectionPool, "urlopen", lambda *_, **__: answer(body))
    with pytest.raises(ApiError) as error:
        KubernetesApi(client).version()
    assert error.value.transient


@pytest.mark.parametrize("host", ["https://api.example.com", "https://api.example.com/k8s/clusters/c-1/"])
def test_uses_the_path_of_the_api_servers_url(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """A proxy that serves several clusters uses such paths."""
    requested = []

    def urlopen(pool: HTTPConnectionPool, method: str, url: str, **_: object) -> HTTPResponse:
        requested.append(f"{pool.scheme}://{pool.host}{url}")
        return answer(b"{}")

    monkeypatch.setattr(HTTPConnectionPool, "urlopen", urlopen)
    KubernetesApi(kubernetes.client.ApiClient(kubernetes.client.Configuration(host))).version()
    assert requested == [host.rstrip("/") + "/version"]


@pytest.mark.parametrize("code", [429, 503])
def test_sends_a_request_once_despite_retry_after(code: int) -> None:
    requested: list[str] = []

    class Busy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested.append(self.path)
            self.send_response(code)
            self.send_header("Retry-After", "1")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        configuration = kubernetes.client.Configuration(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(ApiError) as error:
            KubernetesApi(kubernetes.client.ApiClient(configuration)).version()
        server.shutdown()
    assert (error.value.code, requested, error.value.retry_after) == (code, ["/version"], 1)
    assert error.value.transient


def test_tries_a_refused_connection_once() -> None:
    requests: list[int] = []
    configuration = kubernetes.client.Configuration("http://127.0.0.1:1")
    api = KubernetesApi(kubernetes.client.ApiClient(configuration), lambda verb, plural, code: requests.append(code))
    with pytest.raises(ApiError, match="no answer"):
        api.version()
    assert requests == [0]


def test_fence_allows_reads_always_and_writes_only_while_leading(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    def urlopen(pool: HTTPConnectionPool, method: str, url: str, **_: object) -> HTTPResponse:
        sent.append(method)
        return answer(b"{}")

    monkeypatch.setattr(HTTPConnectionPool, "urlopen", urlopen)
    leading = [True]
    api = KubernetesApi(kubernetes.client.ApiClient(kubernetes.client.Configuration("https://api.example.com")))
    fenced = api.fenced(lambda: leading[0])
    body = {"metadata": {"name": "a", "namespace": "b"}}

    writes: list[Callable[[], object]] = [
        lambda: fenced.create(POD, "b", body),
        lambda: fenced.replace(POD, "b", "a", body),
        lambda: fenced.apply(POD, body, "1"),
        lambda: fenced.apply_new(POD, body),
        lambda: fenced.merge(POD, body, "1"),
        lambda: fenced.delete(POD, "b", "a", "1"),
    ]
    for write in writes:
        write()
    assert sent == ["POST", "PUT", "PATCH", "PATCH", "PATCH", "DELETE"]
    sent.clear()
    leading[0] = False
    for write in writes:
        with pytest.raises(ApiError) as error:
            write()
        assert (error.value.reason, error.value.transient) == ("NotLeading", True)
    fenced.get(POD, "b", "a")
    assert sent == ["GET"]
    api.create(POD, "b", body)
    assert sent == ["GET", "POST"], "the unfenced client, which writes the Lease, still writes"


class Listed(http.server.BaseHTTPRequestHandler):
    """Lists objects of these sizes. The token `continue` is the number of objects on earlier pages."""

    protocol_version = "HTTP/1.1"
    sizes: tuple[int, ...] = ()
    queries: list[dict[str, str]] = []

    def do_GET(self) -> None:
        query = dict(parse_qsl(urlsplit(self.path).query))
        self.queries.append(query)
        first = int(query.get("continue", 0))
        last = min(first + int(query["limit"]), len(self.sizes)) if "limit" in query else len(self.sizes)
        items = [{"metadata": {"name": f"{n}"}, "spec": "x" * self.sizes[n]} for n in range(first, last)]
        rest = {"continue": str(last)} if last < len(self.sizes) else {}
        body = json.dumps({"metadata": rest, "items": items}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def listed(*sizes: int) -> Iterator[KubernetesApi]:
    Listed.sizes, Listed.queries = sizes, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        configuration = kubernetes.client.Configuration(f"http://127.0.0.1:{server.server_port}")
        yield KubernetesApi(kubernetes.client.ApiClient(configuration))
        server.shutdown()


LARGE = 1_500_000


@pytest.mark.parametrize(
    "sizes", [(), (10,) * 250, (LARGE,) * 3, (10,) * 120 + (LARGE,) + (10,) * 120, (300_000,) * 20]
)
def test_lists_in_pages_by_bytes_and_completely(sizes: tuple[int, ...]) -> None:
    with listed(*sizes) as api:
        names = [item["metadata"]["name"] for item in api.list(POD)]
    assert names == [str(n) for n in range(len(sizes))]


def test_lists_a_hundred_small_objects_per_page() -> None:
    with listed(*(10,) * 250) as api:
        list(api.list(POD))
    assert [query["limit"] for query in Listed.queries] == ["100"] * 3


def test_lists_an_outline_of_an_object_that_is_too_large() -> None:
    with listed(10, LARGE, 10) as api:
        pods = list(api.list(POD))
    assert [shallow.TOO_LARGE in item for item in pods] == [False, True, False]
    assert all(item["kind"] == "Pod" for item in pods)


def test_uses_the_watch_cache_unless_the_list_is_large() -> None:
    with listed(10, 10) as api:
        assert len(list(api.list(POD, cached=True))) == 2
        assert Listed.queries == [{"resourceVersion": "0"}]
    with listed(*(LARGE,) * 4) as api:
        assert len(list(api.list(POD, cached=True))) == 4
        assert Listed.queries[0] == {"resourceVersion": "0"}
        assert all("limit" in query for query in Listed.queries[1:])


def test_shortens_a_long_refusal() -> None:
    body = json.dumps({"reason": "Invalid", "message": "m" * 1_000_000}).encode()
    error = refusal(422, body)
    assert (error.reason, len(error.message)) == ("Invalid", 4096)
