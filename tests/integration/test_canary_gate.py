"""The gate of a canary with Kubernetes' own controllers, and servers whose counters a test chooses."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from answer_comparison.answers import Likeness
from answer_comparison.comparer import Counts
from support import bad_servers, controlplane, gen, operator_process
from support.api import Object, condition, eventually
from support.bad_servers import answers, answers_with
from support.controlplane import ControlPlane
from support.people import apply_folder, make
from support.workload import ENTRY
from support.workload_scene import SOON, Scene, index
from triton_operator.api import names

pytestmark = pytest.mark.integration

FIRST, CANARY = gen.NAME, f"{gen.NAME}-canary"
ROUTE: Object = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"]}
SPEC: Object = {
    "modelImage": {"reference": "registry.example.com/detection:v1"},
    "entrypoint": ENTRY,
    "replicas": 3,
    "route": ROUTE,
}
GATE: Object = {"stepSeconds": 10, "minRequests": 20}
WANTED: Object = {
    "modelImage": {"reference": "registry.example.com/detection:v2"}, "steps": [10, 30], "weight": 60, "gate": GATE,
}  # fmt: skip
_numbers = itertools.count(1)


class Counters:
    """The counters of a server that answers 20 requests a second. `fails`: the share that fails."""

    def __init__(self) -> None:
        self.fails = 0.0
        self._counts, self._read, self._lock = [0.0, 0.0], time.monotonic(), threading.Lock()

    def page(self) -> bytes:
        with self._lock:
            now = time.monotonic()
            requests, self._read = 20 * (now - self._read), now
            self._counts = [self._counts[0] + requests * (1 - self.fails), self._counts[1] + requests * self.fails]
            success, failure = map(int, self._counts)
        own = f'model="{ENTRY}",version="1"'
        return (
            f"nv_inference_request_success{{{own}}} {success}\n"
            f"nv_inference_request_failure{{{own}}} {failure}\n"
            f"nv_inference_request_duration_us{{{own}}} {20_000 * success}\n"
        ).encode()


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """An API server with the kinds of Gateways, Kubernetes' controllers and the shipped policies."""
    if not controlplane.has_controllers():
        pytest.skip("kube-controller-manager is not installed beside kube-apiserver")
    with controlplane.running(controllers=True) as plane:
        plane.install_crds()
        plane.install_routes()
        apply_folder(plane, controlplane.ROOT / "manifests" / "policies")
        yield plane


@pytest.fixture
def canary() -> Counters:
    """The counters of the canary's servers."""
    return Counters()


@pytest.fixture
def scene(plane: ControlPlane, canary: Counters, tmp_path: Path) -> Iterator[Scene]:
    number = next(_numbers)
    network = f"127.{220 + number % 30}.{os.getpid() % 250}"
    name, hosts = f"gate-{number}", {FIRST: f"{network}.1", CANARY: f"{network}.2"}
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    scene = Scene(plane.api.in_namespace(name), tmp_path, operator_process.install(plane), hosts)
    metrics = names.PORTS["metrics"]
    with (
        bad_servers.server(hosts[FIRST], answers(index("1"))),
        bad_servers.server(hosts[CANARY], answers(index("2"))),
        bad_servers.server(hosts[FIRST], answers_with(Counters().page), metrics),
        bad_servers.server(hosts[CANARY], answers_with(canary.page), metrics),
        scene.kubelet.running(),
    ):
        yield scene
        plane.api.delete("Namespace", name)


def weight(scene: Scene) -> int | None:
    """Returns the weight of the canary in the route; None without a route or a canary."""
    route = scene.api.find("HTTPRoute", FIRST)
    backends = route["spec"]["rules"][0]["backendRefs"] if route else []
    return next((backend["weight"] for backend in backends if backend["name"] == CANARY), None)


def copied(scene: Scene) -> int | None:
    """Returns the percentage of the requests that the route copies for the canary; None if it copies none."""
    filters = scene.api.get("HTTPRoute", FIRST)["spec"]["rules"][0]["filters"]
    copies = [one["requestMirror"] for one in filters if one["type"] == "RequestMirror"]
    assert all(copy["backendRef"]["name"] == CANARY for copy in copies)
    return next((copy["percent"] for copy in copies), None)


def filters(scene: Scene) -> list[str]:
    return [one["type"] for one in scene.api.get("HTTPRoute", FIRST)["spec"]["rules"][0]["filters"]]


def progress(scene: Scene) -> Object:
    found: Object = scene.status.get("canary", {})
    return found


def message(scene: Scene) -> str:
    return str(condition(scene.api.get("TritonModel", FIRST), "Canary").get("message", ""))


def change(scene: Scene, **fields: object) -> None:
    scene.api.patch("TritonModel", FIRST, {"spec": fields})


def test_a_good_canary_comes_to_its_weight_without_help(plane: ControlPlane, scene: Scene) -> None:
    seen: list[int] = []

    def reaches(wanted: int) -> bool:
        now = weight(scene)
        if now is not None and now not in seen:
            seen.append(now)
        return now == wanted

    with scene.operator() as operator:
        log = lambda: f"{seen} {scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **SPEC)
        scene.accept_routes(ROUTE["gateway"])
        scene.complete(3, operator)
        first = scene.uids()
        change(scene, canary=WANTED)
        eventually(lambda: reaches(10), SOON, log, every=0.1)
        eventually(lambda: reaches(30), SOON, log, every=0.1)
        eventually(lambda: progress(scene).get("step") == "2/3", SOON, log)
        assert progress(scene)["message"].startswith("good with 10 % of the requests: 0 of ")
        assert "since" in eventually(lambda: progress(scene) if "since" in progress(scene) else None, SOON, log)
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
    # A new leader stays at the step.
    with scene.operator() as operator:
        eventually(lambda: reaches(60), SOON, log, every=0.1)
        # The last step needs a second server; until it is ready, the canary gets what one is enough for.
        assert seen in ([0, 10, 30, 33, 60], [10, 30, 33, 60], [0, 10, 30, 60], [10, 30, 60])
        eventually(lambda: progress(scene).get("verdict") == "Good", SOON, log)
        assert scene.condition("Canary")[0] == "True"
        assert scene.uids() == first
        assert len(scene.pods("canary")) == 2
        # At rest nothing is written, although it is judged further.
        written, polled = operator.writes(), operator.reconciles(result="ok")
        eventually(lambda: operator.reconciles(result="ok") > polled + 8, SOON, log)
        assert operator.writes() == written, operator.log


def test_a_worse_canary_gets_no_requests_until_the_spec_changes(
    plane: ControlPlane, scene: Scene, canary: Counters
) -> None:
    with scene.operator() as operator:
        log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **SPEC)
        scene.accept_routes(ROUTE["gateway"])
        scene.complete(3, operator)
        first = scene.uids()
        change(scene, canary={**WANTED, "steps": [], "gate": {}})
        eventually(lambda: weight(scene) == 60, SOON, log)
        assert len(scene.pods("canary")) == 2
        canary.fails = 0.2
        eventually(lambda: weight(scene) == 0, SOON, log)
        eventually(lambda: scene.condition("Canary") == ("False", "CanaryWorse"), SOON, log)
        assert "of its requests failed, and 0 of " in message(scene)
        assert scene.condition("Ready") == ("True", "EntrypointAnswers")
        eventually(lambda: len(scene.pods("canary")) == 1, SOON, log)
        # GitOps tools see that the spec isn't live.
        eventually(lambda: scene.condition("Stalled") == ("True", "CanaryWorse"), SOON, log)
        events = [e for e in scene.api.list("Event") if e["reason"] == "CanaryWorse"]
        assert {event["type"] for event in events} == {"Warning"}
        plane.wait_until_quiet()
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
    # Nor does a new leader try it again, although it would be good now.
    canary.fails = 0.0
    with scene.operator(PROGRESS_SECONDS="5") as operator:
        eventually(lambda: operator.reconciles(result="ok") > 0, SOON, log)
        plane.wait_until_quiet()
        assert operator.writes() == 0, operator.log
        assert weight(scene) == 0

        change(scene, canary={"modelImage": {"reference": "registry.example.com/detection:v3"}})
        eventually(lambda: weight(scene) == 60, SOON, log)
        eventually(lambda: progress(scene)["verdict"] == "Undecided", SOON, log)
        assert scene.uids() == first


def test_a_worse_canary_gets_no_connections_from_the_service(scene: Scene, canary: Counters) -> None:
    with scene.operator() as operator:
        log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **{**SPEC, "route": None})
        scene.complete(3, operator)
        change(scene, canary={**WANTED, "steps": [], "weight": 50})
        scene.complete(6, operator)
        selector = lambda: scene.api.get("Service", FIRST)["spec"]["selector"]  # noqa: E731
        eventually(lambda: selector() == {names.LABEL_MODEL: FIRST}, SOON, log)
        canary.fails = 0.2
        eventually(lambda: selector() == names.selector_without_groups(FIRST), SOON, log)
        eventually(lambda: scene.condition("Canary") == ("False", "CanaryWorse"), SOON, log)
        eventually(lambda: len(scene.pods("canary")) == 1, SOON, log)


def test_a_canary_gets_copies_until_it_is_good(plane: ControlPlane, scene: Scene) -> None:
    with scene.operator() as operator:
        log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **SPEC)
        scene.accept_routes(ROUTE["gateway"])
        scene.complete(3, operator)
        change(scene, canary={**WANTED, "mirror": True})
        for percent in (10, 30, 60):
            eventually(lambda p=percent: copied(scene) == p, SOON, log, every=0.1)
            assert weight(scene) is None
        eventually(lambda: progress(scene).get("verdict") == "Good", SOON, log)
        assert scene.condition("Canary") == ("True", "Mirrored")
        first = [pod["metadata"]["uid"] for pod in scene.pods("canary")]
        # What was good with copies begins again with requests, with the same servers.
        change(scene, canary={"mirror": False})
        eventually(lambda: weight(scene) == 10, SOON, log)
        assert copied(scene) is None
        assert {pod["metadata"]["uid"] for pod in scene.pods("canary")} <= set(first)


def test_a_gateway_that_refuses_to_copy_routes_again_without(plane: ControlPlane, scene: Scene) -> None:
    """By the standard, such a Gateway answers the requests of the route with errors."""

    def refuse() -> None:
        route = scene.api.get("HTTPRoute", FIRST)
        [answer] = route["status"]["parents"]
        said = {
            **answer["conditions"][0], "status": "False", "reason": "UnsupportedValue", "message": "no RequestMirror",
            "observedGeneration": route["metadata"]["generation"],
        }  # fmt: skip
        parents = [{**answer, "conditions": [said]}]
        scene.api.patch("HTTPRoute", FIRST, {"status": {"parents": parents}}, "status")

    with scene.operator() as operator:
        log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **SPEC)
        scene.accept_routes(ROUTE["gateway"])
        scene.complete(3, operator)
        change(scene, canary={**WANTED, "mirror": True})
        eventually(lambda: copied(scene) == 10, SOON, log)
        refuse()
        eventually(lambda: copied(scene) is None, SOON, log)
        assert weight(scene) is None
        eventually(lambda: scene.condition("Canary") == ("False", "MirrorRefused"), SOON, log)
        assert "because the Gateway refused a route that copies them: no RequestMirror. To try again" in message(scene)
        scene.accept_routes(ROUTE["gateway"])
        eventually(lambda: scene.condition("Routed") == ("True", "Accepted"), SOON, log)
        plane.wait_until_quiet()
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
    # Nor does a new leader try it again.
    with scene.operator(PROGRESS_SECONDS="5") as operator:
        eventually(lambda: operator.reconciles(result="ok") > 0, SOON, log)
        plane.wait_until_quiet()
        assert operator.writes() == 0, operator.log
        assert scene.condition("Canary") == ("False", "MirrorRefused")
        change(scene, canary={"mirror": False})
        eventually(lambda: weight(scene) == 10, SOON, log)


def test_a_gateway_api_without_the_percentage_copies_nothing(plane: ControlPlane, scene: Scene) -> None:
    plane.install_old_routes()
    try:
        with scene.operator() as operator:
            log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
            make(scene.api, **SPEC)
            scene.accept_routes(ROUTE["gateway"])
            scene.complete(3, operator)
            change(scene, canary={**WANTED, "mirror": True})
            eventually(lambda: scene.condition("Canary") == ("False", "MirrorRefused"), SOON, log)
            assert "CRD of HTTPRoute doesn't know percent, which the Gateway API 1.3 and later have." in message(scene)
            assert (filters(scene), weight(scene)) == (["RequestHeaderModifier"], None)
            # Other changes of the route reach it.
            change(scene, route={**ROUTE, "hostnames": ["b.example.com"]})
            eventually(
                lambda: scene.api.get("HTTPRoute", FIRST)["spec"]["hostnames"] == ["b.example.com"], SOON, log
            )  # fmt: skip
            change(scene, canary={"mirror": False})
            eventually(lambda: weight(scene) == 10, SOON, log)
    finally:
        plane.install_routes()


def test_the_status_has_how_many_answers_are_equal(plane: ControlPlane, scene: Scene) -> None:
    counts = Counts()
    page = answers_with(lambda: generate_latest(counts.registry))

    def containers() -> list[str]:
        spec = scene.api.get("Deployment", CANARY)["spec"]["template"]["spec"]
        return [container["name"] for container in spec["containers"]]

    with (
        bad_servers.server(scene.kubelet.addresses[CANARY], page, names.ANSWERS_PORT),
        scene.operator() as operator,
    ):
        log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **SPEC)
        scene.accept_routes(ROUTE["gateway"])
        scene.complete(3, operator)
        first = scene.uids()
        change(scene, canary={**WANTED, "steps": [], "weight": 20, "mirror": True, "comparePercent": 5})
        eventually(lambda: filters(scene)[1:] == ["RequestMirror"] * 2, SOON, log)
        rules = scene.api.get("HTTPRoute", FIRST)["spec"]["rules"]
        services = {
            (one["requestMirror"]["backendRef"]["port"], one["requestMirror"]["percent"])
            for rule in rules for one in rule["filters"] if one["type"] == "RequestMirror"
        }  # fmt: skip
        assert services == {(8000, 20), (8010, 5), (8001, 20)}
        assert [port["port"] for port in scene.api.get("Service", CANARY)["spec"]["ports"]] == [8000, 8001, 8002, 8010]
        assert containers() == ["triton", names.CONTAINER_ANSWERS]
        eventually(lambda: "No answer was compared yet" in message(scene), SOON, log)

        for number in range(1, 5):
            counts.compared({"boxes": Likeness.EXACT if number < 4 else Likeness.DIFFERENT})
        counts.not_compared("HTTP status 500 of the other servers")
        found = {
            "compared": 4, "equal": 3, "same": 3, "varying": 0, "notCompared": 1,
            "message": "different: boxes (1); not compared: HTTP status 500 of the other servers (1)",
        }  # fmt: skip
        eventually(lambda: progress(scene).get("answers") == found, SOON, log)
        said = (
            "3 of 4 compared answers are equal (different: boxes (1); not compared: HTTP status 500 of the other "
            "servers (1))"
        )
        eventually(lambda: message(scene).endswith(said), SOON, log)
        eventually(lambda: progress(scene).get("verdict") == "Good", SOON, log)
        # Wrong answers end no canary, and a few more answers write nothing.
        plane.wait_until_quiet()
        written = operator.writes()
        counts.varying()
        eventually(lambda: progress(scene)["answers"]["varying"] == 1, SOON, log)
        assert operator.writes() == written + 1
        change(scene, canary={"comparePercent": 50})
        eventually(lambda: copies_of_answers(scene) == 50, SOON, log)
        assert containers() == ["triton", names.CONTAINER_ANSWERS]
        change(scene, canary={"comparePercent": 0})
        eventually(lambda: containers() == ["triton"], SOON, log)
        eventually(lambda: copies_of_answers(scene) is None and copied(scene) == 20, SOON, log)
        assert "answers" not in progress(scene)
        assert scene.uids() == first
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def copies_of_answers(scene: Scene) -> int | None:
    """Returns the percentage of the requests that are copied to compare the answers; None if none are."""
    filters = scene.api.get("HTTPRoute", FIRST)["spec"]["rules"][0]["filters"]
    copies = [one["requestMirror"] for one in filters if one["type"] == "RequestMirror"]
    return next((copy["percent"] for copy in copies if copy["backendRef"]["port"] == names.ANSWERS_PORT), None)
