"""Measured latency: from Triton's traces to an alert, and an objective that is changed while requests run."""

from __future__ import annotations

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
    namespace.api.apply(
        namespace.model("echo", cluster.image(), entrypoint="echo", replicas=2, monitoring=latency, networkPolicy={})
    )
    namespace.wait_until_complete("echo")
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
