"""A canary behind a real Envoy Gateway: who gets which share of the requests, and that none fails."""

from __future__ import annotations

import math
import os
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hack.world import settings
from support import gateway_cluster
from support import load as loads
from support.api import Object, condition, eventually
from support.cluster import ROOT, Cluster, Namespace
from support.prometheus import Monitoring

pytestmark = [pytest.mark.e2e, pytest.mark.installation]

HOST = "echo.example.com"
GATEWAY: Object = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "Gateway",
    "metadata": {"name": "models"},
    "spec": {
        "gatewayClassName": "envoy",
        "listeners": [
            {"name": name, "port": port, "protocol": "HTTP"} for name, port in (("http", 8000), ("grpc", 8001))
        ],
    },
}
ROUTE: Object = {"gateway": {"name": "models"}, "hostnames": [HOST]}
RATE, SECONDS = 80, 15
Hosts = dict[str, list[str]]


@pytest.fixture(scope="module")
def hosts(cluster: Cluster, shared_namespace: Namespace) -> Iterator[Hosts]:
    """Serves version 1 of `echo` behind a Gateway; returns its address and host name."""
    namespace = shared_namespace
    namespace.api.apply(namespace.model("echo", cluster.image(change="v1"), replicas=4, route=ROUTE))
    with gateway_cluster.installed(cluster):
        address = gateway_cluster.address(namespace, GATEWAY)
        namespace.wait_until_complete("echo")
        namespace.wait_for_condition("echo", "Routed", "True", "Accepted")
        yield {address: [HOST]}


def change(namespace: Namespace, canary: Object | None) -> None:
    namespace.api.patch("TritonModel", "echo", {"spec": {"canary": canary}})


def shares(namespace: Namespace, hosts: Hosts | None, service: str = HOST) -> tuple[dict[str, float], int]:
    """Returns the share of the answers from each version, over both protocols, and the number of answers."""
    with loads.load(namespace, service, RATE, "shares", hosts) as traffic:
        time.sleep(SECONDS)
    assert traffic.failures() == []
    counts: dict[str, int] = {}
    for protocol in traffic.result.values():
        for version, count in protocol["versions"].items():
            counts[version] = counts.get(version, 0) + count
    total = sum(counts.values())
    return {version: count / total for version, count in counts.items()}, total


def bounds(share: float, number: int) -> Any:
    """Returns what is within four standard deviations of the binomial distribution."""
    return pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / number))


def triton(namespace: Namespace, *arguments: str) -> str:
    path = f"{ROOT / '.venv' / 'bin'}:{settings.search_path()}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(namespace.cluster.kubeconfig)}
    command = ["kubectl", "triton", *arguments, "-n", namespace.name]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_requests_are_shared_by_weight_and_none_fails(
    cluster: Cluster, shared_namespace: Namespace, hosts: Hosts
) -> None:
    namespace = shared_namespace
    uids = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    with loads.load(namespace, HOST, 40, "all", hosts) as traffic:
        change(namespace, {"modelImage": {"reference": cluster.image(change="v2")}, "weight": 20})
        message = namespace.wait_for_condition("echo", "Canary", "True", "Weighted")
        assert message.startswith("20 % of the requests through the Gateway go to the canary (1 of 1 server is ready)")
        eventually(lambda: traffic.reaches("v2"), 60, traffic.log)
        found, number = shares(namespace, hosts)
        print(f"weight 20 %: {found} of {number} answers")
        assert found["v2"] == bounds(0.2, number)
        # Clients of the Service get the other servers only.
        assert shares(namespace, None, "echo")[0] == {"v1": 1.0}
        assert uids < {pod["metadata"]["uid"] for pod in namespace.pods("echo")}

        # The operator is away while the weight changes.
        cluster.kill_leader()
        change(namespace, {"weight": 50})
        cluster.wait_for_operator()
        eventually(
            lambda: "50 % of" in condition(namespace.api.get("TritonModel", "echo"), "Canary").get("message", ""),
            120, "the new weight",
        )  # fmt: skip
        namespace.wait_until_complete("echo")
        found, number = shares(namespace, hosts)
        print(f"weight 50 %: {found} of {number} answers")
        assert found["v2"] == bounds(0.5, number)

        # The end.
        triton(namespace, "abort", "echo")
        eventually(lambda: {pod["metadata"]["uid"] for pod in namespace.pods("echo")} == uids, 120, "the canary's end")
        assert shares(namespace, hosts)[0] == {"v1": 1.0}
    assert traffic.failures() == []


def answered(namespace: Namespace) -> tuple[float, float]:
    """Returns how many requests the other servers and those of the canary have answered."""
    api, counts = namespace.api, [0.0, 0.0]
    for pod in namespace.pods("echo"):
        name = pod["metadata"]["name"]
        page = api.request("GET", f"{api.path('Pod', f'{name}:8002')}/proxy/metrics")
        found = re.findall(r'^nv_inference_request_success{model="echo",[^}]*} (\d+)', page, re.MULTILINE)
        counts["tritonoperator.io/group" in pod["metadata"]["labels"]] += sum(map(float, found))
    return counts[0], counts[1]


def test_copies_reach_the_canary_and_its_answers_no_client(
    cluster: Cluster, shared_namespace: Namespace, hosts: Hosts, monitoring: Monitoring
) -> None:
    namespace = shared_namespace
    demand = f'tritonmodel:demand:rate1m{{namespace="{namespace.name}",tritonmodel="echo",version="%s"}}'
    uids = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    (before,) = shares(namespace, hosts)[0]
    canary = {"modelImage": {"reference": cluster.image(change="fails")}, "weight": 50, "mirror": True}
    with loads.load(namespace, HOST, RATE, "copied", hosts) as traffic:
        # It takes the image that answers each fifth request with an error only later.
        change(namespace, {**canary, "modelImage": {"reference": cluster.image(change="v2")}})
        message = namespace.wait_for_condition("echo", "Canary", "True", "Mirrored")
        assert message.startswith("copies of 50 % of the requests through the Gateway go to the canary (")
        eventually(lambda: answered(namespace)[1] > 0, 60, "the first copies")
        others, own = answered(namespace)
        time.sleep(SECONDS)
        later = answered(namespace)
        sent, copied = later[0] - others, later[1] - own
        print(f"copies of 50 %: {copied:.0f} of {sent:.0f}")
        assert copied / sent == bounds(0.5, int(sent))
        # Copies are no load of the model, only of the canary.
        rates = [pytest.approx(share * sent / SECONDS, rel=0.1) for share in (1, 0.5)]
        eventually(lambda: [monitoring.value(demand % of) for of in ("", "canary")] == rates, 180, str(rates))

        # The operator is away while the percentage changes.
        cluster.kill_leader()
        change(namespace, {**canary, "weight": 100})
        cluster.wait_for_operator()
        message = namespace.wait_for_condition("echo", "Canary", "False", "CanaryWorse")
        assert "because it was worse with copies of 100 % of the requests: " in message
        assert "of its requests failed, and 0 of " in message
        # One of its servers stays, and gets none.
        eventually(lambda: len(namespace.pods("echo")) == len(uids) + 1, 120, "one server of the canary")
        own = answered(namespace)[1]
        assert own > 0
        assert set(shares(namespace, hosts)[0]) == {before}
        assert answered(namespace)[1] == own
        triton(namespace, "abort", "echo")
        eventually(lambda: {pod["metadata"]["uid"] for pod in namespace.pods("echo")} == uids, 120, "the canary's end")
    assert traffic.failures() == []
    assert set(traffic.result["http"]["versions"]) == set(traffic.result["grpc"]["versions"]) == {before}


def test_answers_are_compared_also_where_a_network_policy_is_strict(
    cluster: Cluster, shared_namespace: Namespace, hosts: Hosts
) -> None:
    namespace = shared_namespace
    uids = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    (before,) = shares(namespace, hosts)[0]

    def answers(equal: bool) -> Object | None:
        """Returns what is known of at least eight answers, if all are equal, or if none is."""
        found = judged(namespace).get("answers", {"compared": 0})
        return found if found["compared"] >= 8 and found["equal"] == equal * found["compared"] else None

    with loads.load(namespace, HOST, RATE, "compared", hosts) as traffic:
        # Kind's network plugin lets the name service through anyway; others don't.
        dns = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53}]}
        policy = {"clients": [{"namespaceSelector": {}}], "egress": [dns]}
        namespace.api.patch("TritonModel", "echo", {"spec": {"networkPolicy": policy}})
        same = {"models": [{"name": "echo", "config": {"instance_group": [{"count": 2}]}}], "mirror": True}
        change(namespace, {**same, "weight": 30, "comparePercent": 100})
        found = eventually(lambda: answers(True), 240, lambda: judged(namespace))
        assert (found["same"], found["message"]) == (found["compared"], "")
        message = condition(namespace.api.get("TritonModel", "echo"), "Canary")["message"]
        assert re.search(r"([0-9,]+) of \1 compared answers are equal$", message)

        change(namespace, {"models": None, "modelImage": {"reference": cluster.image(change="v2")}})
        found = eventually(lambda: answers(False), 240, lambda: judged(namespace))
        assert found["message"] == f"different: VERSION ({found['compared']})"
        assert judged(namespace)["verdict"] != "Worse"

        triton(namespace, "abort", "echo")
        eventually(lambda: {pod["metadata"]["uid"] for pod in namespace.pods("echo")} == uids, 120, "the canary's end")
    namespace.api.patch("TritonModel", "echo", {"spec": {"networkPolicy": None}})
    assert traffic.failures() == []
    assert set(traffic.result["http"]["versions"]) == set(traffic.result["grpc"]["versions"]) == {before}


def test_a_canary_becomes_the_spec_without_a_failed_request(
    cluster: Cluster, shared_namespace: Namespace, hosts: Hosts
) -> None:
    namespace = shared_namespace
    image = cluster.image(change="v3")
    with loads.load(namespace, HOST, 40, "promoted", hosts) as traffic:
        change(namespace, {"modelImage": {"reference": image}})
        namespace.wait_for_condition("echo", "Canary", "True", "Weighted")
        assert "the canary is the spec now" in triton(namespace, "promote", "echo", "--force")
        model = namespace.wait_until_complete("echo")
        assert model["spec"]["modelImage"]["reference"] == image
        assert "canary" not in model["spec"]
        eventually(lambda: len(namespace.pods("echo")) == 4, 120, "the end of the other servers")
        assert shares(namespace, hosts)[0] == {"v3": 1.0}
    assert traffic.failures() == []


def test_a_canary_that_does_not_load_gets_no_request(
    cluster: Cluster, shared_namespace: Namespace, hosts: Hosts
) -> None:
    namespace = shared_namespace
    before = set(shares(namespace, hosts)[0])
    with loads.load(namespace, HOST, 40, "broken", hosts) as traffic:
        change(namespace, {"modelImage": {"reference": cluster.image(change="raises")}, "weight": 100})
        message = namespace.wait_for_condition("echo", "Canary", "False", "CanaryNotReady")
        assert "the weights are from Tuesday" in message
        change(namespace, None)
        namespace.wait_until_complete("echo")
    assert traffic.failures() == []
    assert set(traffic.result["http"]["versions"]) == before


def judged(namespace: Namespace) -> Object:
    """Returns what is known of the canary."""
    found: Object = namespace.api.get("TritonModel", "echo")["status"].get("canary", {})
    return found


def test_a_good_canary_comes_to_its_weight_and_is_promoted(
    cluster: Cluster, shared_namespace: Namespace, hosts: Hosts
) -> None:
    namespace = shared_namespace
    image = cluster.image(change="v2")
    canary = {
        "modelImage": {"reference": image}, "steps": [10, 30], "weight": 50,
        "gate": {"stepSeconds": 10, "minRequests": 20},
    }  # fmt: skip
    with loads.load(namespace, HOST, RATE, "good", hosts) as traffic:
        change(namespace, canary)
        reached = []
        for step in ("1/3", "2/3", "3/3"):
            eventually(lambda s=step: judged(namespace).get("step") == s and "since" in judged(namespace), 120, step)
            reached.append(judged(namespace)["weight"])
            if step == "2/3":
                cluster.kill_leader()
        assert reached == [10, 30, 50]
        out = triton(namespace, "promote", "echo", "--wait")
        assert "the canary is the spec now" in out
        assert namespace.wait_until_complete("echo")["spec"]["modelImage"]["reference"] == image
        eventually(lambda: len(namespace.pods("echo")) == 4, 120, "the end of the other servers")
        assert shares(namespace, hosts)[0] == {"v2": 1.0}
    assert traffic.failures() == []


@pytest.mark.parametrize(("name", "words"), [("fails", "of its requests failed"), ("waits", "slower; a request takes")])
def test_a_worse_canary_gets_no_requests_any_more(
    cluster: Cluster, shared_namespace: Namespace, hosts: Hosts, name: str, words: str
) -> None:
    """One that answers each fifth request with an error, and one that takes 20 ms longer."""
    namespace = shared_namespace
    uids = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    with loads.load(namespace, HOST, RATE, name, hosts) as traffic:
        change(namespace, {"modelImage": {"reference": cluster.image(change=name)}, "weight": 20})
        message = namespace.wait_for_condition("echo", "Canary", "False", "CanaryWorse")
        print(message)
        assert words in message
        assert judged(namespace)["verdict"] == "Worse"
        answers = shares(namespace, hosts)[0]
        assert name not in answers
        # It stays so, also under another leader.
        cluster.kill_leader()
        cluster.wait_for_operator()
        assert shares(namespace, hosts)[0] == answers
        triton(namespace, "abort", "echo")
        eventually(lambda: {pod["metadata"]["uid"] for pod in namespace.pods("echo")} == uids, 120, "the canary's end")
    assert all("the labels are missing" in failure for failure in traffic.failures())
    assert bool(traffic.failures()) == (name == "fails")
