"""Servers whose memory grows are replaced before the limit, while clients send requests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from support.api import condition
from support.cluster import Cluster, Namespace

pytestmark = pytest.mark.e2e

Loader = Callable[..., AbstractContextManager[Any]]
RATE = 100.0
REQUESTS = int(os.environ.get("REQUESTS", "0"))
"""The least number of requests. Without one, the test ends after the replacement."""
LEAK_EVERY = 300
"""At 50 requests per second and server it takes 50 MiB a minute: about 15 minutes to the limit."""
LATEST_SECONDS = 1800


def test_a_leak_ends_no_server_and_no_request(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    """Both of two servers leak, and so do the new ones."""
    size = {"cpu": "100m", "memory": "1Gi"}
    resources = {"requests": size, "limits": {**size, "cpu": "1"}}
    env = [{"name": "LEAK_EVERY", "value": str(LEAK_EVERY)}]
    namespace.api.apply(
        namespace.model(
            "echo", cluster.image(change="leaks"), entrypoint="echo", replicas=2, monitoring={"processes": True},
            memoryGrowth="Replace", rollout={"drainSeconds": 10}, server={"resources": resources, "env": env},
        )
    )  # fmt: skip
    namespace.wait_until_complete("echo")
    old = {pod["metadata"]["name"] for pod in namespace.pods("echo")}
    began, said, fewest, most, ends = time.time(), dict[str, float](), 2, 2, list[str]()
    with load("echo", RATE) as traffic:
        while not _is_over(namespace, old) or (time.time() - began) * RATE < 1.1 * REQUESTS:
            assert time.time() < began + LATEST_SECONDS, said
            pods = namespace.pods("echo")
            fewest, most = min(fewest, sum(map(_ready, pods))), max(most, len(pods))
            ends += [end for pod in pods for end in _ends(pod) if end not in ends]
            ready = condition(namespace.api.get("TritonModel", "echo"), "Ready")
            said.setdefault(f"{ready['status']} {ready['reason']}: {ready['message']}", round(time.time() - began))
            time.sleep(1)
    model = namespace.api.get("TritonModel", "echo")
    repair = model["status"]["lastRepair"]
    print(*said.items(), {p: sum(c["versions"].values()) for p, c in traffic.result.items()}, repair, sep="\n")
    assert traffic.failures() == []
    assert ends == [], "no process of a server has ended"
    assert (fewest, most) == (2, 3), "one at a time, and never below the desired number"
    assert repair["reason"] == "MemoryGrew"
    assert repair["server"] in old
    assert any("all servers are replaced when 90 %" in message for message in said)
    assert all(message.startswith("True ") for message in said)
    assert len(said) < 12, "the status isn't written again and again"
    assert sum(event["reason"] == "MemoryGrew" for event in namespace.api.list("Event")) == 1


def _is_over(namespace: Namespace, old: set[str]) -> bool:
    """Whether all servers of before have ended, and the new ones are ready."""
    pods = namespace.api.list("Pod", "tritonoperator.io/model=echo")
    return not old & {pod["metadata"]["name"] for pod in pods} and sum(map(_ready, pods)) == len(pods) == 2


def _ready(pod: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def _ends(pod: dict[str, Any]) -> list[str]:
    """Returns how the server's container has ended in this pod before."""
    statuses = [c for c in pod["status"].get("containerStatuses", []) if c["name"] == "triton"]
    return [f"{pod['metadata']['name']}: {c.get('lastState')}" for c in statuses if c.get("restartCount")]
