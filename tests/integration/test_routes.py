"""Routes on a real API server. The tests write what a Gateway writes; e2e/test_gateway.py has a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import controlplane, gen, operator_process
from support.api import Api, Object, condition, eventually, steady
from support.controlplane import ControlPlane
from support.operator_process import Operator
from support.people import make
from support.thresholds import annotate
from triton_operator.render.envoy_gateway import CONTROLLER

pytestmark = pytest.mark.integration

SOON = 20.0
QUICK = {"DISCOVERY_SECONDS": "1"}
ROUTE: Object = {"gateway": {"name": "models", "namespace": "gateways"}, "hostnames": ["a.example.com"]}
HTTP, GRPC, POLICY = "HTTPRoute", "GRPCRoute", "BackendTrafficPolicy"


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """An API server without the CRDs of Gateways."""
    with controlplane.running() as plane:
        plane.install_crds()
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}})
        yield plane


@pytest.fixture
def api(plane: ControlPlane) -> Api:
    return plane.api.in_namespace("vision")


@pytest.fixture
def operator(plane: ControlPlane, tmp_path: Path) -> Iterator[Operator]:
    with operator_process.running(operator_process.install(plane), tmp_path, **QUICK) as operator:
        yield operator
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def wait_for(api: Api, status: str, reason: str) -> str:
    """Waits for this condition Routed of the newest spec, and returns its message."""

    def look() -> Object | None:
        model = api.get("TritonModel", gen.NAME)
        said = condition(model, "Routed")
        found = (said.get("status"), said.get("reason"), said.get("observedGeneration"))
        return said if found == (status, reason, model["metadata"]["generation"]) else None

    return str(eventually(look, SOON, lambda: api.get("TritonModel", gen.NAME).get("status"))["message"])


def answer(api: Api, kind: str, status: str = "True", reason: str = "Accepted") -> None:
    """Writes the status as Envoy Gateway does."""
    obj = eventually(lambda: api.find(kind, gen.NAME), SOON)
    said = {
        "type": "Accepted", "status": status, "reason": reason, "message": f"words of {reason}",
        "observedGeneration": obj["metadata"]["generation"], "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    reference = {"group": "gateway.networking.k8s.io", "kind": "Gateway", **ROUTE["gateway"]}
    field, which = ("ancestors", "ancestorRef") if kind == POLICY else ("parents", "parentRef")
    entry = {"controllerName": CONTROLLER, which: reference, "conditions": [said]}
    api.patch(kind, gen.NAME, {"status": {field: [entry]}}, "status")


def test_a_route_comes_changes_and_goes_without_a_new_server(plane: ControlPlane, api: Api, operator: Operator) -> None:
    make(api, entrypoint="detection", route=ROUTE)
    # Serving needs no Gateway, and the objects come when the cluster knows their kinds.
    assert "doesn't know HTTPRoute" in wait_for(api, "False", "CRDsMissing")
    template = eventually(lambda: api.find("Deployment", gen.NAME), SOON)["spec"]["template"]
    plane.install_routes()
    assert "check that the Gateway gateways/models exists" in wait_for(api, "Unknown", "WaitingForGateway")
    answer(api, HTTP, "False", "NotAllowedByListeners")
    assert "words of NotAllowedByListeners" in wait_for(api, "False", "NotAllowedByListeners")
    answer(api, HTTP)
    answer(api, POLICY)
    assert "routes HTTP and gRPC for a.example.com" in wait_for(api, "True", "Accepted")
    assert api.find(GRPC, gen.NAME) is None

    # A foreign change is set back.
    api.patch(HTTP, gen.NAME, {"spec": {"hostnames": ["stolen.example.com"]}})
    eventually(lambda: api.get(HTTP, gen.NAME)["spec"]["hostnames"] == ["a.example.com"], SOON, lambda: operator.log)
    api.delete(POLICY, gen.NAME)
    eventually(lambda: api.find(POLICY, gen.NAME), SOON, lambda: operator.log)

    # The answer to the old spec isn't one to the new spec.
    answer(api, HTTP)
    answer(api, POLICY)
    wait_for(api, "True", "Accepted")
    api.patch("TritonModel", gen.NAME, {"spec": {"route": {"hostnames": ["b.example.com"], "grpc": {"listener": "g"}}}})
    wait_for(api, "Unknown", "WaitingForGateway")
    eventually(lambda: api.get(HTTP, gen.NAME)["spec"]["hostnames"] == ["b.example.com"], SOON, lambda: operator.log)
    for kind in (HTTP, GRPC, POLICY):
        answer(api, kind)
    assert "HTTP for b.example.com, and gRPC for b.example.com" in wait_for(api, "True", "Accepted")

    # Nothing is written at rest.
    steady(plane.writes, 5, 30, "an end of the writes")
    api.patch("TritonModel", gen.NAME, {"spec": {"route": None}})
    for kind in (HTTP, GRPC, POLICY):
        eventually(lambda k=kind: api.find(k, gen.NAME) is None, SOON, lambda: operator.log)
    eventually(lambda: not condition(api.get("TritonModel", gen.NAME), "Routed"), SOON)
    assert api.get("Deployment", gen.NAME)["spec"]["template"] == template


def limit(api: Api) -> list[int] | None:
    """Returns the numbers of requests in the policy's rules; None without a limit."""
    rules = api.get(POLICY, gen.NAME)["spec"].get("rateLimit", {}).get("local", {}).get("rules")
    return rules and [rule["limit"]["requests"] for rule in rules]


def enforced(api: Api, status: str, reason: str) -> str:
    """Waits for this condition Enforced, and returns its message."""

    def look() -> Object | None:
        said = condition(api.get("TritonModel", gen.NAME), "Enforced")
        return said if (said.get("status"), said.get("reason")) == (status, reason) else None

    return str(eventually(look, SOON, lambda: api.get("TritonModel", gen.NAME).get("status"))["message"])


def test_a_limit_is_hot_and_gives_way_when_the_gateway_refuses_it(
    plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    plane.install_routes()
    settings = operator_process.install(plane)
    with operator_process.running(settings, tmp_path, RATE_LIMIT_SERVICE="true", **QUICK) as operator:
        make(api, entrypoint="detection", route=ROUTE)
        answer(api, HTTP)
        answer(api, POLICY)
        wait_for(api, "True", "Accepted")
        template = api.get("Deployment", gen.NAME)["spec"]["template"]
        annotate(api, gen.NAME, enforce="true")
        assert "set the annotation tritonoperator.io/max-qps" in enforced(api, "False", "NoLimit")
        annotate(api, gen.NAME, **{"max-qps": "80"})
        eventually(lambda: limit(api) == [80], SOON, lambda: operator.log)
        assert "global" in api.get(POLICY, gen.NAME)["spec"]["rateLimit"]
        enforced(api, "Unknown", "WaitingForGateway")
        answer(api, POLICY)
        assert "above 80 a second, counted over all" in enforced(api, "True", "Enforced")
        # The route is accepted all the time.
        assert condition(api.get("TritonModel", gen.NAME), "Routed")["status"] == "True"
        annotate(api, gen.NAME, **{"max-qps": "12.5"})
        eventually(lambda: limit(api) == [750, 13], SOON, lambda: operator.log)
        assert api.get("Deployment", gen.NAME)["spec"]["template"] == template

        # What can't be read changes nothing.
        annotate(api, gen.NAME, enforce="yes")
        assert "max-qps is still enforced" in enforced(api, "False", "EnforceInvalid")
        assert limit(api) == [750, 13]
        annotate(api, gen.NAME, enforce="true")

        # Envoy Gateway would answer every request with an error.
        answer(api, POLICY, "False", "Invalid")
        eventually(lambda: "global" not in api.get(POLICY, gen.NAME)["spec"]["rateLimit"], SOON, lambda: operator.log)
        answer(api, POLICY)
        assert "it has refused to count them together" in enforced(api, "True", "Enforced")
        answer(api, POLICY, "False", "Invalid")
        eventually(lambda: limit(api) is None, SOON, lambda: operator.log)
        answer(api, POLICY)
        assert "so it rejects nothing" in enforced(api, "False", "LimitRefused")
        steady(plane.writes, 5, 30, "an end of the writes")
        assert operator.stop() == 0
    # A new operator doesn't try it again by itself.
    with operator_process.running(settings, tmp_path, RATE_LIMIT_SERVICE="true", **QUICK) as operator:
        eventually(lambda: operator.reconciles(result="ok") > 0, SOON, lambda: operator.log)
        assert steady(plane.writes, 5, 30, "an end of the writes") is not None
        assert limit(api) is None
        annotate(api, gen.NAME, enforce="false")
        eventually(lambda: not condition(api.get("TritonModel", gen.NAME), "Enforced"), SOON)
        annotate(api, gen.NAME, enforce="true")
        eventually(lambda: limit(api) == [750, 13], SOON, lambda: operator.log)
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
