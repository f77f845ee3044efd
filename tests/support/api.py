"""A JSON client of an API server. The tests don't use the operator's client, so that they don't share its bugs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import kubernetes
import urllib3

Object = dict[str, Any]
T = TypeVar("T")

MIN_WAIT_SECONDS = 60.0
"""The minimum timeout of waits in seconds. It is long because the machine may be busy; a long timeout costs time only
if a test fails."""

GROUP = "tritonoperator.io"
_GROUPS = {
    "v1": ["Pod", "Service", "ServiceAccount", "ConfigMap", "Secret", "Event", "Endpoints"],
    "apps/v1": ["Deployment", "ReplicaSet"],
    "policy/v1": ["PodDisruptionBudget"],
    "networking.k8s.io/v1": ["NetworkPolicy"],
    "batch/v1": ["Job"],
    "autoscaling/v2": ["HorizontalPodAutoscaler"],
    "coordination.k8s.io/v1": ["Lease"],
    "discovery.k8s.io/v1": ["EndpointSlice"],
    "monitoring.coreos.com/v1": ["PodMonitor", "PrometheusRule", "Prometheus", "ServiceMonitor"],
    "keda.sh/v1alpha1": ["ScaledObject"],
    f"{GROUP}/v1alpha1": ["TritonModel"],
}
_CLUSTER_WIDE = {
    "v1": ["Namespace", "Node"],
    "apiextensions.k8s.io/v1": ["CustomResourceDefinition"],
    "rbac.authorization.k8s.io/v1": ["ClusterRole", "ClusterRoleBinding"],
}
_VERSIONS = {kind: version for table in (_GROUPS, _CLUSTER_WIDE) for version, kinds in table.items() for kind in kinds}
_PLURALS = {"Endpoints": "endpoints", "NetworkPolicy": "networkpolicies", "Prometheus": "prometheuses"}
_UNSCOPED = {kind for kinds in _CLUSTER_WIDE.values() for kind in kinds}


class RefusedError(Exception):
    """The API server refused a request. Has its status code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class Api:
    """A client of one API server. `namespace` is the default namespace; "*" reads all namespaces."""

    def __init__(self, client: kubernetes.client.ApiClient, namespace: str = "default") -> None:
        self._client, self.namespace = client, namespace

    @classmethod
    def of(cls, kubeconfig: Path) -> Api:
        configuration = kubernetes.client.Configuration()
        kubernetes.config.load_kube_config(str(kubeconfig), client_configuration=configuration)
        configuration.connection_pool_maxsize = 16
        return cls(kubernetes.client.ApiClient(configuration))

    def in_namespace(self, namespace: str) -> Api:
        return Api(self._client, namespace)

    def request(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """Sends a request and returns the response's JSON. Raises RefusedError."""
        response = self._send(method, path, body, content_type, 30)
        data = response.read()
        response.release_conn()
        if response.status >= 400:
            raise _refusal(response.status, data)
        return json.loads(data) if data[:1] in (b"{", b"[") else data.decode()

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        return self.request("GET", self.path(kind, name, namespace))

    def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Returns the object, or None if it doesn't exist."""
        try:
            return self.get(kind, name, namespace)
        except RefusedError as error:
            if error.code == 404:
                return None
            raise

    def list(self, kind: str, selector: str = "", namespace: str = "") -> list[Object]:
        query = "?" + urlencode({"labelSelector": selector}) if selector else ""
        return self.request("GET", self.path(kind, "", namespace) + query)["items"]

    def create(self, obj: Object) -> Object:
        return self.request("POST", self._path_of(obj, named=False), obj)

    def apply(self, obj: Object, manager: str = "test") -> Object:
        """Applies the object with server-side apply, as `kubectl apply --server-side` does."""
        query = urlencode({"fieldManager": manager, "force": "true"})
        return self.request("PATCH", f"{self._path_of(obj)}?{query}", obj, "application/apply-patch+yaml")

    def patch(self, kind: str, name: str, patch: Object, subresource: str = "", namespace: str = "") -> Object:
        """Sends a JSON merge patch."""
        path = self.path(kind, name, namespace) + (f"/{subresource}" if subresource else "")
        return self.request("PATCH", path, patch, "application/merge-patch+json")

    def delete(self, kind: str, name: str, namespace: str = "", **options: object) -> None:
        """Deletes the object with background propagation. Ignores that it doesn't exist."""
        try:
            self.request("DELETE", self.path(kind, name, namespace), {"propagationPolicy": "Background", **options})
        except RefusedError as error:
            if error.code != 404:
                raise

    def watch(
        self, kind: str, namespace: str = "", selector: str = "", version: str = "", seconds: int = 300
    ) -> Iterator[tuple[float, str, Object]]:
        """Yields (time.monotonic() of arrival, event type, object). Without `version` existing objects come first."""
        query = {"watch": "1", "timeoutSeconds": str(seconds)}
        query |= {"labelSelector": selector} if selector else {}
        query |= {"resourceVersion": version} if version else {}
        response = self._send("GET", f"{self.path(kind, '', namespace)}?{urlencode(query)}", None, "", seconds + 10)
        if response.status >= 400:
            raise _refusal(response.status, response.read())
        try:
            rest = b""
            for chunk in response.stream(None):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    event = json.loads(line)
                    yield time.monotonic(), event["type"], event["object"]
        finally:
            response.close()

    def path(self, kind: str, name: str = "", namespace: str = "") -> str:
        version = _VERSIONS[kind]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        where = namespace or self.namespace
        scope = "" if kind in _UNSCOPED or where == "*" else f"/namespaces/{where}"
        plural = _PLURALS.get(kind) or kind.lower() + "s"
        return f"{root}{scope}/{plural}" + (f"/{name}" if name else "")

    def _path_of(self, obj: Object, named: bool = True) -> str:
        metadata = obj["metadata"]
        return self.path(obj["kind"], metadata.get("name", "") if named else "", metadata.get("namespace", ""))

    def _send(
        self, method: str, path: str, body: object, content_type: str, timeout: float
    ) -> urllib3.BaseHTTPResponse:
        configuration = self._client.configuration
        headers = {"Accept": "application/json", **({"Content-Type": content_type} if body is not None else {})}
        headers |= {str(s["key"]): str(s["value"]) for s in configuration.auth_settings().values()}
        return self._client.rest_client.pool_manager.request(
            method,
            configuration.host + path,
            # The API server reads a patch as YAML, which doesn't support surrogate pairs.
            body=json.dumps(body, ensure_ascii=False).encode() if body is not None else None,
            headers=headers,
            timeout=timeout,
            preload_content=False,
            retries=False,
        )


def _refusal(code: int, data: bytes) -> RefusedError:
    try:
        return RefusedError(code, json.loads(data)["message"])
    except (ValueError, KeyError):
        return RefusedError(code, data.decode(errors="replace"))


def states(api: Api, kind: str, name: str, since: str) -> Iterator[Object]:
    """Yields every state of an object after the resource version `since`, up to the current one."""
    last = api.get(kind, name)["metadata"]["resourceVersion"]
    if last == since:
        return
    for _, _, obj in api.watch(kind, version=since):
        if obj["metadata"]["name"] == name:
            yield obj
            if obj["metadata"]["resourceVersion"] == last:
                return


def condition(obj: Object | None, kind: str) -> Object:
    """Returns the condition of this type, or {} if there is none."""
    conditions = (obj or {}).get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


def eventually(look: Callable[[], T], seconds: float, what: Callable[[], object] | str = "", every: float = 0.1) -> T:
    """Calls `look` until it returns a true value, and returns it. Fails with `what` after `seconds` (at least 60).

    A test that checks how soon something happens must measure the time itself.
    """
    seconds = max(seconds, MIN_WAIT_SECONDS)
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what or found}")
        time.sleep(every)


def steady(read: Callable[[], T], still: float, seconds: float, what: Callable[[], object] | str) -> T:
    """Calls `read` until it has returned the same value for `still` seconds. Returns it.

    Fails with `what` after `seconds`.
    """
    value, since = read(), time.monotonic()
    deadline = since + seconds
    while time.monotonic() - since < still:
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.2)
        if (now := read()) != value:
            value, since = now, time.monotonic()
    return value
