"""A canary with Kubernetes' own controllers and the shipped policies. e2e/test_canary.py has a real Gateway."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_triton.canary import promotion, removal
from support import bad_servers, controlplane, gen, operator_process
from support.api import Object, condition, eventually
from support.bad_servers import answers
from support.controlplane import ControlPlane
from support.people import apply_folder, make
from support.workload import ENTRY
from support.workload_scene import SOON, Scene, index
from triton_operator.api import names

pytestmark = pytest.mark.integration

FIRST, CANARY = gen.NAME, f"{gen.NAME}-canary"
IMAGE, NEXT, LAST = (f"registry.example.com/detection:v{number}" for number in (1, 2, 3))
ROUTE: Object = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"]}
SPEC: Object = {"modelImage": {"reference": IMAGE}, "entrypoint": ENTRY, "replicas": 3}
WANTED: Object = {"modelImage": {"reference": NEXT}, "weight": 20}
STARTING = gen.pod(gen.not_ready, gen.put("status.podIP", ""), gen.state("triton", started=False))["status"]
_numbers = itertools.count(1)


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
def scene(plane: ControlPlane, tmp_path: Path) -> Iterator[Scene]:
    number = next(_numbers)
    network = f"127.{150 + number % 50}.{os.getpid() % 250}"
    name, hosts = f"canary-{number}", {FIRST: f"{network}.1", CANARY: f"{network}.2"}
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    scene = Scene(plane.api.in_namespace(name), tmp_path, operator_process.install(plane), hosts)
    with (
        bad_servers.server(hosts[FIRST], answers(index("1"))),
        bad_servers.server(hosts[CANARY], answers(index("2"))),
        scene.kubelet.running(),
    ):
        yield scene
        plane.api.delete("Namespace", name)


def weights(scene: Scene) -> dict[str, int]:
    """Returns the weights of the route, which are the same in each of its rules."""
    route = eventually(lambda: scene.api.find("HTTPRoute", FIRST), SOON)
    found = [{b["name"]: b["weight"] for b in rule["backendRefs"]} for rule in route["spec"]["rules"]]
    assert all(one == found[0] for one in found)
    return found[0]


def selects(scene: Scene) -> set[str]:
    """Returns the groups of the pods that the Service selects."""
    labels = scene.api.get("Service", FIRST)["spec"]["selector"].items()
    pods = scene.api.list("Pod")
    return {
        p["metadata"]["labels"].get(names.LABEL_GROUP, "") for p in pods if labels <= p["metadata"]["labels"].items()
    }


def change(scene: Scene, **fields: object) -> None:
    scene.api.patch("TritonModel", FIRST, {"spec": fields})


def test_a_canary_behind_a_gateway_begins_changes_and_ends(plane: ControlPlane, scene: Scene) -> None:
    with scene.operator() as operator:
        log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **SPEC, route=ROUTE)
        scene.accept_routes(ROUTE["gateway"])
        scene.complete(3, operator)
        first = scene.uids()
        assert weights(scene) == {FIRST: 1}

        # It gets no requests before a server is ready.
        scene.kubelet.statuses[CANARY] = STARTING
        change(scene, canary=WANTED)
        eventually(lambda: weights(scene) == {FIRST: 100, CANARY: 0}, SOON, log)
        eventually(lambda: scene.condition("Canary") == ("False", "CanaryStarting"), SOON, log)
        assert selects(scene) == {""}
        del scene.kubelet.statuses[CANARY]
        (pod,) = scene.pods("canary")
        scene.api.delete("Pod", pod["metadata"]["name"])
        eventually(lambda: weights(scene) == {FIRST: 80, CANARY: 20}, SOON, log)
        scene.complete(4, operator)
        assert scene.condition("Canary") == ("True", "Weighted")
        assert selects(scene) == {""}
        service = scene.api.get("Service", CANARY)
        assert service["spec"]["selector"] == {names.LABEL_MODEL: FIRST, names.LABEL_GROUP: "canary"}
        assert NEXT in scene.image(CANARY)
        assert IMAGE in scene.image(FIRST)

        # At rest nothing is written, nor by a new leader.
        plane.wait_until_quiet()
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
    with scene.operator(PROGRESS_SECONDS="5") as operator:
        eventually(lambda: operator.reconciles(result="ok") > 0, SOON, log)
        plane.wait_until_quiet()
        assert operator.writes() == 0, operator.log

        # A weight is changed without a new server, and a foreign change of it is set back.
        second = scene.uids("canary")
        change(scene, canary={"weight": 50})
        eventually(lambda: weights(scene) == {FIRST: 50, CANARY: 50}, SOON, log)
        # The status follows the route.
        eventually(
            lambda: "50 % of the requests" in condition(scene.api.get("TritonModel", FIRST), "Canary")["message"],
            SOON,
            log,
        )
        eventually(lambda: len(scene.pods("canary")) == 2, SOON, log)
        assert second < scene.uids("canary")
        route = scene.api.get("HTTPRoute", FIRST)["spec"]["rules"]
        for rule in route:
            rule["backendRefs"] = rule["backendRefs"][1:]
        scene.api.patch("HTTPRoute", FIRST, {"spec": {"rules": route}})
        eventually(lambda: weights(scene) == {FIRST: 50, CANARY: 50}, SOON, log)

        # The last server isn't ready any longer: no requests go there.
        scene.complete(5, operator)
        for pod in scene.pods("canary"):
            path = scene.api.path("Pod", pod["metadata"]["name"]) + "/status"
            scene.api.request("PUT", path, {**pod, "status": gen.pod(gen.not_ready)["status"]})
        eventually(lambda: weights(scene) == {FIRST: 100, CANARY: 0}, SOON, log)

        # The end.
        change(scene, canary=None)
        eventually(lambda: weights(scene) == {FIRST: 1}, SOON, log)
        eventually(lambda: scene.api.find("Service", CANARY) is None, SOON, log)
        eventually(lambda: not scene.pods("canary"), SOON, log)
        scene.complete(3, operator)
        eventually(lambda: scene.api.get("Service", FIRST)["spec"]["selector"] == {names.LABEL_MODEL: FIRST}, SOON, log)
        assert scene.condition("Canary") == ("", "")
        assert scene.uids() == first


def test_without_a_gateway_the_service_has_all_servers(scene: Scene) -> None:
    with scene.operator() as operator:
        log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **SPEC)
        scene.complete(3, operator)
        first = scene.uids()
        change(scene, canary={**WANTED, "weight": 40})
        scene.complete(5, operator)
        eventually(lambda: scene.condition("Canary") == ("True", "ByServers"), SOON, log)
        assert "about 40 % of the connections" in condition(scene.api.get("TritonModel", FIRST), "Canary")["message"]
        assert selects(scene) == {"", "canary"}
        assert scene.api.find("Service", CANARY) is None

        # Its servers follow the number of the others.
        change(scene, replicas=1)
        scene.complete(2, operator)

        change(scene, canary={"weight": 0})
        eventually(lambda: selects(scene) == {""}, SOON, log)
        eventually(lambda: scene.condition("Canary") == ("True", "NoRequests"), SOON, log)
        assert scene.uids() < first


def test_a_canary_that_ends_gets_no_request_from_the_service(scene: Scene) -> None:
    """Also while its pods still run, because the garbage collector is slow or a finalizer holds them."""
    with scene.operator() as operator:
        log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **SPEC)
        scene.complete(3, operator)
        change(scene, canary=WANTED)
        scene.complete(4, operator)
        assert selects(scene) == {"", "canary"}
        # The Deployment stays with this.
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        scene.api.patch("Deployment", CANARY, hold)
        change(scene, canary=None)
        eventually(lambda: selects(scene) == {""}, SOON, log)
        scene.api.patch("Deployment", CANARY, {"metadata": {"finalizers": None}})
        eventually(lambda: not scene.pods("canary"), SOON, log)
        scene.complete(3, operator)


def test_a_canary_alone_is_not_ready(scene: Scene) -> None:
    """Behind a Gateway it gets only its share, so the other requests fail. Alerts count the other servers."""
    with scene.operator() as operator:
        log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **SPEC, route=ROUTE)
        scene.accept_routes(ROUTE["gateway"])
        scene.complete(3, operator)
        change(scene, canary=WANTED)
        scene.complete(4, operator)
        assert [operator.metric_sum("triton_operator_replicas", state=state) for state in ("wanted", "ready")] == [3, 3]
        for pod in scene.pods():
            path = scene.api.path("Pod", pod["metadata"]["name"]) + "/status"
            scene.api.request("PUT", path, {**pod, "status": gen.pod(gen.not_ready)["status"]})
        eventually(lambda: scene.condition("Ready")[0] == "False", SOON, log)
        assert scene.condition("Canary") == ("True", "Weighted")
        assert (scene.status["replicas"], scene.status["readyReplicas"]) == (3, 0)
        assert operator.metric_sum("triton_operator_replicas", state="ready") == 0


def test_a_canary_is_promoted(scene: Scene) -> None:
    with scene.operator() as operator:
        log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **SPEC, route=ROUTE)
        scene.accept_routes(ROUTE["gateway"])
        scene.complete(3, operator)
        models = [{"name": ENTRY, "config": {"max_batch_size": 4}}]
        change(scene, canary={**WANTED, "server": {"image": "triton:next"}, "models": models})
        scene.complete(4, operator)
        model = scene.api.get("TritonModel", FIRST)
        steps = [*promotion(model), *removal(model)]
        scene.api.request("PATCH", scene.api.path("TritonModel", FIRST), steps, "application/json-patch+json")
        eventually(lambda: not scene.pods("canary"), SOON, log)
        scene.complete(3, operator)
        spec = scene.api.get("TritonModel", FIRST)["spec"]
        assert "canary" not in spec
        assert (spec["modelImage"]["reference"], spec["server"]["image"], spec["models"]) == (
            NEXT,
            "triton:next",
            models,
        )
        assert NEXT in scene.image(FIRST)
        assert weights(scene) == {FIRST: 1}


def test_a_canary_that_does_not_start_is_told_while_the_others_serve(scene: Scene) -> None:
    finding = {
        "code": "TR1", "severity": "error", "file": f"{ENTRY}/config.pbtxt", "line": 1, "message": "m", "remedy": "r",
    }  # fmt: skip
    failed = gen.ended("check", 1, json.dumps(gen.report(findings=[finding])))
    with scene.operator() as operator:
        log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **SPEC, route=ROUTE)
        scene.accept_routes(ROUTE["gateway"])
        scene.complete(3, operator)
        first = scene.uids()
        scene.kubelet.statuses[CANARY] = gen.pod(failed, gen.not_ready, gen.put("status.podIP", ""))["status"]
        change(scene, canary=WANTED)
        eventually(lambda: scene.condition("Canary") == ("False", "CanaryNotReady"), SOON, log)
        words = condition(scene.api.get("TritonModel", FIRST), "Canary")["message"]
        assert words.startswith(f"no server of the canary is ready: {ENTRY}/config.pbtxt:1: error TR1")
        assert weights(scene) == {FIRST: 100, CANARY: 0}
        assert scene.condition("Ready") == ("True", "EntrypointAnswers")

        # Another image is tried at once.
        del scene.kubelet.statuses[CANARY]
        change(scene, canary={"modelImage": {"reference": LAST}})
        eventually(lambda: weights(scene) == {FIRST: 80, CANARY: 20}, SOON, log)
        scene.complete(4, operator)
        assert scene.uids() == first


def test_a_canary_without_the_entrypoint_gets_no_request(scene: Scene) -> None:
    """Its servers are ready, because all that they have is loaded. Clients would get errors that no counter has."""
    with scene.operator() as operator:
        log = lambda: f"{scene.status}\n{operator.log[-3000:]}"  # noqa: E731
        make(scene.api, **SPEC, route=ROUTE)
        scene.accept_routes(ROUTE["gateway"])
        scene.complete(3, operator)
        other = gen.checked(gen.report("other", entrypoint="other"))
        scene.kubelet.statuses[CANARY] = gen.pod(other, gen.put("status.podIP", ""))["status"]
        change(scene, canary=WANTED)
        eventually(lambda: scene.condition("Canary") == ("False", "CanaryLacksEntrypoint"), SOON, log)
        assert weights(scene) == {FIRST: 100, CANARY: 0}

        change(scene, route=None)
        eventually(lambda: scene.api.find("HTTPRoute", FIRST) is None, SOON, log)
        assert selects(scene) == {""}
