"""What the processes of servers use, from the pods to Prometheus."""

from __future__ import annotations

import pytest

from support.api import condition, eventually
from support.cluster import Cluster, Namespace
from support.prometheus import Monitoring

pytestmark = pytest.mark.e2e

CPU, MEMORY = "triton_process_cpu_seconds_total", "triton_process_resident_memory_bytes"


def test_prometheus_has_the_processes_of_each_server(
    cluster: Cluster, monitoring: Monitoring, namespace: Namespace
) -> None:
    """echo is a Python model."""
    namespace.api.apply(
        namespace.model(
            "echo", cluster.image(), entrypoint="echo", replicas=2, monitoring={"processes": True}, networkPolicy={}
        )
    )
    namespace.wait_until_complete("echo")
    of = f'namespace="{namespace.name}",tritonmodel="echo"'
    servers = 'count(count by (pod) (%s{%s,model="echo",process="echo_0_0"}))'
    for series in (CPU, MEMORY, "triton_process_threads"):
        query = servers % (series, of)
        eventually(
            lambda query=query: monitoring.value(query) == 2, 240, lambda query=query: monitoring.value(query), 1
        )
    assert monitoring.value(f'count({MEMORY}{{{of},process="tritonserver",kind="anonymous"}})') == 2
    assert (monitoring.value(f'min({MEMORY}{{{of},kind="anonymous",process!="other"}})') or 0) > 1 << 20
    # The rules count servers by `up`.
    assert monitoring.value(f"count(up{{{of}}})") == 2
    pods = namespace.pods("echo")
    assert len(pods) == 2
    for pod in pods:
        assert all(c["ready"] and not c["restartCount"] for c in pod["status"]["containerStatuses"])
    assert condition(namespace.api.get("TritonModel", "echo"), "Ready")["status"] == "True"
