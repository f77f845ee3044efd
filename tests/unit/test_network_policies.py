"""The NetworkPolicies of servers and of the operator: which connections they allow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import gen
from support.api import Object
from support.network import NODE, Network, Pod
from triton_operator.api import names
from triton_operator.render import Facts, render
from triton_operator.render.facts import RenderSettings

ROOT = Path(__file__).parents[2]
OUTSIDE, API_SERVER, METADATA = "203.0.113.9", "172.18.0.2", "169.254.169.254"
SERVER = Pod("vision", names.labels("detection") | {"pod-template-hash": "1"})
OTHER_SERVER = Pod("speech", names.labels("asr"))
CLIENT = Pod("vision", {"app": "camera"})
STRANGER = Pod("payments", {"app": "camera"})
PROMETHEUS = Pod("monitoring", {"app.kubernetes.io/name": "prometheus"})
DNS = Pod("kube-system", {"k8s-app": "kube-dns"})
# Read from the operator's Deployment, so that the labels are the same.
OPERATOR = Pod(
    "triton-operator",
    yaml.safe_load((ROOT / "manifests/operator/deployment.yaml").read_text())["spec"]["template"]["metadata"]["labels"],
)
IMPOSTOR = Pod("payments", OPERATOR.labels)
INSTALLED: Object = yaml.safe_load((ROOT / "manifests/operator/network_policy.yaml").read_text())


def policies(**spec: Any) -> list[Object]:
    return [o for o in render(gen.model(**spec), Facts("operator:1", "Copy")) if o["kind"] == "NetworkPolicy"]


def network(**spec: Any) -> Network:
    return Network((*policies(**spec), INSTALLED), {"gateways": {"tier": "edge"}})


def test_only_the_operator_reads_metrics_where_no_monitoring_may() -> None:
    """It reads how long models took to load, and the counters for the engine Direct."""
    own: Any = {"networkPolicy": {"monitoring": []}}
    assert network(**own).lets(OPERATOR, SERVER, 8002)
    assert not network(**own).lets(IMPOSTOR, SERVER, 8002)


@pytest.mark.parametrize(
    ("field", "port"), [({"latency": {}}, names.LATENCY_PORT), ({"processes": True}, names.PROCESSES_PORT)]
)
def test_monitoring_reads_an_exporter(field: dict[str, Any], port: int) -> None:
    without, own = network(networkPolicy={}), network(networkPolicy={}, monitoring=field)
    assert not without.lets(PROMETHEUS, SERVER, port)
    assert own.lets(PROMETHEUS, SERVER, port)
    assert not own.lets(CLIENT, SERVER, port) or own.lets(CLIENT, SERVER, 8002)


def test_renders_no_policy_and_allows_everything_without_the_field() -> None:
    assert policies() == []
    for source in (CLIENT, STRANGER, OUTSIDE):
        assert network().lets(source, SERVER, 8000)
    assert network().lets(SERVER, OUTSIDE, 443)


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        (CLIENT, SERVER, 8000),
        (CLIENT, SERVER, 8001),  # gRPC, through either Service: policies apply to the pods
        (PROMETHEUS, SERVER, 8002),
        (OPERATOR, SERVER, 8000),
        (NODE, SERVER, 8000),  # the kubelet's probes
        (PROMETHEUS, OPERATOR, 8080),
        (NODE, OPERATOR, 8080),
        (OPERATOR, API_SERVER, 6443),
        (OPERATOR, API_SERVER, 443),
        (OPERATOR, DNS, 53),
        (OPERATOR, PROMETHEUS, 9090),
        (OPERATOR, OTHER_SERVER, 8000),
    ],
)
def test_allows_the_connections_that_serving_and_monitoring_need(
    source: Pod | str, target: Pod | str, port: int
) -> None:
    assert network(networkPolicy={}).lets(source, target, port)


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        (STRANGER, SERVER, 8000),
        (STRANGER, SERVER, 8001),
        (OUTSIDE, SERVER, 8000),
        (IMPOSTOR, SERVER, 8000),  # the operator's label in another namespace
        (PROMETHEUS, SERVER, 8000),
        (OPERATOR, SERVER, 8001),
        (CLIENT, SERVER, 22),
        (SERVER, OUTSIDE, 443),
        (SERVER, METADATA, 80),
        (SERVER, API_SERVER, 6443),
        (SERVER, DNS, 53),
        (SERVER, CLIENT, 80),
        (SERVER, OTHER_SERVER, 8000),
        (SERVER, SERVER, 8000),
        (OUTSIDE, OPERATOR, 8080),
        (STRANGER, OPERATOR, 8080),
        (CLIENT, OPERATOR, 8080),
        (SERVER, OPERATOR, 8080),
        (CLIENT, OPERATOR, 8081),
        (PROMETHEUS, OPERATOR, 8081),
        (OPERATOR, OUTSIDE, 80),
        (OPERATOR, METADATA, 80),
        (OPERATOR, CLIENT, 8000),
    ],
)
def test_denies_all_other_connections(source: Pod | str, target: Pod | str, port: int) -> None:
    assert not network(networkPolicy={}).lets(source, target, port)


def test_compared_answers_need_a_port_and_the_other_servers() -> None:
    route = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"]}
    canary = {"server": {"image": "s:2"}, "mirror": True, "comparePercent": 5}
    clients = [{"namespaceSelector": {"matchLabels": {"tier": "edge"}}}]
    net = network(networkPolicy={"clients": clients}, route=route, canary=canary)
    gateway = Pod("gateways", {"app": "gateway"})
    assert net.lets(gateway, SERVER, 8010)
    assert net.lets(OPERATOR, SERVER, 8010)
    assert net.lets(SERVER, SERVER, 8000)
    for source, target, port in (
        (CLIENT, SERVER, 8010), (SERVER, SERVER, 8001), (SERVER, OTHER_SERVER, 8000), (SERVER, DNS, 53),
    ):  # fmt: skip
        assert not net.lets(source, target, port)
    without = network(networkPolicy={"clients": clients}, route=route, canary={**canary, "comparePercent": 0})
    assert not without.lets(gateway, SERVER, 8010)


def test_peers_in_the_spec_replace_the_defaults() -> None:
    policy = {
        "clients": [
            {"namespaceSelector": {"matchLabels": {"tier": "edge"}},
             "podSelector": {"matchLabels": {"app": "gateway"}}},
            {"ipBlock": {"cidr": "203.0.113.0/24", "except": ["203.0.113.128/25"]}},
        ],
        "monitoring": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}], "ports": [{"port": 443}]},
                   {"to": [{"namespaceSelector": {}}], "ports": [{"port": 53, "protocol": "UDP"}]}],
    }  # fmt: skip
    net = network(networkPolicy=policy)
    assert net.lets(Pod("gateways", {"app": "gateway"}), SERVER, 8001)
    assert net.lets(OUTSIDE, SERVER, 8000)
    assert net.lets(PROMETHEUS, SERVER, 8002)
    assert net.lets(OPERATOR, SERVER, 8000)
    assert net.lets(SERVER, OUTSIDE, 443)
    assert net.lets(SERVER, DNS, 53, "UDP")
    for source in (CLIENT, Pod("gateways"), Pod("vision", {"app": "gateway"}), "203.0.113.200"):
        assert not net.lets(source, SERVER, 8000)
    assert not net.lets(STRANGER, SERVER, 8002)
    assert not net.lets(SERVER, OUTSIDE, 80)
    assert not net.lets(SERVER, DNS, 53, "TCP")


def test_empty_list_denies_everyone() -> None:
    net = network(networkPolicy={"clients": [], "monitoring": [], "egress": []})
    for source in (CLIENT, STRANGER, PROMETHEUS, OUTSIDE):
        assert not any(net.lets(source, SERVER, port) for port in (8000, 8001, 8002))
    assert net.lets(OPERATOR, SERVER, 8000)
    assert not net.lets(SERVER, OUTSIDE, 443)


def test_allows_the_operator_in_another_namespace() -> None:
    facts = Facts("operator:1", "Copy", settings=RenderSettings(operator_namespace="serving-system"))
    (policy,) = [o for o in render(gen.model(networkPolicy={}), facts) if o["kind"] == "NetworkPolicy"]
    net = Network((policy,))
    assert net.lets(Pod("serving-system", OPERATOR.labels), SERVER, 8000)
    assert not net.lets(OPERATOR, SERVER, 8000)


def test_policy_in_the_security_page_isolates_every_server_of_its_namespace() -> None:
    """Including servers of TritonModels without networkPolicy."""
    page = (ROOT / "docs" / "security.md").read_text()
    documents = map(yaml.safe_load, re.findall(r"```yaml\n(apiVersion: networking.*?)```", page, re.DOTALL))
    (policy,) = [document for document in documents if document["metadata"]["name"] == "servers"]
    assert not Network((policy,)).lets(Pod("vision", names.labels("detection")), OUTSIDE, 443)
    assert Network((policy,)).lets(CLIENT, OUTSIDE, 443)
    opened = policies(networkPolicy={"egress": [{"to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}]})
    assert Network((policy, *opened)).lets(SERVER, OUTSIDE, 443)


# Tests of support.network itself: the semantics of policies that are easy to get wrong


@pytest.mark.parametrize(
    ("spec", "lets"),
    [
        ({"podSelector": {}, "policyTypes": ["Ingress"]}, False),
        ({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}, False),
        ({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}, True),
        ({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": []}]}, True),
        ({"podSelector": {}, "policyTypes": ["Egress"]}, True),
        ({"podSelector": {"matchLabels": {"app": "x"}}, "policyTypes": ["Ingress"]}, True),
        ({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]}, False),
        ({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}, "podSelector": {}}]}]}, True),
        ({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}, {"namespaceSelector": {}}]}]}, True),
        ({"podSelector": {}, "ingress": [{"ports": [{"port": 8000, "protocol": "UDP"}]}]}, False),
        ({"podSelector": {}, "ingress": [{"ports": [{"port": 7000, "endPort": 8000}]}]}, True),
        ({"podSelector": {}, "ingress": [{"ports": [{"port": "http"}]}]}, False),
    ],
)  # fmt: skip
def test_simulated_network_evaluates_policies_as_kubernetes_does(spec: Object, lets: bool) -> None:
    policy = {"metadata": {"namespace": "vision"}, "spec": spec}
    assert Network((policy,)).lets(STRANGER, SERVER, 8000) is lets
    # Policies are additive: one that allows everything overrides all others.
    everything = {"metadata": {"namespace": "vision"}, "spec": {"podSelector": {}, "ingress": [{}]}}
    assert Network((policy, everything)).lets(STRANGER, SERVER, 8000)
