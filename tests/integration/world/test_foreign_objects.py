"""Foreign objects with the names of children, and orphaned children."""

from __future__ import annotations

import pytest

from integration.world.steps import ACCOUNT, CHILDREN, SOON, progressing, version, wait_until_observed
from support import gen
from support.api import Api, Object, condition, eventually
from support.operator_process import Operator
from support.people import make
from triton_operator.api import names

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("owned", [False, True], ids=["without owner", "with another owner"])
def test_never_changes_a_foreign_object_with_the_name_of_a_child(owned: bool, api: Api, operator: Operator) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1", "controller": True}
    metadata = {"name": gen.NAME, "namespace": api.namespace, "labels": names.labels(gen.NAME) if owned else {}}
    foreign = api.create({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata | ({"ownerReferences": [owner]} if owned else {}),
        "spec": {"ports": [{"port": 1}]},
    })  # fmt: skip
    make(api)
    progress = progressing(api, "NameTaken")
    assert progress["status"] == "False"
    assert f"Service {api.namespace}/detection exists and doesn't belong to this TritonModel" in progress["message"]
    assert version(api.get("Service", gen.NAME)) == version(foreign)
    # The operator still creates the other children.
    assert api.find("Deployment", gen.NAME)
    api.delete("Service", gen.NAME)
    service = eventually(lambda: api.find("Service", gen.NAME), SOON, lambda: operator.log)
    assert len(service["spec"]["ports"]) == 3
    progressing(api, "RollingOut")


def test_no_service_selects_the_pods_of_a_foreign_deployment(api: Api, operator: Operator) -> None:
    """A user who may only create Deployments makes one before the TritonModel, with the label of its servers."""
    labels = names.selector(gen.NAME)
    foreign = api.create({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": gen.NAME}, "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
        },
    })  # fmt: skip
    make(api)
    assert f"Deployment {api.namespace}/{gen.NAME} exists" in progressing(api, "NameTaken")["message"]
    # The operator writes the status after the children.
    assert not api.find("Service", gen.NAME)
    assert not api.find("Service", f"{gen.NAME}-headless")
    assert version(api.get("Deployment", gen.NAME)) == version(foreign)
    api.delete("Deployment", gen.NAME)
    eventually(lambda: api.find("Service", gen.NAME), SOON, lambda: operator.log)


def test_runs_no_server_with_a_foreign_service_account(api: Api, operator: Operator) -> None:
    """Servers would get its permissions: a cloud's metadata server gives credentials even to a pod without a token."""
    foreign = api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}})
    make(api)
    assert f"ServiceAccount {api.namespace}/{ACCOUNT} exists" in progressing(api, "NameTaken")["message"]
    assert api.find("Service", gen.NAME)
    assert not api.find("Deployment", gen.NAME)
    assert version(api.get("ServiceAccount", ACCOUNT)) == version(foreign)
    # A user who may create pods may name an account.
    api.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": {"spec": {"serviceAccountName": "other"}}}})
    eventually(lambda: api.find("Deployment", gen.NAME), SOON, lambda: operator.log)
    changed = api.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": None}})["metadata"]["generation"]

    def is_observed() -> bool:
        return bool(condition(api.get("TritonModel", gen.NAME), "Progressing").get("observedGeneration") == changed)

    eventually(is_observed, SOON, lambda: operator.log)
    template = api.get("Deployment", gen.NAME)["spec"]["template"]
    assert template["spec"]["serviceAccountName"] == "other"
    api.delete("ServiceAccount", ACCOUNT)

    def own() -> bool:
        return bool(api.get("Deployment", gen.NAME)["spec"]["template"]["spec"]["serviceAccountName"] == ACCOUNT)

    eventually(own, SOON, lambda: operator.log)
    assert api.get("ServiceAccount", ACCOUNT)["metadata"]["ownerReferences"]


@pytest.mark.parametrize("account", ["default", None], ids=["another account", "its own account"])
def test_runs_no_server_with_a_foreign_list_of_models(account: str | None, api: Api, operator: Operator) -> None:
    """A user who may only create ConfigMaps would decide which models the servers load."""
    metadata = {"name": ACCOUNT, "namespace": api.namespace}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"models": "mine\n"}})
    template = {"spec": {"serviceAccountName": account}} if account else {}
    make(api, entrypoint="det", server={"modelControl": "explicit", "loadModels": ["det"]}, podTemplate=template)
    assert f"ConfigMap {api.namespace}/{ACCOUNT} exists" in progressing(api, "NameTaken")["message"]
    assert not api.find("Deployment", gen.NAME)
    # Pods that mount no list don't need it.
    api.patch("TritonModel", gen.NAME, {"spec": {"entrypoint": None}})
    eventually(lambda: api.find("Deployment", gen.NAME), SOON, lambda: operator.log)
    api.patch("TritonModel", gen.NAME, {"spec": {"entrypoint": "det"}})
    progressing(api, "NameTaken")
    api.delete("ConfigMap", ACCOUNT)
    progressing(api, "RollingOut")


def test_never_creates_a_service_account_with_the_tritonmodels_own_name(api: Api, operator: Operator) -> None:
    """A foreign RoleBinding or cloud identity may refer to a ServiceAccount that doesn't exist yet."""
    make(api)
    wait_until_observed(api)
    assert not api.find("ServiceAccount", gen.NAME)
    assert api.get("Deployment", gen.NAME)["spec"]["template"]["spec"]["serviceAccountName"] == ACCOUNT
    assert api.get("ServiceAccount", ACCOUNT)["metadata"]["ownerReferences"]


UNOWNED: Object = {"metadata": {"ownerReferences": None}}


@pytest.mark.parametrize(("kind", "name"), [*CHILDREN, ("PodDisruptionBudget", gen.NAME), ("NetworkPolicy", gen.NAME)])
def test_adopts_a_child_without_owner_reference(kind: str, name: str, api: Api, operator: Operator) -> None:
    """Labels and managedFields show that the operator created it. No other controller owns it."""
    make(api, replicas=2, networkPolicy={})
    wait_until_observed(api)
    before = api.get(kind, name)["metadata"]
    api.patch(kind, name, UNOWNED)

    def adopted() -> bool:
        return bool(api.get(kind, name)["metadata"].get("ownerReferences"))

    eventually(adopted, SOON, lambda: operator.log[-3000:])
    after = api.get(kind, name)["metadata"]
    assert (after["uid"], after["ownerReferences"]) == (before["uid"], before["ownerReferences"])
    progressing(api, "RollingOut")


def test_adopts_and_corrects_an_edited_child_without_owner_reference(api: Api, operator: Operator) -> None:
    make(api)
    wait_until_observed(api)
    ports = api.get("Service", gen.NAME)["spec"]["ports"]
    api.patch("Service", gen.NAME, {**UNOWNED, "spec": {"ports": [ports[0] | {"port": 80}]}})

    def back() -> bool:
        service = api.get("Service", gen.NAME)
        return bool(service["metadata"].get("ownerReferences")) and service["spec"]["ports"] == ports

    eventually(back, SOON, lambda: operator.log[-3000:])


def test_new_tritonmodel_adopts_orphans_of_an_earlier_one(api: Api, operator: Operator) -> None:
    make(api)
    wait_until_observed(api)
    options = {"propagationPolicy": "Orphan"}
    finalizer: Object = {"metadata": {"finalizers": None}}
    before = [api.get(*place)["metadata"]["uid"] for place in CHILDREN]
    api.request("DELETE", api.path("TritonModel", gen.NAME), options)
    for place in CHILDREN:  # as the garbage collector does, which doesn't run here
        api.patch(*place, UNOWNED)
    api.patch("TritonModel", gen.NAME, finalizer)
    eventually(lambda: api.find("TritonModel", gen.NAME) is None, SOON)
    uid = make(api)["metadata"]["uid"]

    def owners() -> set[str]:
        owner_references = [api.get(*place)["metadata"].get("ownerReferences", [{}]) for place in CHILDREN]
        return {references[0].get("uid", "") for references in owner_references}

    eventually(lambda: owners() == {uid}, SOON, lambda: operator.log[-3000:])
    assert [api.get(*place)["metadata"]["uid"] for place in CHILDREN] == before


OTHERS = names.labels("another")
CONTROLLER: Object = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1", "controller": True}


@pytest.mark.parametrize(
    ("manager", "metadata"),
    [
        ("somebody", {"labels": names.labels(gen.NAME)}),
        (names.FIELD_MANAGER, {"labels": OTHERS}),
        (names.FIELD_MANAGER, {"labels": {names.LABEL_MANAGED_BY: names.FIELD_MANAGER}}),
        (names.FIELD_MANAGER, {"annotations": {"a": "b"}}),
        (names.FIELD_MANAGER, {"labels": names.labels(gen.NAME), "ownerReferences": [CONTROLLER]}),
    ],
    ids=["no field of ours", "another's labels", "one label", "no label", "another's controller"],
)  # fmt: skip
def test_does_not_adopt_a_service_account_without_proof_of_origin(
    manager: str, metadata: Object, api: Api, operator: Operator
) -> None:
    """The servers would get its permissions."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, **metadata}}
    path = f"{api.path('ServiceAccount', ACCOUNT)}?fieldManager={manager}&force=true"
    foreign = api.request("PATCH", path, account, "application/apply-patch+yaml")
    if manager != names.FIELD_MANAGER:
        # Another manager owns our labels; our field manager owns only another field.
        path = f"{api.path('ServiceAccount', ACCOUNT)}?fieldManager={names.FIELD_MANAGER}&force=true"
        noted = {**account, "metadata": {"name": ACCOUNT, "annotations": {"a": "b"}}}
        foreign = api.request("PATCH", path, noted, "application/apply-patch+yaml")
    make(api)
    assert f"ServiceAccount {api.namespace}/{ACCOUNT} exists" in progressing(api, "NameTaken")["message"]
    assert api.find("Service", gen.NAME)
    assert not api.find("Deployment", gen.NAME)
    assert version(api.get("ServiceAccount", ACCOUNT)) == version(foreign)
