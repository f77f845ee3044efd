"""Measured latency: from traces to an alert, an objective that is changed while requests run, and old servers."""

from __future__ import annotations

import json

import pytest

from kubectl_triton import samples
from support.api import condition, eventually
from support.cluster import Cluster, Namespace
from support.live import restarts
from support.load import load
from support.prometheus import Monitoring

pytestmark = pytest.mark.e2e

ALERT = "TritonModelLatencyBudgetBurn"
RATE = 20


def lives(namespace: Namespace) -> dict[str, int]:
    """Returns the restarts of each pod's containers."""
    pods = namespace.pods("echo")
    return {p["metadata"]["uid"]: sum(c["restartCount"] for c in p["status"]["containerStatuses"]) for p in pods}


def test_an_objective_is_changed_while_requests_run(
    cluster: Cluster, monitoring: Monitoring, namespace: Namespace
) -> None:
    """No request takes less than 0.1 ms, and all of them less than 10 s."""
    latency = {"latency": {"p99": "0.1ms"}}
    server = {"image": cluster.tracing_server_image}
    namespace.deploy("echo", cluster.image(), server=server, replicas=2, monitoring=latency, networkPolicy={})
    labels, before = {"namespace": namespace.name, "tritonmodel": "echo"}, lives(namespace)
    of = ",".join(f'{name}="{value}"' for name, value in labels.items())
    assert len(before) == 2
    with load(namespace, "echo", RATE) as sent:
        fires = lambda: monitoring.fires(ALERT, **labels, severity="critical")  # noqa: E731
        eventually(fires, 420, lambda: monitoring.alerts(ALERT, **labels), 1)
        (alert,) = monitoring.alerts(ALERT, **labels)
        assert alert["labels"]["kind"] == "p99=0.1ms"
        # Both servers are measured, and count once.
        measured = f"count(count by (pod) (triton_latency_samples_total{{{of}}} > 0))"
        eventually(lambda: monitoring.value(measured) == 2, 120, lambda: monitoring.value(measured), 1)
        assert monitoring.value(f"count(up{{{of}}})") == 2
        top = samples.queries(namespace.name)["p99"]
        quantile = f'tritonmodel:request_duration_seconds:quantile5m{{{of},quantile="0.99"}}'
        assert 0 < (monitoring.value(quantile) or 0) == monitoring.value(top)
        patch = '{"spec":{"monitoring":{"latency":{"p99":"10s"}}}}'
        namespace.kubectl("patch", "tm/echo", "--type=merge", "-p", patch)
        eventually(lambda: not monitoring.alerts(ALERT, **labels), 180, lambda: monitoring.alerts(ALERT, **labels), 1)
    assert sent.failures() == []
    assert restarts(before, lives(namespace)) == 0
    assert condition(namespace.api.get("TritonModel", "echo"), "Ready")["status"] == "True"


def test_a_server_that_tracing_could_end_traces_nothing(
    cluster: Cluster, monitoring: Monitoring, namespace: Namespace
) -> None:
    """The condition and the log of the container say so."""
    namespace.deploy("echo", cluster.image(), monitoring={"latency": {"p99": "1s"}})
    available = lambda: condition(namespace.api.get("TritonModel", "echo"), "MonitoringAvailable")  # noqa: E731
    eventually(lambda: available()["reason"] == "LatencyNotMeasured", 120, available, 1)
    assert "measures nothing on Triton 2.51.0: before 2.57 (release 25.04)" in available()["message"]
    (pod,) = namespace.pods("echo")
    name = pod["metadata"]["name"]
    logs = lambda: namespace.kubectl("logs", name, "-c", "measure-latency")  # noqa: E731
    eventually(lambda: "tracing can end Triton '2.51.0'" in logs(), 60, logs, 1)
    setting = namespace.kubectl(
        "get", "--raw", f"/api/v1/namespaces/{namespace.name}/pods/{name}:8000/proxy/v2/trace/setting"
    )
    assert json.loads(setting)["trace_level"] == ["OFF"]
