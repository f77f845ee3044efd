"""Who may use `kubectl triton models`, `load` and the others: a real API server, users with the shipped roles.

No kubelet runs, so a port-forward that is allowed ends with an error about the node.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hack.world import settings
from support import gen
from support.api import eventually
from support.people import Team, bind, tritonmodel
from triton_operator.api import names

pytestmark = pytest.mark.integration

EXPLICIT = {"entrypoint": "echo", "server": {"modelControl": "explicit", "loadModels": ["echo"]}}
HINT = "ask an administrator to bind the ClusterRole tritonmodel-modelcontrol"
FORBIDDEN = "is forbidden"
POD = "detector-1"


def triton(team: Team, user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs kubectl triton as this user."""
    environment = {
        **os.environ,
        "KUBECONFIG": str(team.plane.kubeconfig_of_user(user)),
        "PATH": settings.search_path(),
        "PYTHONPATH": ":".join(p for p in sys.path if p),
    }
    command = [sys.executable, "-c", "from kubectl_triton.main import main; main()", *arguments]
    return subprocess.run(
        [*command, f"--namespace={team.namespace}"], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def served(team: Team) -> Team:
    """A namespace with a TritonModel and the pod of a server that has started."""
    api = team.api()
    api.create(tritonmodel("detector", **EXPLICIT))
    container = {"name": names.CONTAINER_SERVER, "image": "triton:1"}
    metadata = {"name": POD, "labels": names.selector("detector")}
    spec = {"containers": [container], "nodeName": "node-1"}
    created = api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    api.request("PUT", api.path("Pod", POD) + "/status", {**created, "status": gen.pod()["status"]})
    return team


def test_developers_without_port_forward_learn_which_role_they_need(served: Team) -> None:
    for arguments in (["models", "detector"], ["load", "detector", "echo"]):
        result = triton(served, "developer", *arguments)
        assert result.returncode == 1
        assert FORBIDDEN in result.stderr
        assert HINT in result.stderr


def test_developers_with_the_role_for_models_may_connect_to_servers(served: Team) -> None:
    bind(served.plane, served.namespace, "developer", "ClusterRole", "tritonmodel-modelcontrol")
    for arguments in (["models", "detector"], ["load", "detector", "echo"], ["unload", "detector", "other"]):
        result = triton(served, "developer", *arguments)
        assert result.returncode == 1
        assert f"{POD}: " in result.stderr  # there is no node
        assert FORBIDDEN not in result.stderr, result.stderr


def test_only_who_may_change_the_spec_may_change_the_models(served: Team) -> None:
    bind(served.plane, served.namespace, "oncall", "ClusterRole", "tritonmodel-modelcontrol")
    for verb in ("load", "unload", "reload"):
        result = triton(served, "oncall", verb, "detector", "other")
        assert result.returncode == 1
        assert "you may not update the TritonModel detector" in result.stderr
    assert FORBIDDEN not in triton(served, "oncall", "models", "detector").stderr


def test_the_role_for_models_allows_no_changes(served: Team) -> None:
    bind(served.plane, served.namespace, "viewer", "ClusterRole", "tritonmodel-modelcontrol")

    def may(verb: str, resource: str, subresource: str = "") -> bool:
        arguments = ["auth", "can-i", verb, resource, f"--subresource={subresource}"]
        return served.kubectl("viewer", *arguments).stdout.strip() == "yes"

    eventually(lambda: may("create", "pods", "portforward"), 20, "the role in effect")
    assert may("list", "pods")
    for verb, resource, subresource in (
        ("update", "tritonmodels", ""),
        ("patch", "tritonmodels", ""),
        ("create", "pods", ""),
        ("create", "pods", "exec"),
        ("get", "pods", "log"),
        ("get", "pods", "proxy"),
        ("get", "secrets", ""),
    ):
        assert not may(verb, resource, subresource), (verb, resource, subresource)


def test_reports_a_missing_tritonmodel(served: Team) -> None:
    result = triton(served, "developer", "models", "nothing")
    assert result.returncode == 1
    assert 'tritonmodels.tritonoperator.io "nothing" not found' in result.stderr


def test_status_works_without_the_permission_to_read_pods(served: Team) -> None:
    for user in ("developer", "viewer", "oncall"):
        result = triton(served, user, "status", "detector")
        assert result.returncode == 1  # the TritonModel isn't Ready, because no operator runs
        assert f"TritonModel {served.namespace}/detector" in result.stdout
        assert "without the pods: pods is forbidden" in result.stderr
