"""Who reaches a server that has a NetworkPolicy, where the cluster's network plugin enforces them."""

from __future__ import annotations

import pytest

from support.api import Object, eventually
from support.cluster import NAMESPACE, Cluster, Namespace

pytestmark = pytest.mark.e2e

ASK = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=3).status)"
ENFORCED_SECONDS = 30


def person(namespace: Namespace, name: str) -> None:
    """A pod to ask from, with its name as a label."""
    container: Object = {
        "name": "shell",
        "image": namespace.cluster.operator_image,
        "command": ["python", "-c", "import time; time.sleep(3600)"],
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
    eventually(lambda: namespace.api.get("Pod", name)["status"].get("phase") == "Running", 90, f"the pod {name}")


def reaches(namespace: Namespace, pod: str, url: str, *container: str) -> bool:
    python = "python3" if container else "python"
    told = namespace.kubectl("exec", pod, *container, "--", python, "-c", ASK, url, check=False)
    return told.strip().endswith("200")


def test_a_server_is_reached_by_its_clients_and_by_nobody_else(cluster: Cluster, namespace: Namespace) -> None:
    for name in ("client", "stranger"):
        person(namespace, name)
    policy = {"clients": [{"podSelector": {"matchLabels": {"role": "client"}}}]}
    # Ready and with its models known: the kubelet and the operator reach it, and it needs nothing outside.
    namespace.deploy("isolated", cluster.image(), networkPolicy=policy)
    namespace.says("isolated", "ModelsLoaded", "True", "AllLoaded")
    (server,) = namespace.pods("isolated")
    # By address: a name would need a way to the DNS.
    url = f"http://{server['status']['podIP']}:8000/v2/health/ready"
    assert reaches(namespace, "client", url)
    (operator, *_) = cluster.api.list("Pod", "app.kubernetes.io/name=triton-operator", NAMESPACE)
    outside = f"http://{operator['status']['podIP']}:8080/healthz"
    try:
        eventually(lambda: not reaches(namespace, "stranger", url), ENFORCED_SECONDS)
    except AssertionError:
        pytest.skip("the network plugin of this cluster enforces no NetworkPolicies")
    assert reaches(namespace, "client", url)
    assert reaches(namespace, "client", outside)
    assert not reaches(namespace, server["metadata"]["name"], outside, "-c", "triton")
    namespace.api.patch("TritonModel", "isolated", {"spec": {"networkPolicy": None}})
    eventually(lambda: reaches(namespace, "stranger", url), ENFORCED_SECONDS, "the policy gone")
    assert reaches(namespace, server["metadata"]["name"], outside, "-c", "triton")
