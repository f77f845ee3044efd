"""The API server, as plain JSON objects.

The `kubernetes` client does connections, TLS, credentials and their renewal. Its typed models are left out, because
parsing every object into them costs more than all else that the operator does with it, and so is its way to build a
request, which costs half as much again as sending it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

import kubernetes
import orjson
import urllib3
import urllib3.exceptions

from triton_operator.api import names
from triton_operator.api.kinds import Kind

from . import pages, shallow

Object = dict[str, Any]
TIMEOUT = urllib3.Timeout(connect=3.05, read=20)
"""To connect, and to read. The client itself would wait for ever."""
_MOST_BYTES = 32 << 20
"""Of one answer. etcd takes objects of 1.5 MiB, of which JSON can make six times as much."""
_MESSAGE_MAX = 4096
"""Characters of a refusal. The API server may repeat in it what was sent."""
_JSON = "application/json"
_METADATA = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_LASTING = (
    # For want of a better code in apimachinery's managedfields, where a body doesn't fit the kind's schema or types.
    "failed to create typed patch object",
    "failed to convert new object",
    # etcd's own limits.
    "etcdserver: request is too large",
    "trying to send message larger than max",
)
"""What a refusal with a code of 500 says that no retry cures."""


class ApiError(Exception):
    """The API server's refusal. `code` is the HTTP status; 0 where there was no answer."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later, with nobody changing anything."""
        return self.code in (0, 408, 429) or (self.code >= 500 and not any(w in self.message for w in _LASTING))


class KubernetesApi:
    """Requests to one API server. Safe to use from several threads.

    `on_request(verb, plural, code)` is told of every request that was answered.
    """

    def __init__(
        self,
        client: kubernetes.client.ApiClient,
        on_request: Callable[[str, str, int], None] = lambda *_: None,
    ) -> None:
        self._client = client
        self._on_request = on_request
        self._may_write: Callable[[], bool] = lambda: True
        # There is one API server: what finds the connections to a URL's host needn't be asked for each request.
        self._connections = client.rest_client.pool_manager.connection_from_url(client.configuration.host)
        self._prefix = urlsplit(client.configuration.host).path.rstrip("/")

    @classmethod
    def from_environment(cls, connections: int, on_request: Callable[[str, str, int], None]) -> KubernetesApi:
        """With the pod's ServiceAccount, or else with the kubeconfig; `connections` are kept open."""
        configuration = kubernetes.client.Configuration()
        try:
            kubernetes.config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        except kubernetes.config.ConfigException:
            kubernetes.config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        configuration.connection_pool_maxsize = connections
        return cls(kubernetes.client.ApiClient(configuration), on_request)

    def fenced(self, may_write: Callable[[], bool]) -> KubernetesApi:
        """The same API server, by the same connections. `may_write` is asked before each write, and where it says no
        the write isn't sent: ApiError with the reason NotLeading."""
        fenced = copy.copy(self)
        fenced._may_write = may_write
        return fenced

    def version(self) -> Object:
        """What /version says: major, minor, gitVersion."""
        return self._request("GET", "/version", "version")

    def serves(self, kind: Kind) -> bool:
        """Whether the API server knows this kind. Raises ApiError where it doesn't say."""
        try:
            found = self._request("GET", _root(kind), "discovery")
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return any(r["name"] == kind.plural for r in found["resources"])

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return self._request("GET", _path(kind, namespace, name), kind.plural)

    def uid_of(self, kind: Kind, namespace: str, name: str) -> str:
        """Of what has this name now; "" where nothing has."""
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
        cached: bool = False,
        metadata: bool = False,
    ) -> Iterator[Object]:
        """All objects of `kind`, of one namespace or of all, page by page (see `pages`). `cached`: all at once, as the
        API server has them at hand, where they aren't too many bytes; else it waits until they are as new as etcd's,
        for a tenth of a second or so. `metadata`: only their metadata. An object that doesn't fit (shallow.Size) is
        read in outline."""
        path, accept = _path(kind, namespace), _METADATA if metadata else _JSON
        selected = {"labelSelector": selector} if selector else {}
        limit, token = pages.MOST, ""
        while True:
            query = {"resourceVersion": "0"} if cached else {"limit": str(limit)}
            query |= {**selected, **({"continue": token} if token else {})}
            most = _MOST_BYTES if limit == 1 else shallow.MOST_BYTES
            data = self._send("GET", path, kind.plural, query=query, verb="LIST", accept=accept, most=most)
            if limit > 1 and not shallow.size(data).fits():
                cached, limit = False, limit if cached else pages.smaller(limit)
                continue
            page = _read(data, ("items", 0))
            items = page["items"] or ()  # a list of metadata has null where it is empty
            for item in items:
                # The items of a list come without them.
                yield {**item, "apiVersion": kind.api_version, "kind": kind.kind}
            token = page["metadata"].get("continue")
            if not token:
                return
            limit = pages.following(limit, len(items), len(data))

    def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        return self._request("POST", _path(kind, namespace), kind.plural, body=body)

    def replace(self, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        """Update with optimistic locking: `body` carries the resourceVersion that it is based on."""
        return self._request("PUT", _path(kind, namespace, name), kind.plural, body=body)

    def apply_new(self, kind: Kind, body: Object) -> Object:
        """Server-side apply of an object that must not exist yet: 409 where one of that name does, in one request.

        A resourceVersion that no object can have lets the API server create, but never update.
        """
        return self._apply(kind, {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}})

    def apply(
        self, kind: Kind, body: Object, uid: str, *, manager: str = names.FIELD_MANAGER, subresource: str = ""
    ) -> Object:
        """Server-side apply to the very object with this uid; 409 or 422 where another has taken its name."""
        return self._apply(kind, {**body, "metadata": {**body["metadata"], "uid": uid}}, manager, subresource)

    def merge(self, kind: Kind, body: Object, uid: str) -> Object:
        """Strategic merge patch of the very object with this uid."""
        metadata = {**body["metadata"], "uid": uid}
        path, content = _path(kind, metadata["namespace"], metadata["name"]), {**body, "metadata": metadata}
        content_type = "application/strategic-merge-patch+json"
        return self._request("PATCH", path, kind.plural, body=_yaml(content), content_type=content_type)

    def delete(self, kind: Kind, namespace: str, name: str, uid: str, *, foreground: bool = False) -> bool:
        """Deletes the very object with this uid; False where it is gone already. `foreground`: it stays until what it
        owns is gone."""
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Foreground" if foreground else "Background"}
        try:
            self._request("DELETE", _path(kind, namespace, name), kind.plural, body=options)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def _apply(self, kind: Kind, body: Object, manager: str = names.FIELD_MANAGER, subresource: str = "") -> Object:
        path = _path(kind, body["metadata"]["namespace"], body["metadata"]["name"], subresource)
        # To warn of fields that nobody knows the API server would read the body a second time: a fifth of a request.
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
        most: int = _MOST_BYTES,
    ) -> bytes:
        """The answer to a request, or the first bytes of one of more than `most`. Raises ApiError."""
        if method != "GET" and not self._may_write():
            raise ApiError(0, "NotLeading", "the Lease is not held any more: nothing is written")
        headers = {"Accept": accept, "Content-Type": content_type, "User-Agent": names.FIELD_MANAGER}
        # Reading the settings is what renews a token.
        headers |= {str(s["key"]): str(s["value"]) for s in self._client.configuration.auth_settings().values()}
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            response = self._connections.urlopen(
                method,
                self._prefix + target,
                body=orjson.dumps(body) if isinstance(body, dict) else body,
                headers=headers,
                timeout=TIMEOUT,
                # The work queue retries. urllib3 would do so three times, and sleep for as long as Retry-After says.
                retries=False,
                preload_content=False,
            )
            # Whose connection is used again where it was read to its end, and closed otherwise.
            with response:
                data = response.read(most + 1)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self._on_request(verb or method, plural, 0)
            raise ApiError(0, "NoAnswer", f"no answer from the API server: {error}") from error
        self._on_request(verb or method, plural, response.status)
        if response.status >= 400:
            raise _error(response.status, data)
        return data


def _read(data: bytes, at: shallow.Path = ()) -> Object:
    try:
        return cast(Object, shallow.loads(data, at))
    except ValueError as error:
        raise ApiError(0, "Garbled", f"the API server's answer can't be read: {error}") from error


def _yaml(body: Object) -> bytes:
    """`body` as the JSON that is YAML too: YAML knows no pairs of surrogates, and raw no control characters."""
    text = orjson.dumps(body).decode()
    return re.sub("[\x7f-\uffff]", lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def _root(kind: Kind) -> str:
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def _path(kind: Kind, namespace: str | None, name: str = "", subresource: str = "") -> str:
    scope = f"/namespaces/{quote(namespace)}" if namespace else ""
    return "/".join(part for part in (_root(kind) + scope, kind.plural, quote(name), subresource) if part)


def _error(code: int, data: bytes) -> ApiError:
    try:
        status = orjson.loads(data)
        return ApiError(code, status.get("reason", ""), status.get("message", "")[:_MESSAGE_MAX])
    except (ValueError, AttributeError):
        return ApiError(code, "", data[:500].decode(errors="replace"))
