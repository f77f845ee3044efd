"""A JSON client of an API server. The tests don't use the operator's client, so that they don't share its bugs."""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import kubernetes
import urllib3
from urllib3.exceptions import HTTPError

from . import clock

Object = dict[str, Any]
T = TypeVar("T")

MIN_WAIT_SECONDS = 180.0
"""The minimum timeout of waits in seconds. It is long because the machine may be busy; a long timeout costs time only
if a test fails."""
_REQUEST_SECONDS = MIN_WAIT_SECONDS
START_SECONDS = 300.0
"""The timeout of the start of a server that many tests share: all of them fail if it is too short."""
_NOTES, _NOTE_LENGTH = 6, 600
"""The readings in the message of a wait that fails, and the characters of each."""

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
    "gateway.networking.k8s.io/v1": ["HTTPRoute", "GRPCRoute"],
    "gateway.envoyproxy.io/v1alpha1": ["BackendTrafficPolicy"],
    f"{GROUP}/v1alpha1": ["TritonModel"],
}
_CLUSTER_WIDE = {
    "v1": ["Namespace", "Node"],
    "apiextensions.k8s.io/v1": ["CustomResourceDefinition"],
    "rbac.authorization.k8s.io/v1": ["ClusterRole", "ClusterRoleBinding"],
}
_VERSIONS = {kind: version for table in (_GROUPS, _CLUSTER_WIDE) for version, kinds in table.items() for kind in kinds}
_PLURALS = {
    "Endpoints": "endpoints",
    "NetworkPolicy": "networkpolicies",
    "Prometheus": "prometheuses",
    "BackendTrafficPolicy": "backendtrafficpolicies",
}
GROUPED = [kind for kinds in _GROUPS.values() for kind in kinds]
"""The kinds of objects that are in a namespace."""
_UNSCOPED = {kind for kinds in _CLUSTER_WIDE.values() for kind in kinds}


class RefusedError(Exception):
    """The API server refused a request. Has its status code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class BusyError(RefusedError):
    """The API server couldn't answer a read just now: 429 or 5xx, such as "etcdserver: request timed out"."""


class UnansweredError(HTTPError):
    """A read had no whole answer: the connection failed, or the time was up."""


PASSING = (BusyError, UnansweredError)
"""Errors of reads, which `eventually` takes for "not yet"."""


class Api:
    """A client of one API server. `namespace` is the default namespace; "*" reads all namespaces."""

    def __init__(self, client: kubernetes.client.ApiClient, namespace: str = "default") -> None:
        self._client, self.namespace = client, namespace

    @classmethod
    def of(cls, kubeconfig: Path) -> Api:
        """Returns a client that shares its connections with the other clients of this process for the same kubeconfig.

        A request over a new connection takes six times the CPU of one over an open connection.
        """
        return cls(_client(kubeconfig, kubeconfig.read_text()))

    def in_namespace(self, namespace: str) -> Api:
        return Api(self._client, namespace)

    def request(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """Sends a request and returns the response's JSON. Raises RefusedError and HTTPError; see PASSING."""
        with _unanswered(method, path):
            response = self._send(method, path, body, content_type, _REQUEST_SECONDS)
            data = response.read()
        response.release_conn()
        if response.status >= 400:
            refusal = _refusal(method, response.status, data)
            note(f"{method} {path}", refusal)
            raise refusal
        answer = json.loads(data) if data[:1] in (b"{", b"[") else data.decode()
        note(f"{method} {path}", answer)
        return answer

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
        path = f"{self.path(kind, '', namespace)}?{urlencode(query)}"
        with _unanswered("GET", path):
            response = self._send("GET", path, None, "", seconds + 10)
        if response.status >= 400:
            raise _refusal("GET", response.status, response.read())
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
        place = namespace or self.namespace
        scope = "" if kind in _UNSCOPED or place == "*" else f"/namespaces/{place}"
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


@functools.lru_cache(maxsize=64)
def _client(kubeconfig: Path, _: str) -> kubernetes.client.ApiClient:
    """Returns the client of a kubeconfig. Its text is an argument because a new cluster may have the same file."""
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    configuration.connection_pool_maxsize = 16
    return kubernetes.client.ApiClient(configuration)


@contextlib.contextmanager
def _unanswered(method: str, path: str) -> Iterator[None]:
    """Notes a request without an answer, and raises UnansweredError for a read."""
    try:
        yield
    except HTTPError as error:
        note(f"{method} {path}", error)
        if method == "GET":
            raise UnansweredError(f"GET {path}: {error}") from error
        raise


def _refusal(method: str, code: int, data: bytes) -> RefusedError:
    kind = BusyError if method == "GET" and (code == 429 or code >= 500) else RefusedError
    try:
        return kind(code, json.loads(data)["message"])
    except (ValueError, KeyError):
        return kind(code, data.decode(errors="replace"))


def states(api: Api, kind: str, name: str, since: str) -> Iterator[Object]:
    """Yields every state of an object after the resource version `since`, up to the current one."""
    newest = api.get(kind, name)["metadata"]["resourceVersion"]
    if newest == since:
        return
    for _, _, obj in api.watch(kind, version=since):
        if obj["metadata"]["name"] == name:
            yield obj
            if obj["metadata"]["resourceVersion"] == newest:
                return


def condition(obj: Object | None, kind: str) -> Object:
    """Returns the condition of this type, or {} if there is none."""
    conditions = (obj or {}).get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


def eventually(look: Callable[[], T], seconds: float, what: Callable[[], object] | str = "", every: float = 0.1) -> T:
    """Calls `look` until it returns a true value, and returns it. Fails after `seconds` (at least MIN_WAIT_SECONDS).

    The time in which this thread waits for a core doesn't count: what it waits for gets no core either. A look that
    ends with one of the PASSING errors counts as a false value: a busy API server answers again later.

    The failure says what `what` returns. If `what` is a text, it also says what the last look read (see `note`). A test
    that checks how soon something happens must measure the time itself.
    """
    seconds = max(seconds, MIN_WAIT_SECONDS)
    deadline = clock.of_this_thread() + seconds
    failed: list[Exception] = []
    while True:
        # The last look begins after the deadline: the machine may have been busy with something else since the former.
        is_last = clock.of_this_thread() > deadline
        value = None
        with _noting() as notes:
            try:
                value = look()
            except PASSING as error:
                failed.append(error)
        if value:
            return value
        if is_last:
            words = _words(what) if callable(what) else _last(what, value, notes)
            errors = f"\n  looks that met an error: {len(failed)}, the last one {failed[-1]!r}" if failed else ""
            raise AssertionError(f"not within {seconds:g} s: {words}{errors}")
        time.sleep(every)


def steady(read: Callable[[], T], still: float, seconds: float, what: Callable[[], object] | str) -> T:
    """Calls `read` until it has returned the same value for `still` seconds. Returns it.

    Fails with `what` and the last change after `seconds`.
    """
    value, since = read(), time.monotonic()
    former, deadline = value, clock.of_this_thread() + seconds
    while time.monotonic() - since < still:
        if clock.of_this_thread() > deadline:
            words = what() if callable(what) else what
            raise AssertionError(f"{words}; the last change was from {former} to {value}")
        time.sleep(0.2)
        if (reading := read()) != value:
            former, value, since = value, reading, time.monotonic()
    return value


class _Reading(threading.local):
    """What the current look of this thread has read, by request; None outside `eventually`."""

    notes: dict[str, object] | None = None


_reading = _Reading()


def note(request: str, answer: object) -> None:
    """Notes what was read, for the message of a wait that fails."""
    if _reading.notes is not None:
        _reading.notes[request] = answer


@contextlib.contextmanager
def _noting() -> Iterator[dict[str, object]]:
    outer, _reading.notes = _reading.notes, {}
    try:
        yield _reading.notes
    finally:
        _reading.notes = outer


def _words(what: Callable[[], object]) -> object:
    """Returns what the test says, or why it can't say it."""
    try:
        return what()
    except PASSING as error:
        return repr(error)


def _last(what: str, result: object, notes: dict[str, object]) -> str:
    """Returns `what`, the value of the last look if it says something, and what this look read."""
    value = [f"the last value was {result!r}"] if result not in (None, False, "") else []
    lines = [f"{request}: {_brief(answer)}"[:_NOTE_LENGTH] for request, answer in notes.items()]
    return "\n  ".join([what, *value, *lines[-_NOTES:]])


def _brief(answer: object) -> str:
    """Returns what tells states of objects apart, and other answers as they are."""
    if not isinstance(answer, dict):
        return str(answer).strip()
    if "items" in answer:
        return "; ".join(map(_brief, answer["items"])) or "none"
    if "metadata" not in answer:
        return json.dumps(answer)
    keys = ("name", "uid", "generation", "resourceVersion", "deletionTimestamp")
    brief = {key: answer["metadata"][key] for key in keys if key in answer["metadata"]}
    status = dict(answer.get("status", {}))
    for entry in status.pop("conditions", ()):
        brief[entry["type"]] = f"{entry['status']} {entry.get('reason', '')}: {entry.get('message', '')}".strip(" :")
    return json.dumps({**brief, "status": status})
