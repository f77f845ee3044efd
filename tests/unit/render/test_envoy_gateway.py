"""The limit in Envoy Gateway's policy."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import gen
from support.controlplane import documents
from triton_operator.api.thresholds import LEAST_LIMIT
from triton_operator.render import Facts, render
from triton_operator.render.envoy_gateway import COUNTED_BY, most, quotas, rounded
from triton_operator.render.facts import Enforced
from unit.render.test_newer_fields import VENDORED, undeclared_in
from unit.render.test_routes import ROUTED

ROUTE = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"]}
SECONDS = {"Second": 1, "Minute": 60}


def policy(enforced: Enforced | None, **enforcement: Any) -> dict[str, Any]:
    route = {**ROUTE, **({"enforcement": enforcement} if enforcement else {})}
    facts = Facts("tools:1", "Copy", entrypoint="a", enforced=enforced)
    return next(obj for obj in render(gen.model(route=route), facts) if obj["kind"] == "BackendTrafficPolicy")


def limits(enforced: Enforced, **enforcement: Any) -> dict[str, Any]:
    spec: dict[str, Any] = policy(enforced, **enforcement)["spec"].get("rateLimit", {})
    return spec


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (80, [(80, "Second")]),
        (80.4, [(80, "Second")]),
        (1, [(1, "Second")]),
        (12.5, [(750, "Minute"), (13, "Second")]),
        (0.5, [(30, "Minute"), (1, "Second")]),
        (0.07, [(5, "Minute"), (1, "Second")]),
        (LEAST_LIMIT, [(2, "Minute"), (1, "Second")]),
        (1e-9, [(1, "Minute"), (1, "Second")]),
        (1e15, [(2**32 - 1, "Second")]),
    ],
)
def test_whole_numbers_of_requests(rate: float, expected: list[tuple[int, str]]) -> None:
    assert quotas(rate) == expected


@given(st.floats(LEAST_LIMIT, 1e9))
def test_a_rate_is_rounded_by_little_from_20_a_minute_on(rate: float) -> None:
    requests, unit = quotas(rate)[0]
    assert rounded(rate) == requests / SECONDS[unit]
    assert rate * 0.974 <= rounded(rate) <= max(rate * 1.026, rate + 1 / 60)
    assert all(1 <= n < 2**32 for n, _ in quotas(rate))
    # Whatever else limits, it doesn't refuse the rate itself.
    assert all(n / SECONDS[u] >= rate * 0.974 for n, u in quotas(rate))


@pytest.mark.parametrize(("rate", "expected"), [(80, 1), (12.5, 13 / 12.5), (1.2, 2 / 1.2), (0.5, 2), (0.07, 10 / 4.2)])
def test_the_most_in_a_minute(rate: float, expected: float) -> None:
    assert most(rate) == pytest.approx(expected)


def test_without_a_limit_there_is_none() -> None:
    assert "rateLimit" not in policy(None)["spec"]
    assert "responseOverride" not in policy(None)["spec"]
    assert "annotations" not in policy(None)["metadata"]


def test_each_proxy_counts_and_all_together_where_they_can() -> None:
    assert limits(Enforced(80)).keys() == {"local"}
    together = limits(Enforced(80, "Gateway", "Gateway"))
    assert together["global"]["rules"] == [{**rule, "shared": True} for rule in together["local"]["rules"]]


def test_remembers_what_the_gateway_has_refused() -> None:
    assert policy(Enforced(80, "Proxy", "Gateway"))["metadata"]["annotations"] == {COUNTED_BY: "Proxy"}
    nothing = policy(Enforced(80, "Nothing", "Gateway"))
    assert nothing["metadata"]["annotations"] == {COUNTED_BY: "Nothing"}
    assert "rateLimit" not in nothing["spec"]


@pytest.mark.parametrize("query", ["", "?a=b", "?/v2/models", "?/ready"])
def test_counts_inference_and_nothing_else_that_is_routed(query: str) -> None:
    [rule] = limits(Enforced(80))["local"]["rules"]
    path = rule["clientSelectors"][0]["path"]
    assert path["invert"]
    assert len(path["value"]) <= 1024
    inference = [path for verb, path in ROUTED if verb == "POST"]
    inference += [f"/inference.GRPCInferenceService/{method}" for method in ("ModelInfer", "ModelStreamInfer")]
    others = [path for verb, path in ROUTED if verb == "GET"]
    others += [
        f"/inference.GRPCInferenceService/{method}" for method in ("ModelReady", "ServerLive", "ModelStatistics")
    ]
    others += ["/grpc.health.v1.Health/Check"]
    assert len(inference) == 11
    assert not [each for each in inference if re.fullmatch(path["value"], each + query)]
    assert all(re.fullmatch(path["value"], each + query) for each in others)


def test_counts_what_no_regular_expression_matches() -> None:
    """RE2 has no match for bytes that aren't UTF-8, such as in a query; Python's `.` has none for a line break."""
    [rule] = limits(Enforced(80))["local"]["rules"]
    path = rule["clientSelectors"][0]["path"]
    assert bool(re.fullmatch(path["value"], "/v2/models/a/infer?\n")) != path["invert"]


def test_each_client_has_its_part_and_those_without_the_header_have_one_together() -> None:
    rules = limits(Enforced(80), clientHeader="x-client", clientPercent=25)["local"]["rules"]
    assert [(r["limit"]["requests"], r["limit"]["unit"]) for r in rules] == [(80, "Second"), *[(20, "Second")] * 2]
    of_clients = [rule["clientSelectors"][0].get("headers") for rule in rules]
    assert of_clients == [
        None,
        [{"name": "x-client", "type": "Distinct", "invert": False}],
        [{"name": "x-client", "type": "RegularExpression", "value": ".*", "invert": True}],
    ]


def test_the_answers_have_tritons_form_and_say_when_to_try_again() -> None:
    http, *grpc = policy(Enforced(12.5))["spec"]["responseOverride"]
    error = json.loads(http["response"]["body"]["inline"])["error"]
    assert error == f"too many requests for {gen.NAMESPACE}/{gen.NAME}: it gets at most 12.5 a second; try again later"
    # Envoy replaces what is between percent signs.
    assert "%" not in error
    assert {"name": "retry-after", "value": "1"} in http["response"]["header"]["set"]
    for answer in grpc:
        assert {"name": "grpc-status", "value": "8"} in answer["response"]["header"]["set"]
        assert {"name": "grpc-retry-pushback-ms", "value": "1000"} in answer["response"]["header"]["set"]


def test_the_crd_has_every_field() -> None:
    [crd] = documents(VENDORED / "backendtrafficpolicies.yaml")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec = policy(Enforced(12.5, "Gateway", "Gateway"), clientHeader="x-client")["spec"]
    assert undeclared_in(spec, schema, "spec") == set()
