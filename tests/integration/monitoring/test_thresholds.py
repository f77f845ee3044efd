"""An accepted threshold takes effect in every place that uses it. An invalid one is reported."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from integration.monitoring.steps import (
    QUICK,
    SOON,
    P,
    difference,
    events,
    gauge,
    in_status,
    literals,
    serving,
    versions,
    wait_for_condition,
)
from support import clock, gen, operator_process
from support.api import Api, Object, eventually
from support.controlplane import ControlPlane
from support.operator_process import Operator
from support.people import make
from support.thresholds import annotate

pytestmark = pytest.mark.integration

MAX_SECONDS = 30
"""The documented maximum time until a threshold is effective."""


def column(plane: ControlPlane, name: str) -> str:
    """Returns the JSON path of a printer column."""
    crd = plane.api.get("CustomResourceDefinition", "tritonmodels.tritonoperator.io")
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    return str(next(c["jsonPath"] for c in columns if c["name"] == name))


def log_entries(operator: Operator) -> list[Object]:
    return [json.loads(line) for line in operator.log.splitlines() if line.startswith("{")]


def test_threshold_takes_effect_with_few_writes_and_no_restart(
    plane: ControlPlane, kubeconfig: Path, own: Api, tmp_path: Path
) -> None:
    """No Prometheus runs: the test checks only what the operator itself does."""
    with (
        operator_process.running(kubeconfig, tmp_path, **QUICK) as leader,
        operator_process.running(kubeconfig, tmp_path, lead=False, **QUICK) as standby,
    ):
        make(own)
        serving(own, leader)
        wait_for_condition(own, "ThresholdLive", "Unknown", "NoPrometheus")
        both = (leader, standby)
        eventually(lambda: [gauge(o, own) for o in both] == [math.inf] * 2, SOON)
        plane.wait_until_quiet()
        before, objects = plane.writes(), versions(own, "Deployment", "PodMonitor", "Service")
        set_at = clock.of_an_idle_machine()
        annotate(own, max_qps="80")  # the short form of the annotation
        eventually(lambda: [gauge(o, own) for o in both] == [80] * 2, SOON)
        assert clock.of_an_idle_machine() - set_at < MAX_SECONDS
        eventually(lambda: in_status(own) == {"max-qps": "80"}, SOON)
        plane.wait_until_quiet()
        # The write to tritonmodels is the test's own patch.
        assert difference(before, plane.writes()) == {
            "tritonmodels": 1, "tritonmodels/status": 1, "prometheusrules": 1, "events": 1
        }  # fmt: skip
        assert versions(own, "Deployment", "PodMonitor", "Service") == objects
        assert "80" in literals(own)
        status = own.get("TritonModel", gen.NAME)["status"]
        (threshold,) = status["thresholds"]
        assert (threshold["source"], status["maxQps"]) == ("max_qps", "80")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", threshold["since"])
        assert column(plane, "QPS limit") == ".status.maxQps"
        eventually(lambda: events(own, "ThresholdChanged") == ["max-qps: none → 80 (annotation max_qps)"], SOON)
        assert leader.metric_sum("triton_operator_threshold_changes_total", kind="max-qps", result="accepted") == 1
        line = next(entry for entry in log_entries(leader) if entry.get("threshold") == "max-qps")
        assert (line["old"], line["new"], line["key"]) == ("", "80", f"{own.namespace}/{gen.NAME}")

        # Adds a threshold for a version and one per replica. Then replaces the short annotation by the long one.
        annotate(own, max_qps_per_replica="20", **{"max_qps.v2": "30"})
        eventually(lambda: gauge(standby, own, version="2") == 30, SOON)
        eventually(lambda: gauge(standby, own, "max-qps-per-replica") == 20, SOON)
        own.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {"max_qps": None, f"{P}max-qps": "80"}}})
        eventually(lambda: own.get("TritonModel", gen.NAME)["status"]["thresholds"][0]["source"] == f"{P}max-qps", SOON)
        eventually(lambda: len(events(own, "ThresholdChanged")) == 3, SOON)
        own.patch("TritonModel", gen.NAME, {"metadata": {"annotations": dict.fromkeys(
            (f"{P}max-qps", f"{P}max-qps.v2", f"{P}max-qps-per-replica")
        )}})  # fmt: skip
        eventually(lambda: [gauge(o, own) for o in both] == [math.inf] * 2, SOON)
        assert gauge(standby, own, version="2") is None
        eventually(lambda: in_status(own) == {}, SOON)
        assert not own.get("TritonModel", gen.NAME)["status"].get("maxQps")
        eventually(lambda: len(events(own, "ThresholdChanged")) == 6, SOON)
        assert versions(own, "Deployment", "PodMonitor", "Service") == objects
        assert own.get("Deployment", gen.NAME)["metadata"]["generation"] == 1

        # Both replicas stop exposing the thresholds of a deleted TritonModel.
        own.delete("TritonModel", gen.NAME)
        eventually(lambda: [gauge(o, own) for o in both] == [None] * 2, SOON)
        assert (leader.stop(), standby.stop()) == (0, 0)
        assert "Traceback" not in leader.log + standby.log


def test_invalid_value_is_reported_and_the_accepted_value_survives_a_restart(
    plane: ControlPlane, kubeconfig: Path, own: Api, tmp_path: Path
) -> None:
    annotation = f"{P}max-qps"
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own, annotations={annotation: "80"})
        serving(own, operator)
        eventually(lambda: in_status(own) == {"max-qps": "80"}, SOON)
        plane.wait_until_quiet()
        rule = versions(own, "PrometheusRule")
        own.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {annotation: "8O"}}})
        message = wait_for_condition(own, "ThresholdLive", "False", "ThresholdInvalid")
        assert message == (
            f"{annotation}='8O' is not a plain number such as 80 or 12.5 (without a unit); "
            "the last accepted value stays in effect"
        )
        eventually(lambda: events(own, "ThresholdInvalid"), SOON)
        assert operator.metric_sum("triton_operator_threshold_changes_total", kind="max-qps", result="refused") == 1
        labels = {"namespace": own.namespace, "tritonmodel": gen.NAME}
        assert operator.metric_sum("triton_operator_thresholds_invalid", **labels) == 1
        assert any(entry.get("threshold") == annotation for entry in log_entries(operator))
        plane.wait_until_quiet()
        assert (gauge(operator, own), in_status(own)) == (80, {"max-qps": "80"})
        assert versions(own, "PrometheusRule") == rule
        assert operator.stop() == 0
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        plane.wait_until_quiet()
        assert (gauge(operator, own), in_status(own)) == (80, {"max-qps": "80"})
        assert versions(own, "PrometheusRule") == rule, operator.log
        assert operator.metric_sum("triton_operator_thresholds_invalid", **labels) == 1
        assert len(events(own, "ThresholdInvalid")) == 1
        assert operator.metric_sum("triton_operator_threshold_changes_total", kind="max-qps", result="refused") == 0
        # Two annotations that differ are invalid too. A valid value resolves the condition.
        annotate(own, max_qps="70")
        own.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {annotation: "60"}}})
        eventually(lambda: "differ" in wait_for_condition(own, "ThresholdLive", "False", "ThresholdInvalid"), SOON)
        assert gauge(operator, own) == 80
        annotate(own, max_qps=None)
        eventually(lambda: gauge(operator, own) == 60, SOON)
        wait_for_condition(own, "ThresholdLive", "Unknown", "NoPrometheus")
        assert operator.metric_sum("triton_operator_thresholds_invalid", **labels) == 0
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
