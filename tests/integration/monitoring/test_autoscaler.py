"""The autoscaler sets the replicas. The operator doesn't change them, and ignores the autoscaler's metrics."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from integration.monitoring.steps import AUTOSCALER, QUICK, SOON, P, difference, events, serving, wait_for_condition
from support import gen, operator_process
from support.api import Api, Object, condition, eventually, states
from support.controlplane import ControlPlane
from support.fake_prometheus import FakePrometheus
from support.kubelet import add_pod
from support.people import make
from support.thresholds import annotate

pytestmark = pytest.mark.integration
ABLE = ("AbleToScale", "True", "ReadyForNewScale")
ACTIVE = ("ScalingActive", "True", "ValidMetricFound")


def write_autoscaler_status(api: Api, *conditions: tuple[str, str, str], **status: object) -> None:
    """Writes the status of the HorizontalPodAutoscaler as its controller does."""
    now = "2026-01-01T00:00:00Z"
    written = [
        {"type": t, "status": s, "reason": r, "message": f"the message of {r}", "lastTransitionTime": now}
        for t, s, r in conditions
    ]
    api.patch(AUTOSCALER, gen.NAME, {"status": {"desiredReplicas": 1, "conditions": written, **status}}, "status")


def change_spec(api: Api, spec: Object) -> None:
    """Changes the spec and waits until the status has its generation."""
    generation = api.patch("TritonModel", gen.NAME, {"spec": spec})["metadata"]["generation"]
    eventually(lambda: api.get("TritonModel", gen.NAME)["status"].get("observedGeneration") == generation, SOON)


def test_operator_hands_the_replicas_to_the_autoscaler_and_leaves_them_alone(
    plane: ControlPlane, kubeconfig: Path, own: Api, tmp_path: Path
) -> None:
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own, replicas=4)
        eventually(lambda: own.find("Deployment", gen.NAME), SOON, lambda: operator.log)
        start = own.get("Deployment", gen.NAME)["metadata"]["resourceVersion"]
        own.patch("TritonModel", gen.NAME, {"spec": {"replicas": None, "autoscaling": {"min": 2, "max": 8}}})
        created = eventually(lambda: own.find(AUTOSCALER, gen.NAME), SOON, lambda: operator.log)
        assert (created["spec"]["minReplicas"], created["spec"]["maxReplicas"]) == (2, 8)
        assert "max-qps-per-replica" in wait_for_condition(own, "AutoscalerActive", "False", "NoThreshold")
        own.patch("Deployment", gen.NAME, {"spec": {"replicas": 6}}, "scale")
        change_spec(own, {"server": {"image": "triton:2"}})
        own.patch("Deployment", gen.NAME, {"spec": {"replicas": 5}}, "scale")
        change_spec(own, {"server": {"image": "triton:3"}})
        plane.wait_until_quiet()
        replicas = [o["spec"]["replicas"] for o in states(own, "Deployment", gen.NAME, since=start)]
        assert [n for n, _ in itertools.groupby(replicas) if n != 4] == [6, 5]
        assert own.get("Deployment", gen.NAME)["spec"]["replicas"] == 5

        annotate(own, max_qps="80")
        wait_for_condition(own, "AutoscalerActive", "Unknown", "Starting")
        write_autoscaler_status(own, ABLE, ("ScalingActive", "False", "FailedGetObjectMetric"))
        add_pod(own, gen.put("status.podIP", ""))
        message = wait_for_condition(own, "AutoscalerActive", "False", "FailedGetObjectMetric")
        assert message.startswith("the message of FailedGetObjectMetric; check that prometheus-adapter is installed")
        eventually(lambda: events(own, "FailedGetObjectMetric"), SOON)
        write_autoscaler_status(own, ABLE, ACTIVE, ("ScalingLimited", "False", "DesiredWithinRange"))
        wait_for_condition(own, "AutoscalerActive", "True", "Scaling")
        write_autoscaler_status(own, ABLE, ACTIVE, ("ScalingLimited", "True", "TooManyReplicas"))
        assert "spec.autoscaling.max (8)" in wait_for_condition(own, "AutoscalerActive", "True", "AtMaximum")
        write_autoscaler_status(own, ("AbleToScale", "False", "FailedGetScale"))
        wait_for_condition(own, "AutoscalerActive", "False", "FailedGetScale")
        # The threshold doesn't change the autoscaler.
        assert own.get(AUTOSCALER, gen.NAME)["spec"] == created["spec"]

        # An edit is reverted. Without spec.autoscaling the autoscaler is deleted, and the replicas stay.
        own.patch(AUTOSCALER, gen.NAME, {"spec": {"maxReplicas": 100}})
        eventually(lambda: own.get(AUTOSCALER, gen.NAME)["spec"]["maxReplicas"] == 8, SOON, lambda: operator.log)
        own.patch("TritonModel", gen.NAME, {"spec": {"autoscaling": {"engine": "None"}}})
        eventually(lambda: own.find(AUTOSCALER, gen.NAME) is None, SOON, lambda: operator.log)
        eventually(lambda: not condition(own.get("TritonModel", gen.NAME), "AutoscalerActive"), SOON)
        assert own.get("Deployment", gen.NAME)["spec"]["replicas"] == 5
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def test_operator_writes_nothing_while_only_the_autoscalers_metrics_change(
    plane: ControlPlane, kubeconfig: Path, own: Api, fake: FakePrometheus, tmp_path: Path
) -> None:
    fake.set_thresholds(own.namespace, gen.NAME, max_qps=80, max_qps_per_replica=12.5)
    own_behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    specs: dict[str, Object] = {
        gen.NAME: {"autoscaling": {"max": 4}, "monitoring": {"labels": {"release": "prometheus"}}},
        "own": {"autoscaling": {"max": 4, "min": 1, "utilization": 1, "behavior": own_behavior}},
        "quiet": {"monitoring": {"alerts": False, "alertLabels": {"team": "vision"}, "objective": "99"}},
    }
    thresholds_of = {f"{P}max-qps": "80", f"{P}max-qps-per-replica": "12.5"}
    resync = 5
    settings = {"RESYNC_SECONDS": str(resync), "PROMETHEUS_URL": fake.url, **QUICK}
    with operator_process.running(kubeconfig, tmp_path, **settings) as operator:
        for name, spec in specs.items():
            make(own, name, thresholds_of, **spec)
            fake.set_thresholds(own.namespace, name, max_qps=80, max_qps_per_replica=12.5)
            serving(own, operator, name, f"{name}-pod")
            eventually(lambda n=name: condition(own.get("TritonModel", n), "ThresholdLive").get("status") == "True",
                       SOON, lambda n=name: own.get("TritonModel", n)["status"])  # fmt: skip
        write_autoscaler_status(own, ABLE, ACTIVE)
        wait_for_condition(own, "AutoscalerActive", "True", "Scaling")
        plane.wait_until_quiet()
        before, writes = difference({}, plane.writes()), operator.writes()
        start = {name: own.get("TritonModel", name)["metadata"]["resourceVersion"] for name in specs}

        # A resync also reconciles TritonModels that an earlier test left.
        count = len(own.in_namespace("*").list("Deployment"))

        def reconciles() -> float:
            return operator.reconciles(result="ok")

        def expected_reconciles() -> float:
            """Reconciles by the resyncs since `started`, with one resync more at either end."""
            return count * ((time.monotonic() - started) / (0.9 * resync) + 2)

        starts, reconciled, started, counted = operator.starts, reconciles(), time.monotonic(), 0
        # Wait for two resyncs, and for far more metric updates than reconciles that the resyncs cause.
        while reconciles() < reconciled + 2 * count or counted < 2 * expected_reconciles():
            assert time.monotonic() < started + 240, operator.log
            if operator.starts != starts:
                # It has lost its Lease on a busy machine: its counters begin at 0, and it must write nothing either.
                starts, reconciled, writes = operator.starts, 0, 0
            counted += 1
            value = {"averageValue": f"{counted}m", "value": f"{counted}m"}
            described = {"apiVersion": "tritonoperator.io/v1alpha1", "kind": "TritonModel", "name": gen.NAME}
            current = {"type": "Object", "object": {"current": value, "describedObject": described,
                                                    "metric": {"name": "triton_autoscaler_load"}}}  # fmt: skip
            write_autoscaler_status(own, ABLE, ACTIVE, currentMetrics=[current])
            time.sleep(0.1)
        time.sleep(0.5)
        now = difference({}, plane.writes())
        own_writes = "horizontalpodautoscalers/status"
        assert now.pop(own_writes) - before.pop(own_writes) == counted
        assert now == before, {
            name: [state["status"] for state in states(own, "TritonModel", name, since=version)]
            for name, version in start.items()
        }
        assert operator.writes() == writes
        # A new process reconciles each once more.
        assert reconciles() - reconciled <= expected_reconciles() + (operator.starts - 1) * count
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
