"""The autoscaling engines with Kubernetes' real HorizontalPodAutoscaler controller, and KEDA's operator and webhook.

The policies of the installation are in effect. No prometheus-adapter runs.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import clock, controlplane, counting_server, gen, keda_process, operator_process
from support.api import Api, Object, condition, eventually, states, steady
from support.controlplane import ROOT, ControlPlane
from support.fake_prometheus import FakePrometheus, sample
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import apply_folder, make

pytestmark = pytest.mark.faults
AUTOSCALER, SCALED_OBJECT = "HorizontalPodAutoscaler", "ScaledObject"
SOON = 90.0
STILL_SECONDS = 12.0
"""Longer than the polling intervals of KEDA and of the autoscaler."""
COOLDOWN_SECONDS = 65.0
"""Longer than the shortest cooldown."""
ADDRESS = "127.0.0.64"
LIMIT = {"tritonoperator.io/max-qps-per-replica": "20"}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    if not controlplane.has_controllers():
        pytest.skip("kube-controller-manager isn't installed")
    autoscaler = ["--controllers=horizontal-pod-autoscaler-controller", "--horizontal-pod-autoscaler-sync-period=2s"]
    with controlplane.running(controllers=True, manager_flags=autoscaler) as plane:
        plane.install_crds()
        plane.install_monitoring()
        operator_process.install(plane)
        for folder in ("rbac", "policies"):
            apply_folder(plane, ROOT / "manifests" / folder)
        yield plane


@pytest.fixture(scope="module")
def for_keda(plane: ControlPlane) -> Path:
    return keda_process.install(plane)


@pytest.fixture
def api(plane: ControlPlane, request: pytest.FixtureRequest) -> Api:
    name = f"keda-{abs(hash(request.node.name)) % 10**6}"
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return plane.api.in_namespace(name)


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    prometheus = FakePrometheus()
    yield prometheus
    prometheus.close()


@pytest.fixture
def operator(plane: ControlPlane, prometheus: FakePrometheus, tmp_path: Path) -> Iterator[Operator]:
    kubeconfig = operator_process.install(plane)
    env = {"DISCOVERY_SECONDS": "1", "PROMETHEUS_URL": prometheus.url}
    with operator_process.running(kubeconfig, tmp_path, **env) as operator:
        yield operator
        assert "Traceback" not in operator.log


def deploy(api: Api, **scaling: Any) -> None:
    make(api, annotations=LIMIT, entrypoint="detection", autoscaling={"max": 8, **scaling})
    eventually(lambda: api.find("Deployment", gen.NAME), SOON)


def serve(prometheus: FakePrometheus, api: Api, **values: float) -> None:
    """Makes Prometheus answer the queries of these triggers; it has no series for the others."""
    triggers = api.get(SCALED_OBJECT, gen.NAME)["spec"]["triggers"]
    queries = {t["name"]: t["metadata"]["query"] for t in triggers}
    for name, query in queries.items():
        prometheus.series[query] = [sample(str(values[name]))] if name in values else []


def change(api: Api, **scaling: object) -> None:
    api.patch("TritonModel", gen.NAME, {"spec": {"autoscaling": scaling}})


def owner(api: Api) -> str:
    autoscaler = api.find(AUTOSCALER, gen.NAME)
    return str(autoscaler["metadata"]["ownerReferences"][0]["kind"]) if autoscaler else ""


def replicas(api: Api) -> int:
    return int(api.get("Deployment", gen.NAME)["spec"]["replicas"])


def stays(api: Api, count: int, seconds: float = STILL_SECONDS) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert replicas(api) == count, described(api)
        time.sleep(0.2)


def described(api: Api) -> str:
    scaled_object: Object = api.find(SCALED_OBJECT, gen.NAME) or {}
    active = condition(api.get("TritonModel", gen.NAME), "AutoscalerActive")
    return f"{replicas(api)} servers; {active}; {scaled_object.get('status')}"


def keda_status(api: Api, kind: str) -> str:
    """Returns the status of KEDA's condition."""
    return str(condition(api.find(SCALED_OBJECT, gen.NAME), kind).get("status", ""))


def test_direct_adds_servers_while_the_adapter_is_away(api: Api, operator: Operator) -> None:
    with counting_server.running(ADDRESS, "detection") as server:
        deploy(
            api,
            engine="Direct",
            behavior={"scaleUp": {"policies": [{"type": "Pods", "value": 8, "periodSeconds": 15}]}},
        )
        report = gen.report("pre", "detection", entrypoint="detection")
        add_pod(api, gen.checked(report), gen.put("status.podIP", ADDRESS))
        reason = "FailedGetObjectMetric"
        eventually(lambda: condition(api.find(AUTOSCALER, gen.NAME), "ScalingActive").get("reason") == reason,
                   SOON, lambda: operator.log)  # fmt: skip
        server.serve(85)
        # 85 / 20 / 0.75
        eventually(lambda: replicas(api) == 6, SOON, lambda: described(api))
        assert condition(api.get("TritonModel", gen.NAME), "AutoscalerActive")["reason"] == reason
        server.serve(5)
        stays(api, 6)


def test_engines_change_without_a_second_autoscaler_also_while_keda_is_away(
    plane: ControlPlane, api: Api, for_keda: Path, operator: Operator, prometheus: FakePrometheus, tmp_path: Path
) -> None:
    deploy(api, min=2)
    eventually(lambda: owner(api) == "TritonModel", SOON, lambda: operator.log)
    api.patch("Deployment", gen.NAME, {"spec": {"replicas": 5}}, "scale")
    start = api.get("Deployment", gen.NAME)["metadata"]["resourceVersion"]
    with keda_process.running(plane, for_keda, tmp_path) as log:
        change(api, engine="KEDA")
        eventually(lambda: owner(api) == SCALED_OBJECT, SOON, lambda: (described(api), log.read_text()[-3000:]))
        hpa = api.get(AUTOSCALER, gen.NAME)
        assert (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]) == (2, 8)
        target = hpa["spec"]["metrics"][0]["external"]["target"]
        assert target == {"type": "AverageValue", "averageValue": "750m"}
        assert "tritonoperator.io/model" not in hpa["metadata"]["labels"]
        # For five servers: the controller may have forgotten that there were five, and removes some at once for less.
        serve(prometheus, api, load=3.6)
        eventually(lambda: keda_status(api, "Active") == "True", SOON, lambda: described(api))
        eventually(lambda: condition(api.get("TritonModel", gen.NAME), "AutoscalerActive")["reason"] == "ScalerActive",
                   SOON, lambda: described(api))  # fmt: skip
        # KEDA has marked the ScaledObject; from then on nobody writes its spec.
        metadata = api.get(SCALED_OBJECT, gen.NAME)["metadata"]
        assert metadata["finalizers"] == ["finalizer.keda.sh"]
        # The Events of a change are written after its status.
        writes = steady(operator.writes, 3.0, SOON, lambda: operator.log)
        # A new threshold changes the status only.
        api.patch("TritonModel", gen.NAME, {"metadata": {"annotations": dict.fromkeys(LIMIT, "10")}})
        time.sleep(STILL_SECONDS)
        assert api.get(SCALED_OBJECT, gen.NAME)["metadata"]["generation"] == metadata["generation"]
        assert operator.writes() - writes <= 2, operator.log
        assert "denied" not in log.read_text()
    # KEDA is away.
    change(api, engine="HPA")
    eventually(lambda: condition(api.get("TritonModel", gen.NAME), "AutoscalerActive")["reason"] == "WaitingForKEDA",
               SOON, lambda: described(api))  # fmt: skip
    stays(api, 5, 3)
    assert owner(api) == SCALED_OBJECT
    with keda_process.running(plane, for_keda, tmp_path):
        eventually(lambda: owner(api) == "TritonModel", SOON, lambda: described(api))
    assert api.find(SCALED_OBJECT, gen.NAME) is None
    assert {o["spec"]["replicas"] for o in states(api, "Deployment", gen.NAME, since=start)} == {5}


@pytest.mark.skipif(os.environ.get("SOAK") != "1", reason="takes five minutes; `make soak` runs it")
def test_scales_to_zero_only_with_the_series_of_the_gateway_and_wakes_up_when_prometheus_is_away(
    plane: ControlPlane, api: Api, for_keda: Path, operator: Operator, prometheus: FakePrometheus, tmp_path: Path
) -> None:
    with keda_process.running(plane, for_keda, tmp_path) as log:
        at_once = {"scaleDown": {"stabilizationWindowSeconds": 0}}
        deploy(api, min=0, engine="KEDA", behavior=at_once)
        eventually(lambda: owner(api) == SCALED_OBJECT, SOON, lambda: (described(api), log.read_text()[-3000:]))
        serve(prometheus, api, load=0.0)
        eventually(lambda: keda_status(api, "Fallback") == "True", SOON, lambda: described(api))
        stays(api, 1, COOLDOWN_SECONDS)
        serve(prometheus, api, load=0.0, arrivals=0.0)
        eventually(lambda: replicas(api) == 0, 120, lambda: described(api))
        # Requests may arrive without Prometheus, so a server starts. Until it serves, there is no load.
        prometheus.close()
        eventually(lambda: replicas(api) == 1, SOON, lambda: described(api))
        serve(prometheus, api, arrivals=0.0)
        prometheus.start()
        stays(api, 1, COOLDOWN_SECONDS)
        serve(prometheus, api, load=0.0, arrivals=0.0)
        eventually(lambda: replicas(api) == 0, 150, lambda: described(api))
        assert keda_status(api, "Ready") == "True", described(api)
        stays(api, 0)
        began = clock.of_an_idle_machine()
        serve(prometheus, api, load=0.0, arrivals=0.5)
        eventually(lambda: replicas(api) == 1, SOON, lambda: described(api))
        assert clock.of_an_idle_machine() - began < 20


def test_has_the_servers_that_the_load_needs_and_removes_none_without_prometheus(
    plane: ControlPlane, api: Api, for_keda: Path, operator: Operator, prometheus: FakePrometheus, tmp_path: Path
) -> None:
    with keda_process.running(plane, for_keda, tmp_path):
        at_once = {"scaleUp": {"stabilizationWindowSeconds": 0}, "scaleDown": {"stabilizationWindowSeconds": 0}}
        deploy(api, min=2, engine="KEDA", utilization=0.57, behavior=at_once)
        eventually(lambda: owner(api) == SCALED_OBJECT, SOON, lambda: described(api))
        # KEDA's autoscaler ensures the minimum also without a load.
        eventually(lambda: replicas(api) == 2, SOON, lambda: (described(api), metrics(api)))
        # Each is outside of the tolerance of 10 %.
        for load in (2.28, 1.2, 100):
            serve(prometheus, api, load=load)
            count = min(max(math.ceil(load / 0.57), 2), 8)
            eventually(lambda n=count: replicas(api) == n, SOON, lambda: (described(api), metrics(api)))
        prometheus.close()
        eventually(lambda: keda_status(api, "Fallback") == "True", SOON, lambda: described(api))
        stays(api, 8)
        prometheus.start()
        # A missing load is no reason to scale down.
        serve(prometheus, api)
        stays(api, 8)
        serve(prometheus, api, load=1.2)
        eventually(lambda: replicas(api) == 3, SOON, lambda: (described(api), metrics(api)))
        eventually(lambda: keda_status(api, "Fallback") == "False", SOON, lambda: described(api))


def metrics(api: Api) -> Object:
    """Returns the status of KEDA's autoscaler, for failure messages."""
    return dict((api.find(AUTOSCALER, gen.NAME) or {}).get("status", {}))
