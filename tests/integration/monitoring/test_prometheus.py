"""Which Prometheus selects the objects, and which thresholds it uses."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path

import pytest
import yaml

from integration.monitoring.steps import (
    QUICK,
    SOON,
    P,
    events,
    in_status,
    namespace,
    prometheus,
    serving,
    wait_for_condition,
)
from support import bad_servers, gen, operator_process
from support.api import Api, RefusedError, condition, eventually, states
from support.controlplane import ROOT, ControlPlane
from support.fake_prometheus import ALERTS, THRESHOLDS, FakePrometheus
from support.operator_process import NAME
from support.people import make
from support.thresholds import annotate

pytestmark = pytest.mark.integration


def test_reports_which_prometheus_selects_the_objects(
    plane: ControlPlane, kubeconfig: Path, own: Api, tmp_path: Path
) -> None:
    chosen = namespace(plane, f"{own.namespace}-chosen", team="vision")
    prometheus(plane.api, own.namespace, {}, {"matchLabels": {"team": "vision"}})
    labels = {"monitoring": {"labels": {"release": "prometheus"}}}
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own)
        make(own, "labelled", **labels)
        make(own, "silent", monitoring={"enabled": False})
        make(chosen)
        message = wait_for_condition(own, "MonitoringAvailable", "False", "NotSelected")
        assert "set spec.monitoring.labels to the labels that yours selects" in message
        assert "monitoring/k8s selects rules with release=prometheus" in message
        assert wait_for_condition(own, "MonitoringAvailable", "True", "Selected", "labelled").endswith(
            "Prometheus monitoring/k8s"
        )
        message = wait_for_condition(chosen, "MonitoringAvailable", "True", "Selected")
        assert message.endswith(f"monitoring/{own.namespace}")
        assert own.get("PodMonitor", "labelled")["metadata"]["labels"]["release"] == "prometheus"
        eventually(lambda: condition(own.get("TritonModel", "silent"), "Ready"), SOON)
        assert not condition(own.get("TritonModel", "silent"), "MonitoringAvailable")
        assert own.find("PodMonitor", "silent") is None
        # The operator posts Events after it writes the status.
        eventually(lambda: events(own, "NotSelected"), SOON)
        assert events(own, "NotSelected") == [wait_for_condition(own, "MonitoringAvailable", "False", "NotSelected")]
        # Labels that are removed from the spec are removed from the objects.
        own.patch("TritonModel", "labelled", {"spec": {"monitoring": None}})
        wait_for_condition(own, "MonitoringAvailable", "False", "NotSelected", "labelled")
        assert "release" not in own.get("PodMonitor", "labelled")["metadata"]["labels"]
        own.patch("TritonModel", "labelled", {"spec": {"monitoring": {"enabled": False}}})
        eventually(lambda: own.find("PodMonitor", "labelled") is None, SOON, lambda: operator.log)
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def false_threshold(namespace: str) -> bad_servers.Behaviour:
    """Answers like a Prometheus that uses the threshold 80 for the TritonModel of this namespace."""
    labels = {"namespace": namespace, "tritonmodel": gen.NAME, "kind": "max-qps"}
    result = [{"metric": labels, "value": [1.0, "80"]}]
    return bad_servers.answers(json.dumps({"status": "success", "data": {"result": result}}).encode())


@pytest.mark.parametrize("where", ["the tenant's namespace", "a namespace that counts"])
def test_prometheus_resource_cannot_redirect_the_operator_to_another_address(
    plane: ControlPlane, kubeconfig: Path, own: Api, tmp_path: Path, where: str
) -> None:
    tenant = namespace(plane, f"{own.namespace}-tenant").namespace
    objects = tenant if where == "the tenant's namespace" else "monitoring"
    with bad_servers.server("127.0.0.1", false_threshold(own.namespace), 0) as served:
        prometheus(plane.api, "evil", {}, own=objects, serviceName=f"{served.address}/latest/meta-data?x=")
        try:
            with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
                make(own, annotations={f"{P}max-qps": "80"})
                serving(own, operator)
                wait_for_condition(own, "ThresholdLive", "Unknown", "NoPrometheus")
                wait_for_condition(own, "MonitoringAvailable", "False", "NotSelected")
                time.sleep(5)
                assert served.connections == 0
                wait_for_condition(own, "ThresholdLive", "Unknown", "NoPrometheus")
                warned = "spec.serviceName must be a DNS label" in operator.log
                assert warned is (objects == "monitoring")
                assert operator.stop() == 0
                assert "Traceback" not in operator.log
        finally:
            plane.api.in_namespace(objects).delete("Prometheus", "evil")


def test_uses_only_prometheuses_in_the_configured_namespaces(
    plane: ControlPlane, kubeconfig: Path, own: Api, tmp_path: Path
) -> None:
    prometheus(plane.api, "teams", {}, own=own.namespace)
    try:
        with operator_process.running(
            kubeconfig, tmp_path, PROMETHEUS_NAMESPACES=f"monitoring,{own.namespace}", **QUICK
        ) as operator:
            make(own)
            message = wait_for_condition(own, "MonitoringAvailable", "True", "Selected")
            assert message.endswith(f"{own.namespace}/teams")
            assert operator.stop() == 0
        with operator_process.running(kubeconfig, tmp_path, PROMETHEUS_NAMESPACES="elsewhere", **QUICK):
            message = wait_for_condition(own, "MonitoringAvailable", "False", "NoPrometheus")
            assert "PROMETHEUS_NAMESPACES (elsewhere)" in message
    finally:
        own.delete("Prometheus", "teams")


def test_reports_unknown_if_it_may_not_list_prometheuses(plane: ControlPlane, own: Api, tmp_path: Path) -> None:
    kubeconfig = operator_process.install(plane, bind_cluster=False)
    admin = plane.api
    binding = admin.path("ClusterRoleBinding")
    objects = yaml.safe_load_all((ROOT / "manifests" / "rbac" / "operator.yaml").read_text())
    cluster = next(o for o in objects if o["kind"] == "ClusterRoleBinding")
    role = {**cluster, "kind": "RoleBinding", "metadata": {"name": NAME, "namespace": own.namespace}}
    admin.request("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{own.namespace}/rolebindings", role)
    with contextlib.suppress(RefusedError):  # other tests of the folder may have left it
        admin.request("DELETE", f"{binding}/{NAME}", {})
    try:
        with operator_process.running(kubeconfig, tmp_path, WATCH_NAMESPACES=own.namespace, **QUICK) as operator:
            make(own, annotations={f"{P}max-qps": "80"})
            assert "isn't allowed to list" in wait_for_condition(own, "MonitoringAvailable", "Unknown", "NotPermitted")
            serving(own, operator)
            wait_for_condition(own, "ThresholdLive", "Unknown", "NoPrometheus")
            assert operator.stop() == 0
            assert "orbidden" not in operator.log
            assert "Traceback" not in operator.log
    finally:
        operator_process.install(plane)


def queries_within(fake: FakePrometheus, seconds: float) -> int:
    """Returns the number of queries for thresholds in the next seconds."""
    before = len(fake.queries)
    time.sleep(seconds)
    return sum("tritonmodel:threshold:effective" in query for query in fake.queries[before:])


def test_queries_prometheus_until_the_thresholds_are_live(
    kubeconfig: Path, own: Api, fake: FakePrometheus, tmp_path: Path
) -> None:
    with operator_process.running(kubeconfig, tmp_path, PROMETHEUS_URL=fake.url, **QUICK) as operator:
        fake.set_thresholds(own.namespace, gen.NAME)
        make(own)
        serving(own, operator)
        wait_for_condition(own, "ThresholdLive", "True", "Live")
        annotate(own, max_qps="80")
        message = wait_for_condition(own, "ThresholdLive", "False", "Propagating")
        assert message == "max-qps is 80; Prometheus still uses none"
        fake.set_thresholds(own.namespace, gen.NAME, max_qps=80)
        message = wait_for_condition(own, "ThresholdLive", "True", "Live")
        match = re.fullmatch(r"Prometheus uses max-qps 80; (\d+\.\d) s after it was set", message)
        assert match, message
        assert float(match[1]) < 30
        eventually(lambda: not queries_within(fake, 4), 30, "queries continue although the thresholds are live")
        fake.status = 500
        annotate(own, max_qps="90")
        assert "HTTP status 500" in wait_for_condition(own, "ThresholdLive", "Unknown", "PrometheusUnreachable")
        assert in_status(own) == {"max-qps": "90"}
        assert events(own, "Propagating") == []
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def test_a_short_outage_of_prometheus_is_written_only_to_who_waits(
    kubeconfig: Path, own: Api, fake: FakePrometheus, tmp_path: Path
) -> None:
    with operator_process.running(
        kubeconfig, tmp_path, PROMETHEUS_URL=fake.url, RESYNC_SECONDS="3", **QUICK
    ) as operator:
        fake.set_thresholds(own.namespace, gen.NAME)
        make(own)
        make(own, "waits", annotations={f"{P}max-qps": "80"})
        serving(own, operator)
        serving(own, operator, "waits", "waits-abc-1")
        wait_for_condition(own, "ThresholdLive", "True", "Live")
        wait_for_condition(own, "ThresholdLive", "False", "Propagating", "waits")
        start = own.get("TritonModel", gen.NAME)["metadata"]["resourceVersion"]
        fake.status = 500
        wait_for_condition(own, "ThresholdLive", "Unknown", "PrometheusUnreachable", "waits")
        # Two resyncs reconcile both; also what an earlier test has left.
        enough = operator.reconciles(result="ok") + 3 * len(own.in_namespace("*").list("Deployment"))
        eventually(lambda: operator.reconciles(result="ok") > enough, 60, lambda: operator.log[-3000:])
        written = [condition(state, "ThresholdLive") for state in states(own, "TritonModel", gen.NAME, since=start)]
        assert [found["reason"] for found in written if found["reason"] != "Live"] == []
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


@pytest.mark.parametrize("prometheus_is", ["slow", "failing"])
def test_a_restarted_operator_writes_nothing_before_prometheus_answers(
    plane: ControlPlane, kubeconfig: Path, own: Api, fake: FakePrometheus, tmp_path: Path, prometheus_is: str
) -> None:
    settings = {"PROMETHEUS_URL": fake.url, "RESYNC_SECONDS": "3", **QUICK}
    fake.set_thresholds(own.namespace, gen.NAME, max_qps=80)
    fake.set_thresholds(own.namespace, "uncounted")
    fake.set_uncounted((own.namespace, "uncounted"))
    with operator_process.running(kubeconfig, tmp_path, **settings) as operator:
        make(own, annotations={f"{P}max-qps": "80"})
        make(own, "uncounted", monitoring={"labels": {"release": "prometheus"}})
        serving(own, operator)
        serving(own, operator, "uncounted", "uncounted-abc-1")
        wait_for_condition(own, "ThresholdLive", "True", "Live")
        wait_for_condition(own, "ThresholdLive", "True", "Live", "uncounted")
        wait_for_condition(own, "MonitoringAvailable", "False", "RequestsNotCounted", "uncounted")
        plane.wait_until_quiet()
        assert operator.stop() == 0
    start = {name: own.get("TritonModel", name)["metadata"]["resourceVersion"] for name in (gen.NAME, "uncounted")}
    if prometheus_is == "slow":
        fake.hang = 2.0
    else:
        fake.status = 500
    before = len(fake.queries)
    with operator_process.running(kubeconfig, tmp_path, **settings) as operator:
        eventually(lambda: fake.queries[before:].count(THRESHOLDS) > 1, 60, lambda: operator.log[-3000:])
        passes = operator.reconciles(result="ok")
        eventually(lambda: operator.reconciles(result="ok") >= passes + 4, 60, lambda: operator.log[-3000:])
        written = [
            found["conditions"]
            for name, version in start.items()
            for found in (state["status"] for state in states(own, "TritonModel", name, since=version))
        ]
        assert written == []
        assert operator.writes() == 0
        # What it kept is only kept until there is an answer.
        fake.hang, fake.status = 0, 200
        fake.series[ALERTS] = []
        wait_for_condition(own, "MonitoringAvailable", "True", "Selected", "uncounted")
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def test_sends_the_credentials_of_a_mounted_secret(
    kubeconfig: Path, own: Api, fake: FakePrometheus, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    fake.authorization = "Bearer of-today"
    fake.set_thresholds(own.namespace, gen.NAME)
    settings = {**QUICK, "PROMETHEUS_URL": fake.url, "PROMETHEUS_CREDENTIALS": str(secret)}
    with operator_process.running(kubeconfig, tmp_path, **settings) as operator:
        make(own)
        serving(own, operator)
        words = wait_for_condition(own, "ThresholdLive", "Unknown", "PrometheusUnreachable")
        assert "the files token, or username and password, in PROMETHEUS_CREDENTIALS can't be read" in words
        (secret / "token").write_text("of-yesterday")
        eventually(
            lambda: "HTTP status 401" in condition(own.get("TritonModel", gen.NAME), "ThresholdLive")["message"],
            SOON, lambda: operator.log[-3000:],
        )  # fmt: skip
        (secret / "token").write_text("of-today\n")
        wait_for_condition(own, "ThresholdLive", "True", "Live")
        assert operator.stop() == 0
        assert "of-today" not in operator.log
        assert "of-yesterday" not in operator.log


def test_queries_pending_thresholds_of_all_tritonmodels_together(
    kubeconfig: Path, own: Api, fake: FakePrometheus, tmp_path: Path
) -> None:
    names = [f"model-{number}" for number in range(6)]
    with operator_process.running(kubeconfig, tmp_path, PROMETHEUS_URL=fake.url, **QUICK) as operator:
        for name in names:
            make(own, name, annotations={f"{P}max-qps": "80"})
        for name in names:
            serving(own, operator, name, f"{name}-abc-1")
        for name in names:
            wait_for_condition(own, "ThresholdLive", "False", "Propagating", name)

        def polls_without_reconciles() -> bool:
            before = operator.reconciles()
            return 1 <= queries_within(fake, 4) <= 3 and operator.reconciles() == before

        # At first, probes of the servers, which don't answer, cause reconciles. The prober backs off.
        eventually(polls_without_reconciles, 60, lambda: operator.log[-3000:])
        fake.set_thresholds(own.namespace, names[0], max_qps=80, max_qps_per_replica=80)
        wait_for_condition(own, "ThresholdLive", "True", "Live", names[0])
        wait_for_condition(own, "ThresholdLive", "False", "Propagating", names[1])
        fake.close()
        time.sleep(5)
        fake.start()
        fake.set_thresholds(own.namespace, names[1], max_qps=80, max_qps_per_replica=80)
        wait_for_condition(own, "ThresholdLive", "True", "Live", names[1])
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
