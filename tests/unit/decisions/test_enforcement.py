"""Above which rate the Gateway rejects requests, and who counts them."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from triton_operator.api.enforcement import ANNOTATION, problem, wanted
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.decisions.enforcement import with_enforced
from triton_operator.render import Facts
from triton_operator.render.envoy_gateway import COUNTED_BY
from triton_operator.render.facts import Enforced, RenderSettings

ROUTE = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"]}
TRUE = {ANNOTATION: "true"}
LIMITED = {"rateLimit": {"local": {}}}


def live(
    status: str = "",
    counted_by: str = "",
    spec: dict[str, Any] | None = None,
    seen: int = 2,
    reason: str = "Invalid",
    gateway: str = "models",
) -> dict[str, Any]:
    """Returns a policy with a limit, and the Gateway's answer to it."""
    said = [{"type": "Accepted", "status": status, "reason": reason, "observedGeneration": seen}] if status else []
    ref = {"name": gateway, "namespace": gen.NAMESPACE}
    return {
        "metadata": {"generation": 2, "annotations": {COUNTED_BY: counted_by} if counted_by else {}},
        "spec": LIMITED if spec is None else spec,
        "status": {"ancestors": [{"ancestorRef": ref, "conditions": said}]},
    }


def decided(
    policy: dict[str, Any] | None = None,
    annotations: dict[str, str] = TRUE,
    route: dict[str, Any] | None = ROUTE,
    limits: dict[str, float] | None = None,
    *,
    service: bool = False,
) -> Enforced | None:
    thresholds = {ThresholdKey(kind): value for kind, value in (limits or {"max-qps": 80.0}).items()}
    facts = Facts("tools:1", thresholds=thresholds, settings=RenderSettings(rate_limit_service=service))
    model = gen.model(gen.put("metadata.annotations", annotations), **({"route": route} if route else {}))
    return with_enforced(model, facts, policy).enforced


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [({}, False), (TRUE, True), ({ANNOTATION: "false"}, False), ({ANNOTATION: "True"}, None), ({ANNOTATION: ""}, None)],
)
def test_the_annotation_is_true_or_false(annotations: dict[str, str], expected: bool | None) -> None:
    assert wanted(annotations) is expected
    assert bool(problem(annotations)) == (expected is None)


def test_rejects_nothing_without_annotation_route_or_limit() -> None:
    assert decided(annotations={}) is None
    assert decided(annotations={ANNOTATION: "false"}) is None
    assert decided(route=None) is None
    assert decided(limits={"max-qps": float("inf")}) is None


def test_the_limit_is_a_rate_of_requests() -> None:
    assert decided() == Enforced(80.0)
    assert decided(limits={"max-qps": 80.0, "ensemble-coefficient": 4.0}) == Enforced(20.0)


def test_an_annotation_that_cant_be_read_changes_nothing() -> None:
    unclear = {ANNOTATION: "yes"}
    assert decided(None, unclear) is None
    assert decided(live(spec={}), unclear) is None
    assert decided(live("True"), unclear) == Enforced(80.0, is_live=True)
    assert decided(live("True", "Nothing", spec={}), unclear) == Enforced(80.0, "Nothing")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, "Gateway"),
        (live(), "Gateway"),
        (live("True"), "Gateway"),
        # What it has refused is replaced by something simpler, which stays.
        (live("False"), "Proxy"),
        (live("True", "Proxy"), "Proxy"),
        (live("False", "Proxy"), "Nothing"),
        (live("True", "Nothing", spec={}), "Nothing"),
        # The limit isn't why it is refused, so it comes back after that.
        (live("False", "Nothing", spec={}), "Later"),
        (live("False", "Later", spec={}), "Later"),
        (live("", "Later", spec={}), "Later"),
        (live("True", "Later", spec={}), "Gateway"),
        (live("False", spec={}), "Gateway"),
        # Another policy has the effect: that isn't an error.
        (live("False", reason="Conflicted"), "Gateway"),
        (live("False", gateway="former"), "Gateway"),
        # An answer to the previous spec.
        (live("False", "Proxy", seen=1), "Proxy"),
        # Another client has written this.
        (live("True", "Moon"), "Gateway"),
    ],
)
def test_an_unlimited_answer_is_better_than_none(policy: dict[str, Any] | None, expected: str) -> None:
    found = decided(policy, service=True)
    assert found is not None
    assert (found.counted_by, found.wanted) == (expected, "Gateway")


def test_without_a_service_each_proxy_counts() -> None:
    found = decided(live("False"))
    assert found is not None
    assert (found.counted_by, found.wanted) == ("Nothing", "Proxy")
    # The setting has changed since.
    found = decided(live("True", "Gateway"))
    assert found is not None
    assert found.counted_by == "Proxy"


def test_who_wants_it_closed_keeps_what_the_gateway_refuses() -> None:
    found = decided(live("False"), route={**ROUTE, "enforcement": {"failClosed": True}}, service=True)
    assert found is not None
    assert found.counted_by == "Gateway"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, False), (live(), False), (live("False"), False), (live("True"), True), (live("True", seen=1), True),
        (live("True", gateway="former"), False), (live("True", "Nothing", spec={}), False),
    ],
)  # fmt: skip
def test_alerts_depend_on_an_accepted_limit(policy: dict[str, Any] | None, expected: bool) -> None:
    found = decided(policy)
    assert found is not None
    assert found.is_live == expected


def test_every_listener_must_accept_it() -> None:
    """Envoy Gateway refuses it for each listener, and accepts it for the Gateway."""
    policy, refused = live("True"), live("False")
    policy["status"]["ancestors"] += refused["status"]["ancestors"]
    found = decided(policy, route={**ROUTE, "enforcement": {"failClosed": True}})
    assert found is not None
    assert not found.is_live
