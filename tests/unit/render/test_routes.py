"""What is routed, and what isn't."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support import gen
from support.controlplane import documents
from triton_operator.api import kinds
from triton_operator.api.kinds import Kind
from triton_operator.render import Facts, render
from triton_operator.render.facts import Capabilities
from unit.render.test_newer_fields import VENDORED, undeclared_in

GATEWAY = {"name": "models"}
ROUTE = {"gateway": GATEWAY, "hostnames": ["a.example.com"]}
GRPC = {**ROUTE, "grpc": {"listener": "grpc"}}
KINDS = ("HTTPRoute", "GRPCRoute", "BackendTrafficPolicy")
NAMES = "/v2/models/a", "/v2/models/a.b-c_d", "/v2/models/a/versions/3"
ROUTED = [
    ("GET", "/v2"), ("GET", "/v2/health/live"), ("GET", "/v2/health/ready"), ("GET", "/v2/models/stats"),
    *(("GET", name + path) for name in NAMES for path in ("", "/ready", "/config", "/stats")),
    *(("POST", name + path) for name in NAMES for path in ("/infer", "/generate", "/generate_stream")),
]  # fmt: skip
NOT_ROUTED = [
    ("POST", "/v2/repository/index"), ("POST", "/v2/repository/models/a/load"),
    ("POST", "/v2/repository/models/a/unload"), ("GET", "/v2/systemsharedmemory/status"),
    ("POST", "/v2/systemsharedmemory/region/a/register"), ("POST", "/v2/cudasharedmemory/region/a/register"),
    ("GET", "/v2/trace/setting"), ("POST", "/v2/trace/setting"), ("POST", "/v2/models/a/trace/setting"),
    ("GET", "/v2/models/a/trace/setting"), ("POST", "/v2/models/a/versions/1/trace/setting"), ("POST", "/v2/logging"),
    ("GET", "/v2/logging"), ("GET", "/metrics"), ("POST", "/v2/models/a/infer/../trace/setting"), ("DELETE", "/v2"),
    ("POST", "/v2/models/a/b/infer"), ("GET", "/"),
]  # fmt: skip
ADMINISTRATION = (
    "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload", "SystemSharedMemoryStatus",
    "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister", "CudaSharedMemoryStatus", "CudaSharedMemoryRegister",
    "CudaSharedMemoryUnregister", "TraceSetting", "LogSettings",
)  # fmt: skip


def rendered(route: dict[str, Any], *missing: Kind) -> dict[str, dict[str, Any]]:
    facts = Facts("tools:1", "Copy", entrypoint="a", cluster=Capabilities(missing=frozenset(missing)))
    return {obj["kind"]: obj["spec"] for obj in render(gen.model(route=route), facts) if obj["kind"] in KINDS}


def port_of(spec: dict[str, Any], method: str, path: str) -> int:
    """Returns the port to which the route sends the request; 0 if it doesn't."""
    for rule in spec["rules"]:
        for match in rule["matches"]:
            by = match["path"]
            fits = re.fullmatch(by["value"], path) if by["type"] == "RegularExpression" else by["value"] == path
            if fits and match.get("method", method) == method:
                port: int = rule["backendRefs"][0]["port"]
                return port
    return 0


@pytest.mark.parametrize(("method", "path"), ROUTED)
def test_routes_what_clients_of_a_model_need(method: str, path: str) -> None:
    assert port_of(rendered(ROUTE)["HTTPRoute"], method, path) == 8000
    assert port_of(rendered(GRPC)["HTTPRoute"], method, path) == 8000


@pytest.mark.parametrize(("method", "path"), NOT_ROUTED)
def test_does_not_route_the_administration(method: str, path: str) -> None:
    assert port_of(rendered(ROUTE)["HTTPRoute"], method, path) == 0


def test_routes_grpc_by_an_http_route_or_by_one_of_its_own() -> None:
    one, two = rendered(ROUTE), rendered(GRPC)
    assert set(one) == {"HTTPRoute", "BackendTrafficPolicy"}
    assert set(two) == set(KINDS)
    assert port_of(one["HTTPRoute"], "POST", "/inference.GRPCInferenceService/ModelInfer") == 8001
    assert port_of(two["HTTPRoute"], "POST", "/inference.GRPCInferenceService/ModelInfer") == 0
    rules = two["GRPCRoute"]["rules"]
    assert [rule["backendRefs"][0]["port"] for rule in rules] == [8001, 8001]
    methods = [match["method"]["method"] for rule in rules for match in rule["matches"]]
    assert "ModelStreamInfer" in methods
    for method in ADMINISTRATION:
        assert method not in methods
        assert port_of(one["HTTPRoute"], "POST", f"/inference.GRPCInferenceService/{method}") == 0


def test_the_listener_and_the_host_names_of_grpc_are_those_of_http_by_default() -> None:
    gateway = {"name": "models", "namespace": "gateways", "listener": "https"}
    both = {**ROUTE, "gateway": gateway, "grpc": {"hostnames": ["grpc.example.com"]}}
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "models", "namespace": "gateways"}
    for kind, host in (("HTTPRoute", "a.example.com"), ("GRPCRoute", "grpc.example.com")):
        assert rendered(both)[kind]["parentRefs"] == [{**parent, "sectionName": "https"}]
        assert rendered(both)[kind]["hostnames"] == [host]
    other = rendered({**both, "grpc": {"listener": "grpc"}})["GRPCRoute"]
    assert (other["parentRefs"][0]["sectionName"], other["hostnames"]) == ("grpc", ["a.example.com"])


def test_renders_nothing_that_the_cluster_does_not_know() -> None:
    assert rendered(GRPC, kinds.HTTP_ROUTE, kinds.GRPC_ROUTE) == {}
    without_grpc = rendered(GRPC, kinds.GRPC_ROUTE)
    assert [t["kind"] for t in without_grpc["BackendTrafficPolicy"]["targetRefs"]] == ["HTTPRoute"]
    assert set(rendered(GRPC, kinds.BACKEND_TRAFFIC_POLICY)) == {"HTTPRoute", "GRPCRoute"}


@pytest.mark.parametrize("age", ["old-", ""])
@pytest.mark.parametrize("kind", [kinds.HTTP_ROUTE, kinds.GRPC_ROUTE])
def test_the_gateway_api_knows_all_fields(age: str, kind: Kind) -> None:
    [crd] = documents(Path(VENDORED) / f"{age}{kind.plural}.yaml")
    schema = next(v for v in crd["spec"]["versions"] if v["name"] == kind.version)["schema"]["openAPIV3Schema"]
    unknown = undeclared_in(rendered(GRPC)[kind.kind], schema["properties"]["spec"], "spec")
    assert unknown == set()
    most = schema["properties"]["spec"]["properties"]["rules"]["items"]["properties"]["matches"]["maxItems"]
    assert all(len(rule["matches"]) <= most for one in (GRPC, ROUTE) for rule in rendered(one)["HTTPRoute"]["rules"])
    assert all(len(rule["matches"]) <= most for rule in rendered(GRPC)[kind.kind]["rules"])
    canary = {"modelImage": {"reference": "r:2"}, "mirror": True, "comparePercent": 1}
    model, facts = gen.model(route=GRPC, canary=canary), Facts("tools:1", "Copy", canary_weight=20)
    [copying] = [obj["spec"] for obj in render(model, facts) if obj["kind"] == kind.kind]
    unknown = undeclared_in(copying, schema["properties"]["spec"], "spec")
    assert unknown == ({"spec.rules.filters.requestMirror.percent"} if age else set())
