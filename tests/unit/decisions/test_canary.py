"""The group of a canary, and what the Service and the routes send to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support import gen
from triton_operator.api.status import TritonModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.decisions.canary import canary, servers_of, with_shares
from triton_operator.pods import Pod
from triton_operator.pods.group import Group
from triton_operator.render import Facts, render

ROUTE = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"], "grpc": {"listener": "grpc"}}
IMAGE = "registry.example.com/detection:v2"
CANARY: dict[str, Any] = {"modelImage": {"reference": IMAGE}, "weight": 20}
FACTS = Facts("tools:1", "Copy")


def group_of(model: TritonModel, servers: int = 1) -> Group:
    (group,) = canary(model, TritonModelStatus(), servers)
    return group


def shares(
    spec: dict[str, Any], *pods: gen.Modifier, ending: tuple[Pod, ...] = (), service: str = f"{gen.NAME}-canary"
) -> Facts:
    """Returns the facts with a canary that has one pod for each of these modifiers."""
    model = gen.model(**spec)
    groups = [Group(model=model), *canary(model, TritonModelStatus(), 1)]
    there = {"kind": "Service", "metadata": {"name": service}}
    mine = tuple(Pod(gen.pod(modifier, name=f"canary-{n}")) for n, modifier in enumerate(pods))
    return with_shares(
        FACTS, [groups[0], *(replace(group, pods=mine) for group in groups[1:])], ending, [gen.child("Service"), there]
    )


def test_a_model_without_a_canary_has_no_further_group() -> None:
    assert not list(canary(gen.model(), TritonModelStatus(), 1))


def test_only_what_the_canary_sets_differs() -> None:
    spec: dict[str, Any] = {
        "modelImage": {"reference": "r:1", "path": "/m", "pullSecrets": [{"name": "s"}]},
        "server": {"image": "s:1", "args": ["--log-info=true"]},
        "models": [{"name": "a", "config": {"max_batch_size": 2}}],
    }
    main = gen.model(**spec)
    only = group_of(gen.model(**spec, canary=CANARY)).model.spec
    assert (only.model_image.reference, only.model_image.path, only.server, only.models) == (
        IMAGE, "/m", main.spec.server, main.spec.models,
    )  # fmt: skip
    assert only.model_image.pull_secrets == main.spec.model_image.pull_secrets
    other = {"server": {"image": "s:2"}, "models": [{"name": "b", "config": {}}]}
    both = group_of(gen.model(**spec, canary=other)).model.spec
    assert (both.model_image, both.server.image, both.server.args) == (
        main.spec.model_image,
        "s:2",
        ["--log-info=true"],
    )
    assert [item.name for item in both.models] == ["b"]
    assert not group_of(gen.model(**spec, canary={"models": []})).model.spec.models


def test_an_autoscaler_scales_the_other_servers_only() -> None:
    spec = group_of(gen.model(autoscaling={"max": 9}, canary=CANARY), 8).model.spec
    assert (spec.autoscaling, spec.replicas) == (None, 2)


@pytest.mark.parametrize(
    ("others", "weight", "by_route", "by_servers"),
    [(1, 10, 1, 1), (1, 50, 1, 1), (4, 20, 1, 1), (9, 10, 1, 1), (20, 10, 2, 2), (10, 33, 4, 5), (6, 25, 2, 2),
     (4, 0, 1, 1), (4, 50, 2, 4), (0, 10, 0, 0)],
)  # fmt: skip
def test_it_has_as_many_servers_as_its_share_needs(others: int, weight: int, by_route: int, by_servers: int) -> None:
    assert servers_of(others, weight, by_route=True) == by_route
    assert servers_of(others, weight, by_route=False) == by_servers


def test_all_requests_need_as_many_servers_as_there_are() -> None:
    assert servers_of(7, 100, by_route=True) == 7
    assert servers_of(7, 100, by_route=False) == 7, "a stored spec that the rules would refuse now"


def test_a_route_sends_it_nothing_before_a_server_is_ready() -> None:
    spec = {"route": ROUTE, "canary": CANARY}
    assert shares(spec).canary_weight == 0
    assert shares(spec, gen.not_ready).canary_weight == 0
    assert shares(spec, gen.deleting).canary_weight == 0
    assert shares(spec, gen.not_ready, lambda _: None).canary_weight == 20
    assert shares(spec, lambda _: None, service="other").canary_weight == 0, "its Service is refused"
    assert shares({"route": ROUTE}).canary_weight is None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, True),
        ({"canary": CANARY}, True),
        ({"canary": {**CANARY, "weight": 0}}, False),
        ({"canary": CANARY, "route": ROUTE}, False),
        ({"route": ROUTE}, True),
    ],
)
def test_the_service_has_its_servers_only_without_a_route(spec: dict[str, Any], expected: bool) -> None:
    assert shares(spec, lambda _: None).serves_all == expected


def test_an_ended_canary_gets_no_requests_until_its_servers_are_gone() -> None:
    assert not shares({}, ending=(Pod(gen.pod()),)).serves_all
    assert shares({}, ending=(Pod(gen.pod(gen.deleting)),)).serves_all


@pytest.mark.parametrize(("weight", "expected"), [(None, [1]), (0, [100, 0]), (20, [80, 20]), (100, [0, 100])])
def test_the_weights_of_both_routes_add_up(weight: int | None, expected: list[int]) -> None:
    facts = replace(FACTS, canary_weight=weight)
    routes = [o for o in render(gen.model(route=ROUTE), facts) if o["kind"] in ("HTTPRoute", "GRPCRoute")]
    assert len(routes) == 2
    for rule in (rule for route in routes for rule in route["spec"]["rules"]):
        names = [backend["name"] for backend in rule["backendRefs"]]
        assert names == [gen.NAME, f"{gen.NAME}-canary"][: len(expected)]
        assert [backend["weight"] for backend in rule["backendRefs"]] == expected
