"""A TritonModel with a second group of servers, with Kubernetes' own controllers and the shipped policies.

The group comes from a policy of this test (support/second_group.py).
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support import bad_servers, controlplane, gen, operator_process, second_group, workload_scene
from support.api import Object, condition, eventually
from support.bad_servers import answers
from support.controlplane import ControlPlane
from support.operator_process import Operator
from support.people import apply_folder, make
from support.workload import ENTRY
from support.workload_scene import index
from triton_operator.api import names
from triton_operator.api.status import timestamp

pytestmark = pytest.mark.integration

FIRST, SECOND = gen.NAME, f"{gen.NAME}-{second_group.NAME}"
IMAGE, SECOND_IMAGE, THIRD_IMAGE = (f"registry.example.com/detection:v{number}" for number in (1, 2, 3))
PROGRAM = Path(second_group.__file__)
SPEC: Object = {
    "modelImage": {"reference": IMAGE}, "entrypoint": ENTRY, "healthRequest": {"file": f"{ENTRY}/health.json"},
}  # fmt: skip
FINDING = {
    "code": "TR1", "severity": "error", "file": f"{ENTRY}/config.pbtxt", "line": 1, "message": "m", "remedy": "r",
}  # fmt: skip
SOON = 60
_numbers = itertools.count(1)


class Scene(workload_scene.Scene):
    """A server for each group: 1 has version 1 of the entrypoint, 2 has version 2."""

    def annotate(self, image: str | None) -> None:
        """Begins, changes or ends the second group."""
        self.api.patch("TritonModel", FIRST, {"metadata": {"annotations": {second_group.ANNOTATION: image}}})


@pytest.fixture
def scene(control_plane_with_controllers: ControlPlane, tmp_path: Path) -> Iterator[Scene]:
    plane, number = control_plane_with_controllers, next(_numbers)
    apply_folder(plane, controlplane.ROOT / "manifests" / "policies")
    network = f"127.{200 + number % 50}.{os.getpid() % 250}"
    name, hosts = f"groups-{number}", (f"{network}.1", f"{network}.2")
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    kubeconfig = operator_process.install(plane)
    scene = Scene(plane.api.in_namespace(name), tmp_path, kubeconfig, {FIRST: hosts[0], SECOND: hosts[1]}, PROGRAM)
    with (
        bad_servers.server(hosts[0], answers(index("1"))),
        bad_servers.server(hosts[1], answers(index("2"))),
        scene.kubelet.running(),
    ):
        yield scene
        plane.api.delete("Namespace", name)


def begin(scene: Scene, operator: Operator) -> set[str]:
    """Creates a TritonModel, then its second group. Returns the uids of the first group's pods."""
    make(scene.api, **SPEC)
    scene.complete(1, operator)
    first = scene.uids()
    scene.annotate(SECOND_IMAGE)
    scene.complete(3, operator)
    return first


def test_a_second_group_has_a_deployment_of_its_own_and_shares_the_rest(
    control_plane_with_controllers: ControlPlane, scene: Scene
) -> None:
    with scene.operator() as operator:
        make(scene.api, **SPEC)
        scene.complete(1, operator)
        control_plane_with_controllers.wait_until_quiet()
        first, before = scene.uids(), scene.api.get("Deployment", FIRST)
        services = scene.api.list("Service")
        scene.annotate(SECOND_IMAGE)
        status = scene.complete(3, operator)
        control_plane_with_controllers.wait_until_quiet()

        # The objects.
        second = scene.api.get("Deployment", SECOND)
        assert second["spec"]["replicas"] == second_group.SERVERS
        assert SECOND_IMAGE in scene.image(SECOND)
        assert second["spec"]["selector"]["matchLabels"] == {names.LABEL_MODEL: FIRST, names.LABEL_GROUP: "second"}
        assert [o["name"] for o in second["metadata"]["ownerReferences"]] == [FIRST]
        assert scene.api.list("Service") == services, "the Service sends requests to all groups"
        assert services[0]["spec"]["selector"] == {names.LABEL_MODEL: FIRST}
        after = scene.api.get("Deployment", FIRST)
        assert after["metadata"]["generation"] == before["metadata"]["generation"]
        assert scene.uids() == first, "no server of the first group was restarted"

        # The status.
        assert scene.condition("ModelsLoaded") == ("True", "AllLoaded")
        models = {(m["name"], m["version"]): m["pods"] for m in status["models"]}
        assert models == {("pre", "1"): "3/3", (ENTRY, "1"): "1/1", (ENTRY, "2"): "2/2"}
        assert status["selector"] == f"{names.LABEL_MODEL}={FIRST},{names.LABEL_NAME}=tritonmodel"
        assert status["image"]["reference"] == IMAGE
        assert operator.metric_sum("triton_operator_replicas", state="wanted") == 3

        # Nothing is written at rest, nor by a new leader.
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
    # With the default, a new leader waits a moment for the answers of the servers.
    with scene.operator(PROGRESS_SECONDS="5") as operator:
        eventually(lambda: operator.reconciles(result="ok") > 0, SOON, lambda: operator.log[-2000:])
        control_plane_with_controllers.wait_until_quiet()
        assert operator.writes() == 0, operator.log


def test_a_change_of_one_group_restarts_no_server_of_the_other(scene: Scene) -> None:
    with scene.operator() as operator:
        first, second = begin(scene, operator), scene.uids("second")
        scene.annotate(THIRD_IMAGE)
        eventually(lambda: not second & scene.uids("second"), SOON, lambda: operator.log[-2000:])
        scene.complete(3, operator)
        assert scene.uids() == first
        second = scene.uids("second")
        # Only the first group: the second one has an image of its own.
        scene.api.patch("TritonModel", FIRST, {"spec": {"modelImage": {"reference": SECOND_IMAGE}}})
        eventually(lambda: not first & scene.uids(), SOON, lambda: operator.log[-2000:])
        scene.complete(3, operator)
        assert scene.uids("second") == second


def test_a_second_group_that_does_not_start_is_told_while_the_first_one_serves(scene: Scene) -> None:
    faulty = gen.report(findings=[FINDING])
    failed = gen.pod(gen.ended("check", 1, json.dumps(faulty)), gen.not_ready, gen.put("status.podIP", ""))["status"]
    with scene.operator() as operator:
        make(scene.api, **SPEC)
        scene.complete(1, operator)
        scene.kubelet.statuses[SECOND] = failed
        scene.annotate(SECOND_IMAGE)
        eventually(
            lambda: scene.condition("Progressing") == ("False", "RepositoryInvalid"), SOON, lambda: str(scene.status)
        )
        words = condition(scene.api.get("TritonModel", FIRST), "Progressing")["message"]
        assert words.startswith(f"group second: {ENTRY}/config.pbtxt:1: error TR1")
        assert scene.condition("Ready") == ("True", "EntrypointAnswers")
        assert (scene.status["replicas"], scene.status["readyReplicas"]) == (1, 1)
        assert scene.status["entrypoint"] == ENTRY
        scene.annotate(None)
        scene.complete(1, operator)


def stop_answering(scene: Scene, pod: Object) -> None:
    """Writes what a kubelet does when the health request of a server fails that answered until then."""
    status = gen.pod(gen.put("status.podIP", ""), gen.stopped_answering())["status"]
    path = scene.api.path("Pod", pod["metadata"]["name"]) + "/status"
    scene.api.request("PUT", path, {**scene.api.get("Pod", pod["metadata"]["name"]), "status": status})


@pytest.mark.parametrize("group", ["", "second"])
def test_repairs_a_server_of_any_group(scene: Scene, group: str) -> None:
    with scene.operator() as operator:
        begin(scene, operator)
        others = scene.uids("" if group else "second")
        pod = scene.pods(group)[0]
        stop_answering(scene, pod)
        uid = pod["metadata"]["uid"]
        eventually(lambda: uid not in scene.uids(group), SOON, lambda: f"{scene.status}\n{operator.log[-2000:]}")
        last = eventually(lambda: scene.status.get("lastRepair"), SOON, lambda: operator.log[-2000:])
        assert (last["reason"], last["server"]) == ("HealthRequestFailed", pod["metadata"]["name"])
        assert len(scene.complete(3, operator)["evictions"]) == 1
        assert scene.uids("" if group else "second") == others


def test_one_server_is_repaired_at_a_time_over_all_groups(scene: Scene) -> None:
    """While a server of one group starts, none of another is evicted."""
    with scene.operator() as operator:
        begin(scene, operator)
        # New pods don't get an address, and don't start.
        running = {"running": {"startedAt": timestamp(datetime.now(UTC))}}
        state = gen.state("triton", started=False, state=running)
        starting = gen.pod(gen.not_ready, gen.put("status.podIP", ""), state)["status"]
        scene.kubelet.statuses[SECOND] = starting
        scene.api.delete("Pod", scene.pods("second")[0]["metadata"]["name"])
        eventually(lambda: len(scene.pods("second")) == 2, SOON)
        stop_answering(scene, scene.pods()[0])
        note = eventually(
            lambda: (
                (m := condition(scene.api.get("TritonModel", FIRST), "Progressing").get("message", ""))
                and "isn't evicted while" in m
                and m
            ),
            SOON,
            lambda: scene.status,
        )
        assert f"isn't evicted while {SECOND}" in note
        assert not scene.status.get("evictions")


def test_restores_a_second_group_that_others_delete_or_change(scene: Scene) -> None:
    with scene.operator() as operator:
        first = begin(scene, operator)
        uid = scene.api.get("Deployment", SECOND)["metadata"]["uid"]
        scene.api.delete("Deployment", SECOND)
        eventually(
            lambda: (d := scene.api.find("Deployment", SECOND)) and d["metadata"]["uid"] != uid, SOON,
            lambda: operator.log[-2000:],
        )  # fmt: skip
        scene.complete(3, operator)
        scene.api.patch("Deployment", SECOND, {"metadata": {"labels": {names.LABEL_GROUP: None}}})
        eventually(
            lambda: names.LABEL_GROUP in scene.api.get("Deployment", SECOND)["metadata"]["labels"], SOON,
            lambda: operator.log[-2000:],
        )  # fmt: skip
        scene.api.patch("Deployment", SECOND, {"spec": {"replicas": 5}})
        eventually(lambda: scene.api.get("Deployment", SECOND)["spec"]["replicas"] == 2, SOON)
        scene.complete(3, operator)
        assert scene.uids() == first


@pytest.mark.parametrize("by", ["the policy", "an operator without the policy", "the owner"])
def test_a_second_group_ends(scene: Scene, by: str) -> None:
    with scene.operator() as operator:
        first = begin(scene, operator)
        if by == "the policy":
            scene.annotate(None)
        elif by == "the owner":
            scene.api.delete("TritonModel", FIRST)
        else:
            assert operator.stop() == 0
    scene.program = PROGRAM if by == "the policy" else None
    with scene.operator() as operator:
        eventually(lambda: not scene.pods("second"), SOON, lambda: operator.log[-2000:])
        eventually(lambda: scene.api.find("Deployment", SECOND) is None, SOON)
        if by == "the owner":
            eventually(lambda: not scene.pods() and not scene.api.list("Deployment"), SOON)
            return
        assert scene.complete(1, operator)["models"][0]["pods"] == "1/1"
        assert scene.uids() == first
