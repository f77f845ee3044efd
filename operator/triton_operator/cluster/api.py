"""A client of the API server that uses plain JSON objects.

The typed models of the `kubernetes` client aren't used, because parsing an object into them costs more than all other
work on that object.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote

import kubernetes
import orjson
import urllib3
import urllib3.exceptions

from triton_operator.api import names
from triton_operator.api.kinds import POD, Kind

from . import pages, shallow
from .connection import JSON, MAX_BYTES, Connection, OnRequest, read_body
from .errors import MESSAGE_MAX, ApiError, garbled, no_answer, refusal

Object = dict[str, Any]
Event = tuple[str, Object]
"""The type of an event of a watch (ADDED, MODIFIED, DELETED, BOOKMARK), and its object."""
SILENT_SECONDS = 75.0
"""How long a watch may send nothing. The API server sends a bookmark about every 60 s."""
_METADATA = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class KubernetesApi:
    """Sends requests to the API server of `client`. Safe to use from several threads."""

    def __init__(self, client: kubernetes.client.ApiClient, on_request: OnRequest = lambda *_: None) -> None:
        self.connection = Connection(client, on_request)

    def fenced(self, may_write: Callable[[], bool]) -> KubernetesApi:
        """Returns the same client that calls `may_write` before each write, see `Connection.fenced`."""
        fenced = copy.copy(self)
        fenced.connection = self.connection.fenced(may_write)
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
        path, accept = _path(kind, namespace), _METADATA if metadata else JSON
        selectors = {k: v for k, v in (("labelSelector", selector), ("fieldSelector", fields)) if v}
        limit, token = pages.MAX_LIMIT, ""
        while True:
            query = {"resourceVersion": "0"} if cached else {"limit": str(limit)}
            query |= {**selectors, **({"continue": token} if token else {})}
            max_bytes = MAX_BYTES if limit == 1 else shallow.MAX_BYTES
            data = self.connection.send(
                "GET", path, kind.plural, query=query, verb="LIST", accept=accept, max_bytes=max_bytes
            )
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
            limit = pages.next_limit(limit, len(items), len(data))

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
        with self.connection.open(
            "GET", path, plural, query=query, verb="WATCH", read_seconds=SILENT_SECONDS
        ) as response:
            self.connection.on_request("WATCH", plural, response.status)
            if response.status != 200:
                raise refusal(response.status, read_body(response, MESSAGE_MAX))
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
        path = _path(POD, metadata["namespace"], metadata["name"], "eviction")
        self._request("POST", path, f"{POD.plural}/eviction", body=_eviction(metadata))

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
        content_type: str = JSON,
    ) -> Object:
        return _read(self.connection.send(method, path, plural, query=query, body=body, content_type=content_type))


def _end(response: urllib3.BaseHTTPResponse) -> None:
    with contextlib.suppress(ValueError, RuntimeError, OSError):  # It has ended already.
        response.shutdown()


def _events(response: urllib3.BaseHTTPResponse) -> Iterator[Event]:
    """Yields the events of a watch, until the API server ends it or sends nothing for a time. Raises ApiError."""
    try:
        for line in _lines(response):
            event = _read(line, ("object",))
            obj = event["object"]
            if event["type"] == "ERROR":
                message = str(obj.get("message", ""))[:MESSAGE_MAX]
                raise ApiError(int(obj.get("code") or 500), str(obj.get("reason", "")), message)
            yield event["type"], obj
    except urllib3.exceptions.ReadTimeoutError:
        return
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise no_answer(error) from error


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yields each line as soon as it is there."""
    parts: list[bytes] = []
    while data := response.read1(1 << 16):
        *lines, rest = data.split(b"\n")
        for line in lines:
            yield b"".join([*parts, line])
            parts.clear()
        parts.append(rest)
        if sum(map(len, parts)) > MAX_BYTES:
            raise garbled(f"an event of the watch has more than {MAX_BYTES} bytes")


def _read(data: bytes, at: shallow.Path = ()) -> Object:
    try:
        return cast(Object, shallow.loads(data, at))
    except ValueError as error:
        raise garbled(f"the API server's answer can't be read: {error}") from error


def _yaml(body: Object) -> bytes:
    """Returns `body` as JSON that is also valid YAML, which allows no surrogate pairs and no raw control characters."""
    text = orjson.dumps(body).decode()
    return re.sub("[\x7f-\uffff]", lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def _eviction(metadata: Mapping[str, Any]) -> Object:
    """Returns the eviction of the pod with this metadata; the API server refuses it if the pod has changed."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {key: metadata[key] for key in ("name", "namespace")},
        "deleteOptions": {"preconditions": {key: metadata[key] for key in ("uid", "resourceVersion")}},
    }


def _root(kind: Kind) -> str:
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def _path(kind: Kind, namespace: str | None, name: str = "", subresource: str = "") -> str:
    scope = f"/namespaces/{quote(namespace)}" if namespace else ""
    return "/".join(part for part in (_root(kind) + scope, kind.plural, quote(name), subresource) if part)
