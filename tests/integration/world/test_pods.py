"""The status and the Events report problems of pods."""

from __future__ import annotations

import json
import time

import pytest

from integration.world.steps import SOON, events, model, progressing, reached, ready, wait_until_observed
from support import gen
from support.api import Api, condition, eventually
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import make

pytestmark = pytest.mark.integration

OOM = {"reason": "OOMKilled"}
FINDING = {"code": "TR101", "severity": "error", "file": "pre/config.pbtxt", "line": 7, "column": 3,
           "message": "a bracket is missing", "remedy": "close it"}  # fmt: skip


def test_reports_each_problem_of_a_pod_until_it_is_ready(api: Api, operator: Operator) -> None:
    make(api, entrypoint="detection", server={"resources": {"limits": {"memory": "8Gi"}}})
    wait_until_observed(api)
    add_pod(api, gen.unschedulable("0/1 nodes are available: 1 Insufficient memory."))
    assert "Insufficient memory" in ready(api, "Unschedulable")["message"]
    add_pod(api, gen.waiting("fetch", "ImagePullBackOff", "Back-off pulling image: not found"))
    assert "not found" in ready(api, "ImagePullFailed")["message"]
    # The same reason with another message posts no second Event.
    add_pod(api, gen.waiting("fetch", "ErrImagePull", "manifest unknown"))
    eventually(lambda: "manifest unknown" in condition(model(api), "Ready")["message"], SOON)
    add_pod(api, gen.ended("check", 1, json.dumps(gen.report("pre", findings=[FINDING]))))
    assert "pre/config.pbtxt:7:3" in ready(api, "RepositoryInvalid")["message"]
    assert condition(model(api), "ModelsLoaded")["reason"] == "RepositoryInvalid"
    add_pod(api, gen.ended("triton", 137, **OOM))
    assert "limit of 8Gi" in ready(api, "OutOfMemory")["message"]
    since = condition(model(api), "Ready")["lastTransitionTime"]
    time.sleep(1.1)  # conditions have whole seconds
    good = gen.report("pre", "detection", entrypoint="detection")
    add_pod(api, gen.checked(good), gen.put("status.podIP", ""))
    assert ready(api, "EntrypointAnswers")["lastTransitionTime"] > since
    status = model(api)["status"]
    assert status["image"]["digest"] == gen.DIGEST
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)
    reasons = ["Unschedulable", "ImagePullFailed", "RepositoryInvalid", "OutOfMemory", "EntrypointAnswers"]
    # The last Event is posted after the status.
    eventually(lambda: events(api)[-1:] == reasons[-1:], SOON, lambda: events(api))
    assert events(api) == reasons


def test_stays_ready_while_new_pods_fail_and_old_ones_serve(api: Api, operator: Operator) -> None:
    make(api, entrypoint="detection")
    wait_until_observed(api)
    add_pod(api, gen.put("status.podIP", ""), name="old")
    ready(api, "EntrypointAnswers")
    api.patch("TritonModel", gen.NAME, {"spec": {"modelImage": {"reference": "r:typo"}}})
    wait_until_observed(api)
    add_pod(api, gen.waiting("fetch", "ImagePullBackOff", "not found"), name="new")
    progress = progressing(api, "ImagePullFailed")
    assert progress["message"].endswith("the servers of the previous spec keep serving")
    assert condition(model(api), "Ready")["status"] == "True"
    assert api.find("Pod", "old")


def test_names_the_flag_that_closes_the_servers_to_the_operator(api: Api, operator: Operator) -> None:
    """Nothing answers at the address of the pod, so the reason would be NoServerAnswers if the operator asked it."""
    closed = "model-repository,model-config:admin-key=$(ADMIN_KEY)"
    arguments = [f"--http-restricted-api={closed}", f"--grpc-restricted-protocol={closed}"]
    explicit = {"modelControl": "explicit", "loadModels": ["find"], "args": arguments}
    make(api, entrypoint="find", server=explicit)
    wait_until_observed(api)
    add_pod(api, gen.put("status.podIP", "127.0.0.9"))
    assert "--http-restricted-api" in reached(api, "ModelsLoaded", "APIRestricted")["message"]
    ready(api, "EntrypointAnswers")
    # No server would load another model, so the servers are replaced.
    api.patch("TritonModel", gen.NAME, {"spec": {"server": {"loadModels": ["find", "crop"]}}})
    wait_until_observed(api)
    progressing(api, "RollingOut")
    (server,) = api.get("Deployment", gen.NAME)["spec"]["template"]["spec"]["containers"]
    assert [a for a in server["args"] if a.startswith("--load-model=")] == ["--load-model=find", "--load-model=crop"]


def test_says_that_a_ready_server_does_not_answer_the_operator(api: Api, operator: Operator) -> None:
    make(api, entrypoint="detection")
    wait_until_observed(api)
    add_pod(api, gen.put("status.podIP", "127.0.0.9"))
    ready(api, "EntrypointAnswers")
    silent = "detection-abc-1 is ready, but doesn't answer the operator: a NetworkPolicy"
    eventually(
        lambda: condition(model(api), "ModelsLoaded")["message"].startswith(silent), SOON, lambda: model(api)["status"]
    )


def test_reports_each_repair_of_a_server_once(api: Api, operator: Operator) -> None:
    make(api, entrypoint="detection")
    wait_until_observed(api)
    before = operator.metric_sum("triton_operator_repairs_total", kind="BackendDied")

    def repaired(time: str) -> None:
        ended = {"exitCode": 1, "message": "a backend process died: /models/pre/1/model.py", "finishedAt": time}
        add_pod(
            api, gen.put("status.podIP", ""), gen.put("status.containerStatuses.0.lastState", {"terminated": ended})
        )
        eventually(lambda: model(api)["status"].get("lastRepair", {}).get("time") == time, SOON)

    repaired("2026-01-01T00:00:00Z")
    ready(api, "EntrypointAnswers")
    eventually(lambda: "BackendDied" in events(api), SOON, lambda: operator.log[-2000:])
    repaired("2026-01-01T00:10:00Z")
    eventually(lambda: events(api).count("BackendDied") == 2, SOON, lambda: operator.log[-2000:])
    # Another change of the status.
    api.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {"max_qps": "5"}}})
    eventually(lambda: "ThresholdChanged" in events(api), SOON, lambda: events(api))
    assert events(api).count("BackendDied") == 2
    assert operator.metric_sum("triton_operator_repairs_total", kind="BackendDied") == before + 2


def test_reports_the_repair_of_each_server(api: Api, operator: Operator) -> None:
    """Servers restart at once, if their clients send the same request again. One kubelet is late."""
    make(api, entrypoint="detection", replicas=3)
    wait_until_observed(api)

    def restart(name: str, time: str) -> None:
        ended = {"exitCode": 1, "message": "a backend process died: /models/pre/1/model.py", "finishedAt": time}
        add_pod(
            api, gen.put("status.podIP", ""), gen.put("status.containerStatuses.0.lastState", {"terminated": ended}),
            name=name,
        )  # fmt: skip

    restart("first", "2026-01-01T00:00:05Z")
    restart("same", "2026-01-01T00:00:05Z")
    eventually(lambda: events(api).count("BackendDied") == 2, SOON, lambda: events(api))
    restart("late", "2026-01-01T00:00:04Z")
    eventually(lambda: events(api).count("BackendDied") == 3, SOON, lambda: events(api))
    assert model(api)["status"]["lastRepair"]["time"] == "2026-01-01T00:00:05Z"


def test_posts_an_event_with_a_long_message(api: Api, operator: Operator) -> None:
    make(api)
    wait_until_observed(api)
    add_pod(api, gen.ended("triton", 1, "🚦" * 500))
    ready(api, "ServerCrashed")
    eventually(lambda: "ServerCrashed" in events(api), SOON, lambda: operator.log[-2000:])


def test_overwrites_status_that_others_wrote(api: Api, operator: Operator) -> None:
    make(api)
    wait_until_observed(api)
    api.patch("TritonModel", gen.NAME, {"status": {"loaded": "7/7"}}, "status")
    eventually(lambda: model(api)["status"].get("loaded") != "7/7", SOON)


def two_servers_of_which_one_has_stopped(api: Api) -> None:
    make(api, entrypoint="detection", replicas=2, healthRequest={"file": "detection/health.json"})
    wait_until_observed(api)
    add_pod(api, gen.put("status.podIP", ""), name="works")
    add_pod(api, gen.put("status.podIP", ""), name="stopped")
    eventually(lambda: model(api)["status"].get("readyReplicas") == 2, SOON, lambda: model(api)["status"])
    add_pod(api, gen.put("status.podIP", ""), gen.stopped_answering(), name="stopped")


def evicted(api: Api, name: str) -> bool:
    """Without a kubelet the pod stays, with the time of its deletion."""
    return "deletionTimestamp" in api.get("Pod", name)["metadata"]


def test_evicts_a_server_that_has_stopped_answering(api: Api, operator: Operator) -> None:
    two_servers_of_which_one_has_stopped(api)
    eventually(lambda: evicted(api, "stopped"), SOON, lambda: operator.log[-2000:])
    repair = eventually(lambda: model(api)["status"].get("lastRepair"), SOON)
    assert (repair["reason"], repair["server"]) == ("HealthRequestFailed", "stopped")
    assert model(api)["status"]["evictions"] == [repair["time"]]
    assert not evicted(api, "works")
    eventually(lambda: "HealthRequestFailed" in events(api), SOON, lambda: events(api))


def test_reports_a_server_that_cannot_be_evicted(api: Api, operator: Operator) -> None:
    """Kubernetes evicts no pod that two PodDisruptionBudgets select."""
    budget = {"minAvailable": 2, "selector": {"matchLabels": gen.pod()["metadata"]["labels"]}}
    metadata = {"name": "other", "namespace": api.namespace}
    api.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": budget})
    two_servers_of_which_one_has_stopped(api)
    assert "more than one PodDisruptionBudget" in progressing(api, "RepairRefused")["message"]
    assert condition(model(api), "Ready")["status"] == "True"
    assert not evicted(api, "stopped")
    api.delete("PodDisruptionBudget", "other")
    eventually(lambda: evicted(api, "stopped"), SOON, lambda: operator.log[-2000:])
