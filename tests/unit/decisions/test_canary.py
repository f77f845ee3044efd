"""The group of a canary, and what the Service and the routes send to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support import gen
from triton_operator.api import names
from triton_operator.api.status import CanaryStatus, TritonModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.decisions.canary import canary, of_canary, progress_of, servers_of, with_shares
from triton_operator.pods import Pod
from triton_operator.pods.group import Group
from triton_operator.render import Facts, render
from triton_operator.render.deployment import pod_template
from triton_operator.render.kept_template import spec_hash

ROUTE = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"], "grpc": {"listener": "grpc"}}
IMAGE = "registry.example.com/detection:v2"
CANARY: dict[str, Any] = {"modelImage": {"reference": IMAGE}, "weight": 20}
FACTS = Facts("tools:1", "Copy")


def group_of(model: TritonModel, servers: int = 1) -> Group:
    (group,) = canary(model, TritonModelStatus(), servers)
    return group


def shares(
    spec: dict[str, Any],
    *pods: gen.Modifier,
    ending: tuple[Pod, ...] = (),
    service: str = f"{gen.NAME}-canary",
    others: int = 1,
    entrypoint: str = "",
    routes: tuple[dict[str, Any], ...] = (),
) -> Facts:
    """Returns the facts with a canary that has one pod for each of these modifiers, beside so many other servers."""
    model = gen.model(**spec)
    weight = model.spec.canary and model.spec.canary.weight
    main = {"spec": {"replicas": others}, "metadata": {}}
    groups = [Group(main, model=model), *canary(model, TritonModelStatus(), others)]
    there = {"kind": "Service", "metadata": {"name": service}}
    mine = tuple(Pod(gen.pod(modifier, name=f"canary-{n}")) for n, modifier in enumerate(pods))
    groups = [groups[0], *(replace(group, pods=mine, template=gen.TEMPLATE) for group in groups[1:])]
    return with_shares(
        replace(FACTS, entrypoint=entrypoint), groups, ending, [gen.child("Service"), there, *routes], weight
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


def test_requests_are_copied_when_the_routes_without_copies_are_accepted() -> None:
    """So a route that a Gateway refuses anyway isn't taken for one that it refuses because of copies."""
    spec = {"route": ROUTE, "canary": {**CANARY, "mirror": True}}

    def copied(*answers: str | None) -> int | None:
        there = tuple(
            {
                "kind": kind,
                "metadata": {"name": gen.NAME, "generation": 1},
                "spec": {"rules": [{"filters": [{"type": "RequestMirror"}]} if answer is None else {}]},
                "status": {"parents": [{"conditions": [{"type": "Accepted", "status": answer}]}]},
            }
            for kind, answer in zip(("HTTPRoute", "GRPCRoute"), answers, strict=False)
        )
        return shares(spec, lambda _: None, routes=there).canary_weight

    assert copied() == copied("Unknown") == copied("False", "True") == copied("True", "False") == 0
    assert copied("True", "True") == copied("True", None) == copied(None, None) == 20


def test_a_route_sends_it_what_its_ready_servers_are_enough_for() -> None:
    spec = {"route": ROUTE, "canary": {**CANARY, "weight": 50}}
    ready = [lambda _: None] * 4
    assert [shares(spec, *ready[:n], others=8).canary_weight for n in range(5)] == [0, 12, 25, 37, 50]
    assert shares(spec, *ready[:1], others=0).canary_weight == 50


@pytest.mark.parametrize(("models", "expected"), [(("a", "b"), 20), (("b",), 0)])
def test_without_the_entrypoint_it_gets_nothing(models: tuple[str, ...], expected: int) -> None:
    report = gen.report(*models)
    checked = gen.checked(report)
    assert shares({"route": ROUTE, "canary": CANARY}, checked, entrypoint="a").canary_weight == expected
    assert shares({"canary": CANARY}, checked, entrypoint="a").serves_all == bool(expected)
    cut = gen.checked({**report, "modelCount": 9})
    assert shares({"route": ROUTE, "canary": CANARY}, cut, entrypoint="a").canary_weight == 20, "the list is cut"


def progress(before: CanaryStatus | None = None, spec: dict[str, Any] | None = None, **fields: Any) -> CanaryStatus:
    model = gen.model(route=ROUTE, canary={**CANARY, **fields}, **(spec or {}))
    own = of_canary(model)
    assert own is not None
    assert model.spec.canary is not None
    return progress_of(model.spec.canary, own, before)


def test_a_canary_begins_at_its_first_step() -> None:
    assert (progress().weight, progress().step) == (20, "1/1")
    first = progress(steps=[2, 5])
    assert (first.weight, first.step, first.verdict, first.since) == (2, "1/3", "Undecided", None)
    later = first.model_copy(update={"weight": 5, "step": "2/3"})
    assert progress(later, steps=[2, 5]) == later
    assert progress(later, steps=[2, 5], modelImage={"reference": "other:1"}).weight == 2


def test_another_plan_for_the_same_servers_keeps_the_weight_that_they_have_earned() -> None:
    there = progress(steps=[2, 5]).model_copy(update={"weight": 5, "step": "2/3"})
    assert (progress(there, steps=[1, 10]).weight, progress(there, steps=[1, 10]).step) == (10, "2/3")
    assert (progress(there, weight=3).weight, progress(there).weight) == (3, 20)
    assert progress(there, steps=[2, 5], gate={"stepSeconds": 10}).weight == 5


def test_what_its_servers_have_of_the_rest_of_the_spec_counts_too() -> None:
    there = progress(steps=[2, 5]).model_copy(update={"weight": 20, "verdict": "Good"})
    assert progress(there, {"server": {"args": ["--log-info=true"]}}, steps=[2, 5]).weight == 2
    assert progress(there, {"replicas": 9, "monitoring": {"enabled": False}}, steps=[2, 5]) == there


def test_steps_of_a_stored_spec_that_are_no_steps_are_left_out() -> None:
    weights = gen.model(canary={**CANARY, "steps": [80, 20, 5, 5]}).spec.canary
    assert weights is not None
    assert weights.weights == [5, 20]


def test_while_its_servers_are_replaced_it_gets_nothing() -> None:
    """The Service of the canary has the servers of the previous one, too, which may be worse."""
    old = gen.put("metadata.annotations", {names.ANNOTATION_TEMPLATE: "old"})
    for spec in ({"route": ROUTE, "canary": CANARY}, {"canary": CANARY}):
        assert shares(spec, lambda _: None, old).canary_weight == 0
        assert not shares(spec, lambda _: None, old).serves_all
        assert not shares(spec, old).serves_all


def test_a_worse_canary_is_tried_again_from_the_first_step_after_a_change() -> None:
    worse = progress(steps=[2, 5]).model_copy(update={"weight": 0, "verdict": "Worse"})
    assert progress(worse, steps=[2, 5]) == worse
    again = progress(worse, steps=[3, 5])
    assert (again.weight, again.verdict) == (3, "Undecided")


@pytest.mark.parametrize("was", [True, False])
def test_one_that_got_copies_of_requests_begins_again_with_requests(was: bool) -> None:
    there = progress(steps=[2, 5], mirror=was).model_copy(update={"weight": 20, "verdict": "Good"})
    assert progress(there, steps=[2, 5], mirror=was) == there
    assert progress(there, steps=[2, 10], mirror=was).weight == 20
    again = progress(there, steps=[2, 5], mirror=not was)
    assert (again.weight, again.verdict) == (2, "Undecided")


def test_the_gateway_copies_as_many_requests_as_it_should_get() -> None:
    for weight, percent in ((None, None), (0, None), (20, 20), (100, 100)):
        model = gen.model(route=ROUTE, canary={**CANARY, "mirror": True})
        facts = replace(FACTS, canary_weight=weight)
        routes = [o for o in render(model, facts) if o["kind"] in ("HTTPRoute", "GRPCRoute")]
        assert len(routes) == 2
        for rule in (rule for route in routes for rule in route["spec"]["rules"]):
            [backend] = rule["backendRefs"]
            assert (backend["name"], backend["weight"]) == (gen.NAME, 1)
            copies = [f["requestMirror"] for f in rule.get("filters", []) if f["type"] == "RequestMirror"]
            assert [c.get("percent", 100) for c in copies] == ([] if percent is None else [percent])
            assert all(c["backendRef"]["name"] == f"{gen.NAME}-canary" for c in copies)
            assert all(c["backendRef"]["port"] == backend["port"] for c in copies)


def test_its_servers_are_as_many_as_its_step_needs() -> None:
    model = gen.model(route=ROUTE, canary={**CANARY, "weight": 80, "steps": [10, 40]})
    for weight, servers in ((10, 1), (40, 4), (80, 8), (0, 1)):
        before = progress(weight=80, steps=[10, 40]).model_copy(update={"weight": weight})
        (group,) = canary(model, TritonModelStatus(canary=before), 10)
        assert group.model.spec.replicas == servers


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


def test_a_container_compares_answers_and_its_coming_replaces_only_the_canarys_servers() -> None:
    plain = {**CANARY, "mirror": True}
    templates: dict[str, list[Any]] = {"": [], names.CANARY: []}
    for fields in ({}, {"comparePercent": 1}, {"comparePercent": 90}):
        model = gen.model(route=ROUTE, canary={**plain, **fields})
        own = of_canary(model)
        assert own is not None
        for of, group in ((model, ""), (own, names.CANARY)):
            template = pod_template(of, replace(FACTS, group=group))
            containers = [container["name"] for container in template["spec"]["containers"]]
            templates[group].append((spec_hash(of, ""), template["metadata"], containers))
    assert templates[""][0] == templates[""][1] == templates[""][2]
    without, few, many = templates[names.CANARY]
    assert few == many
    assert without[0] != few[0]
    assert few[2] == [*without[2], names.CONTAINER_ANSWERS]
