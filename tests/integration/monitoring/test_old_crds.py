"""CRDs of prometheus-operator 0.65 and KEDA 2.13: what they don't know is left out, and the rest is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.monitoring.steps import QUICK, SOON, namespace, serving, wait_for_condition
from support import controlplane, gen, operator_process
from support.api import Api, condition, eventually
from support.controlplane import ControlPlane
from support.people import make

pytestmark = pytest.mark.integration

SETTINGS = {**QUICK, "PROMETHEUS_URL": "http://127.0.0.1:1"}
TO_ZERO = {"engine": "KEDA", "min": 0, "max": 4}
KINDS = ("PodMonitor", "PrometheusRule", "ScaledObject")
NEWER = ("bodySizeLimit", "keep_firing_for", "fallback", "initialCooldownPeriod")
MONITORING = (
    "the PodMonitor is without spec.bodySizeLimit, because this cluster's CRD doesn't know spec.bodySizeLimit: "
    "prometheus-operator 0.73 and later have it",
    "the PrometheusRule is without spec.groups.rules.keep_firing_for, because this cluster's CRD doesn't know "
    "spec.groups.rules.keep_firing_for: prometheus-operator 0.66 and later have it",
)
SCALING = (
    "the ScaledObject is without spec.fallback, because this cluster's CRD doesn't know spec.fallback.behavior: "
    "KEDA 2.17 and later have it",
    "the ScaledObject is without spec.initialCooldownPeriod, because this cluster's CRD doesn't know "
    "spec.initialCooldownPeriod: KEDA 2.14 and later have it",
)


@pytest.fixture
def old() -> Iterator[ControlPlane]:
    """An API server with the old CRDs."""
    with controlplane.running() as plane:
        plane.install_crds()
        plane.install_old_crds()
        yield plane


def message(api: Api, kind: str, name: str = gen.NAME) -> str:
    return str(condition(api.get("TritonModel", name), kind).get("message", ""))


def fields(api: Api) -> set[str]:
    """Returns which of the newer fields are in the objects."""
    specs = str([obj["spec"] for kind in KINDS for obj in api.list(kind)])
    return {field for field in NEWER if f"'{field}'" in specs}


def without(crd: Any, name: str) -> Any:
    """Returns the schema without the properties of this name."""
    if isinstance(crd, list):
        return [without(item, name) for item in crd]
    if not isinstance(crd, dict):
        return crd
    return {key: without(value, name) for key, value in crd.items() if key != name}


def test_leaves_out_what_the_crds_do_not_know_until_newer_ones_are_installed(old: ControlPlane, tmp_path: Path) -> None:
    kubeconfig, api = operator_process.install(old), namespace(old, "vision")
    with operator_process.running(kubeconfig, tmp_path, **SETTINGS) as operator:
        make(api, annotations={"tritonoperator.io/max-qps-per-replica": "20"}, autoscaling=TO_ZERO)
        serving(api, operator)
        for kind in KINDS:
            eventually(lambda kind=kind: api.find(kind, gen.NAME), SOON, lambda: operator.log)
        assert fields(api) == set()
        for kind, notes in (("MonitoringAvailable", MONITORING), ("AutoscalerActive", SCALING)):
            for note in notes:
                eventually(lambda kind=kind, note=note: note in message(api, kind), SOON, lambda: operator.log)
        assert "labels" not in message(api, "MonitoringAvailable")
        old.wait_until_quiet()

        make(api, name="other", autoscaling=TO_ZERO)
        serving(api, operator, "other", pod="other-1")
        eventually(lambda: api.find("ScaledObject", "other"), SOON, lambda: operator.log)
        eventually(lambda: MONITORING[0] in message(api, "MonitoringAvailable", "other"), SOON, lambda: operator.log)
        old.wait_until_quiet()
        assert operator.stop() == 0

    with operator_process.running(kubeconfig, tmp_path, **SETTINGS, RESYNC_SECONDS="3") as operator:
        eventually(lambda: "CRD of PodMonitor doesn't know spec.bodySizeLimit" in operator.log, SOON)
        assert MONITORING[0] in message(api, "MonitoringAvailable")
        old.install_monitoring()
        old.install_keda()
        eventually(lambda: fields(api) == set(NEWER), 60, lambda: f"{fields(api)}\n{operator.log}")
        for kind in ("MonitoringAvailable", "AutoscalerActive"):
            eventually(lambda kind=kind: "is without" not in message(api, kind), SOON, lambda: operator.log)
        assert operator.stop() == 0


def test_says_which_version_knows_a_field_that_the_object_needs(old: ControlPlane, tmp_path: Path) -> None:
    crd = old.api.get("CustomResourceDefinition", "podmonitors.monitoring.coreos.com")
    content = {key: crd[key] for key in ("apiVersion", "kind", "spec")} | {
        "metadata": {"name": crd["metadata"]["name"]}
    }
    old.api.apply(without(content, "followRedirects"))
    kubeconfig, api = operator_process.install(old), namespace(old, "vision")
    behavior = {"scaleDown": {"tolerance": "0.05"}}
    with operator_process.running(kubeconfig, tmp_path, **SETTINGS) as operator:
        make(api, autoscaling={**TO_ZERO, "behavior": behavior})
        serving(api, operator)
        refusal = wait_for_condition(api, "MonitoringAvailable", "False", "ApplyRefused")
        assert "followRedirects: field not declared in schema" in refusal
        assert "this cluster's CRD of PodMonitor doesn't know this field: prometheus-operator 0.55 and later" in refusal
        assert "labels" not in refusal
        refusal = wait_for_condition(api, "AutoscalerActive", "False", "ApplyRefused")
        assert "KEDA 2.18 and later have it; check spec.autoscaling.behavior" in refusal
        assert api.find("PodMonitor", gen.NAME) is None
        assert api.find("ScaledObject", gen.NAME) is None
        assert operator.stop() == 0
