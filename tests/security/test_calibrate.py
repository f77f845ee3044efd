"""`kubectl triton calibrate` on a real API server with the shipped policies: it leaves nothing behind.

No kubelet runs here. The test gives the pod the status of a kubelet, and simulates the commands in the pod.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kubectl_triton.main import main
from kubectl_triton.pod_session import Session
from support import gen
from support.api import Api, Object, RefusedError, eventually
from support.people import RBAC, Team, bind, tritonmodel
from triton_operator.api.types import TritonModel
from triton_operator.render import Facts, render

pytestmark = pytest.mark.integration

NAME, POD = "detection", "detection-calibration"
ANNOTATION, EVIDENCE = "tritonoperator.io/max-qps-per-replica", "tritonoperator.io/calibration"
RULES = [
    {"apiGroups": ["tritonoperator.io"], "resources": ["tritonmodels"], "verbs": ["get"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "delete"]},
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
]
"""The permissions that the documentation names."""
CONFIG = {"input": [{"name": "INPUT", "data_type": "TYPE_FP32", "dims": ["4"]}]}
CAPACITY = 130.0


@pytest.fixture
def model(team: Team) -> Object:
    """A TritonModel with its Deployment, and the rights for `developer` and `oncall` to calibrate it."""
    api = team.api()
    role = {
        "apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "calibrate", "namespace": team.namespace},
        "rules": RULES,
    }  # fmt: skip
    api.request("POST", f"/apis/{RBAC}/v1/namespaces/{team.namespace}/roles", role)
    for user in ("developer", "oncall"):
        bind(team.plane, team.namespace, user, "Role", "calibrate")
    obj = api.create(tritonmodel(NAME, entrypoint="yolo", autoscaling={"min": 2, "max": 4}))
    parsed = TritonModel.model_validate(obj)
    for child in render(parsed, Facts("t:1", "Copy", entrypoint="yolo")):
        if child["kind"] in ("ServiceAccount", "Deployment", "Service"):
            api.create(child)
    for user in ("developer", "oncall"):
        eventually(lambda user=user: may_read_pods(team.api(user)), 60, "the roles in effect")
    return obj


def may_read_pods(api: Api) -> bool:
    try:
        return api.find("Pod", "x") is None
    except RefusedError:
        return False


def arguments(team: Team, *more: str, target: str = "--p99=200ms") -> list[str]:
    return ["calibrate", NAME, "-n", team.namespace, target, "--load-image=load:1", *more]


def calibrate(team: Team, user: str, *more: str, target: str = "--p99=200ms") -> Result:
    config = str(team.plane.kubeconfig_of_user(user))
    with pytest.MonkeyPatch.context() as patch:
        # The client has read the environment when it was imported.
        patch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", config)
        return CliRunner().invoke(main, arguments(team, *more, target=target))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Simulates the commands in the pod: a server that handles 130 requests/s. Returns the commands.

    The model `chat` streams 20 tokens.
    """
    seen: list[list[str]] = []

    def execute(self: Session, command: Sequence[str], seconds: float, stdin: bytes = b"") -> str:
        seen.append(list(command))
        if command[0] != "measure":
            return json.dumps(CONFIG | ({"model_transaction_policy": {"decoupled": True}} if "chat" in command else {}))
        rate = next((float(o.partition("=")[2]) for o in command if o.startswith("--rate=")), 1.0)
        latency = {"p50": 0.02, "p99": 0.05 if rate <= CAPACITY else 0.5}
        streams = "--streaming" in command
        latencies = dict.fromkeys(("latency", *(("ttft", "tpot") if streams else ())), latency)
        answer = {"requests": 500, "failures": 0, "sent": None, "latencies": latencies, "took": 10.0}
        return json.dumps(answer | ({"responses": 10_000} if streams else {}))

    monkeypatch.setattr(Session, "_execute", execute)
    return seen


@contextlib.contextmanager
def kubelet(api: Api, *modifiers: gen.Modifier) -> Iterator[list[Object]]:
    """Gives the calibration's pods the status of a kubelet while the context lasts. Returns the pods."""
    seen: list[Object] = []
    stopped = threading.Event()
    status = gen.pod(*modifiers)["status"]

    def work() -> None:
        while not stopped.wait(0.2):
            pod = api.find("Pod", POD)
            new = pod and pod["metadata"]["uid"] not in {p["metadata"]["uid"] for p in seen}
            if pod and new and pod["status"].get("phase") != "Failed":
                seen.append(pod)
                with contextlib.suppress(RefusedError):
                    api.request("PUT", api.path("Pod", POD) + "/status", {**pod, "status": status})

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield seen
    finally:
        stopped.set()
        thread.join()


def gone(api: Api) -> bool:
    return api.find("Pod", POD) is None


def test_proposes_a_value_with_the_documented_permissions_and_deletes_its_pod(
    team: Team, model: Object, answers: list[list[str]]
) -> None:
    with kubelet(team.api()) as pods:
        result = calibrate(team, "developer", "-o", "json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert CAPACITY * 0.95 <= report["maxQpsPerReplica"] <= CAPACITY
    assert report["images"]["fetch"].endswith(gen.DIGEST)
    assert any("--model=yolo" in command for command in answers)
    (pod,) = pods
    assert pod["metadata"]["ownerReferences"][0]["uid"] == model["metadata"]["uid"]
    assert "tritonoperator.io/model" not in pod["metadata"]["labels"]
    assert gone(team.api())
    assert ANNOTATION not in team.api().get("TritonModel", NAME)["metadata"].get("annotations", {})
    assert "deleted the pod" in result.stderr


def test_apply_sets_the_value_for_a_user_who_may_set_thresholds(
    team: Team, model: Object, answers: list[list[str]]
) -> None:
    with kubelet(team.api()):
        result = calibrate(team, "oncall", "--apply")
    assert result.exit_code == 0, result.output
    annotations = team.api().get("TritonModel", NAME)["metadata"]["annotations"]
    assert CAPACITY * 0.95 <= float(annotations[ANNOTATION]) <= CAPACITY
    assert json.loads(annotations[EVIDENCE])["maxQpsPerReplica"] == annotations[ANNOTATION]


def test_apply_sets_requests_and_tokens_of_a_model_that_streams(
    team: Team, model: Object, answers: list[list[str]]
) -> None:
    with kubelet(team.api()):
        assert calibrate(team, "oncall", "--apply").exit_code == 0
        refused = calibrate(team, "oncall", "--apply", target="--tpot=200ms")
        assert "the model isn't decoupled: it sends one response, so give --p99" in refused.output
        changed = {"entrypoint": "chat", "monitoring": {"tokenCounter": "vllm:generation_tokens_total"}}
        team.api().patch("TritonModel", NAME, {"spec": changed})
        result = calibrate(team, "oncall", "--apply", target="--tpot=200ms")
    assert result.exit_code == 0, result.output
    annotations = team.api().get("TritonModel", NAME)["metadata"]["annotations"]
    assert CAPACITY * 0.95 <= float(annotations[ANNOTATION]) <= CAPACITY
    assert float(annotations["tritonoperator.io/max-tps-per-replica"]) == pytest.approx(
        20 * float(annotations[ANNOTATION]), rel=0.01
    )
    assert EVIDENCE not in annotations, "the evidence of the earlier result isn't that of this one"


def test_only_who_may_set_thresholds_writes_the_evidence(team: Team, model: Object) -> None:
    def write(user: str, text: str | None) -> None:
        team.api(user).patch("TritonModel", NAME, {"metadata": {"annotations": {EVIDENCE: text}}})

    with pytest.raises(RefusedError, match=r"may not set thresholds .*calibration: changed"):
        write("developer", "{}")
    with pytest.raises(RefusedError, match="at most 4096 characters"):
        write("oncall", "x" * 4097)
    write("oncall", "x" * 4096)
    with pytest.raises(RefusedError, match="may not set thresholds"):
        write("developer", None)
    write("oncall", None)


def test_apply_without_the_verb_is_refused_before_a_pod_exists(
    team: Team, model: Object, answers: list[list[str]]
) -> None:
    with kubelet(team.api()) as pods:
        result = calibrate(team, "developer", "--apply")
    assert result.exit_code == 1
    assert "--apply needs the verb setthresholds on tritonmodels" in result.output
    assert pods == []


def test_a_user_without_rights_learns_which_ones_are_needed(team: Team, model: Object) -> None:
    result = calibrate(team, "netadmin")
    assert result.exit_code == 1
    assert 'cannot get resource "deployments"' in result.output
    assert "create, get and delete on pods" in result.output


def test_a_user_who_may_not_create_pods_learns_which_rights_are_needed(team: Team, model: Object) -> None:
    path = f"/apis/{RBAC}/v1/namespaces/{team.namespace}/roles/calibrate"
    role = team.api().request("GET", path)
    team.api().request("PUT", path, {**role, "rules": RULES[:2]})
    eventually(lambda: not may_read_pods(team.api("developer")), 60, "the role in effect")
    result = calibrate(team, "developer")
    assert result.exit_code == 1
    assert 'cannot create resource "pods"' in result.output
    assert "create, get and delete on pods" in result.output


def test_an_error_in_the_pod_is_shown_and_the_pod_is_deleted(team: Team, model: Object) -> None:
    """No kubelet runs, so the API server itself refuses to run a command."""
    with kubelet(team.api()) as pods:
        result = calibrate(team, "developer")
    assert result.exit_code == 1
    assert "can't run python in the pod" in result.output
    assert len(pods) == 1
    assert gone(team.api())


def test_a_server_that_crashes_is_reported_and_its_pod_is_deleted(team: Team, model: Object) -> None:
    with kubelet(team.api(), gen.ended("triton", 1, "no memory"), gen.put("status.conditions", [])):
        result = calibrate(team, "developer")
    assert result.exit_code == 1
    assert "the server doesn't start: ServerCrashed: tritonserver ended with exit code 1" in result.output
    assert gone(team.api())


def test_a_server_that_isnt_ready_in_time_is_deleted(team: Team, model: Object) -> None:
    result = calibrate(team, "developer", "--start-limit=2s")
    assert result.exit_code == 1
    assert "the server isn't ready after 2 s: Scheduling" in result.output
    assert gone(team.api())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_stopped_command_deletes_its_pod(team: Team, model: Object, number: signal.Signals) -> None:
    program = Path(sys.executable).with_name("kubectl-triton")
    env = {**os.environ, "KUBECONFIG": str(team.plane.kubeconfig_of_user("developer"))}
    # A shell starts background jobs with an ignored SIGINT, and the tests may be one.
    process = subprocess.Popen(
        [program, *arguments(team)],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    try:
        eventually(lambda: not gone(team.api()), 60, "the pod")
        process.send_signal(number)
        _, output = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "deleted the pod" in output
    assert gone(team.api())


def test_a_running_calibration_isnt_disturbed_and_an_ended_one_is_replaced(
    team: Team, model: Object, answers: list[list[str]]
) -> None:
    other = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "namespace": team.namespace},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }  # fmt: skip
    team.api().create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    uid = team.api().create(other)["metadata"]["uid"]
    result = calibrate(team, "developer")
    assert result.exit_code == 1
    assert "another calibration runs" in result.output
    assert team.api().get("Pod", POD)["metadata"]["uid"] == uid
    ended: Any = {**team.api().get("Pod", POD), "status": {"phase": "Failed"}}
    team.api().request("PUT", team.api().path("Pod", POD) + "/status", ended)
    with kubelet(team.api()):
        result = calibrate(team, "developer")
    assert result.exit_code == 0, result.output
    assert gone(team.api())


def test_a_model_with_strings_needs_a_file(
    team: Team, model: Object, answers: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(CONFIG["input"][0], "data_type", "TYPE_STRING")
    file = tmp_path / "inputs.json"
    file.write_text(json.dumps({"data": [{"INPUT": {"b64": "AAAA"}}]}))
    with kubelet(team.api()):
        without = calibrate(team, "developer")
        with_file = calibrate(team, "developer", f"--input-data={file}")
    assert without.exit_code == 1
    assert "the input INPUT is a string" in without.output
    assert with_file.exit_code == 0, with_file.output
    assert any("--input-data=/tmp/input.json" in command for command in answers)
    assert gone(team.api())
