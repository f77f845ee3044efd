"""What belongs to others."""

from __future__ import annotations

import pytest

from integration.world.steps import SOON, progressing, version
from support import gen
from support.api import Api, condition, eventually
from support.operator_process import Operator
from support.people import make
from triton_operator.api import names

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("owned", [False, True], ids=["nobody's", "another's"])
def test_an_object_of_that_name_is_never_touched(owned: bool, api: Api, operator: Operator) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1", "controller": True}
    metadata = {"name": gen.NAME, "namespace": api.namespace, "labels": names.labels(gen.NAME) if owned else {}}
    foreign = api.create({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata | ({"ownerReferences": [owner]} if owned else {}),
        "spec": {"ports": [{"port": 1}]},
    })  # fmt: skip
    make(api)
    found = progressing(api, "NameTaken")
    assert found["status"] == "False"
    assert f"Service {api.namespace}/detection exists and doesn't belong to this TritonModel" in found["message"]
    assert version(api.get("Service", gen.NAME)) == version(foreign)
    # One refusal doesn't keep the others from being made.
    assert api.find("Deployment", gen.NAME)
    api.delete("Service", gen.NAME)
    made = eventually(lambda: api.find("Service", gen.NAME), SOON, lambda: operator.log)
    assert len(made["spec"]["ports"]) == 3
    progressing(api, "RollingOut")


def test_no_server_runs_as_an_account_of_somebody_else(api: Api, operator: Operator) -> None:
    """A TritonModel named after an account would have its rights, by the cloud's word even without a token."""
    foreign = api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": gen.NAME}})
    make(api)
    assert f"ServiceAccount {api.namespace}/detection exists" in progressing(api, "NameTaken")["message"]
    assert api.find("Service", gen.NAME)
    assert not api.find("Deployment", gen.NAME)
    assert version(api.get("ServiceAccount", gen.NAME)) == version(foreign)
    # Who may create pods may name an account.
    api.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": {"spec": {"serviceAccountName": "other"}}}})
    eventually(lambda: api.find("Deployment", gen.NAME), SOON, lambda: operator.log)
    changed = api.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": None}})["metadata"]["generation"]

    def looked() -> bool:
        return bool(condition(api.get("TritonModel", gen.NAME), "Progressing").get("observedGeneration") == changed)

    eventually(looked, SOON, lambda: operator.log)
    template = api.get("Deployment", gen.NAME)["spec"]["template"]
    assert template["spec"]["serviceAccountName"] == "other"
    api.delete("ServiceAccount", gen.NAME)

    def own() -> bool:
        return bool(api.get("Deployment", gen.NAME)["spec"]["template"]["spec"]["serviceAccountName"] == gen.NAME)

    eventually(own, SOON, lambda: operator.log)
    assert api.get("ServiceAccount", gen.NAME)["metadata"]["ownerReferences"]
