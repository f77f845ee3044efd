"""The engine KEDA with KEDA's CRD. The tests write what KEDA writes; faults/test_engines.py has the real one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.monitoring.steps import AUTOSCALER, QUICK, SOON, difference, serving, wait_for_condition
from support import gen, operator_process
from support.api import Api, Object, condition, eventually, states
from support.controlplane import ControlPlane
from support.fake_prometheus import FakePrometheus
from support.kubelet import add_pod
from support.people import make
from support.thresholds import annotate

pytestmark = pytest.mark.integration
SCALED_OBJECT = "ScaledObject"
URL = "http://prometheus-operated.monitoring.svc:9090"
FINALIZER = "finalizer.keda.sh"
READY = ("Ready", "True", "ScaledObjectReady")
ACTIVE = ("Active", "True", "ScalerActive")
KEDA: Object = {"engine": "KEDA", "min": 2, "max": 8}
LIMIT = {"max_qps": "80"}
SELECTED: Object = {"monitoring": {"labels": {"release": "prometheus"}}, "entrypoint": "detection"}


@pytest.fixture
def without_keda(plane: ControlPlane) -> Iterator[None]:
    plane.remove_keda()
    yield
    plane.install_keda()


def take(api: Api) -> Object:
    """Does what KEDA does with a new ScaledObject: marks it and creates its HorizontalPodAutoscaler."""
    scaled_object = eventually(lambda: api.find(SCALED_OBJECT, gen.NAME), SOON)
    scaled_object["metadata"]["finalizers"] = [FINALIZER]
    scaled_object["metadata"]["labels"]["scaledobject.keda.sh/name"] = gen.NAME
    scaled_object["spec"]["advanced"]["scalingModifiers"] = {}
    scaled_object = api.request("PUT", api.path(SCALED_OBJECT, gen.NAME), scaled_object)
    config = scaled_object["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
    reference = {"apiVersion": "keda.sh/v1alpha1", "kind": SCALED_OBJECT, "controller": True,
                 **{k: scaled_object["metadata"][k] for k in ("name", "uid")}}  # fmt: skip
    metadata = {"name": config["name"], "labels": {"app.kubernetes.io/managed-by": "keda-operator"},
                "ownerReferences": [reference]}  # fmt: skip
    metric = {"metric": {"name": "s0-prometheus"}, "target": {"type": "AverageValue", "averageValue": "750m"}}
    scaling = scaled_object["spec"]
    spec = {"scaleTargetRef": scaling["scaleTargetRef"], "maxReplicas": scaling["maxReplicaCount"],
            "minReplicas": max(scaling["minReplicaCount"], 1), "behavior": config["behavior"],
            "metrics": [{"type": "External", "external": metric}]}  # fmt: skip
    api.create({"apiVersion": "autoscaling/v2", "kind": AUTOSCALER, "metadata": metadata, "spec": spec})
    return scaled_object


def say(api: Api, *conditions: tuple[str, str, str], **status: object) -> None:
    """Writes the status of the ScaledObject as KEDA does."""
    entries = [{"type": t, "status": s, "reason": r, "message": f"words of {r}"} for t, s, r in conditions]
    api.patch(SCALED_OBJECT, gen.NAME, {"status": {"conditions": entries, **status}}, "status")


def release(api: Api) -> None:
    """Does what KEDA does with a deleted ScaledObject."""
    eventually(lambda: "deletionTimestamp" in api.get(SCALED_OBJECT, gen.NAME)["metadata"], SOON)
    api.patch(SCALED_OBJECT, gen.NAME, {"metadata": {"finalizers": None}})


def change(api: Api, **scaling: object) -> None:
    api.patch("TritonModel", gen.NAME, {"spec": {"autoscaling": scaling}})


def owner(obj: Object | None) -> str:
    return str(obj["metadata"]["ownerReferences"][0]["kind"]) if obj else ""


@pytest.mark.parametrize("engine", ["HPA", "Direct"])
def test_changes_of_the_engine_keep_the_servers_and_never_have_two_autoscalers(
    kubeconfig: Path, own: Api, tmp_path: Path, engine: str
) -> None:
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own, annotations=LIMIT, autoscaling={**KEDA, "engine": engine}, **SELECTED)
        eventually(lambda: owner(own.find(AUTOSCALER, gen.NAME)) == "TritonModel", SOON, lambda: operator.log)
        own.patch("Deployment", gen.NAME, {"spec": {"replicas": 5}}, "scale")
        start = own.get("Deployment", gen.NAME)["metadata"]["resourceVersion"]
        template = own.get("Deployment", gen.NAME)["spec"]["template"]

        change(own, engine="KEDA")
        eventually(lambda: own.find(SCALED_OBJECT, gen.NAME), SOON, lambda: operator.log)
        # KEDA's webhook refuses a ScaledObject while another autoscaler targets the Deployment.
        assert own.find(AUTOSCALER, gen.NAME) is None
        assert "check that KEDA's operator runs" in wait_for_condition(own, "AutoscalerActive", "Unknown", "Starting")
        take(own)
        say(own, READY, ACTIVE)
        wait_for_condition(own, "AutoscalerActive", "True", "ScalerActive")

        change(own, engine=engine)
        wait_for_condition(own, "AutoscalerActive", "Unknown", "WaitingForKEDA")
        assert owner(own.get(AUTOSCALER, gen.NAME)) == SCALED_OBJECT
        release(own)
        # The garbage collector hasn't deleted KEDA's yet.
        wait_for_condition(own, "AutoscalerActive", "False", "WaitingForKEDA")
        assert owner(own.get(AUTOSCALER, gen.NAME)) == SCALED_OBJECT
        own.delete(AUTOSCALER, gen.NAME)
        eventually(lambda: owner(own.find(AUTOSCALER, gen.NAME)) == "TritonModel", SOON, lambda: operator.log)
        assert own.find(SCALED_OBJECT, gen.NAME) is None

        assert {o["spec"]["replicas"] for o in states(own, "Deployment", gen.NAME, since=start)} <= {5}
        assert own.get("Deployment", gen.NAME)["spec"]["template"] == template
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def test_engine_waits_while_keda_is_away_and_the_servers_stay(kubeconfig: Path, own: Api, tmp_path: Path) -> None:
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own, annotations=LIMIT, autoscaling=KEDA, **SELECTED)
        take(own)
        own.patch("Deployment", gen.NAME, {"spec": {"replicas": 5}}, "scale")
        change(own, engine="HPA")
        message = wait_for_condition(own, "AutoscalerActive", "Unknown", "WaitingForKEDA")
        assert "check that KEDA's operator runs" in message
        # Back to KEDA while the old ScaledObject still waits for it.
        change(own, engine="KEDA")
        wait_for_condition(own, "AutoscalerActive", "Unknown", "WaitingForKEDA")
        release(own)
        own.delete(AUTOSCALER, gen.NAME)
        eventually(lambda: "deletionTimestamp" not in (own.find(SCALED_OBJECT, gen.NAME) or gone)["metadata"], SOON)
        assert own.find(AUTOSCALER, gen.NAME) is None
        assert own.get("Deployment", gen.NAME)["spec"]["replicas"] == 5
        assert operator.stop() == 0


gone: Object = {"metadata": {"deletionTimestamp": ""}}


def test_starts_the_minimum_of_servers_when_an_engine_follows_keda_at_zero(
    kubeconfig: Path, own: Api, tmp_path: Path
) -> None:
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own, annotations=LIMIT, autoscaling={**KEDA, "min": 0}, **SELECTED)
        take(own)
        own.patch("Deployment", gen.NAME, {"spec": {"replicas": 0}}, "scale")
        wait_for_condition(own, "Ready", "False", "ScaledToZero")
        change(own, engine="HPA", min=3)
        eventually(lambda: own.get("Deployment", gen.NAME)["spec"]["replicas"] == 3, SOON, lambda: operator.log)
        # KEDA's last look, before it sees the deletion.
        own.patch("Deployment", gen.NAME, {"spec": {"replicas": 0}}, "scale")
        eventually(lambda: own.get("Deployment", gen.NAME)["spec"]["replicas"] == 3, SOON, lambda: operator.log)
        release(own)
        own.delete(AUTOSCALER, gen.NAME)
        eventually(lambda: owner(own.find(AUTOSCALER, gen.NAME)) == "TritonModel", SOON, lambda: operator.log)
        # A person who scales to zero means it.
        own.patch("Deployment", gen.NAME, {"spec": {"replicas": 0}}, "scale")
        wait_for_condition(own, "Ready", "False", "ScaledToZero")
        assert own.get("Deployment", gen.NAME)["spec"]["replicas"] == 0
        assert operator.stop() == 0


def test_serves_and_alerts_without_keda(
    plane: ControlPlane, kubeconfig: Path, own: Api, tmp_path: Path, without_keda: None
) -> None:
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own, annotations=LIMIT, autoscaling=KEDA, **SELECTED)
        serving(own, operator)
        message = wait_for_condition(own, "AutoscalerActive", "False", "KEDAMissing")
        assert "install KEDA" in message
        wait_for_condition(own, "MonitoringAvailable", "True", "Selected")
        own.patch("Deployment", gen.NAME, {"spec": {"replicas": 4}}, "scale")
        annotate(own, max_qps="60")
        eventually(lambda: own.get("TritonModel", gen.NAME)["status"]["maxQps"] == "60", SOON, lambda: operator.log)
        # No other autoscaler takes its place.
        assert own.find(AUTOSCALER, gen.NAME) is None
        assert own.get("Deployment", gen.NAME)["spec"]["replicas"] == 4
        plane.install_keda()
        eventually(lambda: own.find(SCALED_OBJECT, gen.NAME), SOON, lambda: operator.log)
        wait_for_condition(own, "AutoscalerActive", "Unknown", "Starting")
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def test_keda_reads_the_load_from_the_prometheus_of_the_tritonmodel(kubeconfig: Path, own: Api, tmp_path: Path) -> None:
    def addresses() -> set[str]:
        scaled_object = own.find(SCALED_OBJECT, gen.NAME)
        return {t["metadata"]["serverAddress"] for t in scaled_object["spec"]["triggers"]} if scaled_object else set()

    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own, annotations=LIMIT, autoscaling={**KEDA, "min": 0}, entrypoint="detection")
        message = wait_for_condition(own, "AutoscalerActive", "False", "NoPrometheus")
        assert "PROMETHEUS_URL" in message
        assert addresses() == set()
        own.patch("TritonModel", gen.NAME, {"spec": SELECTED})
        eventually(lambda: addresses() == {URL}, SOON, lambda: operator.log)
        # KEDA keeps the last address while no Prometheus is known.
        own.patch("TritonModel", gen.NAME, {"spec": {"monitoring": {"labels": {"release": "none"}}}})
        wait_for_condition(own, "MonitoringAvailable", "False", "NotSelected")
        assert addresses() == {URL}
        assert operator.stop() == 0
    with operator_process.running(kubeconfig, tmp_path, PROMETHEUS_URL="https://thanos.example/", **QUICK) as operator:
        eventually(lambda: addresses() == {"https://thanos.example"}, SOON, lambda: operator.log)
        assert operator.stop() == 0


def test_a_threshold_changes_nothing_in_the_scaled_object_and_keda_at_work_causes_no_write(
    plane: ControlPlane, kubeconfig: Path, own: Api, fake: FakePrometheus, tmp_path: Path
) -> None:
    fake.set_thresholds(own.namespace, gen.NAME, max_qps=60)
    behavior = {"scaleUp": {"tolerance": "0.05", "policies": []}, "scaleDown": {"stabilizationWindowSeconds": 0}}
    with operator_process.running(
        kubeconfig, tmp_path, RESYNC_SECONDS="5", PROMETHEUS_URL=fake.url, **QUICK
    ) as operator:
        make(own, annotations=LIMIT, autoscaling={**KEDA, "min": 0, "behavior": behavior}, **SELECTED)
        taken = take(own)
        say(own, READY, ACTIVE)
        serving(own, operator)
        annotate(own, max_qps="60")
        wait_for_condition(own, "ThresholdLive", "True", "Live")
        wait_for_condition(own, "AutoscalerActive", "True", "ScalerActive")
        plane.wait_until_quiet()
        before, writes, reconciled = difference({}, plane.writes()), operator.writes(), operator.reconciles()
        for count in range(60):
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_800_000_000 + count))
            health = {"s0-prometheus": {"numberOfFailures": count, "status": "Failing"}}
            say(own, READY, ACTIVE, lastActiveTime=now, health=health)
            time.sleep(0.2)
        assert operator.reconciles() > reconciled, "no resync"
        now_ = difference({}, plane.writes())
        assert now_.pop("scaledobjects/status") - before.pop("scaledobjects/status", 0) == 60
        assert now_ == before
        assert operator.writes() == writes
        scaled_object = own.get(SCALED_OBJECT, gen.NAME)
        assert scaled_object["spec"] == taken["spec"]
        assert scaled_object["metadata"]["finalizers"] == [FINALIZER]
        # An edit of a field of the operator is reverted.
        own.patch(SCALED_OBJECT, gen.NAME, {"spec": {"maxReplicaCount": 100}})
        eventually(lambda: own.get(SCALED_OBJECT, gen.NAME)["spec"]["maxReplicaCount"] == 8, SOON)
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def test_condition_quotes_keda(kubeconfig: Path, own: Api, tmp_path: Path) -> None:
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own, annotations=LIMIT, autoscaling=KEDA, **SELECTED)
        take(own)
        say(own, READY, ACTIVE, ("Fallback", "True", "FallbackExists"))
        wait_for_condition(own, "AutoscalerActive", "Unknown", "Starting")
        serving(own, operator)
        add_pod(own, gen.put("status.podIP", ""), name="detection-abc-2")
        message = wait_for_condition(own, "AutoscalerActive", "False", "FallbackExists")
        assert message.startswith("words of FallbackExists; ")
        say(own, ("Ready", "False", "ScaledObjectCheckFailed"), ("Active", "Unknown", "UnknownState"))
        wait_for_condition(own, "AutoscalerActive", "False", "ScaledObjectCheckFailed")
        say(own, READY, ACTIVE, ("Paused", "True", "ScaledObjectPaused"))
        wait_for_condition(own, "AutoscalerActive", "False", "ScaledObjectPaused")
        say(own, READY, ("Active", "False", "ScalerNotActive"))
        wait_for_condition(own, "AutoscalerActive", "True", "ScalerNotActive")
        own.patch("TritonModel", gen.NAME, {"spec": {"autoscaling": None}})
        release(own)
        eventually(lambda: own.find(SCALED_OBJECT, gen.NAME) is None, SOON, lambda: operator.log)
        eventually(lambda: not condition(own.get("TritonModel", gen.NAME), "AutoscalerActive"), SOON)
        assert operator.stop() == 0
