"""Reads the problem, the phase and the server of one pod from its status."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from support.gen import ended, failed, not_ready, pod, put, state, unschedulable, waiting
from triton_operator.status import pods

FINDING = {
    "code": "TR101", "severity": "error", "file": "pre/config.pbtxt", "line": 7, "column": 3,
    "message": "a bracket is missing", "remedy": "close it",
}  # fmt: skip
NOTE = {**FINDING, "code": "TR900", "severity": "warning", "message": "odd"}
PULL = 'Back-off pulling image "registry.example.com/detection:v1": not found'
LOADING = state("triton", started=False, state={"running": {"startedAt": "2026-01-01T00:00:00Z"}})


def failed_check(**more: Any) -> gen.Modifier:
    import json

    return ended("check", 1, json.dumps({**gen.report("pre", findings=[FINDING, NOTE]), **more}))


def timed_out(seconds: int) -> gen.Modifier:
    return ended("triton", 143, "I0101 loading", startedAt="2026-01-01T00:00:00Z",
                 finishedAt=f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z")  # fmt: skip


PROBLEMS: dict[str, tuple[gen.Modifier, str, list[str]]] = {
    "evicted": (failed("Evicted", "The node was low on resource: memory."), "Evicted", ["low on resource"]),
    "unschedulable": (unschedulable("0/3 nodes are available: 3 Insufficient nvidia.com/gpu."), "Unschedulable",
                      ["3 Insufficient nvidia.com/gpu"]),
    "model image": (waiting("fetch", "ImagePullBackOff", PULL), "ImagePullFailed",
                    ["model image registry.example.com/detection:v1", "not found"]),
    "server image": (waiting("triton", "ErrImagePull", "denied"), "ImagePullFailed",
                     ["server image triton:1", "denied"]),
    "operator image": (waiting("tools", "InvalidImageName"), "ImagePullFailed", ["operator image", "InvalidImageName"]),
    "missing secret": (waiting("triton", "CreateContainerConfigError", 'secret "s3" not found'), "ContainerNotStarted",
                       ["container triton", 'secret "s3" not found']),
    "path not in model image": (ended("fetch", 1, "cp: can't stat '/models/.': No such file or directory"),
                                "RepositoryNotCopied", ["can't stat", "spec.modelImage.path"]),
    "copy failed without output": (ended("fetch", 137), "RepositoryNotCopied", ["exit code 137"]),
    "invalid repository": (failed_check(), "RepositoryInvalid",
                           ["pre/config.pbtxt:7:3", "a bracket is missing", "close it"]),
    "truncated report": (failed_check(truncated=4), "RepositoryInvalid", ["and 4 more findings"]),
    "check crashed": (ended("check", 2, "Traceback: boom"), "RepositoryCheckFailed", ["boom"]),
    "check failed without output": (ended("check", 2), "RepositoryCheckFailed", ["exit code 2"]),
    "server out of memory": (ended("triton", 137, reason="OOMKilled"), "OutOfMemory",
                             ["container triton", "8Gi", "limits.memory"]),
    "fetch out of memory": (ended("fetch", 137, reason="OOMKilled"), "OutOfMemory", ["container fetch"]),
    "startup probe failed": (timed_out(600), "StartupTimeout", ["600 s", "startupSeconds", "I0101 loading"]),
    "ended before startup timeout": (timed_out(599), "ServerCrashed", ["exit code 143", "I0101 loading"]),
    "server crashed": (ended("triton", 1, "error: creating server: Internal"), "ServerCrashed", ["creating server"]),
}  # fmt: skip


@pytest.mark.parametrize(("change", "reason", "expected_texts"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_reports_the_problem_of_a_pod(change: gen.Modifier, reason: str, expected_texts: list[str]) -> None:
    found = pods.problem(pod(change))
    assert found is not None
    assert found.reason == reason
    for text in expected_texts:
        assert text in found.message
    assert "odd" not in found.message  # a warning isn't a problem


def test_a_serving_or_deleted_pod_has_no_problem() -> None:
    assert pods.problem(pod()) is None
    assert pods.problem(pod(ended("triton", 1, "bye"), gen.deleting)) is None
    assert pods.problem(pod(not_ready, put("status.phase", "Succeeded"), gen.deleting)) is None
    # It crashed once, restarted, and serves now.
    assert pods.problem(pod(put("status.containerStatuses.0.lastState", {"terminated": {"exitCode": 1}}))) is None


def test_reports_the_last_crash_while_the_server_starts_again() -> None:
    restarted = pod(
        LOADING, put("status.containerStatuses.0.lastState", {"terminated": {"exitCode": 1, "message": "x"}})
    )
    found = pods.problem(restarted)
    assert found is not None
    assert found.reason == "ServerCrashed"


def test_ignores_earlier_failures_of_a_completed_init_container() -> None:
    completed = pod(LOADING, put("status.initContainerStatuses.1.lastState", {"terminated": {"exitCode": 1}}))
    assert pods.problem(completed) is None


def test_reports_the_first_failed_container() -> None:
    both = pod(ended("fetch", 1, "cp: no"), put("status.initContainerStatuses.0.state",
               {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}))  # fmt: skip
    found = pods.problem(both)
    assert found is not None
    assert found.reason == "ImagePullFailed"


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
PHASES: dict[str, tuple[gen.Modifier, str]] = {
    "unscheduled": (put("status", {}), "Scheduling"),
    "tools running": (state("tools", state=RUNNING), "PreparingRepository"),
    "fetch running": (state("fetch", state=RUNNING), "FetchingRepository"),
    "check running": (state("check", state=RUNNING), "CheckingRepository"),
    "server starting": (LOADING, "LoadingModels"),
    "server not ready": (not_ready, "EntrypointNotReady"),
}


@pytest.mark.parametrize(("change", "reason"), PHASES.values(), ids=PHASES.keys())
def test_reports_the_phase_of_a_pod_that_is_not_ready(change: gen.Modifier, reason: str) -> None:
    subject = pod(change)
    assert pods.phase(subject).reason == reason
    assert pods.problem(subject) is None
    assert not pods.is_ready(subject)


def test_reads_the_address_and_epoch_of_a_server() -> None:
    found = pods.server(pod())
    assert found is not None
    assert (found.address, found.epoch) == ("10.0.0.7:8000", (0, True))
    ipv6 = pods.server(pod(put("status.podIP", "fd00::7")))
    assert ipv6 is not None
    assert ipv6.address == "[fd00::7]:8000"
    restarted = pods.server(pod(not_ready, put("status.containerStatuses.0.restartCount", 2)))
    assert restarted is not None
    assert restarted.epoch == (2, False)
    for change in (LOADING, gen.deleting, put("status.podIP", ""), failed("Evicted", ""), put("status", {})):
        assert pods.server(pod(change)) is None


@pytest.mark.parametrize(
    ("image_id", "digest"),
    [
        (f"docker.io/library/x@{gen.DIGEST}", gen.DIGEST), (f"docker-pullable://x@{gen.DIGEST}", gen.DIGEST),
        (gen.DIGEST, gen.DIGEST), ("", ""), ("x:latest", ""),
    ],
)  # fmt: skip
def test_reads_the_digest_of_the_model_image(image_id: str, digest: str) -> None:
    assert pods.digest(pod(put("status.initContainerStatuses.1.imageID", image_id))) == digest


def test_reads_the_report_of_the_repository_check() -> None:
    found = pods.check_report(pod(gen.checked(gen.report("a", "b", entrypoint="b"))))
    assert found is not None
    assert found.entrypoint == "b"
    assert pods.check_report(pod()) is None
    assert pods.check_report(pod(put("status", {}))) is None


def test_models_of_a_server_are_its_arguments_until_the_operator_changes_them() -> None:
    started = pod(put("spec.containers.0.args", ["--load-model=a", "--load-model=b"]))
    assert pods.models(started) == (("a", "b"), ())
    note = put("metadata.annotations", {"tritonoperator.io/load-models": pods.models_note(started, ["a", "c"])})
    changed = gen.modified(started, note)
    assert pods.models(changed) == (("a", "c"), ())
    assert pods.models(gen.modified(changed, put("status.containerStatuses.0.restartCount", 1))) == (("a", "b"), ())
    for text in ("", "x", ":", "0", "1:c", "00:c"):
        odd = put("metadata.annotations", {"tritonoperator.io/load-models": text})
        assert pods.models(gen.modified(started, odd)) == (("a", "b"), ()), text
