"""spec.route with a real Envoy Gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from model_images.support import MODEL_IMAGES
from support import gateway_cluster
from support.api import Object
from support.cluster import ROOT, Cluster, Namespace
from support.load import client_pod

pytestmark = [pytest.mark.e2e, pytest.mark.installation]

SERVERS, REQUESTS = 4, 400
TOKENS, TOKENS_PER_SECOND = 400, 20
"""A stream takes 20 s at least. By default Envoy ends it after 15 s."""
SCRIPTS = (ROOT / "tests/e2e/client/routed.py", MODEL_IMAGES / "language/client/chat.py")
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


def host(name: str) -> str:
    return f"{name}.example.com"


def route(name: str, **fields: object) -> Object:
    return {"gateway": {"name": "models"}, "hostnames": [host(name)], **fields}


@pytest.fixture(scope="module")
def routed(cluster: Cluster, shared_namespace: Namespace) -> Iterator[Namespace]:
    """Serves `echo` and `language` behind one Gateway. The pod "client" knows their host names."""
    namespace = shared_namespace
    language = cluster.sample_image("language", tokens_per_second=str(TOKENS_PER_SECOND), max_num_seqs="32")
    # Before there is a Gateway, and before the cluster knows the kinds.
    namespace.api.apply(namespace.model("echo", cluster.image(), replicas=SERVERS, route=route("echo")))
    namespace.api.apply(namespace.model("language", language, entrypoint="language", route=route("language")))
    assert "install the Gateway API" in namespace.wait_for_condition("echo", "Routed", "False", "CRDsMissing")
    scripts = {path.name: path.read_text() for path in SCRIPTS}
    namespace.api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "client"}, "data": scripts})
    with gateway_cluster.installed(cluster):
        address = gateway_cluster.address(namespace, GATEWAY)
        hosts = {address: [host("echo"), host("language")]}
        namespace.api.apply(client_pod("client", cluster.client_image, ["sleep", "infinity"], hosts))
        for name in ("echo", "language"):
            namespace.wait_until_complete(name)
        namespace.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
        yield namespace


def answered(namespace: Namespace, name: str) -> dict[str, int]:
    """Returns how many requests each server has answered."""
    counts = {}
    for pod in namespace.pods(name):
        path = f"{namespace.api.path('Pod', pod['metadata']['name'] + ':8000')}/proxy/v2/models/{name}/stats"
        [stats] = namespace.api.request("GET", path)["model_stats"]
        counts[pod["metadata"]["name"]] = int(stats["inference_stats"]["success"]["count"])
    return counts


def test_clients_reach_the_models_and_not_their_administration(routed: Namespace) -> None:
    for name in ("echo", "language"):
        message = routed.wait_for_condition(name, "Routed", "True", "Accepted")
        assert f"routes HTTP and gRPC for {host(name)}; each request goes to a server with few" in message
    before = answered(routed, "echo")
    out = json.loads(routed.kubectl("exec", "client", "--", "python", "/client/routed.py", host("echo"), str(REQUESTS)))
    reached = {path for path, status in out["paths"].items() if status == 200}
    assert len(reached) == 8, out["paths"]
    assert {status for path, status in out["paths"].items() if path not in reached} == {404}, out["paths"]
    assert not [path for path in reached if any(word in path for word in ("repository", "trace", "logging", "memory"))]
    assert out["http"] == sum(range(10))
    assert out["grpc"] == sum(range(REQUESTS))
    assert out["live"]
    assert set(out["refused"].values()) == {"StatusCode.UNIMPLEMENTED"}, out["refused"]
    # A channel through the cluster IP has all of them on one server.
    shares = [(count - before[pod]) / (REQUESTS + 10) for pod, count in answered(routed, "echo").items()]
    print("shares of one channel's requests:", [f"{share:.2f}" for share in sorted(shares)])
    assert len(shares) == SERVERS
    assert max(shares) < 0.35


def test_a_stream_may_take_longer_than_envoys_time_limit(routed: Namespace) -> None:
    def chat(*options: str) -> str:
        command = ["python", "/client/chat.py", "--max-tokens", str(TOKENS), "--seed", "1", *options, "Once"]
        return routed.kubectl("exec", "client", "--", *command)

    ways = [
        ("--url", f"{host('language')}:8000"),
        ("--grpc", "--url", f"{host('language')}:8001"),
    ]
    with ThreadPoolExecutor(len(ways)) as pool:
        answers = list(pool.map(lambda options: chat(*options), ways))
    for answer in answers:
        assert len(answer.strip()) >= TOKENS, answer


def test_says_why_a_gateway_refuses_a_route(routed: Namespace, cluster: Cluster) -> None:
    image = cluster.image()
    for name, bad, reason in (
        ("listener", {"gateway": {"name": "models", "listener": "missing"}}, "NoMatchingParent"),
        ("elsewhere", {"gateway": {"name": "models", "namespace": "default"}}, "WaitingForGateway"),
    ):
        spec = {"replicas": 0, "route": route(name, **bad)}
        routed.api.apply(routed.model(name, image, **spec))
        status = "Unknown" if reason == "WaitingForGateway" else "False"
        message = routed.wait_for_condition(name, "Routed", status, reason)
        print(f"{name}: {message}")
        routed.api.delete("TritonModel", name)


def test_a_route_goes_with_the_field(routed: Namespace) -> None:
    uids = {pod["metadata"]["uid"] for pod in routed.pods("echo")}
    routed.api.patch("TritonModel", "echo", {"spec": {"route": None}})
    model = routed.wait_until_complete("echo")
    assert not [c for c in model["status"]["conditions"] if c["type"] == "Routed"]
    for kind in ("HTTPRoute", "BackendTrafficPolicy"):
        assert routed.api.find(kind, "echo") is None
    assert {pod["metadata"]["uid"] for pod in routed.pods("echo")} == uids
