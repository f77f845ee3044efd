"""What the processes of servers use, from the pods to Prometheus."""

from __future__ import annotations

import time
from datetime import UTC, datetime

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


FULL = "triton_container_memory_full_time_seconds"
LEAK = "while [ ! -e /dev/shm/stop ] && head -c 4194304 /dev/zero; do sleep 3; done >>/dev/shm/leaked 2>/dev/null &"
"""Takes 80 MiB a minute."""


def test_a_server_whose_memory_grows_is_told_with_its_hour(
    cluster: Cluster, monitoring: Monitoring, namespace: Namespace
) -> None:
    """One of two servers leaks shared memory, 1 GiB in 10 minutes, and gives it back before the limit."""
    size = {"cpu": "200m", "memory": "1Gi"}
    resources = {"requests": size, "limits": size}
    namespace.api.apply(
        namespace.model(
            "echo", cluster.image(), entrypoint="echo", replicas=2, monitoring={"processes": True}, networkPolicy={},
            server={"resources": resources, "sharedMemory": "1Gi"},
        )
    )  # fmt: skip
    namespace.wait_until_complete("echo")
    pod, other = sorted(pod["metadata"]["name"] for pod in namespace.pods("echo"))

    def ready() -> dict[str, str]:
        return condition(namespace.api.get("TritonModel", "echo"), "Ready")

    namespace.kubectl("exec", pod, "-c", "triton", "--", "sh", "-c", LEAK)
    grows = eventually(lambda: (now := ready())["reason"] == "MemoryGrows" and now, 600, ready, 1)
    told = time.time()
    assert grows["status"] == "True"
    assert f"{pod} at about " in grows["message"]
    assert other not in grows["message"]
    hour = datetime.strptime(grows["message"].partition(f"{pod} at about ")[2][:16], "%Y-%m-%d %H:%M")
    assert told - 60 < hour.replace(tzinfo=UTC).timestamp() < told + 300
    of = f'{{namespace="{namespace.name}",tritonmodel="echo"}}'
    full = eventually(lambda: monitoring.value(f"{FULL}{of}"), 60, "the series", 1)
    assert abs(full - hour.replace(tzinfo=UTC).timestamp()) < 120
    assert any(event["reason"] == "MemoryGrows" for event in namespace.api.list("Event"))
    eventually(lambda: monitoring.fires("TritonModelMemoryGrows", namespace=namespace.name), 150, "the alert", 1)
    namespace.kubectl("exec", pod, "-c", "triton", "--", "touch", "/dev/shm/stop")
    namespace.kubectl("exec", pod, "-c", "triton", "--", "rm", "/dev/shm/leaked")
    eventually(lambda: ready()["reason"] == "EntrypointAnswers", 120, ready, 1)
    assert not any(c.get("restartCount") for p in namespace.pods("echo") for c in p["status"]["containerStatuses"])
