"""Leftovers of a deleted TritonModel of the same name."""

from __future__ import annotations

import time

import pytest

from integration.world.steps import ACCOUNT, CHILDREN, SOON, progressing, wait_until_observed
from support import gen
from support.api import Api, eventually
from support.operator_process import Operator
from support.people import make
from triton_operator.api import names

pytestmark = pytest.mark.integration


def collect_the_servers(api: Api) -> None:
    """Deletes the Deployment's dependents as Kubernetes' garbage collector does, because it doesn't run here."""

    def is_being_deleted() -> bool:
        return "foregroundDeletion" in api.get("Deployment", gen.NAME)["metadata"].get("finalizers", ())

    eventually(is_being_deleted, 10 + SOON)
    api.patch("Deployment", gen.NAME, {"metadata": {"finalizers": None}})


def test_deletes_leftovers_of_an_earlier_tritonmodel_with_the_same_name(api: Api, operator: Operator) -> None:
    """The new TritonModel has no network policy."""
    before = make(api, networkPolicy={})["metadata"]["uid"]
    wait_until_observed(api)
    eventually(lambda: api.find("NetworkPolicy", gen.NAME), SOON)
    api.delete("TritonModel", gen.NAME)
    time.sleep(0.5)
    uid = make(api)["metadata"]["uid"]
    collect_the_servers(api)
    progressing(api, "RollingOut")
    for kind, name in CHILDREN:
        owner = api.get(kind, name)["metadata"]["ownerReferences"][0]
        assert owner["uid"] == uid != before
    eventually(lambda: api.find("NetworkPolicy", gen.NAME) is None, SOON)


def test_deletes_leftovers_without_the_label(api: Api, operator: Operator) -> None:
    make(api)
    wait_until_observed(api)
    api.delete("TritonModel", gen.NAME)
    for kind, name in CHILDREN:
        api.patch(kind, name, {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}})
    uid = make(api)["metadata"]["uid"]
    collect_the_servers(api)
    progressing(api, "RollingOut")
    for kind, name in CHILDREN:
        assert api.get(kind, name)["metadata"]["ownerReferences"][0]["uid"] == uid


def test_reports_the_finalizer_that_holds_a_leftover(api: Api, operator: Operator) -> None:
    make(api)
    wait_until_observed(api)
    api.patch("ServiceAccount", ACCOUNT, {"metadata": {"finalizers": ["example.com/keep"]}})
    api.delete("TritonModel", gen.NAME)
    time.sleep(0.5)
    make(api)
    collect_the_servers(api)
    message = progressing(api, "LeftoverNotDeleted")["message"]
    assert f"ServiceAccount {api.namespace}/{ACCOUNT} of a deleted TritonModel" in message
    assert "other controllers' finalizers hold it: example.com/keep" in message
    assert not api.find("Deployment", gen.NAME)
    assert api.find("Service", gen.NAME)
    api.patch("ServiceAccount", ACCOUNT, {"metadata": {"finalizers": None}})
    progressing(api, "RollingOut")
