"""A client of the API server that uses plain JSON objects.

The `kubernetes` client provides connections, TLS, and credentials with their renewal. Its typed models aren't used,
because parsing an object into them costs more than all other work on that object. Its code that builds requests isn't
used either, because that costs half as much as sending the request.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

import kubernetes
import orjson
import urllib3
import urllib3.exceptions

from triton_operator.api import names
from triton_operator.api.kinds import POD, Kind

from . import pages, proxy, shallow

Object = dict[str, Any]
Event = tuple[str, Object]
"""The type of an event of a watch (ADDED, MODIFIED, DELETED, BOOKMARK), and its object."""
CONNECT_SECONDS, READ_SECONDS = 3.05, 20.0
"""Time limits. By default the client waits without a limit."""
SILENT_SECONDS = 75.0
"""How long a watch may send nothing. The API server sends a bookmark about every 60 s."""
_MAX_BYTES = 32 << 20
"""Maximum size of one answer. etcd accepts objects of 1.5 MiB, and their JSON can be six times as large."""
_MESSAGE_MAX = 4096
"""Characters of an error message. The API server may quote the request in it."""
_JSON = "application/json"
_METADATA = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_LASTING = (
    # apimachinery's managedfields uses code 500 if a body doesn't match the schema or types of the kind.
    "failed to create typed patch object",
    "failed to convert new object",
    # etcd's limits.
    "etcdserver: request is too large",
    "trying to send message larger than max",
)
"""Parts of the messages of errors with code 500 that no retry can fix."""


class ApiError(Exception):
    """An error from the API server. `code` is the HTTP status; 0 if there was no answer.

    `retry_after`: the seconds that a busy API server asks to wait.
    """

    def __init__(self, code: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after

    @property
    def transient(self) -> bool:
        """Returns whether the same request may succeed later without any change."""
        return self.unanswered or (self.code >= 500 and not any(w in self.message for w in _LASTING))

    @property
    def unanswered(self) -> bool:
        """Returns whether there is no answer, or the API server asks to wait, so that other requests would fail too."""
        return self.code in (0, 408, 429)


class KubernetesApi:
    """Sends requests to one API server. Safe to use from several threads.

    `on_request(verb, plural, code)` is called after each request; `code` is 0 if there was no answer.
    """

    def __init__(
        self,
        client: kubernetes.client.ApiClient,
        on_request: Callable[[str, str, int], None] = lambda *_: None,
    ) -> None:
        self._client = client
        self._on_request = on_request
        self._may_write: Callable[[], bool] = lambda: True
        # There is one API server, so its connection pool is looked up only once.
        self._connections = client.rest_client.pool_manager.connection_from_url(client.configuration.host)
        self._prefix = urlsplit(client.configuration.host).path.rstrip("/")

    @classmethod
    def from_environment(cls, connections: int, on_request: Callable[[str, str, int], None]) -> KubernetesApi:
        """Uses the pod's ServiceAccount, otherwise the kubeconfig. Keeps up to `connections` connections open."""
        configuration = kubernetes.client.Configuration()
        configuration.proxy = None  # Only a kubeconfig's stays.
        try:
            kubernetes.config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        except kubernetes.config.ConfigException:
            kubernetes.config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        proxy.choose(configuration, os.environ)
        configuration.connection_pool_maxsize = connections
        return cls(kubernetes.client.ApiClient(configuration), on_request)

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self._client.configuration.host)

    @property
    def proxy(self) -> urllib3.util.Url | None:
        """The proxy that the connections use, perhaps with credentials."""
        return self._client.rest_client.pool_manager.proxy

    def fenced(self, may_write: Callable[[], bool]) -> KubernetesApi:
        """Returns a client with the same connections that calls `may_write` before each write.

        If that returns False, the write isn't sent and raises ApiError with the reason NotLeading.
        """
        fenced = copy.copy(self)
        fenced._may_write = may_write
        return fenced

    def version(self) -> Object:
        """Returns the answer of /version: major, minor, gitVersion."""
        return self._request("GET", "/version", "version")

    def serves(self, kind: Kind) -> bool:
        """Returns whether the API server serves this kind. Raises ApiError."""
        try:
            resources = self._request("GET", _root(kind), "discovery")["resources"]
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return any(resource["name"] == kind.plural for resource in resources)

    def discovers(self, kind: Kind) -> bool:
        """Returns whether the list of all API groups has the kind's too. It comes later than `serves`."""
        groups = self._request("GET", "/apis", "discovery")["groups"]
        return any(group["name"] == kind.group for group in groups) and self.serves(kind)

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return self._request("GET", _path(kind, namespace, name), kind.plural)

    def uid_of(self, kind: Kind, namespace: str, name: str) -> str:
        """Returns the uid of the object with this name; "" if there is none. Raises ApiError."""
        try:
            return str(self.get(kind, namespace, name)["metadata"]["uid"])
        except ApiError as error:
            if error.code == 404:
                return ""
            raise

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        selector: str = "",
        *,
        fields: str = "",
        cached: bool = False,
        metadata: bool = False,
    ) -> Iterator[Object]:
        """Yields all objects of `kind` in one namespace or in all, page by page (see `pages`).

        - `selector`, `fields`: a label selector and a field selector.
        - `cached`: read from the API server's cache in one page, unless that page is too large. Other reads wait about
          0.1 s until the cache is as new as etcd.
        - `metadata`: read only the metadata.

        An object that is too large (shallow.Size) is read in outline.
        """
        path, accept = _path(kind, namespace), _METADATA if metadata else _JSON
        selectors = {k: v for k, v in (("labelSelector", selector), ("fieldSelector", fields)) if v}
        limit, token = pages.MAX_LIMIT, ""
        while True:
            query = {"resourceVersion": "0"} if cached else {"limit": str(limit)}
            query |= {**selectors, **({"continue": token} if token else {})}
            max_bytes = _MAX_BYTES if limit == 1 else shallow.MAX_BYTES
            data = self._send("GET", path, kind.plural, query=query, verb="LIST", accept=accept, max_bytes=max_bytes)
            if limit > 1 and not shallow.size(data).fits():
                cached, limit = False, limit if cached else pages.smaller(limit)
                continue
            page = _read(data, ("items", 0))
            items = page["items"] or ()  # null in an empty list of metadata
            for item in items:
                # The items of a list have no apiVersion and kind.
                yield {**item, "apiVersion": kind.api_version, "kind": kind.kind}
            token = page["metadata"].get("continue")
            if not token:
                return
            limit = pages.following(limit, len(items), len(data))

    @contextlib.contextmanager
    def watch(
        self, kind: Kind, namespace: str | None, selector: str, version: str
    ) -> Iterator[tuple[Iterator[Event], Callable[[], None]]]:
        """Opens a watch; gives its events and a function that ends them from another thread.

        - `version`: the resourceVersion after which it begins. With "" it begins with an ADDED of every object.
        - The events end when the API server ends the watch, or sends nothing for SILENT_SECONDS: it sends a BOOKMARK
          about every minute.

        An object that is too large (shallow.Size) is read in outline. Raises ApiError, also between events; with code
        410 if the API server doesn't have the changes since `version` any more.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true"}
        query |= {k: v for k, v in (("labelSelector", selector), ("resourceVersion", version)) if v}
        path, plural = _path(kind, namespace), kind.plural
        with self._open("GET", path, plural, query=query, verb="WATCH", read_seconds=SILENT_SECONDS) as response:
            self._on_request("WATCH", plural, response.status)
            if response.status != 200:
                raise _refusal(response, _body(response, _MESSAGE_MAX))
            yield _events(response), functools.partial(_end, response)

    def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        return self._request("POST", _path(kind, namespace), kind.plural, body=body)

    def replace(self, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        """Updates an object with optimistic locking: `body` contains the resourceVersion that it is based on."""
        return self._request("PUT", _path(kind, namespace, name), kind.plural, body=body)

    def apply_new(self, kind: Kind, body: Object) -> Object:
        """Creates an object with server-side apply. Raises ApiError with code 409 if the name is taken.

        Sends a resourceVersion that no object can have, so that the API server creates the object but never updates it.
        """
        return self._apply(kind, {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}})

    def apply(
        self, kind: Kind, body: Object, uid: str, *, manager: str = names.FIELD_MANAGER, subresource: str = ""
    ) -> Object:
        """Updates the object with this uid by server-side apply. Raises ApiError 409 or 422 if the uid has changed."""
        return self._apply(kind, {**body, "metadata": {**body["metadata"], "uid": uid}}, manager, subresource)

    def merge(self, kind: Kind, body: Object, uid: str) -> Object:
        """Sends a strategic merge patch for the object with this uid."""
        metadata = {**body["metadata"], "uid": uid}
        path, content = _path(kind, metadata["namespace"], metadata["name"]), {**body, "metadata": metadata}
        content_type = "application/strategic-merge-patch+json"
        return self._request("PATCH", path, kind.plural, body=_yaml(content), content_type=content_type)

    def scale(self, live: Object, kind: Kind, replicas: int) -> None:
        """Changes the number of replicas of `live` through its subresource scale.

        Raises ApiError 422 if the object has another number or another uid by now.
        """
        before = live["spec"]["replicas"]
        # The API server omits the number 0.
        same = {"path": "/spec/replicas", "value": before} if before else {"path": "/spec", "value": {}}
        self.patch(
            live, kind,
            {"op": "test", **same}, {"op": "add", "path": "/spec/replicas", "value": replicas}, subresource="scale",
        )  # fmt: skip

    def patch(self, live: Object, kind: Kind, *steps: Object, subresource: str = "") -> Object:
        """Sends the steps of a JSON patch for `live`. Raises ApiError 422 if it has another uid, or a test fails."""
        metadata = live["metadata"]
        path = _path(kind, metadata["namespace"], metadata["name"], subresource)
        body = orjson.dumps([{"op": "test", "path": "/metadata/uid", "value": metadata["uid"]}, *steps])
        plural = f"{kind.plural}/{subresource}" if subresource else kind.plural
        return self._request("PATCH", path, plural, body=body, content_type="application/json-patch+json")

    def delete(self, kind: Kind, namespace: str, name: str, uid: str, *, foreground: bool = False) -> bool:
        """Deletes the object with this uid; returns False if it is already gone.

        `foreground`: the object stays until its dependents are deleted.
        """
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Foreground" if foreground else "Background"}
        try:
            self._request("DELETE", _path(kind, namespace, name), kind.plural, body=options)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def evict(self, pod: Mapping[str, Any]) -> None:
        """Evicts the pod, if it is still as in `pod`.

        Raises ApiError, with code 409 if it has changed, and 429 if a PodDisruptionBudget forbids it.
        """
        metadata = pod["metadata"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {key: metadata[key] for key in ("name", "namespace")},
            "deleteOptions": {"preconditions": {key: metadata[key] for key in ("uid", "resourceVersion")}},
        }
        path = _path(POD, metadata["namespace"], metadata["name"], "eviction")
        self._request("POST", path, f"{POD.plural}/eviction", body=body)

    def _apply(self, kind: Kind, body: Object, manager: str = names.FIELD_MANAGER, subresource: str = "") -> Object:
        path = _path(kind, body["metadata"]["namespace"], body["metadata"]["name"], subresource)
        # To warn about unknown fields, the API server would parse the body twice: 20 % of the cost of a request.
        query = {"fieldManager": manager, "force": "true", "fieldValidation": "Ignore"}
        plural = f"{kind.plural}/{subresource}" if subresource else kind.plural
        content_type = "application/apply-patch+yaml"
        return self._request("PATCH", path, plural, query=query, body=_yaml(body), content_type=content_type)

    def _request(
        self,
        method: str,
        path: str,
        plural: str,
        *,
        query: dict[str, str] | None = None,
        body: Object | bytes | None = None,
        content_type: str = _JSON,
    ) -> Object:
        return _read(self._send(method, path, plural, query=query, body=body, content_type=content_type))

    def _send(
        self,
        method: str,
        path: str,
        plural: str,
        *,
        query: dict[str, str] | None = None,
        body: Object | bytes | None = None,
        content_type: str = _JSON,
        verb: str = "",
        accept: str = _JSON,
        max_bytes: int = _MAX_BYTES,
    ) -> bytes:
        """Returns the body of the answer, cut off after `max_bytes` + 1 bytes. Raises ApiError."""
        verb = verb or method
        with self._open(
            method, path, plural, query=query, body=body, content_type=content_type, verb=verb, accept=accept
        ) as response:
            # The connection is reused if the whole response was read; otherwise it is closed.
            try:
                data = _body(response, max_bytes + 1)
            except ApiError:
                self._on_request(verb, plural, 0)
                raise
        self._on_request(verb, plural, response.status)
        if response.status >= 400:
            raise _refusal(response, data)
        return data

    def _open(
        self,
        method: str,
        path: str,
        plural: str,
        *,
        verb: str,
        query: dict[str, str] | None = None,
        body: Object | bytes | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        read_seconds: float = READ_SECONDS,
    ) -> urllib3.BaseHTTPResponse:
        """Sends a request; returns the response with its body still to be read. Raises ApiError without one."""
        if method != "GET" and not self._may_write():
            raise ApiError(0, "NotLeading", "this replica no longer holds the Lease, so it writes nothing")
        headers = {"Accept": accept, "Content-Type": content_type, "User-Agent": names.FIELD_MANAGER}
        # auth_settings() renews the token.
        headers |= {str(s["key"]): str(s["value"]) for s in self._client.configuration.auth_settings().values()}
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            return self._connections.urlopen(
                method,
                self._prefix + target,
                body=orjson.dumps(body) if isinstance(body, dict) else body,
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=read_seconds),
                # The work queue retries. urllib3 would retry three times, and sleep as long as Retry-After requests.
                retries=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self._on_request(verb, plural, 0)
            raise _no_answer(error) from error


def _no_answer(error: Exception) -> ApiError:
    return ApiError(0, "NoAnswer", f"no answer from the API server: {error}")


def _end(response: urllib3.BaseHTTPResponse) -> None:
    with contextlib.suppress(ValueError, RuntimeError, OSError):  # It has ended already.
        response.shutdown()


def _body(response: urllib3.BaseHTTPResponse, max_bytes: int) -> bytes:
    try:
        return response.read(max_bytes)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _no_answer(error) from error


def _events(response: urllib3.BaseHTTPResponse) -> Iterator[Event]:
    """Yields the events of a watch, until the API server ends it or sends nothing for a time. Raises ApiError."""
    try:
        for line in _lines(response):
            event = _read(line, ("object",))
            obj = event["object"]
            if event["type"] == "ERROR":
                message = str(obj.get("message", ""))[:_MESSAGE_MAX]
                raise ApiError(int(obj.get("code") or 500), str(obj.get("reason", "")), message)
            yield event["type"], obj
    except urllib3.exceptions.ReadTimeoutError:
        return
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _no_answer(error) from error


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yields each line as soon as it is there."""
    parts: list[bytes] = []
    while data := response.read1(1 << 16):
        *lines, rest = data.split(b"\n")
        for line in lines:
            yield b"".join([*parts, line])
            parts.clear()
        parts.append(rest)
        if sum(map(len, parts)) > _MAX_BYTES:
            raise ApiError(0, "Garbled", f"an event of the watch has more than {_MAX_BYTES} bytes")


def _read(data: bytes, at: shallow.Path = ()) -> Object:
    try:
        return cast(Object, shallow.loads(data, at))
    except ValueError as error:
        raise ApiError(0, "Garbled", f"the API server's answer can't be read: {error}") from error


def _yaml(body: Object) -> bytes:
    """Returns `body` as JSON that is also valid YAML, which allows no surrogate pairs and no raw control characters."""
    text = orjson.dumps(body).decode()
    return re.sub("[\x7f-\uffff]", lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def _root(kind: Kind) -> str:
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def _path(kind: Kind, namespace: str | None, name: str = "", subresource: str = "") -> str:
    scope = f"/namespaces/{quote(namespace)}" if namespace else ""
    return "/".join(part for part in (_root(kind) + scope, kind.plural, quote(name), subresource) if part)


def _refusal(response: urllib3.BaseHTTPResponse, data: bytes) -> ApiError:
    return _error(response.status, data, response.headers.get("Retry-After", ""))


def _error(code: int, data: bytes, retry_after: str = "") -> ApiError:
    wait = float(retry_after[:9]) if retry_after.isascii() and retry_after.isdigit() else 0.0
    try:
        status = orjson.loads(data)
        return ApiError(code, status.get("reason", ""), status.get("message", "")[:_MESSAGE_MAX], wait)
    except (ValueError, AttributeError):
        return ApiError(code, "", data[:500].decode(errors="replace"), wait)
