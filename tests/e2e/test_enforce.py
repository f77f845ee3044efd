"""The annotation `enforce` with a real Envoy Gateway, with and without its rate limit service, and with two Envoys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support import gateway_cluster
from support.api import Object, condition, eventually
from support.cluster import ROOT, Cluster, Namespace
from support.load import client_pod
from support.thresholds import annotate

pytestmark = [pytest.mark.e2e, pytest.mark.installation]

NAME, HOST = "echo", "echo.example.com"
LIMIT, SECONDS = 20, 8
SCRIPT = ROOT / "tests/e2e/client/limited.py"
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


@pytest.fixture(scope="module")
def limited(cluster: Cluster, shared_namespace: Namespace) -> Iterator[Namespace]:
    """Serves `echo` behind a Gateway with one Envoy, and no rate limit service. The pod "client" knows its host."""
    namespace = shared_namespace
    namespace.api.apply(namespace.model(NAME, cluster.image(), replicas=2, route=ROUTE))
    namespace.api.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "client"},
            "data": {SCRIPT.name: SCRIPT.read_text()},
        }
    )
    with gateway_cluster.installed(cluster):
        address = gateway_cluster.address(namespace, GATEWAY)
        namespace.api.apply(client_pod("client", cluster.client_image, ["sleep", "infinity"], {address: [HOST]}))
        namespace.wait_until_complete(NAME)
        namespace.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
        eventually(lambda: send(namespace, 5, 1)["sent"] and not send(namespace, 5, 1)["failed"], 60, "the route")
        try:
            yield namespace
        finally:
            gateway_cluster.tell_service(cluster, "")


def send(namespace: Namespace, rate: float, seconds: float, *options: str) -> dict[str, Any]:
    command = ["python", "/client/limited.py", "send", HOST, str(rate), str(seconds), *options]
    result: dict[str, Any] = json.loads(namespace.kubectl("exec", "client", "--", *command))
    return result


def enforced(namespace: Namespace, reason: str, part: str = "") -> str:
    """Waits for this reason of the condition Enforced and a message with this part, and returns the message."""

    def look() -> str:
        said = condition(namespace.api.get("TritonModel", NAME), "Enforced")
        message = str(said.get("message", ""))
        return message if said.get("reason") == reason and part in message else ""

    return eventually(look, 90, lambda: str(namespace.api.get("TritonModel", NAME).get("status")))


def test_a_limit_comes_changes_and_goes_hot(limited: Namespace) -> None:
    uids = {pod["metadata"]["uid"] for pod in limited.pods(NAME)}
    free = send(limited, 3 * LIMIT, SECONDS)
    assert not free["rejected"]
    assert not free["failed"], free["failures"]
    annotate(limited.api, NAME, **{"max-qps": str(LIMIT), "enforce": "true"})
    assert f"above {LIMIT} a second, counted by each proxy and protocol by itself" in enforced(limited, "Enforced")
    for protocol in ("http", "grpc"):
        out = send(limited, 3 * LIMIT, SECONDS, "--over", protocol)
        print(protocol, len(out["accepted"]), out["rejected"], out["answer"])
        assert not out["failed"], out["failures"]
        # A bucket that is full at the beginning, and what flows into it.
        assert LIMIT * (SECONDS - 1) <= len(out["accepted"]) <= LIMIT * (SECONDS + 2)
        assert out["rejected"].keys() == {"429" if protocol == "http" else "StatusCode.RESOURCE_EXHAUSTED"}
        answer = out["answer"][protocol]
        text = json.loads(answer["body"])["error"] if protocol == "http" else answer["message"]
        assert f"too many requests for {limited.name}/{NAME}: it gets at most {LIMIT} a second" in text
        if protocol == "http":
            assert answer["retry-after"] == "1"
    annotate(limited.api, NAME, **{"max-qps": str(10 * LIMIT)})
    enforced(limited, "Enforced", f"above {10 * LIMIT} a second")
    assert not send(limited, 3 * LIMIT, SECONDS)["rejected"]
    # 150 a minute, and at most 3 in a second of it.
    annotate(limited.api, NAME, **{"max-qps": "2.5"})
    enforced(limited, "Enforced", "above 2.5 a second")
    out = send(limited, LIMIT, SECONDS, "--over", "http")
    print("2.5", len(out["accepted"]), out["rejected"])
    assert 3 * (SECONDS - 1) <= len(out["accepted"]) <= 3 * (SECONDS + 2)
    annotate(limited.api, NAME, **{"max-qps": str(LIMIT), "enforce": "false"})
    eventually(lambda: not condition(limited.api.get("TritonModel", NAME), "Enforced"), 60, "no condition")
    eventually(lambda: not send(limited, 3 * LIMIT, 2)["rejected"], 30, "no limit")
    assert {pod["metadata"]["uid"] for pod in limited.pods(NAME)} == uids


def test_one_client_cant_take_the_whole_limit(limited: Namespace) -> None:
    fields = {"enforcement": {"clientHeader": "x-client", "clientPercent": 25}}
    limited.api.patch("TritonModel", NAME, {"spec": {"route": fields}})
    annotate(limited.api, NAME, **{"max-qps": str(2 * LIMIT), "enforce": "true"})
    enforced(limited, "Enforced", "those of one x-client above 10")
    with ThreadPoolExecutor(3) as pool:
        greedy, modest, nameless = pool.map(
            lambda who: send(limited, who[1], SECONDS, "--over", "http", *who[0]),
            ((("--client", "greedy"), 60), (("--client", "modest"), 5), ((), 30)),
        )
    counts = [(len(out["accepted"]), out["rejected"], out["failed"]) for out in (greedy, modest, nameless)]
    print(counts)
    share = LIMIT // 2
    assert share * (SECONDS - 1) <= len(greedy["accepted"]) <= share * (SECONDS + 2), counts
    assert not modest["rejected"], counts
    assert share * (SECONDS - 1) <= len(nameless["accepted"]) <= share * (SECONDS + 2), counts
    limited.api.patch("TritonModel", NAME, {"spec": {"route": {"enforcement": None}}})


def test_all_envoys_count_together_once_there_is_a_service(limited: Namespace, cluster: Cluster) -> None:
    annotate(limited.api, NAME, **{"max-qps": str(LIMIT), "enforce": "true"})
    enforced(limited, "Enforced", "counted by each proxy and protocol by itself")
    # Envoy Gateway has no rate limit service yet, and answers with errors until the limit is replaced.
    gateway_cluster.tell_service(cluster, "true")
    assert "check Envoy Gateway's rate limit service" in enforced(limited, "Enforced", "has refused to count")
    eventually(lambda: not send(limited, 2, 2)["failed"], 60, "an end of the errors")
    gateway_cluster.install(cluster, counts=True)
    gateway_cluster.set_proxies(cluster, 2)
    eventually(lambda: gateway_cluster.ready_proxies(cluster) == 2, 120, "two Envoys")
    annotate(limited.api, NAME, enforce="false")
    eventually(lambda: not condition(limited.api.get("TritonModel", NAME), "Enforced"), 60, "no condition")
    annotate(limited.api, NAME, enforce="true")
    enforced(limited, "Enforced", f"above {LIMIT} a second, counted over all its proxies")
    out = send(limited, 3 * LIMIT, SECONDS)
    print(len(out["accepted"]), out["rejected"], out["answer"])
    assert not out["failed"], out["failures"]
    assert LIMIT * (SECONDS - 1) <= len(out["accepted"]) <= LIMIT * (SECONDS + 2)
    assert out["rejected"].keys() == {"429", "StatusCode.RESOURCE_EXHAUSTED"}
