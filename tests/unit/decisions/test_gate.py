"""How a canary comes from step to step, and when it gets no requests any more."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import gen
from support.observing import seen
from support.reconciling import FACTS
from triton_operator.api import names
from triton_operator.api.servers import Comparison, Sample
from triton_operator.api.status import AnswersStatus, CanaryStatus, TritonModelStatus
from triton_operator.decisions.canary import canary, is_judged
from triton_operator.decisions.comparison import corrected
from triton_operator.decisions.gate import Judged, _failures_per_request, judge
from triton_operator.pods import Pod
from triton_operator.pods.group import Group
from triton_operator.render import routes
from triton_operator.render.facts import Capabilities

ROUTE = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"]}
CANARY: dict[str, Any] = {
    "modelImage": {"reference": "r:2"}, "steps": [5, 20], "weight": 50,
    "gate": {"stepSeconds": 60, "minRequests": 50},
}  # fmt: skip
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MAIN: dict[str, Any] = {"spec": {"replicas": 4}, "metadata": {}}
OWN, OTHER = "canary-0", "main-0"


class Scene:
    """A canary beside four servers that answer 40 requests a second, of which it gets 4.

    - `fails`, `seconds`: the share of its requests that fail, and how long they take; those of the others take 0.1 s.
    - `servers`: how many of its servers are ready. `is_old`: whether they are of the previous canary.
    - `rate`: its requests per second. `canceled`: how many requests to the others are canceled, per answered one.
    """

    def __init__(self, **spec: Any) -> None:
        self.spec: dict[str, Any] = {"route": ROUTE, "canary": CANARY, **spec}
        self.fails, self.seconds, self.rate, self.canceled = 0.0, 0.1, 4.0, 0.0
        self.servers, self.restarts, self.decoupled, self.is_old = 2, 0, False, False
        self.now, self.before, self.known = 0.0, TritonModelStatus(), None
        self._counts = {OWN: [0.0, 0.0, 0.0], OTHER: [0.0, 0.0, 0.0]}
        self.known: Judged | None = None
        self.routes: tuple[dict[str, Any], ...] = ()
        self.cluster = Capabilities()
        self.comparisons: dict[str, Comparison] = {}

    def __call__(self, seconds: float = 2) -> CanaryStatus:
        """Lets so much time pass, and returns the progress."""
        for _ in range(int(seconds // 2)):
            self.now += 2
            for pod, rate, fails, took in ((OWN, self.rate, self.fails, self.seconds), (OTHER, 36.0, 0.0, 0.1)):
                counts, requests = self._counts[pod], 2 * rate
                counts[0] += requests
                counts[1] += requests * fails
                counts[2] += requests * (1 - fails) * took
            self.known = self._judge()
        assert self.known is not None
        return self.known.progress

    def _judge(self) -> Judged | None:
        model = gen.model(**self.spec)
        main = tuple(Pod(gen.pod(name=f"main-{n}")) for n in range(4))
        service = {"kind": "Service", "metadata": {"name": f"{gen.NAME}-canary"}}
        histories = {
            pod: (Sample(self.now, requests + gone, 0, failed=failed + gone, seconds=took, canceled=gone),)
            for pod, (requests, failed, took) in self._counts.items()
            for gone in [self.canceled * requests if pod == OTHER else 0.0]
        }
        snapshot, *_ = seen(
            model, pods=main, routes=(service, *self.routes), deployment=MAIN, before=self.before, histories=histories,
            time=BEGIN + timedelta(seconds=self.now), comparisons=self.comparisons,
            facts={"entrypoint": "a", "decoupled": ("a",) if self.decoupled else (), "cluster": self.cluster},
        )  # fmt: skip
        restarted = gen.put("status.containerStatuses.0.restartCount", self.restarts)
        old = gen.put("metadata.annotations", {names.ANNOTATION_TEMPLATE: "old"})
        pods = tuple(
            Pod(gen.pod(restarted, *([old] if self.is_old else []), name=f"canary-{n}")) for n in range(self.servers)
        )
        own = [replace(group, pods=pods, template=gen.TEMPLATE) for group in canary(model, self.before, 4)]
        groups = [snapshot.main, *own]
        return judge(snapshot, groups, self.known, self.now)

    def new_leader(self) -> None:
        """Forgets what isn't in the status."""
        assert self.known is not None
        self.before, self.known = TritonModelStatus(canary=self.known.progress), None

    def change(self, **fields: Any) -> None:
        self.spec["canary"] = {**self.spec["canary"], **fields}


def test_a_good_canary_comes_to_its_weight_step_by_step() -> None:
    scene = Scene()
    weights, states = [], []
    for _ in range(200):
        progress = scene()
        if [progress.weight, progress.verdict] not in states:
            states.append([progress.weight, progress.verdict])
            weights.append(scene.now)
    assert states == [[5, "Undecided"], [20, "Undecided"], [50, "Undecided"], [50, "Good"]]
    assert all(60 <= later - earlier <= 70 for earlier, later in itertools.pairwise(weights))
    assert progress.step == "3/3"
    assert progress.message.startswith("good with 50 % of the requests: 0 of 2")
    assert progress.message.endswith("a request takes 100 ms on average, and 100 ms at the other servers")
    assert scene(1000) == progress, "at rest nothing changes"


@pytest.mark.parametrize("spec", [{"route": None}, {"route": ROUTE}])
def test_one_that_fails_gets_no_requests(spec: dict[str, Any]) -> None:
    scene = Scene(**spec)
    scene(70)
    scene.fails = 0.2
    progress = scene(30)
    assert (progress.verdict, progress.weight) == ("Worse", 0)
    assert progress.message.startswith("with 20 % of the requests: ")
    assert "of its requests failed, and 0 of" in progress.message
    assert scene(600) == progress
    scene.new_leader()
    assert scene(600) == progress
    assert not is_judged(gen.model(**scene.spec), scene.before)
    scene.fails = 0.0
    scene.change(modelImage={"reference": "r:3"})
    assert (scene().verdict, scene().weight) == ("Undecided", 5)


def test_one_that_is_slower_gets_no_requests() -> None:
    scene = Scene()
    scene.seconds = 0.15
    progress = scene(100)
    assert (progress.verdict, progress.weight) == ("Worse", 0)
    assert progress.message == (
        "with 5 % of the requests: slower; a request takes 150 ms on average, and 100 ms at the other servers"
    )


@pytest.mark.parametrize(("decoupled", "allowed"), [(True, 25), (False, 60)])
def test_times_do_not_count_where_they_say_nothing_or_may_be_longer(decoupled: bool, allowed: int) -> None:
    scene = Scene()
    scene.change(gate={**CANARY["gate"], "maxSlowdownPercent": allowed})
    scene.seconds, scene.decoupled = 0.15, decoupled
    assert scene(300).verdict == "Good"


def test_too_few_requests_are_undecided() -> None:
    scene = Scene()
    scene.rate = 0.1
    assert (scene(480).weight, scene().verdict) == (5, "Undecided")
    assert scene(120).weight == 20, "50 requests after 500 s"
    scene.rate = 0
    assert scene(3600).weight == 20


def test_the_time_of_a_step_begins_when_it_gets_its_weight() -> None:
    scene = Scene()
    scene.servers = 0
    assert scene(600).since is None
    scene.servers = 1
    assert scene(40).weight == 5
    assert scene(30).weight == 20
    # 50 % need two servers.
    assert scene(70).weight == 50
    assert scene(600).since is None
    scene.servers = 2
    assert scene(70).verdict == "Good"


def test_a_new_leader_stays_at_the_step_and_counts_again() -> None:
    scene = Scene()
    since = scene(100).since
    scene.new_leader()
    assert (scene().weight, scene().since) == (20, since)
    assert scene(30).weight == 50, "its time has passed, and there are 50 requests"


def test_servers_that_end_again_and_again_get_no_requests() -> None:
    scene = Scene()
    scene(20)
    scene.restarts = 2
    assert scene(4).verdict == "Undecided", "as when the nodes of several servers end"
    scene.restarts = 3
    progress = scene()
    assert (progress.verdict, progress.message) == (
        "Worse",
        "with 5 % of the requests: a server of it ended 3 times, and none of the other servers more than 0 times",
    )


def test_a_canary_is_not_judged_by_the_servers_of_the_previous_one() -> None:
    scene = Scene()
    scene.fails = 0.5
    assert scene(40).verdict == "Worse"
    scene.change(modelImage={"reference": "r:3"})
    scene.is_old = True
    assert (scene(60).verdict, scene().since) == ("Undecided", None)
    scene.is_old, scene.fails = False, 0.0
    assert scene(70).weight == 20


def test_the_time_of_a_step_begins_again_after_a_time_without_a_server() -> None:
    scene = Scene()
    scene(50)
    scene.servers = 0
    assert scene(300).since is None
    scene.servers = 2
    assert scene(50).weight == 5
    assert scene(20).weight == 20


@pytest.mark.parametrize(("ensemble", "own", "failed"), [(False, True, 0.5), (True, False, 2.0), (True, True, 1.0)])
def test_failures_that_an_ensemble_counts_twice_are_not_more(ensemble: bool, own: bool, failed: float) -> None:
    report = gen.report("a", entrypoint="a" if own else None)
    pods = (Pod(gen.pod(gen.checked(report))),)
    group = Group(pods=pods, template=gen.TEMPLATE, model=gen.model())
    times = _failures_per_request(group, replace(FACTS, entrypoint="a", ensemble=ensemble))
    (sample,) = corrected((Sample(0, 10, 0, failed=1),), times)
    assert (sample.failed, sample.requests) == (failed, 9 + failed)


def test_one_without_requests_is_not_judged() -> None:
    scene = Scene()
    scene.change(steps=[], weight=0)
    scene.fails = 1.0
    assert (scene(60).verdict, scene().weight, scene().since) == ("Undecided", 0, None)


def test_without_a_canary_nothing_is_known() -> None:
    scene = Scene(canary=None)
    assert scene._judge() is None
    assert not is_judged(gen.model(), TritonModelStatus())


@pytest.mark.parametrize("step", ["", "x/y", "99/3"])
def test_a_step_that_another_client_has_written_stops_nothing(step: str) -> None:
    scene = Scene()
    scene(4)
    scene.new_leader()
    assert scene.before.canary is not None
    scene.before = TritonModelStatus(canary=scene.before.canary.model_copy(update={"step": step, "weight": 7}))
    assert scene(70).weight == 20
    assert scene(140).verdict == "Good"


MIRRORED: dict[str, Any] = {**CANARY, "mirror": True}


def route(reason: str, type_: str = "Accepted", status: str = "False", *, seen: int = 2, copies: bool = True) -> Any:
    """Returns a route with this answer of a Gateway's controller. `seen`: the generation that it is about, of 2."""
    said = {"type": type_, "status": status, "reason": reason, "message": "no copies", "observedGeneration": seen}
    rule = {"filters": [{"type": "RequestMirror", "requestMirror": {}}] if copies else []}
    return {
        "kind": "HTTPRoute",
        "metadata": {"name": gen.NAME, "generation": 2},
        "spec": {"rules": [rule]},
        "status": {"parents": [{"conditions": [said]}]},
    }


ACCEPTED = route("Accepted", status="True", copies=False)


def test_one_that_gets_copies_is_judged_like_one_that_gets_requests() -> None:
    scene = Scene(canary=MIRRORED)
    scene.routes = (ACCEPTED,)
    progress = scene(400)
    assert (progress.weight, progress.verdict) == (50, "Good")
    assert progress.message.startswith("good with copies of 50 % of the requests: 0 of 2")
    scene.fails = 0.5
    progress = scene(60)
    assert (progress.weight, progress.verdict) == (0, "Worse")
    assert progress.message.startswith("with copies of 50 % of the requests: ")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (route("UnsupportedValue"), "Refused"),
        (route("IncompatibleFilters"), "Refused"),
        (route("UnsupportedValue", "PartiallyInvalid", "True"), "Refused"),
        (route("Accepted", status="True"), "Undecided"),
        (route("UnsupportedValue", seen=1), "Undecided"),
        (route("UnsupportedValue", copies=False), "Undecided"),
        (route("NotAllowedByListeners"), "Undecided"),
        (route("NoReadyListeners"), "Undecided"),
        (route("BackendNotFound", "ResolvedRefs"), "Undecided"),
    ],
)
def test_a_gateway_that_refuses_to_copy_is_told_so_no_more(answer: Any, verdict: str) -> None:
    scene = Scene(canary=MIRRORED, route=ROUTE)
    scene.routes = (ACCEPTED,)
    scene()
    scene.routes = (answer,)
    progress = scene()
    assert progress.verdict == verdict
    if verdict == "Refused":
        why = "the Gateway refused a route that copies them: no copies"
        assert (progress.weight, progress.message, progress.since) == (0, why, "2026-01-01T00:00:04Z")
        # The route has no copies any more, and is accepted.
        scene.routes = (ACCEPTED,)
        scene.new_leader()
        assert scene(100) == progress
        scene.spec["route"] = {**ROUTE, "gateway": {"name": "other"}}
        assert (scene().verdict, scene().weight) == ("Undecided", 5)


def test_a_refusal_of_copies_concerns_no_canary_without_and_none_whose_servers_are_not_ready() -> None:
    refused = route("UnsupportedValue")
    for spec, servers in (({**MIRRORED, "mirror": False}, 2), (MIRRORED, 0)):
        scene = Scene(canary=spec)
        scene.routes, scene.servers = (refused,), servers
        assert scene().verdict == "Undecided"


def test_a_cluster_without_the_field_of_the_percentage_gets_no_copies() -> None:
    scene = Scene(canary=MIRRORED)
    scene.routes = (ACCEPTED,)
    scene()
    scene.cluster = Capabilities(lacks=frozenset({("HTTPRoute", routes.PERCENT.path)}))
    progress = scene()
    assert (progress.verdict, progress.weight) == ("Refused", 0)
    assert progress.message == (
        "this cluster's CRD of HTTPRoute doesn't know percent, which the Gateway API 1.3 and later have"
    )


def test_requests_that_clients_cancel_are_no_failures() -> None:
    """A copy of such a request isn't canceled."""
    scene = Scene(canary={**MIRRORED, "steps": []})
    scene.routes, scene.canceled = (ACCEPTED,), 0.2
    assert scene(100).verdict == "Good"
    assert ", and 0 of 2,160 (0 %)" in scene().message
    scene.fails = 0.15
    assert scene(60).verdict == "Worse"


def test_nothing_arrives_is_known_when_enough_should_have() -> None:
    scene = Scene()
    scene.rate = 0
    scene(4)
    assert scene.known is not None
    assert not scene.known.misses(5)
    scene(60)
    assert scene.known.misses(5)
    assert not scene.known.misses(0)
    scene.rate = 4
    scene(4)
    assert not scene.known.misses(5)


def test_what_its_answers_have_in_common_is_added_up_when_that_of_each_server_is_read() -> None:
    scene = Scene(canary={**MIRRORED, "comparePercent": 5})
    assert scene().answers is None
    scene.comparisons = {OWN: Comparison(exact=100)}
    assert scene().answers is None, "the other one of its servers may have answered differently"
    scene.comparisons["canary-1"] = Comparison(exact=90, different=10, outputs={"Y": 10})
    found = scene().answers
    assert found is not None
    assert (found.compared, found.equal) == (200, 190)
    # A server that has restarted says nothing until it is polled again.
    del scene.comparisons["canary-1"]
    assert scene().answers == found
    scene.servers = 1
    assert scene().answers == AnswersStatus(compared=100, equal=100, same=100)
    scene.change(comparePercent=0)
    assert scene().answers is None, "other servers"
