"""What a pod says of a change of its model image."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from triton_operator.cluster.slim import slim
from triton_operator.render import in_place
from triton_operator.status import pods
from triton_operator.status.image_change import Attempt, last, noted, tools_image

MODEL = gen.model(modelImage={"reference": "models:2"}, entrypoint="a")
DIGEST = "sha256:" + "a" * 64


def pod(*numbers: int, reference: str = "models:1", **states: Any) -> dict[str, Any]:
    """A pod as the API server returns it. `states`: of the containers `files` and `change` with the last number."""
    out = gen.pod()
    containers = [c for n in numbers for c in (in_place.files(MODEL, n, 77), in_place.change(MODEL, n, "tools:1", 77))]
    debug = {"name": "debugger-x", "image": "busybox"}
    out["metadata"]["annotations"]["tritonoperator.io/model-image"] = reference
    out["spec"] = {
        "initContainers": [{"name": "tools", "image": "tools:1"}, {"name": "fetch", "image": "mirror/models:1"}],
        "containers": [{"name": "triton"}],
        "ephemeralContainers": [debug, *containers],
    }
    out["status"]["ephemeralContainerStatuses"] = [
        {"name": f"in-place-{kind}-{numbers[-1]}", "image": "x", "imageID": f"models@{DIGEST}", "state": state}
        for kind, state in states.items()
    ]
    return slim(out)


def ended(code: int, message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "message": message}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


@pytest.mark.parametrize(("states", "state", "words"), [
    ({}, "Running", ""),
    ({"files": waiting("ContainerCreating")}, "Running", ""),
    ({"files": ended(0), "change": {"running": {}}}, "Running", ""),
    ({"files": ended(0), "change": ended(0)}, "Done", ""),
    ({"files": ended(0), "change": ended(1, "failed to load 'a'\n")}, "Failed", "failed to load 'a'"),
    ({"files": ended(0), "change": ended(3)}, "Failed", "exit code 3"),
    ({"files": ended(1), "change": ended(137, "loading a")}, "Failed",
     "the change was killed, most likely because the server ended while it loaded the model"),
    ({"files": ended(1), "change": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}, "Failed",
     "there wasn't enough memory in the pod to compare and load the model"),
    ({"files": ended(1, "no space left")}, "Failed", "could not copy the repository from models:2: no space left"),
    ({"files": waiting("ErrImagePull", "not found")}, "Failed",
     "container in-place-files-2 can't be started: not found"),
    ({"files": ended(0), "change": waiting("CreateContainerError", "no")}, "Failed",
     "container in-place-change-2 can't be started: no"),
])  # fmt: skip
def test_state_of_the_last_change(states: dict[str, Any], state: Any, words: str) -> None:
    digest, over = DIGEST if "files" in states else "", "terminated" in states.get("change", {})
    assert last(pod(1, 2, **states)) == Attempt(2, "models:2", 77, state, words, digest, over)


def test_a_pod_without_a_change() -> None:
    plain = gen.pod()
    assert last(slim(plain)) is None
    plain["spec"]["ephemeralContainers"] = [
        {"name": name} for name in ("debugger-x", "in-place-files-", "in-place-files-x", "in-place-files-99999")
    ]
    assert last(slim(plain)) is None


def test_the_digest_is_that_of_the_last_change_when_the_pod_has_it() -> None:
    done = {"files": ended(0), "change": ended(0)}
    before = pods.digest(pod(1, reference="models:1", **done))
    assert before != DIGEST
    assert pods.digest(pod(1, reference="models:2", **done)) == DIGEST
    assert pods.digest(pod(1, reference="models:1", files=ended(0), change=ended(1))) == before


def test_a_change_that_was_recorded_is_done_also_without_its_status() -> None:
    found = last(pod(1, reference="models:2"))
    assert found is not None
    assert found.state == "Done"


def test_a_pod_that_copied_its_former_image_after_the_change_does_not_have_the_new_one() -> None:
    times = {"startedAt": "2026-01-01T00:00:10Z", "finishedAt": "2026-01-01T00:00:11Z"}
    done = {"files": ended(0), "change": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:09Z"}}}
    restarted = pod(1, **done)
    for one in restarted["status"]["initContainerStatuses"]:
        one["state"] = {"terminated": {"exitCode": 0, **times}}
    found = last(restarted)
    assert found is not None
    assert (found.state, found.message) == (
        "Failed", "the pod has copied its former model image again after the change"
    )  # fmt: skip
    before = pod(1, **done)
    for one in before["status"]["initContainerStatuses"]:
        one["state"] = {"terminated": {"exitCode": 0, "startedAt": "2026-01-01T00:00:01Z"}}
    assert last(before).state == "Done"  # type: ignore[union-attr]


def test_reads_the_images_of_the_pod() -> None:
    assert noted(pod(1)) == "models:1"
    assert tools_image(pod(1)) == "tools:1"
