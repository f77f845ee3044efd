"""Reads the problem, the phase and the server of one pod from its status."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from support.gen import condition, ended, failed, injected, not_ready, put, state, unschedulable, waiting
from triton_operator.cluster.stored_fields import without_unused
from triton_operator.pods import Pod, Problem
from triton_operator.pods.problems import problem_of, step_of

FINDING = {
    "code": "TR101", "severity": "error", "file": "pre/config.pbtxt", "line": 7, "column": 3,
    "message": "a bracket is missing", "remedy": "close it",
}  # fmt: skip
NOTE = {**FINDING, "code": "TR900", "severity": "warning", "message": "odd"}
PULL = 'Back-off pulling image "registry.example.com/detection:v1": not found'
CRASHES: dict[str, Any] = {
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}},
    "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "can't reach the mesh"}},
}
KILLED = {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
LIMIT = {"resources": {"limits": {"memory": "128Mi"}}}
SIDECAR = {"restartPolicy": "Always"}
GATE = 'corresponding condition of pod readiness gate "target-health" does not exist.'
LOADING = state("triton", started=False, state={"running": {"startedAt": "2026-01-01T00:00:00Z"}})


def pod(*changes: gen.Modifier) -> Pod:
    return Pod(gen.pod(*changes))


def failed_check(**more: Any) -> gen.Modifier:
    import json

    return ended("check", 1, json.dumps({**gen.report("pre", findings=[FINDING, NOTE]), **more}))


def timed_out(seconds: int) -> gen.Modifier:
    return ended("triton", 143, "I0101 loading", startedAt="2026-01-01T00:00:00Z",
                 finishedAt=f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z")  # fmt: skip


USAGE = "  --trace-config\n\tText about it.\n  --rate-limit\n\tDefault is 0.\n\n"
"""The end of tritonserver's usage text."""

PROBLEMS: dict[str, tuple[gen.Modifier, str, list[str]]] = {
    "evicted": (failed("Evicted", "The node was low on resource: memory."), "Evicted", ["low on resource"]),
    "evicted by its disk": (failed("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers "
                                   "2Gi. "), "Evicted", ["2Gi. Raise spec.server.resources.limits.ephemeral-storage"]),
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
    "sidecar crashed": (injected("proxy", **CRASHES), "ContainerCrashed",
                        ["container proxy ended with exit code 1", "can't reach the mesh"]),
    "foreign init container crashed": (injected("mesh-init", 0, **CRASHES), "ContainerCrashed",
                                       ["container mesh-init"]),
    "native sidecar crashed": (injected("proxy", 3, SIDECAR, **CRASHES), "ContainerCrashed", ["container proxy"]),
    "busybox not copied": (ended("tools", 1, "cp: write error: No space left on device"), "ContainerCrashed",
                           ["container tools", "No space left"]),
    "sidecar out of memory": (injected("proxy", spec=LIMIT, **KILLED), "OutOfMemory",
                              ["container proxy", "128Mi", "spec.podTemplate, or", "webhook"]),
    "comparison out of memory": (injected("compare-answers", spec=LIMIT, **KILLED), "OutOfMemory",
                                 ["container compare-answers", "spec.canary.comparePercent: 0"]),
    "bus error": (ended("triton", 135), "ServerCrashed", ["exit code 135 (signal 7)", "spec.server.sharedMemory"]),
    "segmentation fault": (ended("triton", 139), "ServerCrashed",
                           ["exit code 139 (signal 11)", "Content-Type application/x-www-form-urlencoded",
                            "let clients send application/octet-stream"]),
    "no tritonserver": (ended("triton", 127, "sh: exec: line 0: tritonserver: not found"), "ServerCrashed",
                        ["exit code 127: spec.server.image has no program tritonserver", "line 0: tritonserver: not"]),
    "arguments refused": (ended("triton", 1, USAGE + "\nUnexpected argument: tritonserver\n"), "ServerCrashed",
                          ["exit code 1: it refuses its arguments: Unexpected argument: tritonserver; correct"]),
    "unknown option": (ended("triton", 1, USAGE), "ServerCrashed",
                       ["it refuses its arguments: it doesn't know one of", "first line of its log"]),
    "processes out of memory": (injected("show-processes", spec=LIMIT, **KILLED), "OutOfMemory",
                                ["container show-processes", "remove spec.monitoring.processes"]),
    "latency out of memory": (injected("measure-latency", spec=LIMIT, **KILLED), "OutOfMemory",
                              ["container measure-latency", "remove spec.monitoring.latency"]),
    "dead process": (ended("triton", 1, "a backend process died: /models/a/1/model.py, /models/b/1/model.py\n",
                           finishedAt="2026-01-01T00:00:00Z"), "BackendDied",
                     ["the process of /models/a/1/model.py and of /models/b/1/model.py died", "kubectl logs"]),
    "dead process, full shared memory": (
        ended("triton", 1, "a backend process died: /models/a/1/model.py\n/dev/shm was nearly full (1 of 64 MiB free)",
              finishedAt="2026-01-01T00:00:00Z"), "BackendDied",
        ["the process of /models/a/1/model.py died while /dev/shm was nearly full (1 of 64 MiB free), so each"]),
    "unknown dead process": (ended("triton", 1, "a backend process died: a model that had just started\n",
                                   finishedAt="2026-01-01T00:00:00Z"), "BackendDied",
                             ["the process of a model that had just started died"]),
    "stopped answering": (gen.stopped_answering(), "StoppedAnswering",
                          ["detection-abc-1 was ready", "not passed its readiness probe since 01:00:00 UTC",
                           "kubectl describe pod detection-abc-1"]),
    "server crashed": (ended("triton", 1, "error: creating server: Internal"), "ServerCrashed", ["creating server"]),
}  # fmt: skip


@pytest.mark.parametrize(("change", "reason", "expected_texts"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_reports_the_problem_of_a_pod(change: gen.Modifier, reason: str, expected_texts: list[str]) -> None:
    problem = problem_of(pod(change))
    assert problem is not None
    assert problem.reason == reason
    for text in expected_texts:
        assert text in problem.message
    assert "odd" not in problem.message  # a warning isn't a problem


@pytest.mark.parametrize(("models", "code", "told"), [(40, 139, True), (4, 139, False), (40, 1, False)])
def test_names_the_limit_of_processes_where_many_models_may_reach_it(models: int, code: int, told: bool) -> None:
    report = gen.checked(gen.report(*(f"model_{n}" for n in range(models))))
    problem = problem_of(pod(report, gen.ended("triton", code)))
    assert problem is not None
    assert ("its 40 models have more threads" in problem.message) == told
    assert ("podPidsLimit" in problem.message) == told


def test_a_serving_or_deleted_pod_has_no_problem() -> None:
    assert problem_of(pod()) is None
    assert problem_of(pod(ended("triton", 1, "bye"), gen.deleting)) is None
    assert problem_of(pod(not_ready, put("status.phase", "Succeeded"), gen.deleting)) is None
    # It crashed once, restarted, and serves now.
    assert problem_of(pod(put("status.containerStatuses.0.lastState", {"terminated": {"exitCode": 1}}))) is None


def test_names_the_health_request_of_a_server() -> None:
    probe = put("spec.containers.0.readinessProbe", {"exec": {"command": ["sh"]}})
    problem = problem_of(pod(probe, gen.stopped_answering()))
    assert problem is not None
    assert "has not answered the health request since" in problem.message
    assert "the health request isn't answered yet" in step_of(pod(probe, not_ready)).message


def test_a_crash_long_ago_is_not_why_a_server_has_stopped_answering() -> None:
    crash = put("status.containerStatuses.0.lastState", {"terminated": {"exitCode": 1}})
    problem = problem_of(pod(crash, gen.stopped_answering()))
    assert problem is not None
    assert problem.reason == "StoppedAnswering"


@pytest.mark.parametrize("since", ["2026-01-01T00:00:00Z", "2025-12-31T23:59:00Z"])
def test_a_server_that_was_not_ready_since_its_start_is_starting(since: str) -> None:
    assert pod(gen.stopped_answering(since)).stopped_answering is None


def test_reports_the_last_crash_while_the_server_starts_again() -> None:
    restarted = pod(
        LOADING, put("status.containerStatuses.0.lastState", {"terminated": {"exitCode": 1, "message": "x"}})
    )
    problem = problem_of(restarted)
    assert problem is not None
    assert problem.reason == "ServerCrashed"


@pytest.mark.parametrize("earlier", [KILLED, {"lastState": CRASHES["lastState"]}], ids=["out of memory", "crashed"])
def test_a_sidecar_that_works_again_is_no_problem_while_the_server_loads(earlier: Any) -> None:
    sidecar = injected("proxy", state=RUNNING, **{**earlier, "ready": True})
    assert problem_of(pod(LOADING, sidecar)) is None


def test_ignores_earlier_failures_of_a_completed_init_container() -> None:
    completed = pod(LOADING, put("status.initContainerStatuses.1.lastState", {"terminated": {"exitCode": 1}}))
    assert problem_of(completed) is None


def test_reports_the_first_failed_container() -> None:
    both = pod(ended("fetch", 1, "cp: no"), put("status.initContainerStatuses.0.state",
               {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}))  # fmt: skip
    problem = problem_of(both)
    assert problem is not None
    assert problem.reason == "ImagePullFailed"


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
    assert step_of(subject).reason == reason
    assert problem_of(subject) is None
    assert not subject.is_ready


WAITS: dict[str, tuple[gen.Modifier, str, str]] = {
    "scheduling gate": (condition("PodScheduled", "False", reason="SchedulingGated", message="Scheduling is blocked"),
                        "Scheduling", "waiting for a node: Scheduling is blocked"),
    "volume not mounted": (condition("PodReadyToStartContainers", "False"), "PreparingRepository",
                           "waiting for the volumes and the network of the pod; if it takes long, its Events say why"),
    "foreign init container": (injected("mesh-init", 0, state=RUNNING), "PreparingRepository",
                               "waiting for the init container mesh-init"),
    "between ours": (injected("vault-init", 2, state=RUNNING), "CheckingRepository",
                     "waiting for the init container vault-init"),
    "native sidecar": (injected("proxy", 3, SIDECAR, state=RUNNING, started=False), "LoadingModels",
                       "waiting for the init container proxy"),
    "started sidecar": (injected("proxy", 0, SIDECAR, state=RUNNING, started=True), "PreparingRepository",
                        "pulling images and preparing the delivery of the repository"),
    "sidecar not ready": (injected("proxy", state=RUNNING, started=True), "PodNotReady",
                          "the server is ready, but its pod isn't: containers with unready status: [proxy]"),
    "readiness gate": (condition("Ready", "False", reason="ReadinessGatesNotReady", message=GATE), "PodNotReady",
                       f"the server is ready, but its pod isn't: {GATE}"),
    "node lost": (condition("Ready", "False"), "PodNotReady",
                  "the server is ready, but its pod isn't: perhaps its node doesn't answer"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "reason", "message"), WAITS.values(), ids=WAITS.keys())
def test_says_what_a_pod_waits_for_beside_the_server(change: gen.Modifier, reason: str, message: str) -> None:
    subject = Pod(without_unused(gen.pod(change)))
    assert step_of(subject) == Problem(reason, message)
    assert problem_of(subject) is None


def test_reads_the_address_and_epoch_of_a_server() -> None:
    server = pod().server
    assert server is not None
    assert (server.address, server.epoch) == ("10.0.0.7:8000", (0, True))
    ipv6 = pod(put("status.podIP", "fd00::7")).server
    assert ipv6 is not None
    assert ipv6.address == "[fd00::7]:8000"
    restarted = pod(not_ready, put("status.containerStatuses.0.restartCount", 2)).server
    assert restarted is not None
    assert restarted.epoch == (2, False)
    for change in (LOADING, gen.deleting, put("status.podIP", ""), failed("Evicted", ""), put("status", {})):
        assert pod(change).server is None


@pytest.mark.parametrize(
    ("image_id", "digest"),
    [
        (f"docker.io/library/x@{gen.DIGEST}", gen.DIGEST), (f"docker-pullable://x@{gen.DIGEST}", gen.DIGEST),
        (gen.DIGEST, gen.DIGEST), ("", ""), ("x:latest", ""),
    ],
)  # fmt: skip
def test_reads_the_digest_of_the_model_image(image_id: str, digest: str) -> None:
    assert pod(put("status.initContainerStatuses.1.imageID", image_id)).model_digest == digest


def test_reads_the_report_of_the_repository_check() -> None:
    report = pod(gen.checked(gen.report("a", "b", entrypoint="b"))).check_report
    assert report is not None
    assert report.entrypoint == "b"
    assert pod().check_report is None
    assert pod(put("status", {})).check_report is None


@pytest.mark.parametrize(("flag", "words"), [
    ("--metrics-config=summary_latencies=true", "--metrics-config (unknown to an image that was built without metrics"),
    ("--trace-config=triton,file=/t", "--trace-config (of spec.monitoring.latency; unknown to an image that was built"),
])  # fmt: skip
def test_an_image_without_metrics_or_traces_is_named(flag: str, words: str) -> None:
    problem = problem_of(pod(ended("triton", 1, USAGE), gen.put("spec.containers.0.args", [flag, flag])))
    assert problem
    assert problem.message.count(words) == 1
