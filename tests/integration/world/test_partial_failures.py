"""A write that fails for a time stops no other write, and the status has the reason."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from integration.world.steps import SOON, progressing, wait_until_observed
from support import gen
from support.api import Api, RefusedError, condition, eventually
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import make

pytestmark = pytest.mark.integration


WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@contextlib.contextmanager
def webhook_down(api: Api, kind: str, group: str) -> Iterator[None]:
    """While the context lasts, the API server answers creations in the namespace with 500."""
    path = api.path(kind)
    name = f"down-{api.namespace}"
    api.request("POST", WEBHOOKS, {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": "down.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 1, "clientConfig": {"url": "https://127.0.0.1:9/check"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}},
            "rules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": [path.rpartition("/")[2]],
                       "operations": ["CREATE", "UPDATE"]}],
        }],
    })  # fmt: skip

    def is_down() -> bool:
        spec = {"ports": [{"port": 1}]} if kind == "Service" else {"maxUnavailable": 1}
        version = f"{group}/v1" if group else "v1"
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": "probe"}, "spec": spec}
        try:
            api.request("POST", f"{path}?dryRun=All", body)
        except RefusedError as error:
            return error.code == 500
        return False

    try:
        eventually(is_down, SOON)
        yield
    finally:
        api.request("DELETE", f"{WEBHOOKS}/{name}")


def test_a_webhook_that_is_down_stops_neither_the_status_nor_other_children(api: Api, operator: Operator) -> None:
    make(api, replicas=2)
    wait_until_observed(api)
    pod = add_pod(api, gen.put("status.podIP", ""))
    eventually(lambda: condition(api.get("TritonModel", gen.NAME), "Ready").get("status") == "True", SOON)
    assert operator.metric_sum("triton_operator_replicas", state="ready", namespace=api.namespace) == 1
    with webhook_down(api, "PodDisruptionBudget", "policy"):
        # A change that replaces the budget and the Deployment, while the only server ends.
        api.delete("PodDisruptionBudget", gen.NAME)
        change = {"server": {"image": "triton:2"}, "disruption": {"maxUnavailable": 2}}
        api.patch("TritonModel", gen.NAME, {"spec": change})
        api.delete("Pod", pod["metadata"]["name"])
        message = progressing(api, "ApplyRefused")["message"]
        assert "PodDisruptionBudget" in message
        assert "webhook" in message
        eventually(
            lambda: condition(api.get("TritonModel", gen.NAME), "Ready").get("status") == "False", SOON,
            lambda: api.get("TritonModel", gen.NAME)["status"],
        )  # fmt: skip
        assert api.get("TritonModel", gen.NAME)["status"]["readyReplicas"] == 0
        assert operator.metric_sum("triton_operator_replicas", state="ready", namespace=api.namespace) == 0

        def image() -> str:
            return str(api.get("Deployment", gen.NAME)["spec"]["template"]["spec"]["containers"][0]["image"])

        # The budget may have been refused before the operator saw the change of the spec.
        eventually(lambda: image() == "triton:2", SOON, image)
        # A new TritonModel gets a status, and all other children.
        make(api, "later", replicas=2)
        assert progressing(api, "ApplyRefused", "later")
        assert api.get("Deployment", "later")
        assert api.find("PodDisruptionBudget", "later") is None
    for name in (gen.NAME, "later"):
        eventually(lambda n=name: api.find("PodDisruptionBudget", n), SOON, lambda: operator.log)  # type: ignore[misc]
        eventually(lambda n=name: progressing(api, "RollingOut", n), SOON)  # type: ignore[misc]


def test_a_refused_service_does_not_stop_the_deployment(api: Api, operator: Operator) -> None:
    with webhook_down(api, "Service", ""):
        make(api)
        assert "Service" in progressing(api, "ApplyRefused")["message"]
        assert api.get("Deployment", gen.NAME)
        assert api.find("Service", gen.NAME) is None
    eventually(lambda: api.find("Service", gen.NAME), SOON, lambda: operator.log)
