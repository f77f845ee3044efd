"""The autoscaler counts and sets replicas; the operator leaves them alone, and writes nothing."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from integration.monitoring.steps import AUTOSCALER, QUICK, SOON, P, difference, events, serving, told
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


def scaler(api: Api, *conditions: tuple[str, str, str], **status: object) -> None:
    """What the controller of HorizontalPodAutoscalers would write into one's status."""
    now = "2026-01-01T00:00:00Z"
    told = [
        {"type": t, "status": s, "reason": r, "message": f"the words of {r}", "lastTransitionTime": now}
        for t, s, r in conditions
    ]
    api.patch(AUTOSCALER, gen.NAME, {"status": {"desiredReplicas": 1, "conditions": told, **status}}, "status")


def api_change(api: Api, spec: Object) -> None:
    """Changes the spec and waits until the status is about it."""
    generation = api.patch("TritonModel", gen.NAME, {"spec": spec})["metadata"]["generation"]
    eventually(lambda: api.get("TritonModel", gen.NAME)["status"].get("observedGeneration") == generation, SOON)


def test_the_autoscaler_takes_over_and_is_left_alone(
    plane: ControlPlane, kubeconfig: Path, own: Api, tmp_path: Path
) -> None:
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own, replicas=4)
        eventually(lambda: own.find("Deployment", gen.NAME), SOON, lambda: operator.log)
        start = own.get("Deployment", gen.NAME)["metadata"]["resourceVersion"]
        own.patch("TritonModel", gen.NAME, {"spec": {"replicas": None, "autoscaling": {"min": 2, "max": 8}}})
        made = eventually(lambda: own.find(AUTOSCALER, gen.NAME), SOON, lambda: operator.log)
        assert (made["spec"]["minReplicas"], made["spec"]["maxReplicas"]) == (2, 8)
        assert "max-qps-per-replica" in told(own, "AutoscalerActive", "False", "NoThreshold")
        own.patch("Deployment", gen.NAME, {"spec": {"replicas": 6}}, "scale")
        api_change(own, {"server": {"image": "triton:2"}})
        own.patch("Deployment", gen.NAME, {"spec": {"replicas": 5}}, "scale")
        api_change(own, {"server": {"image": "triton:3"}})
        plane.wait_until_quiet()
        seen = [o["spec"]["replicas"] for o in states(own, "Deployment", gen.NAME, since=start)]
        assert [n for n, _ in itertools.groupby(seen) if n != 4] == [6, 5]
        assert own.get("Deployment", gen.NAME)["spec"]["replicas"] == 5

        annotate(own, max_qps="80")
        told(own, "AutoscalerActive", "Unknown", "Starting")
        scaler(own, ABLE, ("ScalingActive", "False", "FailedGetObjectMetric"))
        add_pod(own, gen.put("status.podIP", ""))
        message = told(own, "AutoscalerActive", "False", "FailedGetObjectMetric")
        assert message.startswith("the words of FailedGetObjectMetric; is prometheus-adapter installed")
        eventually(lambda: events(own, "FailedGetObjectMetric"), SOON)
        scaler(own, ABLE, ACTIVE, ("ScalingLimited", "False", "DesiredWithinRange"))
        told(own, "AutoscalerActive", "True", "Scaling")
        scaler(own, ABLE, ACTIVE, ("ScalingLimited", "True", "TooManyReplicas"))
        assert "spec.autoscaling.max (8)" in told(own, "AutoscalerActive", "True", "AtMaximum")
        scaler(own, ("AbleToScale", "False", "FailedGetScale"))
        told(own, "AutoscalerActive", "False", "FailedGetScale")
        # No threshold is in it.
        assert own.get(AUTOSCALER, gen.NAME)["spec"] == made["spec"]

        # What someone edits is put back; without autoscaling it goes, and the fleet stays.
        own.patch(AUTOSCALER, gen.NAME, {"spec": {"maxReplicas": 100}})
        eventually(lambda: own.get(AUTOSCALER, gen.NAME)["spec"]["maxReplicas"] == 8, SOON, lambda: operator.log)
        own.patch("TritonModel", gen.NAME, {"spec": {"autoscaling": {"engine": "None"}}})
        eventually(lambda: own.find(AUTOSCALER, gen.NAME) is None, SOON, lambda: operator.log)
        eventually(lambda: not condition(own.get("TritonModel", gen.NAME), "AutoscalerActive"), SOON)
        assert own.get("Deployment", gen.NAME)["spec"]["replicas"] == 5
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def test_nothing_is_written_at_rest_while_the_autoscaler_counts(
    plane: ControlPlane, kubeconfig: Path, own: Api, fake: FakePrometheus, tmp_path: Path
) -> None:
    fake.tell(own.namespace, gen.NAME, max_qps=80, max_qps_per_replica=12.5)
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
            fake.tell(own.namespace, name, max_qps=80, max_qps_per_replica=12.5)
            serving(own, operator, name, f"{name}-pod")
            eventually(lambda n=name: condition(own.get("TritonModel", n), "ThresholdLive").get("status") == "True",
                       SOON, lambda n=name: own.get("TritonModel", n)["status"])  # fmt: skip
        scaler(own, ABLE, ACTIVE)
        told(own, "AutoscalerActive", "True", "Scaling")
        plane.wait_until_quiet()
        before, writes = difference({}, plane.writes()), operator.writes()

        # A listing looks at what a test before may have left, too.
        known = len(own.within("*").list("Deployment"))

        def passed() -> float:
            return operator.passes(result="ok")

        def explained() -> float:
            """Passes that the listings of so many seconds bring, and one listing on its way at either end."""
            return known * ((time.monotonic() - started) / (0.9 * resync) + 2)

        passes, started, counted = passed(), time.monotonic(), 0
        # Some listings, and far more counts than passes that they explain.
        while passed() < passes + 2 * known or counted < 2 * explained():
            assert time.monotonic() < started + 240, operator.log
            counted += 1
            value = {"averageValue": f"{counted}m", "value": f"{counted}m"}
            described = {"apiVersion": "tritonoperator.io/v1alpha1", "kind": "TritonModel", "name": gen.NAME}
            current = {"type": "Object", "object": {"current": value, "describedObject": described,
                                                    "metric": {"name": "triton_autoscaler_load"}}}  # fmt: skip
            scaler(own, ABLE, ACTIVE, currentMetrics=[current])
            time.sleep(0.1)
        time.sleep(0.5)
        now = difference({}, plane.writes())
        mine = "horizontalpodautoscalers/status"
        assert now.pop(mine) - before.pop(mine) == counted
        assert now == before
        assert operator.writes() == writes
        assert passed() - passes <= explained()
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
