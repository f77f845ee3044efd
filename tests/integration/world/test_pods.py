"""The status and the Events report problems of pods."""

from __future__ import annotations

import json
import time

import pytest

from integration.world.steps import SOON, events, model, progressing, ready, wait_until_observed
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
    found = progressing(api, "ImagePullFailed")
    assert found["message"].endswith("the servers of the previous spec keep serving")
    assert condition(model(api), "Ready")["status"] == "True"
    assert api.find("Pod", "old")


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
