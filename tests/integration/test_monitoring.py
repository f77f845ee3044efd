"""Thresholds, monitoring and autoscaling on a real API server that has, or hasn't, the kinds of prometheus-operator."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support import controlplane, gen, operator_process
from support.api import Api, Object, RefusedError, condition, eventually
from support.controlplane import ROOT, ControlPlane
from support.fake_prometheus import FakePrometheus
from support.kubelet import add_pod
from support.operator_process import NAME, Operator
from triton_operator.api import thresholds

pytestmark = pytest.mark.integration

SOON = 15.0
P = thresholds.PREFIX
AUTOSCALER = "HorizontalPodAutoscaler"
QUICK = {"DISCOVERY_SECONDS": "1"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """An API server that has the kinds of prometheus-operator, and a Prometheus that wants release=prometheus."""
    with controlplane.running() as found:
        found.install_crds()
        found.install_monitoring()
        namespace(found, "monitoring")
        prometheus(found.api, "k8s", {"matchLabels": {"release": "prometheus"}})
        yield found


@pytest.fixture
def own(plane: ControlPlane) -> Iterator[Api]:
    """A namespace of the test's own; its TritonModels are gone for the next."""
    api = namespace(plane, f"test-{next(_numbers)}")
    yield api
    for model in api.list("TritonModel"):
        api.delete("TritonModel", model["metadata"]["name"])


@pytest.fixture
def kubeconfig(plane: ControlPlane) -> Path:
    return operator_process.install(plane)


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    found = FakePrometheus()
    yield found
    found.close()


def namespace(plane: ControlPlane, name: str, **labels: str) -> Api:
    metadata = {"name": name, "labels": labels}
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return plane.api.within(name)


def prometheus(api: Api, name: str, objects: Object, namespaces: Object | None = None) -> None:
    """A Prometheus resource that selects so; by default in every namespace."""
    everywhere = {} if namespaces is None else namespaces
    spec = {"ruleSelector": objects, "ruleNamespaceSelector": everywhere,
            "podMonitorSelector": objects, "podMonitorNamespaceSelector": everywhere}  # fmt: skip
    metadata = {"name": name, "namespace": "monitoring"}
    api.create({"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus", "metadata": metadata, "spec": spec})


def make(api: Api, name: str = gen.NAME, annotations: dict[str, str] | None = None, **spec: object) -> Object:
    obj = gen.raw(name=name, **spec)
    obj["metadata"] = {"name": name, "namespace": api.namespace, "annotations": annotations or {}}
    return api.create(obj)


def annotate(api: Api, **values: str | None) -> None:
    """Sets annotations of thresholds, as `kubectl annotate` does; None removes one."""
    keys = {k if k == "max_qps" else P + k.replace("_", "-"): v for k, v in values.items()}
    api.patch("TritonModel", gen.NAME, {"metadata": {"annotations": keys}})


def told(api: Api, kind: str, status: str, reason: str, name: str = gen.NAME) -> str:
    """Waits for this condition; its message."""

    def look() -> Object | None:
        found = condition(api.get("TritonModel", name), kind)
        return found if (found.get("status"), found.get("reason")) == (status, reason) else None

    found = eventually(look, SOON, lambda: api.get("TritonModel", name).get("status"))
    return str(found["message"])


def in_status(api: Api) -> dict[str, str]:
    """The thresholds that status shows."""
    found = api.get("TritonModel", gen.NAME).get("status", {}).get("thresholds", [])
    return {t["kind"] + (f".{t['version']}" if t.get("version") else ""): t["value"] for t in found}


def serving(api: Api, operator: Operator, name: str = gen.NAME, pod: str = "detection-abc-1") -> None:
    """A pod whose check knows the entry model, and then the rules that follow from it."""
    eventually(lambda: api.find("Deployment", name), SOON, lambda: operator.log)
    report = gen.report("pre", "detection", entrypoint="detection")
    add_pod(api, gen.checked(report), gen.put("status.podIP", ""), name=pod, model=name)
    eventually(lambda: api.find("PrometheusRule", name), SOON, lambda: operator.log)


def gauge(operator: Operator, api: Api, kind: str = "max-qps", version: str = "") -> float | None:
    """A threshold as this replica tells Prometheus; None where it doesn't."""
    labels = {"namespace": api.namespace, "tritonmodel": gen.NAME, "kind": kind, "version": version}
    for found, value in re.findall(r"^triton_operator_threshold\{(.*)\} (\S+)$", operator.ask("/metrics"), re.M):
        if dict(re.findall(r'(\w+)="([^"]*)"', found)) == labels:
            return float(value)
    return None


def metric(operator: Operator, line: str) -> float:
    found = [row.rpartition(" ")[2] for row in operator.ask("/metrics").splitlines() if row.startswith(line)]
    return float(found[0]) if found else 0.0


def events(api: Api, reason: str) -> list[str]:
    found = [e for e in api.list("Event") if e["reason"] == reason]
    return [e["message"] for e in sorted(found, key=lambda e: int(e["metadata"]["resourceVersion"]))]


def literals(api: Api) -> str:
    """The expressions of the rules that hold the thresholds as numbers."""
    groups = api.get("PrometheusRule", gen.NAME)["spec"]["groups"]
    return json.dumps([r for g in groups for r in g["rules"] if r.get("record") == "triton:threshold:literal"])


def versions(api: Api, *kinds: str) -> dict[str, str]:
    return {f"{k}/{o['metadata']['name']}": o["metadata"]["resourceVersion"] for k in kinds for o in api.list(k)}


def difference(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    """Writes since then, by resource and subresource."""
    out: dict[str, float] = {}
    for labels, count in now.items():
        found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        name = "/".join(filter(None, (found["resource"], found["subresource"])))
        if count > before.get(labels, 0):
            out[name] = out.get(name, 0) + count - before.get(labels, 0)
    return out


class Readiness:
    """Watches /readyz for how long it fails at a time."""

    def __init__(self, operator: Operator) -> None:
        self._operator, self._over, self.longest = operator, threading.Event(), 0.0
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Readiness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        good = time.monotonic()
        while not self._over.wait(0.1):
            now = time.monotonic()
            if self._operator.ask("/readyz") == "ok":
                good = now
            self.longest = max(self.longest, now - good)


# The kinds of prometheus-operator


def test_kinds_that_come_and_go(tmp_path: Path) -> None:
    with controlplane.running() as plane:
        plane.install_crds()
        kubeconfig = operator_process.install(plane)
        api = namespace(plane, "vision")
        with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator, Readiness(operator) as ready:
            make(api, annotations={f"{P}max-qps": "80"}, autoscaling={"max": 3})
            told(api, "MonitoringAvailable", "False", "CRDsMissing")
            told(api, "ThresholdLive", "Unknown", "NotMonitored")
            for kind in ("Deployment", "Service", "ServiceAccount", AUTOSCALER):
                assert api.find(kind, gen.NAME), kind
            assert events(api, "CRDsMissing") == []  # nobody lost anything
            assert gauge(operator, api) == 80

            plane.install_monitoring()
            eventually(lambda: api.find("PodMonitor", gen.NAME), SOON, lambda: operator.log)
            told(api, "ThresholdLive", "Unknown", "Starting")
            serving(api, operator)
            message = told(api, "MonitoringAvailable", "False", "NoPrometheus")
            assert "there is no Prometheus resource in the cluster" in message
            assert "80" in literals(api)

            before = versions(api, "Deployment", "Service", "ServiceAccount", AUTOSCALER)
            plane.remove_monitoring()
            told(api, "MonitoringAvailable", "False", "CRDsMissing")
            eventually(lambda: operator.ask("/readyz") == "ok", SOON, lambda: operator.log)
            time.sleep(2)
            passes = metric(operator, "triton_operator_reconciles_total")
            time.sleep(4)
            assert metric(operator, "triton_operator_reconciles_total") - passes < 5
            assert versions(api, "Deployment", "Service", "ServiceAccount", AUTOSCALER) == before
            api.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {f"{P}max-qps": "90"}}})
            eventually(lambda: gauge(operator, api) == 90, SOON, lambda: operator.log)

            plane.install_monitoring()
            eventually(lambda: api.find("PodMonitor", gen.NAME), SOON, lambda: operator.log)
            eventually(lambda: api.find("PrometheusRule", gen.NAME), SOON, lambda: operator.log)
            assert "90" in literals(api)
            # They are watched, not only made.
            api.delete("PodMonitor", gen.NAME)
            eventually(lambda: api.find("PodMonitor", gen.NAME), SOON, lambda: operator.log)
            assert operator.process.poll() is None
            assert operator.stop() == 0
        assert ready.longest < 4, ready.longest
        assert "Traceback" not in operator.log, operator.log


# Which Prometheus


def test_who_picks_the_objects_up(plane: ControlPlane, kubeconfig: Path, own: Api, tmp_path: Path) -> None:
    chosen = namespace(plane, f"{own.namespace}-chosen", team="vision")
    prometheus(plane.api, own.namespace, {}, {"matchLabels": {"team": "vision"}})
    labels = {"monitoring": {"labels": {"release": "prometheus"}}}
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own)
        make(own, "labelled", **labels)
        make(own, "silent", monitoring={"enabled": False})
        make(chosen)
        message = told(own, "MonitoringAvailable", "False", "NotSelected")
        assert "set spec.monitoring.labels to what yours selects" in message
        assert "monitoring/k8s wants rules with release=prometheus" in message
        assert told(own, "MonitoringAvailable", "True", "Selected", "labelled").endswith("Prometheus monitoring/k8s")
        message = told(chosen, "MonitoringAvailable", "True", "Selected")
        assert message.endswith(f"monitoring/{own.namespace}")
        assert own.get("PodMonitor", "labelled")["metadata"]["labels"]["release"] == "prometheus"
        eventually(lambda: condition(own.get("TritonModel", "silent"), "Ready"), SOON)
        assert not condition(own.get("TritonModel", "silent"), "MonitoringAvailable")
        assert own.find("PodMonitor", "silent") is None
        assert events(own, "NotSelected") == [told(own, "MonitoringAvailable", "False", "NotSelected")]
        # Labels that the spec no longer has go.
        own.patch("TritonModel", "labelled", {"spec": {"monitoring": None}})
        told(own, "MonitoringAvailable", "False", "NotSelected", "labelled")
        assert "release" not in own.get("PodMonitor", "labelled")["metadata"]["labels"]
        own.patch("TritonModel", "labelled", {"spec": {"monitoring": {"enabled": False}}})
        eventually(lambda: own.find("PodMonitor", "labelled") is None, SOON, lambda: operator.log)
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def test_an_operator_that_may_not_list_prometheuses_says_that_it_does_not_know(
    plane: ControlPlane, own: Api, tmp_path: Path
) -> None:
    kubeconfig = operator_process.install(plane, bind_cluster=False)
    admin = plane.api
    binding = admin.path("ClusterRoleBinding")
    kept = yaml.safe_load_all((ROOT / "manifests" / "rbac" / "operator.yaml").read_text())
    cluster = next(o for o in kept if o["kind"] == "ClusterRoleBinding")
    role = {**cluster, "kind": "RoleBinding", "metadata": {"name": NAME, "namespace": own.namespace}}
    admin.request("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{own.namespace}/rolebindings", role)
    with contextlib.suppress(RefusedError):  # other tests of the module may have left it
        admin.request("DELETE", f"{binding}/{NAME}", {})
    try:
        with operator_process.running(kubeconfig, tmp_path, WATCH_NAMESPACES=own.namespace, **QUICK) as operator:
            make(own, annotations={f"{P}max-qps": "80"})
            assert "may not list" in told(own, "MonitoringAvailable", "Unknown", "NotPermitted")
            serving(own, operator)
            told(own, "ThresholdLive", "Unknown", "NoPrometheus")
            assert operator.stop() == 0
            assert "orbidden" not in operator.log
            assert "Traceback" not in operator.log
    finally:
        operator_process.install(plane)


# Thresholds


def test_a_threshold_goes_everywhere_with_few_writes_and_restarts_nothing(
    plane: ControlPlane, kubeconfig: Path, own: Api, tmp_path: Path
) -> None:
    """Without a Prometheus to ask: what the operator itself does at a change."""
    with (
        operator_process.running(kubeconfig, tmp_path, **QUICK) as leader,
        operator_process.running(kubeconfig, tmp_path, lead=False, **QUICK) as standby,
    ):
        make(own)
        serving(own, leader)
        told(own, "ThresholdLive", "Unknown", "NoPrometheus")
        both = (leader, standby)
        eventually(lambda: [gauge(o, own) for o in both] == [math.inf] * 2, SOON)
        quiet(plane)
        before, objects = plane.writes(), versions(own, "Deployment", "PodMonitor", "Service")
        annotate(own, max_qps="80")  # the field guide's spelling
        # Well within the 30 s that are promised, on both replicas.
        eventually(lambda: [gauge(o, own) for o in both] == [80] * 2, 3)
        eventually(lambda: in_status(own) == {"max-qps": "80"}, SOON)
        quiet(plane)
        # The patch of the test itself is one of a TritonModel.
        assert difference(before, plane.writes()) == {
            "tritonmodels": 1, "tritonmodels/status": 1, "prometheusrules": 1, "events": 1
        }  # fmt: skip
        assert versions(own, "Deployment", "PodMonitor", "Service") == objects
        assert "80" in literals(own)
        status = own.get("TritonModel", gen.NAME)["status"]
        (threshold,) = status["thresholds"]
        assert (threshold["source"], status["maxQps"]) == ("max_qps", "80")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", threshold["since"])
        assert column(plane, "QPS limit") == ".status.maxQps"
        eventually(lambda: events(own, "ThresholdChanged") == ["max-qps: none → 80 (annotation max_qps)"], SOON)
        assert metric(leader, 'triton_operator_threshold_changes_total{kind="max-qps",result="accepted"}') == 1
        line = next(entry for entry in logged(leader) if entry.get("threshold") == "max-qps")
        assert (line["old"], line["new"], line["key"]) == ("", "80", f"{own.namespace}/{gen.NAME}")

        # One more for a version, and what a server is for; then the alias is replaced by the long name.
        annotate(own, max_qps_per_replica="20", **{"max_qps.v2": "30"})
        eventually(lambda: gauge(standby, own, version="2") == 30, SOON)
        eventually(lambda: gauge(standby, own, "max-qps-per-replica") == 20, SOON)
        own.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {"max_qps": None, f"{P}max-qps": "80"}}})
        eventually(lambda: own.get("TritonModel", gen.NAME)["status"]["thresholds"][0]["source"] == f"{P}max-qps", SOON)
        eventually(lambda: len(events(own, "ThresholdChanged")) == 3, SOON)
        own.patch("TritonModel", gen.NAME, {"metadata": {"annotations": dict.fromkeys(
            (f"{P}max-qps", f"{P}max-qps.v2", f"{P}max-qps-per-replica")
        )}})  # fmt: skip
        eventually(lambda: [gauge(o, own) for o in both] == [math.inf] * 2, 3)
        assert gauge(standby, own, version="2") is None
        eventually(lambda: in_status(own) == {}, SOON)
        assert not own.get("TritonModel", gen.NAME)["status"].get("maxQps")
        eventually(lambda: len(events(own, "ThresholdChanged")) == 6, SOON)
        assert versions(own, "Deployment", "PodMonitor", "Service") == objects
        assert own.get("Deployment", gen.NAME)["metadata"]["generation"] == 1

        # What is deleted is no longer told of, on the standby too.
        own.delete("TritonModel", gen.NAME)
        eventually(lambda: [gauge(o, own) for o in both] == [None] * 2, 5)
        assert (leader.stop(), standby.stop()) == (0, 0)
        assert "Traceback" not in leader.log + standby.log


def test_rules_stay_while_another_entry_model_is_not_known(kubeconfig: Path, own: Api, tmp_path: Path) -> None:
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own)
        serving(own, operator)
        uid = own.get("PrometheusRule", gen.NAME)["metadata"]["uid"]
        own.patch("TritonModel", gen.NAME, {"spec": {"entrypoint": "detectoin"}})
        generation = own.get("TritonModel", gen.NAME)["metadata"]["generation"]
        eventually(
            lambda: own.get("TritonModel", gen.NAME)["status"].get("observedGeneration") == generation,
            SOON, lambda: operator.log,
        )  # fmt: skip
        assert own.get("PrometheusRule", gen.NAME)["metadata"]["uid"] == uid
        # Switched off they go, also then.
        own.patch("TritonModel", gen.NAME, {"spec": {"monitoring": {"enabled": False}}})
        eventually(lambda: own.find("PrometheusRule", gen.NAME) is None, SOON, lambda: operator.log)


def column(plane: ControlPlane, name: str) -> str:
    """Where kubectl takes this column of a TritonModel from."""
    crd = plane.api.get("CustomResourceDefinition", "tritonmodels.tritonoperator.io")
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    return str(next(c["jsonPath"] for c in columns if c["name"] == name))


def logged(operator: Operator) -> list[Object]:
    return [json.loads(line) for line in operator.log.splitlines() if line.startswith("{")]


def quiet(plane: ControlPlane) -> None:
    """Waits until a second has passed without a write."""
    last, since = plane.writes(), time.monotonic()
    deadline = time.monotonic() + 30
    while time.monotonic() - since < 1.2:
        assert time.monotonic() < deadline, "the writes don't end"
        time.sleep(0.2)
        now = plane.writes()
        if now != last:
            last, since = now, time.monotonic()


def test_a_wrong_value_is_told_and_the_last_good_one_outlives_the_operator(
    plane: ControlPlane, kubeconfig: Path, own: Api, tmp_path: Path
) -> None:
    annotation = f"{P}max-qps"
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own, annotations={annotation: "80"})
        serving(own, operator)
        eventually(lambda: in_status(own) == {"max-qps": "80"}, SOON)
        quiet(plane)
        rule = versions(own, "PrometheusRule")
        own.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {annotation: "8O"}}})
        message = told(own, "ThresholdLive", "False", "ThresholdInvalid")
        assert message == (
            f"{annotation}='8O' is not a number such as 80 or 12.5, without a unit; what was in force before stays so"
        )
        eventually(lambda: events(own, "ThresholdInvalid"), SOON)
        assert metric(operator, 'triton_operator_threshold_changes_total{kind="max-qps",result="refused"}') == 1
        mine = f'triton_operator_thresholds_invalid{{namespace="{own.namespace}",tritonmodel="{gen.NAME}"}}'
        assert metric(operator, mine) == 1
        assert any(entry.get("threshold") == annotation for entry in logged(operator))
        quiet(plane)
        assert (gauge(operator, own), in_status(own)) == (80, {"max-qps": "80"})
        assert versions(own, "PrometheusRule") == rule
        assert operator.stop() == 0
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        quiet(plane)
        assert (gauge(operator, own), in_status(own)) == (80, {"max-qps": "80"})
        assert versions(own, "PrometheusRule") == rule, operator.log
        assert metric(operator, mine) == 1
        assert len(events(own, "ThresholdInvalid")) == 1
        assert metric(operator, 'triton_operator_threshold_changes_total{kind="max-qps",result="refused"}') == 0
        # A value that contradicts another is none, either; a good one ends it.
        annotate(own, max_qps="70")
        own.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {annotation: "60"}}})
        eventually(lambda: "differ" in told(own, "ThresholdLive", "False", "ThresholdInvalid"), SOON)
        assert gauge(operator, own) == 80
        annotate(own, max_qps=None)
        eventually(lambda: gauge(operator, own) == 60, SOON)
        told(own, "ThresholdLive", "Unknown", "NoPrometheus")
        assert metric(operator, mine) == 0
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def asked_within(fake: FakePrometheus, seconds: float) -> int:
    """Questions in the next seconds."""
    before = len(fake.queries)
    time.sleep(seconds)
    return len(fake.queries) - before


def test_prometheus_is_asked_whether_it_compares_with_what_is_set(
    kubeconfig: Path, own: Api, fake: FakePrometheus, tmp_path: Path
) -> None:
    with operator_process.running(kubeconfig, tmp_path, PROMETHEUS_URL=fake.url, **QUICK) as operator:
        fake.tell(own.namespace, gen.NAME)
        make(own)
        serving(own, operator)
        told(own, "ThresholdLive", "True", "Live")
        annotate(own, max_qps="80")
        message = told(own, "ThresholdLive", "False", "Propagating")
        assert message == "max-qps is 80; Prometheus still compares with none"
        fake.tell(own.namespace, gen.NAME, max_qps=80)
        message = told(own, "ThresholdLive", "True", "Live")
        found = re.fullmatch(r"Prometheus compares with max-qps 80; (\d+\.\d) s after it was set", message)
        assert found, message
        assert float(found[1]) < 10
        eventually(lambda: not asked_within(fake, 4), 30, "what is live isn't asked for again and again")
        fake.status = 500
        annotate(own, max_qps="90")
        assert "HTTP Status Code 500" in told(own, "ThresholdLive", "Unknown", "PrometheusUnreachable")
        assert in_status(own) == {"max-qps": "90"}
        assert events(own, "Propagating") == []
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


# Autoscaling


def scaler(api: Api, *conditions: tuple[str, str, str], **status: object) -> None:
    """What the controller of HorizontalPodAutoscalers would write into one's status."""
    now = "2026-01-01T00:00:00Z"
    told = [
        {"type": t, "status": s, "reason": r, "message": f"the words of {r}", "lastTransitionTime": now}
        for t, s, r in conditions
    ]
    api.patch(AUTOSCALER, gen.NAME, {"status": {"desiredReplicas": 1, "conditions": told, **status}}, "status")


ABLE = ("AbleToScale", "True", "ReadyForNewScale")
ACTIVE = ("ScalingActive", "True", "ValidMetricFound")


def test_the_autoscaler_takes_over_and_is_left_alone(
    plane: ControlPlane, kubeconfig: Path, own: Api, tmp_path: Path
) -> None:
    with operator_process.running(kubeconfig, tmp_path, **QUICK) as operator:
        make(own, replicas=4)
        eventually(lambda: own.find("Deployment", gen.NAME), SOON, lambda: operator.log)
        start = own.get("Deployment", gen.NAME)["metadata"]["resourceVersion"]
        own.patch("TritonModel", gen.NAME, {"spec": {"replicas": None, "autoscaling": {"min": 2, "max": 8}}})
        made = eventually(lambda: own.find(AUTOSCALER, gen.NAME), SOON, lambda: operator.log)
        assert (made["spec"]["minReplicas"], made["spec"]["maxReplicas"]) == (2, 8)
        assert "max-qps-per-replica" in told(own, "AutoscalerActive", "False", "NoThreshold")
        own.patch("Deployment", gen.NAME, {"spec": {"replicas": 6}}, "scale")
        api_change(own, {"server": {"image": "triton:2"}})
        own.patch("Deployment", gen.NAME, {"spec": {"replicas": 5}}, "scale")
        api_change(own, {"server": {"image": "triton:3"}})
        quiet(plane)
        seen = [o["spec"]["replicas"] for _, _, o in own.watch("Deployment", version=start, seconds=2)]
        assert [n for n, _ in itertools.groupby(seen) if n != 4] == [6, 5]
        assert own.get("Deployment", gen.NAME)["spec"]["replicas"] == 5

        annotate(own, max_qps="80")
        told(own, "AutoscalerActive", "Unknown", "Starting")
        scaler(own, ABLE, ("ScalingActive", "False", "FailedGetObjectMetric"))
        add_pod(own, gen.put("status.podIP", ""))
        message = told(own, "AutoscalerActive", "False", "FailedGetObjectMetric")
        assert message.startswith("the words of FailedGetObjectMetric; is prometheus-adapter installed")
        eventually(lambda: events(own, "FailedGetObjectMetric"), SOON)
        scaler(own, ABLE, ACTIVE, ("ScalingLimited", "False", "DesiredWithinRange"))
        told(own, "AutoscalerActive", "True", "Scaling")
        scaler(own, ABLE, ACTIVE, ("ScalingLimited", "True", "TooManyReplicas"))
        assert "spec.autoscaling.max (8)" in told(own, "AutoscalerActive", "True", "AtMaximum")
        scaler(own, ("AbleToScale", "False", "FailedGetScale"))
        told(own, "AutoscalerActive", "False", "FailedGetScale")
        # No threshold is in it.
        assert own.get(AUTOSCALER, gen.NAME)["spec"] == made["spec"]

        # What someone edits is put back; without autoscaling it goes, and the fleet stays.
        own.patch(AUTOSCALER, gen.NAME, {"spec": {"maxReplicas": 100}})
        eventually(lambda: own.get(AUTOSCALER, gen.NAME)["spec"]["maxReplicas"] == 8, SOON, lambda: operator.log)
        own.patch("TritonModel", gen.NAME, {"spec": {"autoscaling": {"engine": "None"}}})
        eventually(lambda: own.find(AUTOSCALER, gen.NAME) is None, SOON, lambda: operator.log)
        eventually(lambda: not condition(own.get("TritonModel", gen.NAME), "AutoscalerActive"), SOON)
        assert own.get("Deployment", gen.NAME)["spec"]["replicas"] == 5
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def api_change(api: Api, spec: Object) -> None:
    """Changes the spec and waits until the status is about it."""
    generation = api.patch("TritonModel", gen.NAME, {"spec": spec})["metadata"]["generation"]
    eventually(lambda: api.get("TritonModel", gen.NAME)["status"].get("observedGeneration") == generation, SOON)


# At rest


def test_nothing_is_written_at_rest_while_the_autoscaler_counts(
    plane: ControlPlane, kubeconfig: Path, own: Api, fake: FakePrometheus, tmp_path: Path
) -> None:
    fake.tell(own.namespace, gen.NAME, max_qps=80, max_qps_per_replica=12.5)
    own_behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    specs: dict[str, Object] = {
        gen.NAME: {"autoscaling": {"max": 4}, "monitoring": {"labels": {"release": "prometheus"}}},
        "own": {"autoscaling": {"max": 4, "min": 1, "utilization": 1, "behavior": own_behavior}},
        "quiet": {"monitoring": {"alerts": False, "alertLabels": {"team": "vision"}, "objective": "99"}},
    }
    thresholds_of = {f"{P}max-qps": "80", f"{P}max-qps-per-replica": "12.5"}
    resync = 5
    settings = {"RESYNC_SECONDS": str(resync), "PROMETHEUS_URL": fake.url, **QUICK}
    with operator_process.running(kubeconfig, tmp_path, **settings) as operator:
        for name, spec in specs.items():
            make(own, name, thresholds_of, **spec)
            fake.tell(own.namespace, name, max_qps=80, max_qps_per_replica=12.5)
            serving(own, operator, name, f"{name}-pod")
            eventually(lambda n=name: condition(own.get("TritonModel", n), "ThresholdLive").get("status") == "True",
                       SOON, lambda n=name: own.get("TritonModel", n)["status"])  # fmt: skip
        scaler(own, ABLE, ACTIVE)
        told(own, "AutoscalerActive", "True", "Scaling")
        quiet(plane)
        before, writes = difference({}, plane.writes()), operator.writes()

        # A listing looks at those of the tests before, too: nothing collects what they have left.
        known = len(own.within("*").list("Deployment"))

        def passed() -> float:
            return metric(operator, 'triton_operator_reconciles_total{result="ok"}')

        def explained() -> float:
            """Passes that the listings of so many seconds bring, and one listing on its way at either end."""
            return known * ((time.monotonic() - started) / (0.9 * resync) + 2)

        passes, started, counted = passed(), time.monotonic(), 0
        # Some listings, and far more counts than passes that they explain.
        while passed() < passes + 2 * known or counted < 2 * explained():
            assert time.monotonic() < started + 60, operator.log
            counted += 1
            value = {"averageValue": f"{counted}m", "value": f"{counted}m"}
            described = {"apiVersion": "tritonoperator.io/v1alpha1", "kind": "TritonModel", "name": gen.NAME}
            current = {"type": "Object", "object": {"current": value, "describedObject": described,
                                                    "metric": {"name": "triton_autoscaler_load"}}}  # fmt: skip
            scaler(own, ABLE, ACTIVE, currentMetrics=[current])
            time.sleep(0.1)
        time.sleep(0.5)
        now = difference({}, plane.writes())
        mine = "horizontalpodautoscalers/status"
        assert now.pop(mine) - before.pop(mine) == counted
        assert now == before
        assert operator.writes() == writes
        assert passed() - passes <= explained()
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
