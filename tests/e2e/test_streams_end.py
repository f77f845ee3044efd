"""Open streams and what ends their server: rollouts, scale-downs, evictions; and clients that leave."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from model_images.support import MODEL_IMAGES
from support.api import Api, RefusedError, eventually
from support.cluster import ROOT, Cluster, Namespace
from support.load import client

pytestmark = pytest.mark.e2e

SCRIPTS = (ROOT / "tests/e2e/client/streams.py", MODEL_IMAGES / "language/client/chat.py")
TOKENS_PER_SECOND = 20
"""Of one server, for all of its streams together."""
READERS = 6
"""Of each protocol."""
LONG = 4096
"""Tokens of a stream that takes minutes."""
DRAIN_SECONDS, EXIT_SECONDS = 12, 180
"""Longer than the tokens of all streams take on one server."""


@pytest.fixture(scope="module", autouse=True)
def served(cluster: Cluster, shared_namespace: Namespace) -> None:
    """Serves the sample with a known capacity: with enough time for streams, and as `outline` with little."""
    image = cluster.sample_image("language", tokens_per_second=str(TOKENS_PER_SECOND), max_num_seqs="32")
    for name, drain, end in (("language", DRAIN_SECONDS, EXIT_SECONDS), ("brief", 1, 2)):
        rollout = {"drainSeconds": drain, "exitSeconds": end, "maxSurge": 2}
        shared_namespace.api.apply(shared_namespace.model(name, image, entrypoint="language", rollout=rollout))
    for name in ("language", "brief"):
        shared_namespace.wait_until_complete(name)


def scale(namespace: Namespace, replicas: int) -> None:
    namespace.api.patch("TritonModel", "language", {"spec": {"replicas": replicas}})


def reads(service: str, *options: str) -> list[str]:
    return ["python", "/client/streams.py", service, "--leave", *options]


def all_pods(namespace: Namespace, service: str) -> set[str]:
    """Returns the names of the servers, also of those that are being deleted."""
    return {pod["metadata"]["name"] for pod in namespace.api.list("Pod", f"tritonoperator.io/model={service}")}


def open_streams(api: Api, pod: str) -> int | None:
    """Returns the number of streams that a server has open, by its own gauge; None if it doesn't answer."""
    try:
        metrics = api.request("GET", f"{api.path('Pod', f'{pod}:8002')}/proxy/metrics")
    except RefusedError:
        return None
    gauge = re.search(r"^vllm:num_requests_running\{.*\} (\S+)$", metrics, re.MULTILINE)
    return int(float(gauge[1])) if gauge else None


def by_server(namespace: Namespace, service: str, number: int) -> dict[str, int]:
    """Waits until the servers have this number of open streams. Returns the number of each."""

    streams: dict[str, int | None] = {}

    def look() -> dict[str, int] | None:
        nonlocal streams
        streams = {pod: open_streams(namespace.api, pod) for pod in all_pods(namespace, service)}
        opened = {pod: count for pod, count in streams.items() if count is not None}
        return opened if len(opened) == len(streams) and sum(opened.values()) == number else None

    return eventually(look, 60, lambda: f"{number} open streams; it is {streams}")


def restart(namespace: Namespace, service: str = "language") -> None:
    namespace.api.patch("TritonModel", service, {"spec": {"rollout": {"restartedAt": str(time.time())}}})


def busiest(opened: dict[str, int]) -> str:
    """Returns the server with the most streams."""
    return max(opened, key=lambda pod: opened[pod])


def evict(namespace: Namespace, opened: dict[str, int]) -> None:
    """Evicts the busiest server, as `kubectl drain` does with each pod of a node."""
    pod = busiest(opened)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace.name}}

    def evicted() -> bool:
        try:
            namespace.api.request("POST", f"{namespace.api.path('Pod', pod)}/eviction", eviction)
        except RefusedError as error:
            # The controller of PodDisruptionBudgets may not have counted the servers yet.
            if error.code == 429:
                return False
            raise
        return True

    eventually(evicted, 60, f"the eviction of {pod}")


def remove(namespace: Namespace, opened: dict[str, int]) -> None:
    """Scales down. Kubernetes removes the busiest server."""
    cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}}
    namespace.api.patch("Pod", busiest(opened), cost)
    scale(namespace, 1)


ENDS: dict[str, tuple[Callable[[Namespace, dict[str, int]], None], int, int]] = {
    "eviction": (evict, 1, 50),
    # Half of these tokens are left when the new servers are ready.
    "rollout": (lambda namespace, _: restart(namespace), 2, 90),
    "scale-down": (remove, 1, 50),
}
"""What ends servers, the number of these, and the tokens of a stream. A server that gets no new streams generates these
for longer than the drain."""


@pytest.mark.parametrize("end", ENDS)
def test_each_open_stream_gets_all_of_its_tokens(shared_namespace: Namespace, end: str) -> None:
    namespace, (act, number, tokens) = shared_namespace, ENDS[end]
    scale(namespace, 2)
    namespace.wait_until_complete("language")
    # Servers of the case before may still be there.
    eventually(lambda: len(all_pods(namespace, "language")) == 2, 240, "two servers")
    counts = ("--http", str(READERS), "--grpc", str(READERS), "--tokens", str(tokens), str(tokens))
    with client(namespace, f"streams-{end}", SCRIPTS, reads("language", *counts)) as result:
        opened = by_server(namespace, "language", 2 * READERS)
        act(namespace, opened)

        def ended() -> set[str] | None:
            gone = opened.keys() - all_pods(namespace, "language")
            return gone if len(gone) == number else None

        gone = eventually(ended, DRAIN_SECONDS + EXIT_SECONDS, lambda: f"{number} of {opened} to end")
    assert result["failures"] == []
    assert result["streams"] >= sum(opened[server] for server in gone) > 0


def test_a_client_that_leaves_frees_its_slots(shared_namespace: Namespace) -> None:
    namespace = shared_namespace
    counts = ("--http", "4", "--grpc", "4", "--tokens", str(LONG), str(LONG))
    with client(namespace, "leaves", SCRIPTS, reads("language", *counts)) as result:
        by_server(namespace, "language", 8)
    assert (result["left"], result["failures"]) == (8, [])
    by_server(namespace, "language", 0)


def test_a_stream_that_takes_longer_breaks_off_with_an_error_and_does_not_hang(shared_namespace: Namespace) -> None:
    namespace, name = shared_namespace, "brief"
    counts = ("--http", "3", "--grpc", "3", "--tokens", str(LONG), str(LONG))
    with client(namespace, "streams-brief", SCRIPTS, reads(name, *counts)) as result:
        opened = by_server(namespace, name, 6)
        restart(namespace, name)
        eventually(lambda: opened.keys().isdisjoint(all_pods(namespace, name)), 60, "the server to end")
        # All readers read from the new server.
        by_server(namespace, name, 6)
    # Others may have failed to begin, because one second is short for kube-proxy.
    broken = [failure for failure in result["failures"] if failure["tokens"]]
    assert sorted(failure["protocol"] for failure in broken) == ["grpc"] * 3 + ["http"] * 3
    # The client waits two minutes for a token before it gives up.
    assert max(failure["silent"] for failure in broken) < 60, broken
