"""The operator may add only the two ephemeral containers of a change in place, and only to servers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from support import gen, operator_process
from support.api import Api, Object
from support.controlplane import ControlPlane
from support.people import Team, make, refusal
from triton_operator.api import names
from triton_operator.api.types import TritonModel
from triton_operator.render import in_place

pytestmark = pytest.mark.integration

REFERENCE = "registry.example.com/models:2"
DIGEST = f"@sha256:{'5' * 64}"


@pytest.fixture
def operator(plane: ControlPlane, team: Team) -> Api:
    """The API as the operator uses it."""
    kubeconfig = plane.kubeconfig_of(operator_process.NAMESPACE, operator_process.NAME)
    return Api.of(kubeconfig).in_namespace(team.namespace)


def server(team: Team, name: str = "a-1", model: str = "a") -> None:
    """Creates the pod of a server as its controller does, and the TritonModels a and b."""
    api = team.api()
    for other in ("a", "b"):
        if api.find("TritonModel", other) is None:
            make(api, other, modelImage={"reference": REFERENCE if other == "a" else "registry.example.com/b:1"})
    labels = {names.LABEL_MODEL: model} if model else {}
    spec = {
        "initContainers": [{"name": "tools", "image": "tools:1"}, {"name": "fetch", "image": "models:1"}],
        "containers": [{"name": "triton", "image": "triton:1"}],
        "volumes": [{"name": volume, "emptyDir": {}} for volume in ("models", "tools", "shm", "tmp")],
    }
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})


def containers(number: int = 1) -> list[Object]:
    """Returns the containers that the operator adds."""
    model = TritonModel.model_validate(gen.raw(modelImage={"reference": REFERENCE}, entrypoint="a"))
    return [in_place.files(model, number, 9), in_place.change(model, number, "tools:1", 9)]


def add(api: Api, added: list[Object], pod: str = "a-1") -> None:
    step = {"op": "add", "path": "/spec/ephemeralContainers", "value": added}
    path = api.path("Pod", pod) + "/ephemeralcontainers"
    api.request("PATCH", path, [step], content_type="application/json-patch+json")


def test_accepts_what_the_operator_adds(operator: Api, team: Team) -> None:
    server(team)
    add(operator, containers())
    found = team.api().get("Pod", "a-1")["spec"]["ephemeralContainers"]
    assert [c["name"] for c in found] == ["in-place-files-1", "in-place-change-1"]
    # The existing ones stay, although the TritonModel has another image now.
    team.api().patch("TritonModel", "a", {"spec": {"modelImage": {"reference": "registry.example.com/models:3"}}})
    step = {"op": "add", "path": "/spec/ephemeralContainers/-", "value": containers(2)[1]}
    path = operator.path("Pod", "a-1") + "/ephemeralcontainers"
    operator.request("PATCH", path, [step], content_type="application/json-patch+json")


def changed(index: int, **fields: Any) -> Callable[[list[Object]], None]:
    return lambda added: added[index].update(fields)


@pytest.mark.parametrize(("change", "words"), [
    (changed(0, name="debugger"), "only containers of a change in place"),
    (changed(0, image="evil:1"), "has the model image of the TritonModel"),
    (changed(0, image="registry.example.com/b:1"), "has the model image of the TritonModel"),
    (changed(0, image="mirror.example.com/models:2"), "or the same digest in another registry"),
    (changed(0, command=["/.triton-operator/tools/busybox", "sh", "-c", "id"]), "copies the files is fixed"),
    (changed(0, command=None), "copies the files is fixed"),
    (changed(1, image="evil:1"), "the image of the pod's container tools"),
    (changed(1, image=REFERENCE), "the image of the pod's container tools"),
    (changed(1, command=["python", "-c", "print()"]), "has a fixed command"),
    (changed(1, args=["-c"]), "no variables"),
    (changed(1, env=[{"name": "PYTHONSTARTUP", "value": "/x"}]), "no variables"),
    (changed(1, volumeMounts=[{"name": "tmp", "mountPath": "/x"}]), "no other volumes"),
    (changed(0, securityContext={"privileged": True}), "no privileges"),
    (changed(0, securityContext={"allowPrivilegeEscalation": True}), "no privileges"),
    (changed(0, securityContext=None), "no privileges"),
    (changed(0, securityContext={"allowPrivilegeEscalation": False, "capabilities": {"add": ["SYS_PTRACE"]}}),
     "no privileges"),
])  # fmt: skip
def test_refuses_other_containers(
    operator: Api, team: Team, change: Callable[[list[Object]], None], words: str
) -> None:
    server(team)
    added = copy.deepcopy(containers())
    change(added)
    said = refusal(lambda: add(operator, added))
    assert words in said, said


@pytest.mark.parametrize(("image", "words"), [
    (f"mirror.example.com/models{DIGEST}", ""),
    (f"mirror.example.com/models@sha256:{'6' * 64}", "or the same digest in another registry"),
    (f"mirror.example.com/models{DIGEST[:-1]}", "or the same digest in another registry"),
    ("mirror.example.com/models:2", "or the same digest in another registry"),
])  # fmt: skip
def test_another_registry_must_have_the_same_digest(operator: Api, team: Team, image: str, words: str) -> None:
    """A webhook may give images another registry. With a digest in the reference it is the same image."""
    make(team.api(), "a", modelImage={"reference": f"registry.example.com/models{DIGEST}"})
    server(team)
    added = containers()
    added[0]["image"] = image
    if not words:
        add(operator, added)
        return
    said = refusal(lambda: add(operator, added))
    assert words in said, said


def test_refuses_pods_that_are_no_servers(operator: Api, team: Team) -> None:
    server(team)
    server(team, "other-1", "")
    said = refusal(lambda: add(operator, containers(), "other-1"))
    assert "only in servers of a TritonModel" in said, said


def test_does_not_limit_other_users(team: Team) -> None:
    server(team)
    add(team.api(), [{"name": "debugger", "image": "busybox"}])
