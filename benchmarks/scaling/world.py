"""Runs loads against autoscaled TritonModels in the kind cluster, and breaks the operator and Prometheus meanwhile."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from support.api import Api, Object, eventually
from support.cluster import NAMESPACE, Namespace
from support.live import Subject
from support.load import client_pod, ended
from support.prometheus import Monitoring

from .figures import Change
from .loads import LEAST, MOST, PER_SERVER, UTILIZATION, requests

_SCRIPT = Path(__file__).parent / "inside" / "send.py"
_MONITORING, _PROMETHEUS = "monitoring", "triton"
_OPERATOR = "app.kubernetes.io/name=triton-operator"


@dataclass
class Recorded:
    """A load that runs or has run. `began`: seconds since 1970. `tally`: what the client counted, at the end."""

    began: float
    arrived: list[int]
    deployment: Deployment
    tally: dict[str, int] = field(default_factory=dict)

    @property
    def changes(self) -> list[Change]:
        """Returns the changes of the Deployment, with times since the load began."""
        return [Change(at - self.began, replicas, ready) for at, replicas, ready in list(self.deployment.seen)]

    @property
    def now(self) -> float:
        """Returns the seconds since the load began."""
        return time.time() - self.began

    def wait(self, second: float) -> None:
        """Waits until this second of the load."""
        time.sleep(max(0.0, second - self.now))


class Deployment:
    """Records every change of a Deployment's servers, with a watch."""

    def __init__(self, api: Api, name: str) -> None:
        self._api, self._name, self._over = api, name, False
        self.seen: list[tuple[float, int, int]] = []
        threading.Thread(target=self._watch, daemon=True).start()
        eventually(lambda: self.seen, 20, "the watch")

    def close(self) -> None:
        """Ends the record."""
        self._over = True

    def _watch(self) -> None:
        while not self._over:
            for _, _, deployment in self._api.watch("Deployment", seconds=3600):
                if self._over:
                    return
                if deployment["metadata"]["name"] == self._name:
                    now = int(deployment["spec"]["replicas"]), int(deployment.get("status", {}).get("readyReplicas", 0))
                    if not self.seen or self.seen[-1][1:] != now:
                        self.seen.append((time.time(), *now))


class World:
    """The TritonModels of one namespace. All have the same model, which takes 20 ms."""

    def __init__(self, namespace: Namespace, monitoring: Monitoring) -> None:
        self._namespace, self._monitoring = namespace, monitoring
        self._image = namespace.cluster.image("echo", "waits")

    def create(self, names: dict[str, str]) -> None:
        """Creates a TritonModel with each name and engine, and waits until Prometheus has its metrics and rules."""
        for name, engine in names.items():
            scaling = {"engine": engine, "min": LEAST, "max": MOST, "utilization": UTILIZATION}
            model = self._namespace.model(name, self._image, autoscaling=scaling)
            limits = {"max-qps-per-replica": f"{PER_SERVER:g}", "max-qps": "1000"}
            annotations = {f"tritonoperator.io/{kind}": value for kind, value in limits.items()}
            self._namespace.api.apply({**model, "metadata": {**model["metadata"], "annotations": annotations}})
        for name in names:
            self._namespace.wait_until_complete(name)
        for name in names:
            Subject(self._monitoring, self._namespace, name).wait_for_metrics(hurry=True)
            # KEDA creates it some time after the ScaledObject.
            find = partial(self._namespace.api.find, "HorizontalPodAutoscaler", name)
            eventually(find, 120, f"the autoscaler of {name}")

    def delete(self, name: str) -> None:
        """Deletes a TritonModel and waits until its servers have ended."""
        self._namespace.api.delete("TritonModel", name)
        selector = f"tritonoperator.io/model={name}"
        eventually(lambda: not self._namespace.api.list("Pod", selector), 120, f"the servers of {name} to end", 1)

    @contextlib.contextmanager
    def sends(self, name: str, rates: tuple[float, ...]) -> Iterator[Recorded]:
        """Sends a load to the TritonModel `name`. At the end of the context waits until it has been sent."""
        arrived, api, pod = requests(rates), self._namespace.api, f"load-{name}"
        data = {"send.py": _SCRIPT.read_text(), "rates.json": json.dumps(arrived)}
        api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": pod}, "data": data})
        command = ["python", "/client/send.py", name, "/client/rates.json"]
        deployment = Deployment(api, name)
        api.apply(client_pod(pod, self._namespace.cluster.client_image, command))
        try:
            began = eventually(lambda: self._lines(pod), 120, "the load to start", every=0.5)[0]["began"]
            recorded = Recorded(float(began), arrived, deployment)
            yield recorded
            recorded.wait(len(rates))
            phase = eventually(lambda: ended(self._namespace, pod), 90, "the load to end", 0.5)
            assert phase == "Succeeded", self._namespace.kubectl("logs", pod, check=False)
            recorded.tally = self._lines(pod)[-1]
        finally:
            deployment.close()
            api.delete("Pod", pod, gracePeriodSeconds=0)
            api.delete("ConfigMap", pod)

    @contextlib.contextmanager
    def no_prometheus(self) -> Iterator[None]:
        """Stops Prometheus while the context lasts."""
        self._prometheus(0)
        try:
            eventually(lambda: not self._monitoring.answers(), 90, "Prometheus to end", 1)
            yield
        finally:
            self._prometheus(1)
            eventually(self._monitoring.answers, 180, "Prometheus to answer", 1)

    @contextlib.contextmanager
    def operator_to_kill(self) -> Iterator[Operator]:
        """Yields the operator, which can be killed. Starts it again at the end."""
        operator = Operator(self._namespace.cluster.api)
        try:
            yield operator
        finally:
            operator.start()
            rollout = ("rollout", "status", "deployment/triton-operator", "--timeout=180s")
            self._namespace.cluster.kubectl("-n", NAMESPACE, *rollout)

    def _prometheus(self, replicas: int) -> None:
        self._namespace.cluster.api.patch(
            "Prometheus", _PROMETHEUS, {"spec": {"replicas": replicas}}, namespace=_MONITORING
        )

    def _lines(self, pod: str) -> list[Object]:
        """Returns the JSON lines that the client has printed."""
        out = self._namespace.kubectl("logs", pod, check=False)
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


class Operator:
    """The operator's Deployment."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._replicas = int(api.get("Deployment", "triton-operator", NAMESPACE)["spec"]["replicas"])

    def kill(self) -> None:
        """Ends all replicas without a grace period."""
        self._scale(0)
        for pod in self._api.list("Pod", _OPERATOR, NAMESPACE):
            self._api.delete("Pod", pod["metadata"]["name"], NAMESPACE, gracePeriodSeconds=0)
        eventually(lambda: not self._api.list("Pod", _OPERATOR, NAMESPACE), 60, "the operator to end")

    def start(self) -> None:
        """Starts as many replicas as there were."""
        self._scale(self._replicas)

    def _scale(self, replicas: int) -> None:
        self._api.patch("Deployment", "triton-operator", {"spec": {"replicas": replicas}}, namespace=NAMESPACE)
