"""The NetworkPolicies of a TritonModel and of the operator. Skipped if the cluster's network plugin enforces none."""

from __future__ import annotations

import pytest

from support.api import Object, condition, eventually
from support.cluster import NAMESPACE, Cluster, Namespace

pytestmark = pytest.mark.e2e

ASK = """
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=5).status)
except OSError as error:
    print("no answer:", error)
"""


def add_pod(namespace: Namespace, name: str) -> str:
    """Creates a pod that can send and answer requests, with its name as the label `role`. Returns its URL."""
    container: Object = {
        "name": "shell",
        "image": namespace.cluster.operator_image,
        "command": ["python", "-m", "http.server", "8000", "--directory", "/usr/share"],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    metadata = {"name": name, "labels": {"role": name}}
    namespace.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    eventually(
        lambda: condition(namespace.api.get("Pod", name), "Ready").get("status") == "True", 90, f"the pod {name}"
    )
    return address(namespace.api.get("Pod", name))


def address(pod: Object, path: str = "/") -> str:
    """Returns the pod's URL by IP, because a name would need access to the DNS."""
    return f"http://{pod['status']['podIP']}:8000{path}"


def reaches(namespace: Namespace, pod: str, url: str, *container: str) -> bool:
    """Returns whether the pod gets an answer from the URL. Fails if it can't ask."""
    output = namespace.kubectl("exec", pod, *container, "--", "python3", "-c", ASK, url).strip()
    assert output == "200" or output.startswith("no answer:"), output
    return output == "200"


@pytest.fixture(scope="module", autouse=True)
def enforced(shared_namespace: Namespace) -> None:
    add_pod(shared_namespace, "asks")
    url = add_pod(shared_namespace, "closed")
    eventually(lambda: reaches(shared_namespace, "asks", url), 60)
    spec = {"podSelector": {"matchLabels": {"role": "closed"}}, "policyTypes": ["Ingress"]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"}}
    shared_namespace.api.create({**policy, "spec": spec})
    try:
        eventually(lambda: not reaches(shared_namespace, "asks", url), 60)
    except AssertionError:
        pytest.skip("the cluster's network plugin doesn't enforce NetworkPolicies")


def test_only_its_clients_can_connect_to_a_server(cluster: Cluster, namespace: Namespace) -> None:
    client_url, _ = (add_pod(namespace, name) for name in ("client", "stranger"))
    policy = {"clients": [{"podSelector": {"matchLabels": {"role": "client"}}}]}
    # ModelsLoaded shows that the kubelet and the operator can reach the server, and that it needs no egress.
    namespace.deploy("isolated", cluster.image(), networkPolicy=policy)
    namespace.wait_for_condition("isolated", "ModelsLoaded", "True", "AllLoaded")
    (server,) = namespace.pods("isolated")
    url = address(server, "/v2/health/ready")
    eventually(lambda: reaches(namespace, "client", url), 60)
    eventually(lambda: not reaches(namespace, "stranger", url), 60)
    server_name = server["metadata"]["name"]
    eventually(lambda: reaches(namespace, "stranger", client_url), 60)
    assert not reaches(namespace, server_name, client_url, "-c", "triton")
    namespace.api.patch("TritonModel", "isolated", {"spec": {"networkPolicy": None}})
    eventually(lambda: reaches(namespace, "stranger", url), 60, "the policy is deleted")
    eventually(lambda: reaches(namespace, server_name, client_url, "-c", "triton"), 60)


def test_the_status_names_a_default_deny_policy_and_what_ends_it(cluster: Cluster, namespace: Namespace) -> None:
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "default-deny"}}
    namespace.api.create({**policy, "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}})
    namespace.deploy("silent", cluster.image())

    def models_loaded() -> Object:
        return condition(namespace.api.get("TritonModel", "silent"), "ModelsLoaded")

    words = "is ready, but doesn't answer the operator: a NetworkPolicy"
    eventually(lambda: words in models_loaded()["message"], 60, models_loaded)
    namespace.api.patch("TritonModel", "silent", {"spec": {"networkPolicy": {}}})
    namespace.wait_for_condition("silent", "ModelsLoaded", "True", "AllLoaded")


def test_no_pod_of_a_tenant_can_connect_to_the_operator(cluster: Cluster, namespace: Namespace) -> None:
    """Its ports are for metrics, from the namespaces of Prometheus, and for the kubelet's probes."""
    namespace.deploy("echo", cluster.image())
    (server,) = namespace.pods("echo")
    add_pod(namespace, "stranger")
    own = Namespace(cluster, NAMESPACE, cluster.api.in_namespace(NAMESPACE))
    leader = cluster.leader()
    host = own.api.get("Pod", leader)["status"]["podIP"]
    for port in ("8080/metrics", "8081/healthz"):
        eventually(lambda p=port: reaches(own, leader, f"http://127.0.0.1:{p}"), 60)
        assert not reaches(namespace, "stranger", f"http://{host}:{port}")
        assert not reaches(namespace, server["metadata"]["name"], f"http://{host}:{port}", "-c", "triton")


def test_the_operator_can_connect_to_servers_only(cluster: Cluster, namespace: Namespace) -> None:
    namespace.deploy("echo", cluster.image())
    (server,) = namespace.pods("echo")
    add_pod(namespace, "client")
    stranger_url = add_pod(namespace, "stranger")
    eventually(lambda: reaches(namespace, "client", stranger_url), 60)
    operator = Namespace(cluster, NAMESPACE, cluster.api.in_namespace(NAMESPACE))
    eventually(lambda: reaches(operator, cluster.leader(), address(server, "/v2/health/ready")), 60)
    assert not reaches(operator, cluster.leader(), stranger_url)
