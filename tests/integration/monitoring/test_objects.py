"""PodMonitors and PrometheusRules exist while the cluster has their kinds and the spec needs them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from integration.monitoring.steps import (
    AUTOSCALER,
    QUICK,
    SOON,
    P,
    events,
    gauge,
    literals,
    namespace,
    serving,
    versions,
    wait_for_condition,
)
from support import clock, controlplane, gen, operator_process
from support.api import Api, eventually, steady
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import make

pytestmark = pytest.mark.integration


class Readiness:
    """Polls /readyz, and records how long it fails, without the time in which the machine was busy."""

    def __init__(self, operator: Operator) -> None:
        self._operator, self._over, self.longest = operator, threading.Event(), 0.0
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Readiness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        good = clock.of_an_idle_machine()
        while not self._over.wait(0.1):
            now = clock.of_an_idle_machine()
            if self._operator.get("/readyz") == "ok":
                good = now
            self.longest = max(self.longest, now - good)


def reconciles_within(operator: Operator, seconds: float) -> float:
    """Returns the number of reconciles in the next seconds."""
    before = operator.reconciles()
    time.sleep(seconds)
    return operator.reconciles() - before


def test_creates_monitoring_objects_when_their_kinds_appear(tmp_path: Path) -> None:
    with controlplane.running() as plane:
        plane.install_crds()
        kubeconfig = operator_process.install(plane)
        api = namespace(plane, "vision")
        with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator, Readiness(operator) as ready:
            make(api, annotations={f"{P}max-qps": "80"}, autoscaling={"max": 3})
            wait_for_condition(api, "MonitoringAvailable", "False", "CRDsMissing")
            wait_for_condition(api, "ThresholdLive", "Unknown", "NotMonitored")
            for kind in ("Deployment", "Service", AUTOSCALER):
                assert api.find(kind, gen.NAME), kind
            assert events(api, "CRDsMissing") == []  # no child was lost
            assert gauge(operator, api) == 80

            plane.install_monitoring()
            eventually(lambda: api.find("PodMonitor", gen.NAME), SOON, lambda: operator.log)
            wait_for_condition(api, "ThresholdLive", "Unknown", "Starting")
            serving(api, operator)
            message = wait_for_condition(api, "MonitoringAvailable", "False", "NoPrometheus")
            assert "no Prometheus resource in the namespaces of" in message
            assert "80" in literals(api)

            before = versions(api, "Deployment", "Service", AUTOSCALER)
            plane.remove_monitoring()
            wait_for_condition(api, "MonitoringAvailable", "False", "CRDsMissing")
            eventually(lambda: operator.get("/readyz") == "ok", SOON, lambda: operator.log)
            eventually(lambda: reconciles_within(operator, 4) < 5, SOON, lambda: operator.log[-3000:])
            assert versions(api, "Deployment", "Service", AUTOSCALER) == before
            api.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {f"{P}max-qps": "90"}}})
            eventually(lambda: gauge(operator, api) == 90, SOON, lambda: operator.log)

            plane.install_monitoring()
            eventually(lambda: api.find("PodMonitor", gen.NAME), SOON, lambda: operator.log)
            eventually(lambda: api.find("PrometheusRule", gen.NAME), SOON, lambda: operator.log)
            assert "90" in literals(api)
            # The operator also watches them.
            api.delete("PodMonitor", gen.NAME)
            eventually(lambda: api.find("PodMonitor", gen.NAME), SOON, lambda: operator.log)
            assert operator.process.poll() is None
            assert operator.stop() == 0
        # It takes about a second, or longer on a busy machine, but less than a watch that isn't restarted.
        assert ready.longest < 20, ready.longest
        assert "Traceback" not in operator.log, operator.log


def test_keeps_rules_while_a_new_entrypoint_is_unknown(kubeconfig: Path, own: Api, tmp_path: Path) -> None:
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own)
        serving(own, operator)
        uid = own.get("PrometheusRule", gen.NAME)["metadata"]["uid"]
        own.patch("TritonModel", gen.NAME, {"spec": {"entrypoint": "detectoin"}})
        generation = own.get("TritonModel", gen.NAME)["metadata"]["generation"]
        eventually(
            lambda: own.get("TritonModel", gen.NAME)["status"].get("observedGeneration") == generation,
            SOON, lambda: operator.log,
        )  # fmt: skip
        assert own.get("PrometheusRule", gen.NAME)["metadata"]["uid"] == uid
        # If monitoring is disabled, the rules are deleted even now.
        own.patch("TritonModel", gen.NAME, {"spec": {"monitoring": {"enabled": False}}})
        eventually(lambda: own.find("PrometheusRule", gen.NAME) is None, SOON, lambda: operator.log)


@pytest.mark.parametrize(("engine", "kind"), [("HPA", "HorizontalPodAutoscaler"), ("KEDA", "ScaledObject")])
def test_restarted_operator_applies_nothing(engine: str, kind: str, kubeconfig: Path, own: Api, tmp_path: Path) -> None:
    """The API server adds defaults to its stored objects, and the operator has forgotten what it sent."""
    behavior = {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    settings = {**QUICK, "WATCH_NAMESPACES": own.namespace, "PROMETHEUS_URL": "http://127.0.0.1:1"}
    with operator_process.running(kubeconfig, tmp_path, **settings) as operator:
        make(own, autoscaling={"engine": engine, "max": 3, "behavior": behavior}, networkPolicy={},
             monitoring={"metrics": ["my_metric"], "alertLabels": {"team": "a"}})  # fmt: skip
        serving(own, operator)
        for child in ("PodMonitor", kind):
            eventually(lambda child=child: own.find(child, gen.NAME), SOON, lambda: operator.log)
        steady(operator.reconciles, 3, SOON, lambda: operator.log)
        assert operator.stop() == 0
    with operator_process.running(kubeconfig, tmp_path, **settings) as operator:
        eventually(lambda: operator.reconciles(result="ok") >= 1, SOON, lambda: operator.log)
        assert "applied" not in operator.log
        assert operator.stop() == 0


def test_the_rules_count_the_old_entrypoint_until_a_new_server_is_ready(
    own: Api, kubeconfig: Path, tmp_path: Path
) -> None:
    """The new image has another entrypoint, and its servers don't get ready."""
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own, autoscaling={"max": 3})
        serving(own, operator, pod="old")
        rules, load = versions(own, "PrometheusRule"), ', model="detection"'
        assert load in str(own.get("PrometheusRule", gen.NAME))
        own.patch("TritonModel", gen.NAME, {"spec": {"modelImage": {"reference": "r:v2"}}})
        eventually(lambda: own.get("TritonModel", gen.NAME)["status"]["observedGeneration"] == 2, SOON)
        renamed = gen.checked(gen.report("det2", entrypoint="det2"))
        add_pod(own, renamed, gen.not_ready, gen.put("status.podIP", ""), name="new")
        wait_for_condition(own, "Progressing", "True", "RollingOut")
        eventually(lambda: own.get("TritonModel", gen.NAME)["status"].get("replicas") == 2, SOON)
        assert versions(own, "PrometheusRule") == rules
        assert own.get("TritonModel", gen.NAME)["status"]["entrypoint"] == "detection"
        wait_for_condition(own, "Ready", "True", "EntrypointAnswers")
        add_pod(own, renamed, gen.put("status.podIP", ""), name="new")
        eventually(lambda: ', model="det2"' in str(own.get("PrometheusRule", gen.NAME)), SOON, lambda: operator.log)
        assert load not in str(own.get("PrometheusRule", gen.NAME))
