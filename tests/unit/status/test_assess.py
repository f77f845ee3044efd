"""Computes the status from observations."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from support import gen
from support.gen import ended, failed, injected, not_ready, pod, put, unschedulable, waiting
from support.observing import seen
from triton_operator.api.servers import IndexEntry
from triton_operator.api.status import Condition, RepairStatus, ThresholdStatus, TritonModelStatus
from triton_operator.model_changes import LoadDecision
from triton_operator.pods import Pod, Problem
from triton_operator.status.assess import assess
from triton_operator.status.conditions import is_urgent, transitions, with_transition_times
from triton_operator.status.models import MAX_MODELS

NOW, THEN = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"
READY_INDEX = (IndexEntry("a", "1", "READY", ""),)
OLD = "template-0"
LOADING = gen.state("triton", started=False, state={"running": {}})


def deployment(replicas: int = 1, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": gen.NAME, "generation": 3},
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": 3, **status},
    }


def judge(
    *pods: dict[str, Any],
    indexes: dict[str, Any] | None = None,
    replicas: int | None = None,
    before: TritonModelStatus | None = None,
    now: str = NOW,
    spec: dict[str, Any] | None = None,
    paused: bool = False,
    **fields: Any,
) -> TritonModelStatus:
    started = {p["metadata"]["name"]: READY_INDEX for p in pods}
    fields = {"deployment": deployment(len(pods) if replicas is None else replicas), **fields}
    if paused:
        fields["deployment"]["spec"]["paused"] = True
    answers = started if indexes is None else indexes
    observed = seen(gen.model(**(spec or {})), before, pods=tuple(map(Pod, pods)), indexes=answers, **fields)
    return assess(*observed, now)


_TYPES = ("Ready", "Progressing", "ModelsLoaded")
"""The conditions that these tests check. test_load.py checks the others."""


def reasons(status: TritonModelStatus) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in status.conditions if c.type in _TYPES}


def message(status: TritonModelStatus, kind: str) -> str:
    return next(c.message for c in status.conditions if c.type == kind)


SERVING = {"Ready": ("True", "EntrypointAnswers"), "ModelsLoaded": ("True", "AllLoaded")}
COMPLETE = {**SERVING, "Progressing": ("False", "Complete")}


def test_says_that_a_ready_server_does_not_answer_the_operator() -> None:
    """The kubelet's probes pass, for example with a service mesh that refuses connections without mTLS."""
    silent = judge(pod(), indexes={})
    assert reasons(silent)["ModelsLoaded"] == ("Unknown", "NoServerAnswers")
    words = message(silent, "ModelsLoaded")
    assert words.startswith("detection-abc-1 is ready, but doesn't answer the operator")
    assert (
        "Allow ingress to the ports 8000, 8002 from pods with the label app.kubernetes.io/name: triton-operator"
        in words
    )
    assert silent.loaded == "", "a server that is ready has loaded its models"
    explicit = {"server": {"modelControl": "explicit", "loadModels": ["detection"]}}
    assert "ports 8000, 8001, 8002 from" in message(judge(pod(), indexes={}, spec=explicit), "ModelsLoaded")
    # The operator hasn't asked it yet, or it isn't ready.
    for status in (judge(pod(), indexes={}, pending=True), judge(pod(not_ready), indexes={})):
        assert message(status, "ModelsLoaded") == "no server answers yet"


def test_names_the_flag_that_closes_the_list_of_models() -> None:
    restricted = {"server": {"args": ["--http-restricted-api=model-repository,trace:key=$(KEY)"]}}
    status = judge(pod(), indexes={}, spec=restricted)
    assert reasons(status) == {**COMPLETE, "ModelsLoaded": ("Unknown", "APIRestricted")}
    words = message(status, "ModelsLoaded")
    assert words.startswith("the flag --http-restricted-api in spec.server.args closes model-repository")
    assert status.loaded == ""


def test_reports_the_steps_of_a_new_tritonmodel() -> None:
    status = judge(deployment=None)
    assert reasons(status) == {
        "Ready": ("False", "Creating"), "Progressing": ("True", "Creating"),
        "ModelsLoaded": ("Unknown", "NoServerAnswers"),
    }  # fmt: skip
    assert (status.replicas, status.ready_replicas, status.observed_generation) == (0, 0, 1)
    assert status.selector == "tritonoperator.io/model=detection"


def test_reports_creating_before_the_first_pod() -> None:
    assert reasons(judge(replicas=2))["Progressing"] == ("True", "RollingOut")
    assert reasons(judge(replicas=2))["Ready"] == ("False", "Creating")


def test_reports_the_step_of_a_starting_pod() -> None:
    status = judge(pod(LOADING, gen.checked(gen.report("a", "b", entrypoint="b"))), indexes={})
    assert reasons(status) == {
        "Ready": ("False", "LoadingModels"), "Progressing": ("True", "RollingOut"),
        "ModelsLoaded": ("Unknown", "NoServerAnswers"),
    }  # fmt: skip
    assert (status.loaded, status.entrypoint, status.models) == ("0/2", "b", [])


def test_reports_ready_when_all_servers_are_ready() -> None:
    status = judge(pod(), pod(name="other"))
    assert reasons(status) == COMPLETE
    assert (status.replicas, status.ready_replicas, status.loaded) == (2, 2, "1/1")
    assert status.image is not None
    assert (status.image.reference, status.image.digest) == (gen.IMAGE, gen.DIGEST)


@pytest.mark.parametrize(
    "change",
    [{"replicas": 3}, {"deployment": {**deployment(1), "status": {"observedGeneration": 2}}}],
    ids=["a server is missing", "the controller has not seen the spec"],
)
def test_reports_progressing_until_the_rollout_is_complete(change: dict[str, Any]) -> None:
    assert reasons(judge(pod(), **change)) == {**SERVING, "Progressing": ("True", "RollingOut")}


def died(time: str, message: str = "a backend process died: /models/a/1/model.py") -> gen.Modifier:
    """A server that ended at `time` and serves again."""
    ended = {"exitCode": 0, "message": message, "finishedAt": time}
    return gen.put("status.containerStatuses.0.lastState", {"terminated": ended})


def test_remembers_the_last_repair_of_a_server() -> None:
    first = judge(pod(died("2026-01-01T00:00:00Z")), pod(name="other"))
    assert reasons(first) == COMPLETE
    assert first.last_repair is not None
    assert (first.last_repair.reason, first.last_repair.time) == ("BackendDied", "2026-01-01T00:00:00Z")
    assert "/models/a/1/model.py died" in first.last_repair.message
    later = judge(pod(died("2026-01-01T00:00:00Z")), pod(died("2026-01-02T00:00:00Z"), name="other"), before=first)
    assert later.last_repair is not None
    assert later.last_repair.server == "other"
    # The pod was deleted.
    assert judge(pod(), pod(name="new"), before=later).last_repair == later.last_repair
    assert judge(pod(died("2026-01-01T00:00:00Z", "another message"))).last_repair is None


def test_says_that_several_servers_restarted_for_the_same_model() -> None:
    """In the same second, after one client has sent its request to each."""
    one = judge(pod(died("2026-01-01T00:00:00Z"), name="a"), pod(name="b"), pod(name="c"))
    assert one.last_repair is not None
    assert "servers restarted" not in one.last_repair.message
    servers = [pod(died("2026-01-01T00:00:00Z"), name=name) for name in ("a", "b")]
    two = judge(*servers, pod(name="c"), before=one)
    assert two.last_repair is not None
    assert "2 servers restarted for this within an hour, so a request may end the process" in two.last_repair.message
    assert judge(*servers, pod(name="c"), before=two).last_repair == two.last_repair
    other = pod(died("2026-01-01T00:10:00Z", "a backend process died: /models/b/1/model.py"), name="c")
    later = judge(*servers, other, before=two)
    assert later.last_repair is not None
    assert "servers restarted" not in later.last_repair.message
    long_ago = pod(died("2025-12-31T20:00:00Z"), name="c")
    assert judge(*servers, long_ago, before=two).last_repair == two.last_repair


def test_a_repair_replaces_one_that_is_in_the_future() -> None:
    """The clock was set back."""
    future = judge(pod(died("2027-01-01T00:00:00Z")), pod(name="other"))
    repaired = judge(pod(), pod(died("2026-01-01T00:00:00Z"), name="other"), before=future)
    assert repaired.last_repair is not None
    assert repaired.last_repair.server == "other"
    repair = RepairStatus(reason="HealthRequestFailed", server="gone", message="it was evicted", time=NOW)
    assert judge(pod(), before=future, evicted=repair).last_repair == repair


def test_reports_a_rollout_while_old_servers_exist() -> None:
    assert reasons(judge(pod(), pod(name="old", template=OLD), replicas=1))["Progressing"] == ("True", "RollingOut")


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [(waiting("fetch", "ImagePullBackOff", "not found"), "ImagePullFailed"), (ended("triton", 1), "ServerCrashed"),
     (unschedulable("0/1 nodes"), "Unschedulable")],
)  # fmt: skip
def test_stays_ready_while_new_pods_fail(trouble: gen.Modifier, reason: str) -> None:
    old = pod(name="old", template=OLD)
    status = judge(old, pod(trouble, name="new"), replicas=1, indexes={"old": READY_INDEX})
    assert reasons(status) == {**SERVING, "Progressing": ("False", reason)}
    assert message(status, "Progressing").endswith("the servers of the previous spec keep serving")
    assert status.ready_replicas == 1


def test_model_states_come_from_the_new_servers_during_a_rollout() -> None:
    """A new image that renames a model or increases its version causes no problem during the rollout."""
    new = (IndexEntry("a", "2", "READY", ""), IndexEntry("b", "1", "READY", ""))
    pods = [pod(name="old", template=OLD), pod(gen.checked(gen.report("a", "b")), name="new")]
    status = judge(*pods, replicas=2, indexes={"old": READY_INDEX, "new": new})
    assert reasons(status)["ModelsLoaded"] == ("True", "AllLoaded")
    assert [(m.name, m.version, m.pods) for m in status.models] == [("a", "2", "1/1"), ("b", "1", "1/1")]


def test_says_that_servers_run_different_images_of_one_tag() -> None:
    other = gen.put("status.initContainerStatuses.1.imageID", "registry.example.com/detection@sha256:" + "e" * 64)
    status = judge(pod(name="a"), pod(other, name="b"))
    assert reasons(status)["Progressing"] == ("False", "Complete")
    assert "but they have 2 versions of the model image" in message(status, "Progressing")
    assert "but" not in message(judge(pod(name="a"), pod(name="b")), "Progressing")


def test_reports_zero_replicas() -> None:
    for spec in ({"replicas": 0}, {}):
        status = judge(replicas=0, spec=spec)
        assert reasons(status)["Ready"] == ("False", "ScaledToZero")
        assert reasons(status)["Progressing"] == ("False", "Complete")


def test_reports_a_refused_write_and_stays_ready() -> None:
    refused = {"Deployment": Problem("ApplyRefused", "the API server refuses Deployment vision/detection: no")}
    status = judge(pod(), refused=refused)
    assert reasons(status) == {**SERVING, "Progressing": ("False", "ApplyRefused")}
    assert "refuses Deployment" in message(status, "Progressing")
    taken = {"Deployment": Problem("NameTaken", "x")}
    assert reasons(judge(deployment=None, refused=taken))["Ready"] == ("False", "NameTaken")
    # Conditions of optional children are separate.
    assert reasons(judge(pod(), refused={"PrometheusRule": Problem("ApplyRefused", "no")})) == COMPLETE


def test_reports_that_the_api_server_refuses_pods() -> None:
    quota = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: gpus"}
    status = judge(deployment=deployment(1, conditions=[quota]))
    assert reasons(status)["Ready"] == ("False", "PodsRefused")
    assert "exceeded quota" in message(status, "Ready")


def test_reports_a_model_that_does_not_load() -> None:
    broken = (*READY_INDEX, IndexEntry("b", "1", "UNAVAILABLE", "no such file"))
    status = judge(pod(not_ready), indexes={"detection-abc-1": broken})
    assert reasons(status) == dict.fromkeys(("Ready", "Progressing", "ModelsLoaded"), ("False", "ModelLoadFailed"))
    assert message(status, "ModelsLoaded") == "b: no such file"
    assert status.loaded == "1/2"
    # The entrypoint doesn't need the model: it answers, and the rollout is complete.
    status = judge(pod(), indexes={"detection-abc-1": broken})
    assert reasons(status) == {**COMPLETE, "ModelsLoaded": ("False", "ModelLoadFailed")}


def test_a_paused_deployment_is_no_progress() -> None:
    """With `kubectl rollout pause` a change of the spec would seem to roll out forever (spinnaker/spinnaker#5101)."""
    status = judge(pod(name="old", template=OLD), replicas=1, paused=True)
    assert reasons(status) == {**SERVING, "Progressing": ("False", "DeploymentPaused")}
    assert "kubectl rollout resume deployment/detection" in message(status, "Progressing")
    # A pause doesn't matter while nothing changes, and during a change by the operator itself.
    assert reasons(judge(pod(), paused=True)) == COMPLETE
    change = LoadDecision(left=1)
    assert reasons(judge(pod(), paused=True, load=change))["Progressing"] == ("True", "ChangingModels")


SECRETIVE = {
    "server": {"env": [{"name": "TOKEN", "value": "hunter22"}], "args": ["--cache-config=redis,password=pass22"]}
}
LEAKED = "login as hunter22 with pass22 refused"
REDACTED = "login as (hidden) with (hidden) refused"


def test_redacts_sensitive_values_in_the_server_log() -> None:
    for crash in (
        pod(not_ready, ended("triton", 1, message=LEAKED)),
        pod(not_ready, waiting("triton", "RunContainerError", LEAKED)),
        pod(injected("proxy", lastState={"terminated": {"exitCode": 1, "message": LEAKED}})),
    ):
        status = judge(crash, spec=SECRETIVE, indexes={})
        assert "hunter22" not in status.model_dump_json()
        assert REDACTED in message(status, "Ready")
        assert REDACTED in message(status, "Progressing")


def test_redacts_sensitive_values_in_the_reason_of_a_model() -> None:
    index = {pod()["metadata"]["name"]: (IndexEntry("b", "1", "UNAVAILABLE", LEAKED),)}
    status = judge(pod(not_ready), indexes=index, spec=SECRETIVE)
    assert "hunter22" not in status.model_dump_json()
    assert message(status, "ModelsLoaded") == f"b: {REDACTED}"
    assert status.models[0].reason == REDACTED


def test_reports_an_invalid_repository_in_every_condition() -> None:
    import json

    finding = {"code": "TR1", "severity": "error", "file": "a/config.pbtxt", "line": 1, "message": "m", "remedy": "r"}
    status = judge(pod(ended("check", 1, json.dumps(gen.report("a", findings=[finding])))), indexes={})
    assert reasons(status) == dict.fromkeys(("Ready", "Progressing", "ModelsLoaded"), ("False", "RepositoryInvalid"))
    assert "a/config.pbtxt:1" in message(status, "Ready")


@pytest.mark.parametrize("reason", ["Terminated", "OutOfnvidia.com/gpu", "NodeAffinity", "UnexpectedAdmissionError"])
@pytest.mark.parametrize("ago", [1, 60 * 24 * 30])
def test_a_pod_that_its_node_has_ended_says_nothing_about_the_next_one(reason: str, ago: int) -> None:
    """A spot node was shut down, or a new node's devices weren't there yet."""
    fallen = pod(failed(reason, "x"), _ended_ago(ago), name="gone")
    for there in ([pod(LOADING, name="next")], []):
        status = judge(fallen, *there, replicas=1, indexes={})
        assert reasons(status)["Progressing"] == ("True", "RollingOut")
        assert not [t for t in transitions([], status.conditions) if t.kind == "Warning" and t.reason == reason]


def _ended_ago(minutes: int) -> gen.Modifier:
    time = datetime.fromisoformat(NOW) - timedelta(minutes=minutes)
    return gen.condition("DisruptionTarget", "True", lastTransitionTime=time.isoformat())


def test_reports_an_evicted_pod_only_while_a_server_is_missing() -> None:
    evicted = pod(failed("Evicted", "low on memory"), _ended_ago(5), name="gone")
    status = judge(pod(), evicted, replicas=1)
    assert reasons(status) == COMPLETE
    assert status.replicas == 1
    status = judge(evicted, pod(LOADING, name="next"), replicas=1, indexes={})
    assert reasons(status)["Progressing"] == ("False", "Evicted")
    old = pod(failed("Evicted", "low on memory"), _ended_ago(15), name="gone")
    status = judge(old, pod(LOADING, name="next"), replicas=1, indexes={})
    assert reasons(status)["Progressing"] == ("True", "RollingOut")


def test_ignores_pods_that_are_being_deleted() -> None:
    status = judge(pod(), pod(gen.deleting, name="leaving"), replicas=1)
    assert (status.replicas, status.ready_replicas) == (1, 1)


def test_reports_the_digests_of_a_moving_tag() -> None:
    other = "sha256:" + "2" * 64
    status = judge(pod(), pod(put("status.initContainerStatuses.1.imageID", f"x@{other}"), name="other"))
    assert status.image is not None
    assert status.image.digest == f"{gen.DIGEST}, {other}"


@pytest.mark.parametrize(
    ("versions", "pending", "shown"),
    [
        ({"old": "2.51.0", "new": "2.51.0"}, False, "2.51.0"),
        ({"old": "2.51.0", "new": "2.71.0"}, False, "2.51.0, 2.71.0"),
        ({"old": "2.51.0", "gone": "2.40.0"}, False, "2.51.0"),
        ({}, False, ""),
        # After a restart of the operator.
        ({}, True, "2.40.0"),
    ],
)
def test_reports_the_versions_of_the_servers(versions: dict[str, str], pending: bool, shown: str) -> None:
    before = TritonModelStatus(server_version="2.40.0")
    pods = pod(name="old"), pod(name="new"), pod(gen.deleting, name="gone")
    assert judge(*pods, before=before, versions=versions, pending=pending).server_version == shown


def test_keeps_the_entrypoint_after_its_pod_is_gone() -> None:
    before = judge(pod(gen.checked(gen.report("a", "b", entrypoint="b"))))
    assert judge(replicas=1, before=before).entrypoint == "b"
    assert judge(replicas=1, before=before, spec={"entrypoint": "a"}).entrypoint == "a"


def test_keeps_the_decoupled_models_until_the_next_report() -> None:
    streams = gen.report("a", "b", entrypoint="b")
    streams["models"] = [{**model, "decoupled": model["name"] == "b"} for model in streams["models"]]
    before = judge(pod(gen.checked(streams)))
    assert before.decoupled == ["b"]
    assert judge(replicas=1, before=before).decoupled == ["b"]
    older = pod(gen.checked(gen.report("a", "b", entrypoint="b")))
    assert judge(older, before=before).decoupled == ["b"]
    streams["models"] = [{**model, "decoupled": False} for model in streams["models"]]
    assert judge(pod(gen.checked(streams)), before=before).decoupled == []


def test_same_observation_gives_the_same_status_at_any_time() -> None:
    first = judge(pod(), now=THEN)
    assert judge(pod(), before=first, now=NOW) == first


# Conditions over time


def test_transition_time_changes_only_with_the_status() -> None:
    first = judge(pod(LOADING), indexes={}, now=THEN)
    second = judge(pod(not_ready), indexes={}, before=first, now=NOW)
    assert reasons(first)["Ready"] != reasons(second)["Ready"]
    assert {c.type: c.last_transition_time for c in second.conditions}["Ready"] == THEN
    third = judge(pod(), before=second, now=NOW)
    times = {c.type: c.last_transition_time for c in third.conditions if c.type in _TYPES}
    assert times == {"Ready": NOW, "Progressing": NOW, "ModelsLoaded": NOW}


def test_conditions_contain_the_observed_generation() -> None:
    (condition,) = with_transition_times([], [cond("Ready", "True", "R")], NOW, 7)
    assert condition.observed_generation == 7


def cond(kind: str, status: str, reason: str, text: str = "words") -> Condition:
    return Condition.model_validate({"type": kind, "status": status, "reason": reason, "message": text})


TRANSITIONS: dict[str, tuple[list[Condition], list[Condition], list[tuple[str, str]]]] = {
    "first steps": ([], [cond("Ready", "False", "Creating"), cond("Progressing", "True", "Creating"),
                         cond("ModelsLoaded", "Unknown", "NoServerAnswers")], []),
    "ready": ([cond("Ready", "False", "LoadingModels")], [cond("Ready", "True", "EntrypointAnswers")],
              [("Normal", "EntrypointAnswers")]),
    "same": ([cond("Ready", "True", "R")], [cond("Ready", "True", "R", "other words")], []),
    "lost": ([cond("Ready", "True", "R")], [cond("Ready", "False", "LoadingModels")], [("Warning", "LoadingModels")]),
    "step": ([cond("Ready", "False", "Scheduling")], [cond("Ready", "False", "LoadingModels")], []),
    "trouble": ([cond("Ready", "False", "Scheduling")], [cond("Ready", "False", "Unschedulable")],
                [("Warning", "Unschedulable")]),
    "told once": ([], [cond("Ready", "False", "Unschedulable"), cond("Progressing", "False", "Unschedulable")],
                  [("Warning", "Unschedulable")]),
    "complete": ([cond("Progressing", "True", "RollingOut")], [cond("Progressing", "False", "Complete")],
                 [("Normal", "Complete")]),
    "rollout begins": ([cond("Progressing", "False", "Complete")], [cond("Progressing", "True", "RollingOut")], []),
    "zero": ([cond("Ready", "True", "R")], [cond("Ready", "False", "ScaledToZero")], [("Normal", "ScaledToZero")]),
    "reload": ([cond("ModelsLoaded", "True", "AllLoaded")], [cond("ModelsLoaded", "False", "LoadingModels")], []),
    "model broken": ([cond("ModelsLoaded", "True", "AllLoaded")], [cond("ModelsLoaded", "False", "ModelLoadFailed")],
                     [("Warning", "ModelLoadFailed")]),
    "unknown": ([cond("ModelsLoaded", "True", "AllLoaded")], [cond("ModelsLoaded", "Unknown", "NoServerAnswers")], []),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "expected"), TRANSITIONS.values(), ids=TRANSITIONS.keys())
def test_returns_the_transitions_that_cause_events(
    before: list[Condition], now: list[Condition], expected: list[tuple[str, str]]
) -> None:
    assert [(t.kind, t.reason) for t in transitions(before, now)] == expected


CREATED = [cond("Ready", "False", "Creating"), cond("ModelsLoaded", "Unknown", "NoServerAnswers")]
PRESSING: dict[str, tuple[dict[str, Any], bool]] = {
    "same": ({}, False),
    "step": ({"conditions": [cond("Ready", "False", "LoadingModels"), CREATED[1]], "replicas": 1}, False),
    "answers": ({"conditions": [CREATED[0], cond("ModelsLoaded", "False", "LoadingModels")]}, False),
    "becomes true": ({"conditions": [CREATED[0], cond("ModelsLoaded", "True", "AllLoaded")]}, True),
    "fails": ({"conditions": [cond("Ready", "False", "ImagePullFailed"), CREATED[1]]}, True),
    "new spec": ({"observed_generation": 2}, True),
    "threshold": ({"thresholds": [ThresholdStatus(kind="max-qps", value="8", source="x", since="y")]}, True),
}


@pytest.mark.parametrize(("change", "expected"), PRESSING.values(), ids=PRESSING.keys())
def test_is_urgent_for_important_changes(change: dict[str, Any], expected: bool) -> None:
    before = TritonModelStatus(observed_generation=1, conditions=CREATED)
    assert is_urgent(before, before.model_copy(update=change)) == expected


def test_is_urgent_when_a_condition_is_no_longer_true() -> None:
    before = TritonModelStatus(observed_generation=1, conditions=[cond("ModelsLoaded", "True", "AllLoaded")])
    now = TritonModelStatus(observed_generation=1, conditions=[cond("ModelsLoaded", "Unknown", "NoServerAnswers")])
    assert is_urgent(before, now)


def test_first_status_is_urgent_only_after_a_failure() -> None:
    before = TritonModelStatus()
    for conditions, expected in (
        ([cond("Ready", "False", "Creating"), cond("MonitoringAvailable", "True", "Selected")], False),
        ([cond("Ready", "False", "ApplyRefused")], True),
    ):
        assert is_urgent(before, TritonModelStatus(observed_generation=1, conditions=conditions)) == expected


@pytest.mark.parametrize(
    ("unusable", "words"),
    [
        ({"p1": "isn't JSON"}, "the repository index of p1 isn't JSON"),
        ({"p2": "isn't a list", "p1": "isn't JSON", "p3": "x"},
         "the repository index of p1 isn't JSON (the same is true of 2 more servers)"),
    ],
)  # fmt: skip
def test_reports_why_an_answer_cannot_be_used(unusable: dict[str, str], words: str) -> None:
    status = judge(pod(), indexes={}, unusable=unusable)
    assert reasons(status) == {**COMPLETE, "ModelsLoaded": ("Unknown", "AnswerUnusable")}
    assert message(status, "ModelsLoaded") == words
    status = judge(pod(), unusable=unusable)
    assert reasons(status) == COMPLETE
    assert message(status, "ModelsLoaded") == f"every model is loaded on every server that answers; {words}"


def test_reports_that_the_status_has_only_the_first_5000_models() -> None:
    index = tuple(IndexEntry(f"a-{n}", "1", "READY", "") for n in range(MAX_MODELS))
    status = judge(pod(), indexes={pod()["metadata"]["name"]: index})
    assert message(status, "ModelsLoaded").endswith("; the operator reports only the first 5000 models")


EXPLICIT = {"server": {"modelControl": "explicit", "loadModels": ["a", "b"]}, "entrypoint": "a"}


def test_a_change_of_load_models_is_progress_and_the_models_are_loading() -> None:
    status = judge(pod(), spec=EXPLICIT, load=LoadDecision(left=1))
    assert reasons(status)["Progressing"] == ("True", "ChangingModels")
    assert reasons(status)["ModelsLoaded"] == ("False", "LoadingModels")
    assert [(m.name, m.state) for m in status.models] == [("a", "READY"), ("b", "LOADING")]
    assert "1 server still" in message(status, "Progressing")
    assert not transitions([], judge(pod(), spec=EXPLICIT, load=LoadDecision(left=1)).conditions[1:])


def test_a_refused_model_is_a_failure_with_the_words_of_triton() -> None:
    status = judge(pod(), spec=EXPLICIT, load=LoadDecision(left=2, failure="pod-1: b: no model.py", refused=True))
    assert reasons(status)["Progressing"] == ("False", "ModelLoadFailed")
    assert reasons(status)["Ready"] == ("True", "EntrypointAnswers")
    assert "pod-1: b: no model.py" in message(status, "Progressing")


def test_a_server_that_does_not_answer_is_tried_again() -> None:
    status = judge(pod(), spec=EXPLICIT, load=LoadDecision(left=1, failure="pod-1: no answer from port 8001"))
    assert reasons(status)["Progressing"] == ("True", "ChangingModels")
    assert "no answer from port 8001" in message(status, "Progressing")


def test_says_why_a_change_of_load_models_replaces_the_servers() -> None:
    status = judge(pod(template=OLD), pod(not_ready, name="new"), rollout="b is still LOADING after 9 s")
    assert reasons(status)["Progressing"] == ("True", "RollingOut")
    assert message(status, "Progressing").endswith("b is still LOADING after 9 s")


def test_models_are_loading_until_the_server_has_answered_after_a_change() -> None:
    assert judge(pod(), spec=EXPLICIT, pending=True).models[1].state == "LOADING"
    assert judge(pod(), spec=EXPLICIT).models[1].state == "MISSING"


@pytest.mark.parametrize(
    ("kind", "type_", "words"),
    [
        (
            "Deployment",
            "Progressing",
            "this cluster's Kubernetes 1.36 dropped spec.a, spec.b of the Deployment, because ",
        ),
        (
            "HorizontalPodAutoscaler",
            "AutoscalerActive",
            "this cluster's Kubernetes 1.36 dropped spec.a, spec.b of the H",
        ),
        (
            "PodMonitor",
            "MonitoringAvailable",
            "a webhook removed spec.a, spec.b of the PodMonitor",
        ),
    ],
)
def test_names_fields_that_the_api_server_dropped(kind: str, type_: str, words: str) -> None:
    fields = {"kubernetes": (1, 36), "spec": {"autoscaling": {"max": 2}}}
    before = message(judge(pod(), **fields), type_)
    assert message(judge(pod(), dropped={kind: (".spec.a", ".spec.b")}, **fields), type_).startswith(
        f"{before}; {words}"
    )
