"""`min: 0` with the engine HPA: with the real HorizontalPodAutoscaler controller, and where the feature is off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import controlplane, gen, operator_process
from support.api import Api, RefusedError, condition, eventually
from support.controlplane import ControlPlane
from support.fake_adapter import FakeAdapter
from support.people import make

pytestmark = pytest.mark.integration

AUTOSCALER = "HorizontalPodAutoscaler"
SOON = 60.0
REFUSED = "this cluster refuses 0 in spec.minReplicas"
LIMIT = {"tritonoperator.io/max-qps-per-replica": "20"}
CONTROLLER = ("--controllers=horizontal-pod-autoscaler-controller", "--horizontal-pod-autoscaler-sync-period=1s")


@contextlib.contextmanager
def running(gate: bool) -> Iterator[tuple[ControlPlane, Api]]:
    """Runs a control plane with this feature gate, and gives a client in a new namespace."""
    flag = f"--feature-gates=HPAScaleToZero={str(gate).lower()}"
    flags = [*CONTROLLER, flag] if gate else []
    with controlplane.running(controllers=gate, server_flags=[flag], manager_flags=flags) as plane:
        plane.install_crds()
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}})
        yield plane, plane.api.in_namespace("vision")


@contextlib.contextmanager
def denied(plane: ControlPlane) -> Iterator[None]:
    """Has an admission policy that allows no servers. It answers with 422."""
    rule = {"apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["deployments/scale"], "operations": ["UPDATE"]}
    group, name = "/apis/admissionregistration.k8s.io/v1", "no-servers"
    policies, bindings = f"{group}/validatingadmissionpolicies", f"{group}/validatingadmissionpolicybindings"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.spec.replicas == 0", "message": "no servers today"}],
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    plane.api.request("POST", policies, {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec})
    binding = {"policyName": name, "validationActions": ["Deny"]}
    plane.api.request("POST", bindings, {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding})
    eventually(lambda: refuses(plane), SOON, "the policy isn't in effect")
    yield
    plane.api.request("DELETE", f"{bindings}/{name}", {})
    plane.api.request("DELETE", f"{policies}/{name}", {})


def refuses(plane: ControlPlane) -> bool:
    """Returns whether a server is refused, without adding one."""
    scale = f"{plane.api.in_namespace('vision').path('Deployment', gen.NAME)}/scale?dryRun=All"
    try:
        plane.api.request("PATCH", scale, {"spec": {"replicas": 1}}, "application/merge-patch+json")
    except RefusedError:
        return True
    return False


def replicas(api: Api) -> int:
    return int(api.get("Deployment", gen.NAME)["spec"]["replicas"])


def active(api: Api) -> str:
    return str(condition(api.get("TritonModel", gen.NAME), "AutoscalerActive").get("message", ""))


def told(api: Api) -> object:
    return replicas(api), active(api), (api.find(AUTOSCALER, gen.NAME) or {}).get("status")


def test_one_server_stays_where_the_cluster_does_not_have_the_feature(tmp_path: Path) -> None:
    with (
        running(gate=False) as (plane, api),
        operator_process.running(operator_process.install(plane), tmp_path, RESYNC_SECONDS="3") as operator,
    ):
        make(api, annotations=LIMIT, autoscaling={"min": 0, "max": 4})
        make(api, name="other", annotations=LIMIT, autoscaling={"min": 2, "max": 4})
        for name, least in ((gen.NAME, 1), ("other", 2)):
            hpa = eventually(lambda name=name: api.find(AUTOSCALER, name), SOON, lambda: operator.log)
            assert hpa["spec"]["minReplicas"] == least
        eventually(lambda: "one server stays" in active(api), SOON, lambda: active(api))
        assert f"{REFUSED}: Kubernetes 1.37 and later have it" in active(api)
        # The operator tries it again with each listing; what there is stays.
        before, tries = api.get(AUTOSCALER, gen.NAME), operator.log.count(REFUSED)
        eventually(lambda: operator.log.count(REFUSED) > tries + 1, SOON, lambda: operator.log)
        assert api.get(AUTOSCALER, gen.NAME) == before
        assert "one server stays" in active(api)
        # The minimum is the operator's here, too.
        api.patch(AUTOSCALER, gen.NAME, {"spec": {"minReplicas": 3}})
        eventually(lambda: api.get(AUTOSCALER, gen.NAME)["spec"]["minReplicas"] == 1, SOON, lambda: operator.log)
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


@pytest.mark.skipif(not controlplane.has_controllers(), reason="kube-controller-manager isn't installed")
def test_scales_to_zero_and_starts_a_server_by_a_trace_of_load(tmp_path: Path) -> None:
    at_once = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    with (
        running(gate=True) as (plane, api),
        contextlib.closing(FakeAdapter(plane)) as adapter,
        operator_process.running(operator_process.install(plane), tmp_path) as operator,
    ):
        make(api, annotations=LIMIT, entrypoint="detection", autoscaling={"min": 0, "max": 4, "behavior": at_once})
        eventually(lambda: api.find("Deployment", gen.NAME) and replicas(api) == 0, SOON, lambda: told(api))
        assert api.get(AUTOSCALER, gen.NAME)["spec"]["minReplicas"] == 0
        eventually(lambda: "a server starts when tritonmodel:arrivals:rate1m" in active(api), SOON, lambda: told(api))
        adapter.value = "1m"
        eventually(lambda: replicas(api) == 1, SOON, lambda: told(api))
        adapter.value = "0"
        eventually(lambda: replicas(api) == 0, SOON, lambda: told(api))

        # Before Kubernetes 1.36 the autoscaler leaves zero servers if its minimum is above that. So the minimum isn't
        # written while the first servers are refused.
        with denied(plane):
            api.patch("TritonModel", gen.NAME, {"spec": {"autoscaling": {"min": 2}}})
            eventually(lambda: condition(api.get("TritonModel", gen.NAME), "Progressing")["reason"] == "ApplyRefused",
                       SOON, lambda: told(api))  # fmt: skip
            words = condition(api.get("TritonModel", gen.NAME), "Progressing")["message"]
            assert "refuses to scale the Deployment from 0" in words
            assert "no servers today" in words
            assert api.get(AUTOSCALER, gen.NAME)["spec"]["minReplicas"] == replicas(api) == 0
        eventually(lambda: replicas(api) == 2, SOON, lambda: told(api))
        eventually(lambda: api.get(AUTOSCALER, gen.NAME)["spec"]["minReplicas"] == 2, SOON, lambda: told(api))
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
