"""Helm takes over, upgrades, rolls back, uninstalls and installs the operator while a model serves.

The charts are the files of a release.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hack.release import project
from support import cluster as clusters
from support import helm as helms
from support import released
from support.api import condition, eventually
from support.cluster import NAMESPACE, ROOT, Cluster, Namespace
from support.prometheus import Monitoring

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

Loader = Callable[..., AbstractContextManager[Any]]
T = TypeVar("T")
CRD = "tritonmodels.tritonoperator.io"
OPERATOR = "app.kubernetes.io/name=triton-operator"
FORCE = "--force-conflicts"
"""For an installation by kubectl, which stays an owner of the fields."""
SWITCHES = (
    "--set=monitoring.serviceMonitor.enabled=true,monitoring.rules.enabled=true",
    "--set=dashboards.enabled=true,adapterRules.enabled=true",
)
ADAPTER_RULES = "triton-operator-adapter-rules"


class Helm:
    """Helm with the charts in a folder, and the image of the installed operator."""

    def __init__(self, cluster: Cluster, dist: Path) -> None:
        self.cluster = cluster
        self.chart, self.crds = (
            dist / f"{chart.name}-{project.version()}.tgz" for chart in (helms.OPERATOR, helms.CRDS)
        )
        repository, _, digest = cluster.operator_image.partition("@")
        self.values = f"--set=image.repository={repository},image.digest={digest}"

    def __call__(self, command: str, release: str, *arguments: str | Path) -> str:
        options = (f"--namespace={NAMESPACE}", "--wait", "--timeout=120s")
        return helms.run(command, release, *options, *arguments, kubeconfig=self.cluster.kubeconfig)

    def install(self, *arguments: str) -> None:
        """Installs or upgrades the operator, and waits until its pods are ready."""
        self("upgrade", "triton-operator", self.chart, "--install", self.values, *arguments)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a release."""
    return released.make(tmp_path_factory.mktemp("release"))


@pytest.fixture
def helm(cluster: Cluster, dist: Path) -> Iterator[Helm]:
    """Afterwards installs the operator and its monitoring by kustomize again, as for the other tests."""
    yield Helm(cluster, dist)
    for release in ("triton-operator", "triton-operator-crds"):
        with contextlib.suppress(helms.HelmError):
            helms.run("uninstall", release, f"--namespace={NAMESPACE}", kubeconfig=cluster.kubeconfig)
    mine = ["helm.sh/resource-policy", "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"]
    # The test may have failed without the CRD.
    cluster.kubectl("annotate", "crd", CRD, *(f"{key}-" for key in mine), check=False)
    cluster.kubectl("label", "crd", CRD, "app.kubernetes.io/managed-by-", check=False)
    clusters.ensure()
    clusters.ensure_monitoring()


def _works(namespace: Namespace, name: str) -> None:
    """Asserts that an operator creates the children of a new TritonModel."""
    namespace.api.apply(namespace.model(name, namespace.cluster.image(), replicas=0))
    eventually(lambda: namespace.api.find("Deployment", name), 60, f"the Deployment of {name}")


def test_a_model_serves_while_helm_changes_the_operator(
    cluster: Cluster, namespace: Namespace, load: Loader, helm: Helm
) -> None:
    namespace.deploy("echo", cluster.image())
    before = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    with load("echo", 10) as during:
        # The installation by kubectl becomes Helm's, without a restart of the operator.
        operators = _operators(cluster)
        helm("upgrade", "triton-operator-crds", helm.crds, "--install", "--take-ownership", FORCE)
        helm.install("--take-ownership", FORCE)
        assert _operators(cluster) == operators

        helm.install("--set=settings.LOG_LEVEL=DEBUG", FORCE)
        eventually(lambda: not _operators(cluster) & operators, 30, "only new operators")
        _works(namespace, "upgraded")

        # The operator of the last revision stays until a new one is ready.
        operators = _operators(cluster)
        with pytest.raises(helms.HelmError):
            helm.install("--set=image.digest=", "--set=image.tag=missing", "--timeout=8s", FORCE)
        assert operators <= _operators(cluster)
        helm("rollback", "triton-operator", "2", FORCE)
        eventually(lambda: _operators(cluster) == operators, 30, "only the operators of the last revision")
        _works(namespace, "rolled-back")

        helm("uninstall", "triton-operator")
        helm("uninstall", "triton-operator-crds")
        eventually(lambda: not cluster.api.list("Pod", OPERATOR, NAMESPACE), 60, "no operator")
        assert namespace.api.get("TritonModel", "echo")
        namespace.kubectl("scale", "tritonmodel", "rolled-back", "--replicas=1")

        helm("install", "triton-operator-crds", helm.crds)
        helm.install()
        # The new operator sees the change that was made while none was installed.
        namespace.wait_until_complete("rolled-back")
    assert during.failures() == []
    namespace.wait_until_complete("echo")
    assert {pod["metadata"]["uid"] for pod in namespace.pods("echo")} == before, "no server was replaced"


def test_the_switches_for_monitoring_work_while_a_model_serves(
    cluster: Cluster, monitoring: Monitoring, namespace: Namespace, load: Loader, helm: Helm, adapter: Adapter
) -> None:
    model = namespace.model("echo", cluster.image(), autoscaling={"min": 1, "max": 2})
    annotations = {"tritonoperator.io/max-qps": "900", "tritonoperator.io/max-qps-per-replica": "900"}
    namespace.api.apply({**model, "metadata": {**model["metadata"], "annotations": annotations}})
    namespace.wait_until_complete("echo")
    before = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    helm("upgrade", "triton-operator-crds", helm.crds, "--install", "--take-ownership", FORCE)
    cluster.kubectl("delete", "-k", str(ROOT / "manifests" / "monitoring"))
    # Prometheus scrapes the operator until it has loaded the change.
    _loaded(monitoring, lambda: _scraped(monitoring) == set(), "Prometheus scrapes no operator")
    with load("echo", 10) as during:
        helm.install("--take-ownership", FORCE, *SWITCHES)
        first = _rules(cluster)
        _is_monitored(cluster, monitoring)
        assert _folders(cluster) == ["Triton"] * 4
        # The adapter serves the load with the chart's rule.
        adapter.use(ADAPTER_RULES)
        namespace.wait_for_condition("echo", "AutoscalerActive", "True", "Scaling", 180)
        eventually(lambda: adapter.load(namespace) is not None, 120, "the metric of the adapter")
        _loaded(monitoring, lambda: _is_live(namespace), lambda: namespace.conditions_text("echo"))

        changed = "--set=monitoring.labels.team=vision,dashboards.annotations.grafana_folder=Serving"
        helm.install("--reset-then-reuse-values", changed, "--set=settings.LOG_LEVEL=DEBUG", FORCE)
        assert [_labels(cluster, kind).get("team") for kind in ("ServiceMonitor", "PrometheusRule")] == ["vision"] * 2
        assert _folders(cluster) == ["Serving"] * 4
        _is_monitored(cluster, monitoring)

        helm("rollback", "triton-operator", "1", FORCE)
        assert "team" not in _labels(cluster, "ServiceMonitor") | _labels(cluster, "PrometheusRule")
        assert _folders(cluster) == ["Triton"] * 4
        _is_monitored(cluster, monitoring)
        assert _rules(cluster) == first, "the PrometheusRule was changed, not replaced"

        helm("uninstall", "triton-operator")
        for kind in ("ServiceMonitor", "PrometheusRule"):
            assert cluster.api.find(kind, "triton-operator", NAMESPACE) is None, kind
        assert cluster.api.find("ConfigMap", ADAPTER_RULES, "monitoring") is None
        assert _folders(cluster) == []
        left = _loaded(monitoring, lambda: _files_without(monitoring, first), "Prometheus drops the operator's rules")
        # The TritonModel's own monitoring stays, and so does the metric of a running adapter.
        assert any(file.startswith(f"{namespace.name}-echo-") for file in left or ())
        assert adapter.load(namespace) is not None
    assert during.failures() == []
    assert {pod["metadata"]["uid"] for pod in namespace.pods("echo")} == before, "no server was replaced"


class Adapter:
    """prometheus-adapter in the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        [volume] = [v for v in self._volumes() if v["name"] == "config"]
        self.rules: str = volume["configMap"]["name"]

    def _volumes(self) -> list[Any]:
        deployment = self._cluster.api.get("Deployment", "prometheus-adapter", "monitoring")
        return list(deployment["spec"]["template"]["spec"]["volumes"])

    def use(self, rules: str) -> None:
        """Makes the adapter read this ConfigMap, as the value rules.existing of its Helm chart does."""
        volumes = [{**v, "configMap": {"name": rules}} if v["name"] == "config" else v for v in self._volumes()]
        change = [{"op": "replace", "path": "/spec/template/spec/volumes", "value": volumes}]
        deployment = ("-n", "monitoring", "deployment/prometheus-adapter")
        self._cluster.kubectl("patch", *deployment, "--type=json", f"--patch={json.dumps(change)}")
        self._cluster.kubectl("rollout", "status", *deployment, "--timeout=180s")

    def load(self, namespace: Namespace) -> object | None:
        """Returns the load of the TritonModel `echo` that the autoscaler gets, or None."""
        path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace.name}/tritonmodels.tritonoperator.io/echo"
        answer = self._cluster.kubectl("get", "--raw", f"{path}/triton_autoscaler_load", check=False)
        return json.loads(answer)["items"][0]["value"] if answer.startswith("{") else None


@pytest.fixture
def adapter(cluster: Cluster) -> Iterator[Adapter]:
    """Afterwards the adapter reads its former rules again."""
    found = Adapter(cluster)
    yield found
    found.use(found.rules)


def _is_monitored(cluster: Cluster, monitoring: Monitoring) -> None:
    """Asserts that Prometheus scrapes exactly the operator's pods, and has loaded the operator's rules."""

    def names() -> set[str]:
        return {pod["metadata"]["name"] for pod in _running(cluster)}

    # A pod of the former revision may still be ending when Helm returns, so both sides are read again.
    _loaded(
        monitoring,
        lambda: _scraped(monitoring) == names(),
        lambda: f"Prometheus scrapes {_scraped(monitoring)}, the operator's pods are {names()}",
    )
    _loaded(
        monitoring,
        lambda: _rules(cluster) in (monitoring.rule_files() or ()),
        "Prometheus loads the operator's rules",
    )


def _loaded(monitoring: Monitoring, look: Callable[[], T], what: Callable[[], object] | str) -> T:
    """Waits for what Prometheus does after it has loaded a change, without the kubelet's delay of about a minute."""

    def hurried() -> T:
        monitoring.hurry()
        return look()

    return eventually(hurried, 150, what, every=3)


def _scraped(monitoring: Monitoring) -> set[str] | None:
    return monitoring.scraped_pods("triton-operator-metrics")


def _files_without(monitoring: Monitoring, file: str) -> set[str] | None:
    """Returns Prometheus' rule files if it answers and this file isn't among them."""
    files = monitoring.rule_files()
    return files if files is not None and file not in files else None


def _rules(cluster: Cluster) -> str:
    """Returns the name of Prometheus' file of the operator's PrometheusRule."""
    uid = cluster.api.get("PrometheusRule", "triton-operator", NAMESPACE)["metadata"]["uid"]
    return f"{NAMESPACE}-triton-operator-{uid}"


def _labels(cluster: Cluster, kind: str) -> dict[str, str]:
    return dict(cluster.api.get(kind, "triton-operator", NAMESPACE)["metadata"]["labels"])


def _folders(cluster: Cluster) -> list[str]:
    """Returns the folder of each dashboard that Grafana's sidecar finds, and asserts that Grafana can read it."""
    found = cluster.api.list("ConfigMap", "grafana_dashboard=1", NAMESPACE)
    assert all(json.loads(text)["title"] for dashboard in found for text in dashboard["data"].values())
    return [dashboard["metadata"]["annotations"]["grafana_folder"] for dashboard in found]


def _is_live(namespace: Namespace) -> bool:
    return condition(namespace.api.get("TritonModel", "echo"), "ThresholdLive").get("status") == "True"


def _operators(cluster: Cluster) -> set[str]:
    """Returns the uids of the operator's pods that aren't being deleted."""
    return {pod["metadata"]["uid"] for pod in _running(cluster)}


def _running(cluster: Cluster) -> list[Any]:
    """Returns the operator's pods that aren't being deleted."""
    found = cluster.api.list("Pod", OPERATOR, NAMESPACE)
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
