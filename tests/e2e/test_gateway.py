"""Sequences through a real Envoy Gateway, with the objects of docs/stateful.md."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support import gateway_cluster
from support.api import eventually
from support.cluster import ROOT, Cluster, Namespace
from support.load import client_pod

pytestmark = [pytest.mark.e2e, pytest.mark.installation]

HEADER = "x-sequence"
PROTOCOLS = ("grpc", "http", "unary")
NUMBER = 16
"""Sequences of each protocol. All fit in the slots of two servers, which have 32 each."""
REFUSED = "must specify the START flag on the first request of the sequence"
SCRIPTS = (ROOT / "model_images/accumulator/client/sequences.py", ROOT / "tests/e2e/client/gateway_sequences.py")
Records = list[dict[str, Any]]


@pytest.fixture(scope="module")
def gateway(cluster: Cluster, shared_namespace: Namespace) -> Iterator[str]:
    """Returns the host name of a route to three servers. A pod "client" can send sequences to it."""
    namespace, (page_gateway, page_spec) = shared_namespace, gateway_cluster.page_objects()
    spec = {"entrypoint": "accumulator", "replicas": 3, "rollout": {"drainSeconds": 60, "maxSurge": 4}, **page_spec}
    namespace.api.apply(namespace.model("accumulator", cluster.sample_image("accumulator"), **spec))
    [host] = page_spec["route"]["hostnames"]
    scripts = {path.name: path.read_text() for path in SCRIPTS}
    namespace.api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "client"}, "data": scripts})
    with gateway_cluster.installed(cluster):
        address = gateway_cluster.address(namespace, page_gateway)
        hosts = {address: [host]}
        namespace.api.apply(client_pod("client", cluster.client_image, ["sleep", "infinity"], hosts))
        namespace.wait_until_complete("accumulator")
        message = namespace.wait_for_condition("accumulator", "Routed", "True", "Accepted")
        assert f"the header {HEADER} chooses the server" in message
        namespace.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
        yield host


class Running:
    """Open sequences through the Gateway."""

    def __init__(self, namespace: Namespace, address: str, header: str) -> None:
        self._namespace = namespace
        self._out = ""
        self._thread = threading.Thread(target=self._run, args=(address, header))
        namespace.kubectl("exec", "client", "--", "rm", "-f", "/tmp/started", "/tmp/stop", "/tmp/records")
        self._thread.start()
        eventually(self._started, 90, lambda: f"the sequences to start {self._out}", every=0.5)

    def records(self) -> Records:
        """Returns what has become of each sequence so far."""
        out = self._namespace.kubectl("exec", "client", "--", "cat", "/tmp/records", check=False)
        return json.loads(out) if out.startswith("[") else []

    def wait_for_moved(self, number: int) -> None:
        """Waits until this number of sequences has been moved, and then until each sequence has had another answer.

        Envoy gets the servers some time after the TritonModel's status shows them.
        """
        protocols = ("http", "unary")
        eventually(lambda: len(lost(self.records(), *protocols)) >= number, 120, f"{number} moved sequences", every=0.5)
        last_time = max(record["time"] for record in self.records())
        eventually(
            lambda: all(record["lost"] or record["time"] > last_time for record in self.records()), 60,
            lambda: f"answers after {last_time}: {[r for r in self.records() if not r['lost']]}", every=0.5,
        )  # fmt: skip

    def _run(self, address: str, header: str) -> None:
        command = ["python", "/client/gateway_sequences.py", address, header, str(NUMBER)]
        self._out = self._namespace.kubectl("exec", "client", "--", *command, check=False)

    def _started(self) -> bool:
        assert self._thread.is_alive(), self._out
        return "started" in self._namespace.kubectl("exec", "client", "--", "ls", "/tmp")

    def end(self) -> Records:
        self._namespace.kubectl("exec", "client", "--", "touch", "/tmp/stop")
        self._thread.join()
        records: Records = json.loads(self._out.splitlines()[-1])
        # Whatever happens, no request gets the state of another server or another sequence.
        for record in records:
            assert record["sums"] == list(range(1, len(record["sums"]) + 1)), record
            assert len(record["servers"]) <= 1, record
        return records


def lost(records: Records, *protocols: str) -> list[str]:
    """Returns why sequences of these protocols were lost."""
    return [record["lost"] for record in records if record["lost"] and record["protocol"] in protocols]


def test_a_header_keeps_each_sequence_on_one_server(shared_namespace: Namespace, gateway: str) -> None:
    records = Running(shared_namespace, gateway, HEADER).end()
    assert lost(records, *PROTOCOLS) == []
    assert [record["protocol"] for record in records] == [p for p in PROTOCOLS for _ in range(NUMBER)]
    pods = {pod["metadata"]["name"] for pod in shared_namespace.pods("accumulator")}
    assert {server for record in records for server in record["servers"]} == pods
    for options in ((), ("--http",)):
        command = ["python", "/client/sequences.py", "--host", gateway, "--header", HEADER, "--sequences=8", *options]
        out = shared_namespace.kubectl("exec", "client", "--", *command, "1", "2", "3")
        assert out.count('"sums": [1, 3, 6]') == 8, out


def test_new_servers_refuse_the_sequences_that_the_hash_moves(shared_namespace: Namespace, gateway: str) -> None:
    namespace = shared_namespace
    sequences = Running(namespace, gateway, HEADER)
    namespace.api.patch("TritonModel", "accumulator", {"spec": {"replicas": 4}})
    namespace.wait_until_complete("accumulator")
    sequences.wait_for_moved(1)
    records = sequences.end()
    assert lost(records, "grpc") == []
    reasons = lost(records, "http", "unary")
    print(f"{len(reasons)} of {2 * NUMBER} sequences moved to the fourth server")
    assert 0 < len(reasons) < 1.5 * NUMBER
    assert [reason for reason in reasons if REFUSED not in reason] == []

    names = {pod["metadata"]["name"] for pod in namespace.pods("accumulator")}
    sequences = Running(namespace, gateway, HEADER)
    namespace.kubectl("rollout", "restart", "deployment/accumulator")
    eventually(lambda: names.isdisjoint(p["metadata"]["name"] for p in namespace.pods("accumulator")), 120, every=0.3)
    namespace.wait_until_complete("accumulator")
    sequences.wait_for_moved(2 * NUMBER)
    records = sequences.end()
    # A stream stays on its server while this drains.
    assert lost(records, "grpc") == []
    assert {server for r in records if r["protocol"] == "grpc" for server in r["servers"]} <= names
    reasons = lost(records, "http", "unary")
    print(f"{len(reasons)} losses of {2 * NUMBER} sequences in a rollout")
    assert len(reasons) >= 2 * NUMBER
    assert [reason for reason in reasons if REFUSED not in reason] == []


# The last test: its lost sequences occupy slots.
def test_without_the_header_only_streams_keep_their_server(shared_namespace: Namespace, gateway: str) -> None:
    records = Running(shared_namespace, gateway, "").end()
    assert lost(records, "grpc") == []
    for protocol in ("http", "unary"):
        reasons = lost(records, protocol)
        assert len(reasons) > NUMBER / 2
        assert [reason for reason in reasons if REFUSED not in reason] == []
