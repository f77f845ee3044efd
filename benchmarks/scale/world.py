"""The TritonModels of the benchmark, watches on them, and the parts of the kubelet and the servers."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from http import HTTPStatus

from urllib3.exceptions import HTTPError

from support import bad_servers, gen
from support.api import Api, Object, RefusedError, condition, eventually
from triton_operator.api import names, thresholds

NAMESPACES = 10
CREATORS = 4
"""The number of clients that create and change TritonModels in parallel."""
MAX_QPS = thresholds.PREFIX + "max-qps"
ENTRY = "detection"
CHILDREN = ("ServiceAccount", "Service", "Deployment", "PodMonitor", "HorizontalPodAutoscaler")
"""The kinds of children at creation. The rules follow after a server's repository check has reported the models."""
RULES = "PrometheusRule"
_values = itertools.count(1_000_001)
"""Values of max-qps, each used once, so that every one is a change."""


def models(size: int) -> list[Object]:
    """Returns `size` TritonModels in several namespaces, as a user writes them."""
    return [
        {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {
                "name": f"model-{number:04}",
                "namespace": f"scale-{number % NAMESPACES}",
                "annotations": {MAX_QPS: "1000"},
            },
            "spec": {
                "modelImage": {"reference": "registry.example.com/detection:v1"},
                "entrypoint": ENTRY,
                "server": {"resources": {"limits": {"cpu": "2", "memory": "4Gi"}}},
                "autoscaling": {"min": 1, "max": 4},
                "monitoring": {"labels": {"release": "prometheus"}},
            },
        }
        for number in range(size)
    ]


def make_namespaces(api: Api) -> None:
    for number in range(NAMESPACES):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"scale-{number}"}})


def create(api: Api, objects: Sequence[Object], created: Callable[[Object], None] = lambda _: None) -> None:
    """Creates the objects with several clients in parallel and calls `created` with each answer."""
    with ThreadPoolExecutor(CREATORS) as pool:
        for answer in pool.map(api.create, objects):
            created(answer)


def key(obj: Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


class Watch:
    """A watch on a kind in all namespaces. A thread calls `handle(time, type, object)` for each event from now on."""

    def __init__(self, api: Api, kind: str, handle: Callable[[float, str, Object], None], selector: str = "") -> None:
        everywhere = api.in_namespace("*")
        version = everywhere.request("GET", everywhere.path(kind) + "?limit=1")["metadata"]["resourceVersion"]
        self._over = threading.Event()

        def follow() -> None:
            try:
                for at, event, obj in everywhere.watch(kind, selector=selector, version=version, seconds=3600):
                    if self._over.is_set():
                        return
                    handle(at, event, obj)
            except HTTPError:
                # Expected when the API server ends after close(); before, it is an error.
                if not self._over.is_set():
                    raise

        threading.Thread(target=follow, daemon=True).start()
        time.sleep(0.2)  # time to connect

    def close(self) -> None:
        """Ends the watch with the next event or with the API server."""
        self._over.set()


class Settling:
    """Records when the status of each TritonModel settled."""

    def __init__(self, api: Api) -> None:
        self._at: dict[str, float] = {}
        self.seen: dict[str, Object] = {}
        self._watch = Watch(api, names.KIND, self._take)

    def _take(self, at: float, _: str, model: Object) -> None:
        self.seen[key(model)] = model
        if not settled(model):
            self._at.pop(key(model), None)
        else:
            self._at.setdefault(key(model), at)

    def wait(self, count: int, seconds: float, say: Callable[[str], None] = lambda _: None) -> float:
        """Waits for `count` settled TritonModels. Returns when the last one settled (time.monotonic())."""
        deadline, before = time.monotonic() + seconds, -1
        while len(self._at) < count:
            assert time.monotonic() < deadline, f"{len(self._at)} of {count} settled; {self._other()}"
            if len(self._at) // 100 != before:
                before = len(self._at) // 100
                say(f"{len(self._at)} of {count} settled")
            time.sleep(0.2)
        return max(self._at.values())

    def _other(self) -> object:
        return next((m.get("status") for k, m in self.seen.items() if k not in self._at), "none")

    def close(self) -> None:
        self._watch.close()


def settled(model: Object) -> bool:
    """Returns whether the status is of this generation and shows the pod, which stays pending."""
    status = model.get("status", {})
    conditions = status.get("conditions", [])
    return bool(
        status.get("observedGeneration") == model["metadata"]["generation"]
        and status.get("replicas") == 1
        and all(c["observedGeneration"] == model["metadata"]["generation"] for c in conditions)
        and condition(model, "Progressing").get("reason") == "RollingOut"
    )


def pages(api: Api, kind: str, selector: str = "") -> Iterator[Object]:
    """Yields all objects of a kind in all namespaces."""
    everywhere, token = api.in_namespace("*"), ""
    while True:
        query = f"?limit=250&labelSelector={selector}" + (f"&continue={token}" if token else "")
        page = everywhere.request("GET", everywhere.path(kind) + query)
        yield from page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            return


def all_children(api: Api) -> Iterator[Object]:
    """Yields the existing children of the kinds at creation."""
    for kind in CHILDREN:
        yield from pages(api, kind, names.MANAGED_SELECTOR)


def created(obj: Object) -> float:
    """Returns the latest possible creation time (time.time()); creationTimestamp is rounded down to seconds."""
    return datetime.fromisoformat(obj["metadata"]["creationTimestamp"]).timestamp() + 1


def count(api: Api, kind: str) -> int:
    """Returns the number of objects of a kind in all namespaces, without reading them."""
    everywhere = api.in_namespace("*")
    page = everywhere.request("GET", everywhere.path(kind) + "?limit=1")
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def play_kubelet(api: Api) -> None:
    """Writes the result of the repository check to every pod's status, as the kubelet does.

    The pods stay unscheduled. The operator learns only the entrypoint, and creates the rules.
    """
    report = gen.pod(gen.checked(gen.report(ENTRY, entrypoint=ENTRY)))["status"]["initContainerStatuses"]
    pods = [(p["metadata"]["namespace"], p["metadata"]["name"]) for p in pages(api, "Pod", names.MANAGED_SELECTOR)]

    def write_status(place: tuple[str, str]) -> None:
        namespace, name = place
        api.patch("Pod", name, {"status": {"initContainerStatuses": report}}, "status", namespace)

    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(write_status, pods))


SILENT, HEALTHY = "127.0.0.41", "127.0.0.42"
INDEX = b'[{"name": "%s", "version": "1", "state": "READY"}]' % ENTRY.encode()


@contextlib.contextmanager
def servers(api: Api, silent: Callable[[str], bool]) -> Iterator[None]:
    """Gives every pod a started server in its status.

    Servers of `silent` TritonModels accept connections and never answer. The others have all their models.
    """
    places = [
        (p["metadata"]["namespace"], p["metadata"]["name"], p["metadata"]["labels"][names.LABEL_MODEL])
        for p in pages(api, "Pod", names.MANAGED_SELECTOR)
    ]

    def start(place: tuple[str, str, str]) -> None:
        namespace, name, model = place
        address = SILENT if silent(f"{namespace}/{model}") else HEALTHY
        container = {"name": names.CONTAINER_SERVER, "ready": True, "started": True, "restartCount": 0,
                     "image": "triton", "imageID": "triton", "state": {"running": {}}}  # fmt: skip
        status = {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "containerStatuses": [container],
            "conditions": [{"type": "Ready", "status": "True"}],
        }  # fmt: skip
        try:
            api.patch("Pod", name, {"status": status}, "status", namespace)
        except RefusedError as error:
            # A rollout of an earlier part may have replaced the pod.
            if error.code != HTTPStatus.NOT_FOUND:
                raise

    with bad_servers.server(SILENT, bad_servers.hangs), bad_servers.server(HEALTHY, bad_servers.answers(INDEX)):
        with ThreadPoolExecutor(CREATORS) as pool:
            list(pool.map(start, places))
        yield


class Changes:
    """Changes max-qps and measures the time until a watch shows the rules with the new value."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._open: dict[str, tuple[int, float]] = {}
        self.last: dict[str, int] = {}
        self.seconds: list[float] = []
        self._watch = Watch(api, RULES, self._take, names.MANAGED_SELECTOR)

    def change(self, where: str) -> None:
        """Sets a new value on the TritonModel with the key `where`. The time starts before the request."""
        value, (namespace, name) = next(_values), where.split("/")
        self.last[where] = value
        self._open[where] = (value, time.monotonic())
        self._api.patch(names.KIND, name, {"metadata": {"annotations": {MAX_QPS: str(value)}}}, namespace=namespace)

    def _take(self, at: float, _: str, rules: Object) -> None:
        value, since = self._open.get(key(rules), (0, 0.0))
        if value and holds(rules, value):
            self.seconds.append(at - since)
            del self._open[key(rules)]

    def through(self, seconds: float = 60) -> None:
        """Waits until the rules contain every change."""
        eventually(lambda: not self._open, seconds, lambda: f"changes missing in the rules: {self._open}", 0.005)

    def close(self) -> None:
        self._watch.close()


def holds(rules: Object, value: int) -> bool:
    """Returns whether a PrometheusRule contains this number."""
    return any(str(value) in rule["expr"] for group in rules["spec"]["groups"] for rule in group["rules"])
