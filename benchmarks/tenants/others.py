"""Plays the other tenants, and measures how long they wait for their Deployments."""

from __future__ import annotations

import itertools
import random
import threading
import time
from dataclasses import dataclass, field

from urllib3.exceptions import HTTPError

from support.api import Api, Object, eventually
from triton_operator.api import names

NAMESPACES = ("others-0", "others-1")
STEADY = 20
_TIMEOUT_SECONDS = 180.0
_numbers = itertools.count(1)


@dataclass
class Latencies:
    """The latencies of one window, in seconds.

    `create`, `change`: from the request until a watch shows the Deployment. `api`: of a request to the API server.
    """

    create: list[float] = field(default_factory=list)
    change: list[float] = field(default_factory=list)
    api: list[float] = field(default_factory=list)

    def __add__(self, other: Latencies) -> Latencies:
        return Latencies(self.create + other.create, self.change + other.change, self.api + other.api)


def model(namespace: str, name: str, image: str = "registry.example.com/detection:1") -> Object:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "modelImage": {"reference": image},
            "entrypoint": "detection",
            "server": {"resources": {"limits": {"cpu": "2", "memory": "4Gi"}}},
            "monitoring": {"labels": {"release": "prometheus"}},
        },
    }


class OtherTenants:
    """Users who create, change and delete TritonModels, one at a time."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._seen: dict[tuple[str, str], float] = {}
        self._changed = threading.Condition()
        for namespace in NAMESPACES:
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            threading.Thread(target=self._watch, args=(namespace,), daemon=True).start()
        time.sleep(0.3)  # until the watches are connected

    def with_transition_times(self) -> None:
        """Creates the TritonModels that stay. Returns when they have their Deployments."""
        for number in range(STEADY):
            self._api.create(model(NAMESPACES[number % 2], f"steady-{number}"))
        for number in range(STEADY):
            where = NAMESPACES[number % 2]
            eventually(lambda n=number, w=where: self._api.find("Deployment", f"steady-{n}", w), 60, "a Deployment")

    def work(self, seconds: float) -> Latencies:
        """Runs the work of the other tenants for `seconds`, and returns how long they waited."""
        latencies, until = Latencies(), time.monotonic() + seconds
        while time.monotonic() < until:
            number = next(_numbers)
            namespace, name = NAMESPACES[number % 2], f"model-{number}"
            first, second = (f"registry.example.com/detection:{number}-{turn}" for turn in (1, 2))
            began = time.monotonic()
            self._api.create(model(namespace, name, first))
            latencies.create.append(self._deployed(name, first) - began)
            _pause()
            began = time.monotonic()
            change = {"spec": {"modelImage": {"reference": second}}}
            self._api.patch(names.KIND, name, change, namespace=namespace)
            latencies.change.append(self._deployed(name, second) - began)
            _pause()
            began = time.monotonic()
            self._api.create(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
            )
            latencies.api.append(time.monotonic() - began)
            # There is no garbage collector.
            for kind in (names.KIND, "Deployment", "Service", "ServiceAccount", "PodMonitor"):
                self._api.delete(kind, name, namespace)
            self._api.delete("Service", f"{name}-headless", namespace)
        return latencies

    def _deployed(self, name: str, image: str) -> float:
        """Returns when the watch showed a Deployment with the image."""
        with self._changed:
            deployed = self._changed.wait_for(lambda: (name, image) in self._seen, _TIMEOUT_SECONDS)
            assert deployed, f"{name} has no Deployment with {image} after {_TIMEOUT_SECONDS:g} s"
            return self._seen.pop((name, image))

    def _watch(self, namespace: str) -> None:
        try:
            for at, _, deployment in self._api.watch("Deployment", namespace, seconds=7200):
                template = deployment["spec"]["template"]["spec"]
                fetch = next(c for c in template["initContainers"] if c["name"] == names.CONTAINER_FETCH)
                with self._changed:
                    self._seen.setdefault((deployment["metadata"]["name"], fetch["image"]), at)
                    self._changed.notify_all()
        except HTTPError:
            return  # the API server has ended; a window that still runs fails in `_deployed`


def _pause() -> None:
    time.sleep(random.uniform(0.05, 0.15))
