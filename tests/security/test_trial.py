"""`kubectl triton validate --with-server=cluster` on a real API server, with the documented permissions alone.

No kubelet runs here. The test gives the pod the status of a kubelet, and simulates what goes through one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kubectl_triton import forward
from kubectl_triton.main import main
from kubectl_triton.pod_session import Session
from kubectl_triton.trial import run as trial
from kubectl_triton.validate import in_cluster, server_pod
from support import gen
from support.api import Api, Object, RefusedError, eventually
from support.cluster import ROOT
from support.people import RBAC, Team, bind

pytestmark = pytest.mark.integration

RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "delete"]},
    {"apiGroups": [""], "resources": ["pods/exec", "pods/portforward"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]
"""The permissions that docs/security.md names."""


def pods(api: Api) -> list[Object]:
    return [pod for pod in api.list("Pod") if server_pod.LABEL in pod["metadata"].get("labels", {})]


@contextlib.contextmanager
def kubelet(api: Api) -> Iterator[list[Object]]:
    """Gives the trial's pods the status of a kubelet while the context lasts. Returns the pods."""
    seen: dict[str, Object] = {}
    stopped = threading.Event()

    def work() -> None:
        while not stopped.wait(0.2):
            for pod in pods(api):
                if seen.setdefault(pod["metadata"]["uid"], pod) is pod:
                    path = api.path("Pod", pod["metadata"]["name"]) + "/status"
                    with contextlib.suppress(RefusedError):
                        api.request("PUT", path, {**pod, "status": gen.pod()["status"]})

    thread = threading.Thread(target=work)
    thread.start()
    found: list[Object] = []
    try:
        yield found
    finally:
        stopped.set()
        thread.join()
        found += seen.values()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a server that is ready, and answers."""
    for name, answer in (("feed", None), ("log", ""), ("run", "1.26.4")):
        monkeypatch.setattr(Session, name, lambda *_, answer=answer: answer)
    for name in ("_all_ready", "_accepts"):
        monkeypatch.setattr(in_cluster, name, lambda _: True)
    monkeypatch.setattr(forward, "forward", lambda *_: contextlib.nullcontext("127.0.0.1:1"))
    monkeypatch.setattr(trial, "run", lambda *_: [])


def test_a_trial_needs_only_the_documented_permissions_and_leaves_nothing(
    team: Team, answers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net/1").mkdir(parents=True)
    (tmp_path / "net/config.pbtxt").write_text('backend: "identity"')
    role = {
        "apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "trials", "namespace": team.namespace},
        "rules": RULES,
    }  # fmt: skip
    team.api().request("POST", f"/apis/{RBAC}/v1/namespaces/{team.namespace}/roles", role)
    # The client has read the environment when it was imported.
    config = str(team.plane.kubeconfig_of_user("developer"))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", config)
    command = ["validate", str(tmp_path), "--with-server=cluster", "-n", team.namespace]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2
    assert "Kubernetes' role edit has them" in refused.stderr
    bind(team.plane, team.namespace, "developer", "Role", "trials")
    eventually(lambda: not refusal_to_read(team.api("developer")), 60, "the role in effect")
    with kubelet(team.api()) as made:
        result = CliRunner().invoke(main, command)
    assert "uploading the repository" in result.stderr, result.output
    assert "1 model" in result.stdout
    assert len(made) == 1
    assert pods(team.api()) == []


def refusal_to_read(api: Api) -> bool:
    try:
        return api.find("Pod", "x") is not None
    except RefusedError:
        return True


def test_role_edit_has_the_documented_permissions(team: Team) -> None:
    """No controller adds up the rules of `edit` here."""
    has = set[tuple[str, str]]()
    for part in ("view", "edit"):
        path = f"/apis/{RBAC}/v1/clusterroles/system:aggregate-to-{part}"
        for rule in team.api().request("GET", path)["rules"]:
            if "" in rule["apiGroups"]:
                has |= {(resource, verb) for resource in rule["resources"] for verb in rule["verbs"]}
    assert {(resource, verb) for rule in RULES for resource in rule["resources"] for verb in rule["verbs"]} <= has


def test_the_documentation_and_the_example_have_these_permissions() -> None:
    section = (ROOT / "docs/security.md").read_text().partition("\n## Trials\n")[2]
    assert yaml.safe_load(section.partition("```yaml\n")[2].partition("```")[0])["rules"] == RULES
    example = yaml.safe_load_all((ROOT / "examples/commit-to-live/trials.yaml").read_text())
    assert [obj["rules"] for obj in example if obj["kind"] == "Role"] == [RULES]
