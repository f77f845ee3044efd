"""The condition Canary: who gets the canary's part of the requests, or why nobody does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from support import gen
from support.observing import seen
from triton_operator.api.status import Condition, ModelStatus, TritonModelStatus
from triton_operator.decisions.canary import canary as groups_of
from triton_operator.decisions.canary import of_canary, progress_of
from triton_operator.decisions.comparison import Both, Counts, Evidence
from triton_operator.decisions.gate import Judged
from triton_operator.pods import Pod
from triton_operator.status.canary import canary

ROUTE = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"]}
CANARY: dict[str, Any] = {"modelImage": {"reference": "r:2"}, "weight": 20}
ROUTED = Condition(type="Routed", status="True", reason="Accepted", message="m")
NOW = "2026-01-01T00:00:00.000Z"
DEPLOYMENT: dict[str, Any] = {"spec": {"replicas": 1}, "metadata": {}}


def judge(
    *pods: gen.Modifier,
    others: int = 4,
    routed: Condition | None = None,
    weight: int = 20,
    replicas: int = 1,
    models: tuple[ModelStatus, ...] = (),
    service: str = f"{gen.NAME}-canary",
    facts: Mapping[str, Any] | None = None,
    mirror: bool = False,
    arrived: tuple[float, float] = (0, 0),
    **progress: Any,
) -> Condition:
    """Returns the condition with a canary that has one pod for each of these modifiers, and this progress.

    `arrived`: how many requests the canary and the other servers have answered.
    """
    model = gen.model(canary={**CANARY, "weight": weight, "steps": [5] if weight > 5 else [], "mirror": mirror},
                      **({"route": ROUTE} if routed else {}))  # fmt: skip
    assert model.spec.canary is not None
    own = of_canary(model)
    assert own is not None
    tried = progress_of(model.spec.canary, own, None).model_copy(update={"weight": weight, "step": "2/2", **progress})
    there = tuple(Pod(gen.pod(name=f"main-{n}")) for n in range(others))
    said = {"type": "Accepted", "status": "True"}
    route = {"kind": "HTTPRoute", "metadata": {"name": gen.NAME}, "status": {"parents": [{"conditions": [said]}]}}
    routes = ({"kind": "Service", "metadata": {"name": service}}, {**route, "spec": {}})
    snapshot, *_ = seen(model, pods=there, routes=routes, facts=facts)
    (group,) = groups_of(model, TritonModelStatus(), others)
    mine = tuple(Pod(gen.pod(modifier, name=f"canary-{n}")) for n, modifier in enumerate(pods))
    deployment = {**DEPLOYMENT, "spec": {"replicas": replicas}}
    group = replace(group, deployment=deployment, pods=mine, template=gen.TEMPLATE)
    judged = Judged(tried, Evidence(0, all=Both(Counts(arrived[0]), Counts(arrived[1]))))
    found = canary(snapshot, (snapshot.main, group), ((), models), routed, judged, NOW)
    assert found is not None
    return found


def ready(_: Any) -> None:
    """Changes nothing: a pod of the generator is ready."""


def test_a_model_without_a_canary_has_no_such_condition() -> None:
    snapshot, *_ = seen(gen.model())
    assert canary(snapshot, snapshot.groups, [()], None, None, NOW) is None


def test_says_what_the_gateway_sends_it() -> None:
    said = judge(ready, gen.not_ready, routed=ROUTED, replicas=2)
    assert (said.status, said.reason) == ("True", "Weighted")
    assert said.message == (
        "20 % of the requests through the Gateway go to the canary (1 of 2 servers is ready); clients of "
        "http://detection.vision.svc:8000 get the other servers. Step 2 of 2 is undecided: it takes at least 300 s and "
        "100 requests, also at the other servers, in which it is as good as they are; then it can be promoted"
    )


def test_says_what_was_found_of_it_and_what_comes_next() -> None:
    found = "good with 5 % of the requests: 0 of 200 (0 %) of its requests failed"
    assert judge(ready, routed=ROUTED, message=found).message.split(". ", 1)[1].startswith(
        f"It was {found}. Step 2 of 2 is undecided"
    )  # fmt: skip
    good = judge(ready, routed=ROUTED, verdict="Good", message=found)
    assert (good.status, good.reason) == ("True", "Weighted")
    assert good.message.endswith(f"It is {found}. To make it the spec run kubectl triton promote")
    assert "It is good" in judge(ready, verdict="Good", message=found).message


def test_a_worse_canary_is_told_with_the_numbers_and_what_to_do() -> None:
    found = {"verdict": "Worse", "since": "2026-01-01T00:00:00Z", "message": "with 5 % of the requests: 9 of 10 failed"}
    for said in (judge(ready, routed=ROUTED, **found), judge(gen.not_ready, **found)):
        assert (said.status, said.reason) == ("False", "CanaryWorse")
        assert said.message == (
            "the canary gets no requests since 2026-01-01T00:00:00Z, because it was worse with 5 % of the requests: "
            "9 of 10 failed. To try again change spec.canary; to end it run kubectl triton abort"
        )


def test_says_which_copies_it_gets() -> None:
    said = judge(ready, routed=ROUTED, mirror=True)
    assert (said.status, said.reason) == ("True", "Mirrored")
    assert said.message.startswith(
        "copies of 20 % of the requests through the Gateway go to the canary (1 of 1 server is ready); all clients get "
        "the answers of the other servers. Step 2 of 2 is undecided"
    )
    good = judge(ready, routed=ROUTED, mirror=True, verdict="Good", message="good")
    assert good.message.endswith("run kubectl triton promote; to give it requests before, remove spec.canary.mirror")


def test_a_gateway_that_does_not_copy_is_told_with_its_words() -> None:
    why = "the Gateway refused a route that copies them: RequestMirror isn't supported"
    found = {"verdict": "Refused", "since": "2026-01-01T00:00:00Z", "message": why}
    said = judge(ready, routed=ROUTED, mirror=True, **found)
    assert (said.status, said.reason) == ("False", "MirrorRefused")
    assert said.message == (
        "the canary gets no copies of requests since 2026-01-01T00:00:00Z, because the Gateway refused a route that "
        "copies them: RequestMirror isn't supported. To try again change spec.canary or the Gateway; to give it "
        "requests remove spec.canary.mirror, or run kubectl triton abort"
    )


@pytest.mark.parametrize(("mirror", "what"), [(True, "copies"), (False, "requests")])
def test_says_when_nothing_arrives_although_it_should(mirror: bool, what: str) -> None:
    said = judge(ready, routed=ROUTED, mirror=mirror, arrived=(0, 100))
    assert (said.status, said.reason) == ("False", "NothingArrives")
    assert f"no {what} arrive at the canary" in said.message
    assert said.message.endswith("supports RequestMirror") == mirror
    for arrived in ((0, 99), (1, 10_000)):
        assert judge(ready, routed=ROUTED, mirror=mirror, arrived=arrived).status == "True"


def test_says_that_without_a_gateway_the_share_is_one_of_connections() -> None:
    said = judge(ready)
    assert (said.status, said.reason) == ("True", "ByServers")
    assert said.message.startswith("about 20 % of the connections to http://detection.vision.svc:8000 go to the canary")
    assert "it has 1 of 5 ready servers" in said.message
    assert "50 % of the connections" in judge(ready, others=1).message


@pytest.mark.parametrize("routed", [None, ROUTED])
def test_weight_0_is_told(routed: Condition | None) -> None:
    said = judge(ready, routed=routed, weight=0)
    assert (said.status, said.reason) == ("True", "NoRequests")
    assert said.message == "weight is 0, so the canary gets no requests; 1 of 1 server is ready"


def test_a_route_that_no_gateway_has_accepted_sends_nothing() -> None:
    waiting = ROUTED.model_copy(update={"status": "Unknown", "reason": "WaitingForGateway"})
    said = judge(ready, routed=waiting)
    assert (said.status, said.reason) == ("False", "RouteNotAccepted")
    assert "see the condition Routed" in said.message


def test_without_its_service_it_gets_nothing() -> None:
    said = judge(ready, routed=ROUTED, service="other")
    assert (said.status, said.reason) == ("False", "CanaryStarting")
    assert said.message == "the canary gets no requests until it has a Service; 1 of 1 server is ready"


def test_a_canary_without_the_entrypoint_is_told() -> None:
    said = judge(gen.checked(gen.report("other")), facts={"entrypoint": "detection"})
    assert (said.status, said.reason) == ("False", "CanaryLacksEntrypoint")
    assert "its repository has no model detection, which clients call" in said.message


def test_before_a_server_is_ready_it_gets_nothing() -> None:
    assert (judge().status, judge().reason) == ("False", "CanaryStarting")
    said = judge(gen.not_ready)
    assert (said.status, said.reason) == ("False", "CanaryStarting")
    assert said.message.startswith("the canary gets no requests yet: ")


def test_a_server_that_does_not_start_is_told_with_its_reason() -> None:
    said = judge(gen.waiting("fetch", "ErrImagePull", "no such tag"))
    assert (said.status, said.reason) == ("False", "CanaryNotReady")
    assert said.message.startswith("no server of the canary is ready: ")
    assert "no such tag" in said.message
    assert "group canary" not in said.message


def test_a_model_that_does_not_load_is_told_with_tritons_words() -> None:
    failed = ModelStatus(name="a", state="UNAVAILABLE", reason="no model.py", pods="0/1")
    said = judge(gen.not_ready, models=(failed,))
    assert (said.reason, said.message) == ("CanaryNotReady", "no server of the canary is ready: a: no model.py")


def test_no_servers_are_told_while_the_others_are_scaled_to_0() -> None:
    said = judge(others=0, replicas=0)
    assert (said.status, said.reason) == ("False", "ScaledToZero")
