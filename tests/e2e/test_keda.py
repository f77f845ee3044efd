"""The engine KEDA with a real KEDA and real load. KEDA is installed for this file only."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support import keda_cluster
from support.api import Api, Object, condition, eventually
from support.cluster import Cluster, Namespace
from support.live import CYCLE_SECONDS, SPEC, Subject
from support.load import load
from support.prometheus import Monitoring
from support.recorded import Replicas

pytestmark = [pytest.mark.e2e, pytest.mark.installation]

AUTOSCALER, SCALED_OBJECT = "HorizontalPodAutoscaler", "ScaledObject"
PER_REPLICA = "tritonoperator.io/max-qps-per-replica"
AT_ONCE = {"scaleUp": {"stabilizationWindowSeconds": 0}, "scaleDown": {"stabilizationWindowSeconds": 0}}
SCALING: dict[str, Any] = {"engine": "HPA", "min": 1, "max": 3, "behavior": AT_ONCE}
FROM_ZERO: dict[str, Any] = {"engine": "KEDA", "min": 0, "max": 2, "behavior": AT_ONCE}


@pytest.fixture(scope="module", autouse=True)
def keda(cluster: Cluster) -> Iterator[None]:
    with keda_cluster.installed(cluster):
        yield


class Autoscalers:
    """The largest number of a Deployment's autoscalers at a time, from a watch that begins now."""

    def __init__(self, api: Api, name: str) -> None:
        self._api, self._name = api, name
        self._versions: set[str] = set()
        self._most = 0
        threading.Thread(target=self._watch, daemon=True).start()
        eventually(lambda: self._most, 60, "the watch")

    @property
    def most(self) -> int:
        """Returns it after the watch has seen the autoscalers that there are now."""
        versions = {obj["metadata"]["resourceVersion"] for obj in self._api.list(AUTOSCALER) if self._is_mine(obj)}
        eventually(
            lambda: versions <= self._versions, 60, lambda: f"the watch to see the versions {versions - self._versions}"
        )
        return self._most

    def _is_mine(self, autoscaler: Object) -> bool:
        return bool(autoscaler["spec"]["scaleTargetRef"]["name"] == self._name)

    def _watch(self) -> None:
        uids: set[str] = set()
        for _, event, autoscaler in self._api.watch(AUTOSCALER, seconds=1800):
            if not self._is_mine(autoscaler):
                continue
            uid = autoscaler["metadata"]["uid"]
            (uids.discard if event == "DELETED" else uids.add)(uid)
            self._most = max(self._most, len(uids))
            self._versions.add(autoscaler["metadata"]["resourceVersion"])


def test_scales_with_the_load_and_removes_no_server_without_prometheus_or_by_a_change_of_the_engine(
    cluster: Cluster, monitoring: Monitoring, namespace: Namespace
) -> None:
    create(cluster, namespace, "echo", autoscaling=SCALING)
    create(cluster, namespace, "sleeper", autoscaling=FROM_ZERO, rollout={"drainSeconds": 1})
    create(cluster, namespace, "gateway", replicas=1)
    namespace.api.apply(arrivals(namespace, gateway="gateway", name="sleeper"))
    eventually(lambda: namespace.api.find("Deployment", "sleeper"), 60, lambda: namespace.conditions_text("sleeper"))
    sleeper, sleepers = Replicas(namespace.api, "sleeper"), Autoscalers(namespace.api, "sleeper")
    namespace.wait_until_complete("echo")
    began = time.monotonic()

    def note(text: str) -> None:
        print(f"{time.monotonic() - began:.0f} s: {text}")

    subject = Subject(monitoring, namespace, "echo")
    subject.wait_for_metrics(hurry=True)
    eventually(lambda: owner(namespace) == "TritonModel", 60, lambda: described(namespace))
    old_lives = subject.lives()
    echo, echoes = Replicas(namespace.api, "echo"), Autoscalers(namespace.api, "echo")
    note("the autoscaler knows the load")
    with load(namespace, "echo", 20) as traffic:
        # 20 requests per second need two servers: the limit of each is 15, the utilization three quarters.
        change(namespace, "KEDA")
        eventually(lambda: owner(namespace) == SCALED_OBJECT, 120, lambda: described(namespace))
        wait_for_servers(namespace, 2)
        note("two servers by the load")
        # A lower limit needs one more server. The annotation alone is enough.
        generation = namespace.api.get(SCALED_OBJECT, "echo")["metadata"]["generation"]
        subject.annotate(f"{PER_REPLICA}=8")
        wait_for_servers(namespace, 3)
        note("three servers by the threshold")
        assert namespace.api.get(SCALED_OBJECT, "echo")["metadata"]["generation"] == generation
        namespace.wait_for_condition("echo", "AutoscalerActive", "True", "ScalerActive")
        wakes_up(namespace, sleeper)
        note("no server without requests at the gateway, and one with them")
        lives = subject.lives()
        with without_prometheus(cluster, monitoring):
            message = namespace.wait_for_condition("echo", "AutoscalerActive", "False", "FallbackExists", 240)
            assert "it removes no server" in message
            note("KEDA doesn't get the load")
            change(namespace, "HPA")
            eventually(lambda: owner(namespace) == "TritonModel", 120, lambda: described(namespace))
            note("the operator's own autoscaler")
            assert sleeper.seen == [1, 0, 1]
        # It gets the load, and needs all three servers.
        namespace.wait_for_condition("echo", "AutoscalerActive", "True", "AtMaximum", 240)
        note("it scales")
        assert namespace.api.find(SCALED_OBJECT, "echo") is None
    assert traffic.failures() == []
    assert echo.seen == [1, 2, 3]
    assert echoes.most == sleepers.most == 1
    assert old_lives.items() <= lives.items()
    assert subject.lives() == lives, "a server was restarted or replaced"


def wakes_up(namespace: Namespace, sleeper: Replicas) -> None:
    """Waits until "sleeper" has no server, and checks that requests at its gateway start one."""
    namespace.wait_for_condition("sleeper", "Ready", "False", "ScaledToZero")
    message = namespace.wait_for_condition("sleeper", "AutoscalerActive", "True", "ScalerNotActive")
    assert message.endswith("; a server starts when tritonmodel:arrivals:rate1m is above 0")
    assert sleeper.seen == [1, 0]
    with load(namespace, "gateway", 5):
        wait_for_servers(namespace, 1, "sleeper")
    namespace.wait_for_condition("sleeper", "Ready", "True", "EntrypointAnswers")


def create(cluster: Cluster, namespace: Namespace, name: str, **spec: Any) -> None:
    model = namespace.model(name, cluster.image(), **spec, **SPEC)
    annotations = {"tritonoperator.io/max-qps": "1000", PER_REPLICA: "15"}
    namespace.api.apply({**model, "metadata": {**model["metadata"], "annotations": annotations}})


def arrivals(namespace: Namespace, gateway: str, name: str) -> Object:
    """Returns a rule that records the requests to the TritonModel `gateway` as those that arrive for `name`."""
    series = f'nv_inference_request_success{{namespace="{namespace.name}",tritonmodel="{gateway}"}}'
    rule = {
        "record": "tritonmodel:arrivals:rate1m",
        "expr": f"sum(rate({series}[1m]))",
        "labels": {"namespace": namespace.name, "tritonmodel": name},
    }
    group = {"name": "arrivals", "interval": f"{CYCLE_SECONDS}s", "rules": [rule]}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "arrivals"},
        "spec": {"groups": [group]},
    }


def change(namespace: Namespace, engine: str) -> None:
    namespace.api.patch("TritonModel", "echo", {"spec": {"autoscaling": {"engine": engine}}})


@contextlib.contextmanager
def without_prometheus(cluster: Cluster, monitoring: Monitoring) -> Iterator[None]:
    """Stops Prometheus while the context lasts."""

    def scale(replicas: int) -> None:
        cluster.api.patch("Prometheus", "triton", {"spec": {"replicas": replicas}}, namespace="monitoring")

    try:
        scale(0)
        eventually(lambda: not monitoring.answers(), 120, "Prometheus to end")
        yield
    finally:
        scale(1)
        eventually(monitoring.answers, 240, "Prometheus to answer")


def wait_for_servers(namespace: Namespace, count: int, name: str = "echo") -> None:
    def look() -> bool:
        status = namespace.api.get("TritonModel", name)["status"]
        return replicas(namespace, name) == status.get("readyReplicas") == count

    eventually(look, 240, lambda: f"{count} servers; {described(namespace, name)}", every=0.5)


def replicas(namespace: Namespace, name: str) -> int:
    return int(namespace.api.get("Deployment", name)["spec"]["replicas"])


def owner(namespace: Namespace) -> str:
    """Returns the kind of the owner of the autoscaler, "" if there is none."""
    autoscaler = namespace.api.find(AUTOSCALER, "echo")
    return str(autoscaler["metadata"]["ownerReferences"][0]["kind"]) if autoscaler else ""


def described(namespace: Namespace, name: str = "echo") -> str:
    """Returns the autoscalers' states, for failure messages."""
    scaled_object = namespace.api.find(SCALED_OBJECT, name) or {}
    autoscaler = namespace.api.find(AUTOSCALER, name) or {}
    active = condition(namespace.api.get("TritonModel", name), "AutoscalerActive")
    return f"{replicas(namespace, name)} servers; {active}; {scaled_object.get('status')}; {autoscaler.get('status')}"
