"""The operator corrects children that were deleted or edited."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from integration.world.steps import ACCOUNT, CHILDREN, SOON, progressing, version, wait_until_observed
from support import controlplane, gen, operator_process
from support.api import MIN_WAIT_SECONDS, Api, Object, eventually
from support.operator_process import Operator
from support.people import make
from triton_operator.api import names, quantity
from triton_operator.render import children

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(("kind", "name"), CHILDREN)
def test_recreates_a_deleted_child(kind: str, name: str, api: Api, operator: Operator) -> None:
    make(api)
    wait_until_observed(api)
    before = api.get(kind, name)["metadata"]["uid"]
    api.delete(kind, name)
    again = eventually(lambda: api.find(kind, name), SOON)
    assert again["metadata"]["uid"] != before


def test_corrects_an_edited_child_and_keeps_foreign_fields(api: Api, operator: Operator) -> None:
    make(api, replicas=2)
    wait_until_observed(api)
    debug = {"name": "debug", "port": 9000, "targetPort": 9000, "protocol": "TCP"}
    ports = api.get("Service", gen.NAME)["spec"]["ports"]
    foreign = {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}}
    api.patch("Service", gen.NAME, {**foreign, "spec": {"ports": [ports[0] | {"targetPort": 1}, debug]}})
    api.patch("Deployment", gen.NAME, {**foreign, "spec": {"progressDeadlineSeconds": 1}})
    api.patch("PodDisruptionBudget", gen.NAME, {"spec": {"maxUnavailable": 2}})
    api.patch("ServiceAccount", ACCOUNT, {"automountServiceAccountToken": True})

    def repaired() -> bool:
        service, deployment = api.get("Service", gen.NAME), api.get("Deployment", gen.NAME)
        return (
            {p["name"]: p["targetPort"] for p in service["spec"]["ports"]}
            == {"http": "http", "grpc": "grpc", "metrics": "metrics", "debug": 9000}
            and deployment["spec"]["progressDeadlineSeconds"] == 1800
            and api.get("PodDisruptionBudget", gen.NAME)["spec"]["maxUnavailable"] == 1
            and api.get("ServiceAccount", ACCOUNT)["automountServiceAccountToken"] is False
        )

    eventually(repaired, SOON, lambda: api.get("Service", gen.NAME))
    for kind in ("Service", "Deployment"):
        metadata = api.get(kind, gen.NAME)["metadata"]
        assert (metadata["labels"]["team"], metadata["annotations"]["note"]) == ("a", "b")


def test_leaves_a_restart_by_kubectl_alone(api: Api, operator: Operator) -> None:
    """To set it back would replace the servers once more."""
    make(api, rollout={"restartedAt": "2026-01-01T00:00:00Z"})
    wait_until_observed(api)
    restarted = {"kubectl.kubernetes.io/restartedAt": "2026-02-02T00:00:00Z"}
    api.patch("Deployment", gen.NAME, {"spec": {"template": {"metadata": {"annotations": restarted}}}})
    # The operator has seen that when it has corrected a later change.
    api.patch("Deployment", gen.NAME, {"spec": {"progressDeadlineSeconds": 1}})
    eventually(lambda: api.get("Deployment", gen.NAME)["spec"]["progressDeadlineSeconds"] == 1800, SOON)
    annotations = api.get("Deployment", gen.NAME)["spec"]["template"]["metadata"]["annotations"]
    assert restarted.items() <= annotations.items()


@pytest.mark.parametrize("edit", [{"port": 80}, {"protocol": "UDP"}, {"port": 80, "protocol": "UDP"}], ids=str)
def test_corrects_a_port_with_an_edited_number(edit: Object, api: Api, operator: Operator) -> None:
    """To the API server it is another port, whose name conflicts with ours."""
    make(api)
    wait_until_observed(api)
    before = api.get("Service", gen.NAME)
    ports = before["spec"]["ports"]
    debug = {"name": "debug", "port": 9000, "targetPort": 9000, "protocol": "TCP"}
    api.patch("Service", gen.NAME, {"spec": {"ports": [ports[0] | edit, *ports[1:], debug]}})

    def now() -> list[Object]:
        return sorted(api.get("Service", gen.NAME)["spec"]["ports"], key=str)

    eventually(lambda: now() == sorted([*ports, debug], key=str), SOON, lambda: operator.log[-2000:])
    # The same with only the edited port.
    api.patch("Service", gen.NAME, {"spec": {"ports": [ports[0] | edit]}})
    eventually(lambda: now() == sorted(ports, key=str), SOON, lambda: operator.log[-2000:])
    assert api.get("Service", gen.NAME)["metadata"]["uid"] == before["metadata"]["uid"]
    assert progressing(api, "RollingOut")


def test_restores_the_label_of_a_child(api: Api, operator: Operator) -> None:
    """The watches select by the label. Without it, the object looks deleted."""
    make(api)
    wait_until_observed(api)
    api.patch("Service", gen.NAME, {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}})
    eventually(lambda: names.LABEL_MANAGED_BY in api.get("Service", gen.NAME)["metadata"]["labels"], SOON)


def test_recreates_a_child_that_was_deleted_without_its_label(api: Api, operator: Operator) -> None:
    """No watch reports the deletion. The operator notices it when it restores the label."""
    make(api)
    wait_until_observed(api)
    for kind, name in CHILDREN:
        before = api.get(kind, name)["metadata"]["uid"]
        api.patch(kind, name, {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}})
        time.sleep(0.2)  # by then the operator has found it again, but not yet restored the label
        api.delete(kind, name)
        again = eventually(lambda k=kind, n=name: api.find(k, n), SOON, lambda: operator.log[-2000:])
        assert again["metadata"]["uid"] != before


def test_creates_a_disruption_budget_only_for_several_replicas(api: Api, operator: Operator) -> None:
    make(api, replicas=1)
    wait_until_observed(api)
    assert api.find("PodDisruptionBudget", gen.NAME) is None
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 2}})
    eventually(lambda: api.find("PodDisruptionBudget", gen.NAME), SOON)
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 1}})
    eventually(lambda: api.find("PodDisruptionBudget", gen.NAME) is None, SOON)


def test_network_policy_follows_its_field(api: Api, operator: Operator) -> None:
    make(api)
    wait_until_observed(api)
    assert api.find("NetworkPolicy", gen.NAME) is None
    api.patch("TritonModel", gen.NAME, {"spec": {"networkPolicy": {}}})
    policy = eventually(lambda: api.find("NetworkPolicy", gen.NAME), SOON, lambda: operator.log)
    operators = {"matchLabels": {"kubernetes.io/metadata.name": operator_process.NAMESPACE}}
    assert policy["spec"]["ingress"][-1]["from"][0]["namespaceSelector"] == operators
    assert "egress" not in policy["spec"]
    api.patch("TritonModel", gen.NAME, {"spec": {"networkPolicy": {"egress": [{"ports": [{"port": 443}]}]}}})
    eventually(lambda: api.get("NetworkPolicy", gen.NAME)["spec"].get("egress"), SOON, lambda: operator.log)
    # The operator reverts an edit, and writes nothing otherwise.
    api.patch("NetworkPolicy", gen.NAME, {"spec": {"ingress": [{}]}})
    eventually(lambda: len(api.get("NetworkPolicy", gen.NAME)["spec"]["ingress"]) == 3, SOON, lambda: operator.log)
    wait_until_observed(api)
    before = version(api.get("NetworkPolicy", gen.NAME))
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 2}})
    eventually(lambda: api.find("PodDisruptionBudget", gen.NAME), SOON)
    assert version(api.get("NetworkPolicy", gen.NAME)) == before
    api.patch("TritonModel", gen.NAME, {"spec": {"networkPolicy": None}})
    eventually(lambda: api.find("NetworkPolicy", gen.NAME) is None, SOON, lambda: operator.log)


TEAM_A, TEAM_B = ({"podSelector": {"matchLabels": {"release": release}}} for release in ("1.10", "1.1"))
CLIENTS = [TEAM_A, TEAM_B, {**TEAM_B, "namespaceSelector": {}}, TEAM_B]
"""Each differs from the one before. `1.10` and `1.1` are the same quantity, and an empty selector selects all."""


def test_network_policy_follows_its_clients(api: Api, operator: Operator) -> None:
    make(api, networkPolicy={"clients": CLIENTS[:1]})
    for client in CLIENTS[1:]:
        wait_until_observed(api)
        api.patch("TritonModel", gen.NAME, {"spec": {"networkPolicy": {"clients": [client]}}})
        eventually(
            lambda expected=client: api.get("NetworkPolicy", gen.NAME)["spec"]["ingress"][0]["from"] == [expected],
            MIN_WAIT_SECONDS,
            lambda: (api.get("NetworkPolicy", gen.NAME)["spec"]["ingress"][0], operator.log[-2000:]),
        )


def test_the_api_server_has_no_other_fields_with_quantities(api: Api) -> None:
    definitions = api.request("GET", "/openapi/v2")["definitions"]
    native = {kind.kind: kind for kind in children.KINDS if not kind.optional}

    def paths(schema: Object, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        reference = schema.get("$ref", "").removeprefix("#/definitions/")
        if reference.endswith(".Quantity"):
            yield at
        elif "items" in schema:
            yield from paths(schema["items"], at)
        elif "additionalProperties" in schema:
            yield from paths(schema["additionalProperties"], (*at, "*"))
        for name, field in definitions.get(reference, {}).get("properties", {}).items():
            # A template of pods can't have ephemeral containers.
            if name not in ("metadata", "status", "ephemeralContainers"):
                yield from paths(field, (*at, name))

    places = set[tuple[str, ...]]()
    for name, definition in definitions.items():
        for identity in definition.get("x-kubernetes-group-version-kind", ()):
            kind = native.get(identity["kind"])
            if kind is not None and (identity["group"], identity["version"]) == (kind.group, kind.version):
                places |= set(paths({"$ref": f"#/definitions/{name}"}, (kind.kind,)))
    # A newer API server may have more of them, and an older one fewer.
    match controlplane.compared():
        case "newer":
            assert places >= quantity.PATHS
        case "older":
            assert places <= quantity.PATHS
        case "same":
            assert places == quantity.PATHS


def test_reports_a_pause_by_another_client_and_keeps_it(api: Api, operator: Operator) -> None:
    make(api)
    progressing(api, "RollingOut")
    api.patch("Deployment", gen.NAME, {"spec": {"paused": True}})
    progress = progressing(api, "DeploymentPaused")
    assert progress["status"] == "False"
    assert "kubectl rollout resume deployment/detection" in progress["message"]
    assert api.get("Deployment", gen.NAME)["spec"]["paused"]
    api.patch("Deployment", gen.NAME, {"spec": {"paused": None}})
    progressing(api, "RollingOut")
