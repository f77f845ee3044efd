"""Helm takes over, upgrades, rolls back, uninstalls and installs the operator while a model serves.

The charts are the files of a release.
"""

from __future__ import annotations

import contextlib
import json
import time
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
from support.cluster import NAMESPACE, OPERATOR, ROOT, Cluster, Namespace
from support.prometheus import OPERATORS, Monitoring

pytestmark = [pytest.mark.e2e, pytest.mark.installation]

Loader = Callable[..., AbstractContextManager[Any]]
T = TypeVar("T")
CRD = "tritonmodels.tritonoperator.io"
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
    keys = ["helm.sh/resource-policy", "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"]
    # The test may have failed without the CRD.
    cluster.kubectl("annotate", "crd", CRD, *(f"{key}-" for key in keys), check=False)
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
    uids = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    with load("echo", 10) as traffic:
        # The installation by kubectl becomes Helm's, without a restart of the operator.
        operators = _operators(cluster)
        helm("upgrade", "triton-operator-crds", helm.crds, "--install", "--take-ownership", FORCE)
        helm.install("--take-ownership", FORCE)
        assert _operators(cluster) == operators

        helm.install("--set=settings.LOG_LEVEL=DEBUG", FORCE)
        eventually(lambda: not _operators(cluster) & operators, 60, "only new operators")
        _works(namespace, "upgraded")

        # The operator of the last revision stays until a new one is ready.
        operators = _operators(cluster)
        with pytest.raises(helms.HelmError):
            helm.install("--set=image.digest=", "--set=image.tag=missing", "--timeout=8s", FORCE)
        assert operators <= _operators(cluster)
        helm("rollback", "triton-operator", "2", FORCE)
        eventually(lambda: _operators(cluster) == operators, 60, "only the operators of the last revision")
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
    assert traffic.failures() == []
    namespace.wait_until_complete("echo")
    assert {pod["metadata"]["uid"] for pod in namespace.pods("echo")} == uids, "no server was replaced"


def test_the_switches_for_monitoring_work_while_a_model_serves(
    cluster: Cluster, monitoring: Monitoring, namespace: Namespace, load: Loader, helm: Helm, adapter: Adapter
) -> None:
    model = namespace.model("echo", cluster.image(), autoscaling={"min": 1, "max": 2})
    annotations = {"tritonoperator.io/max-qps": "900", "tritonoperator.io/max-qps-per-replica": "900"}
    namespace.api.apply({**model, "metadata": {**model["metadata"], "annotations": annotations}})
    namespace.wait_until_complete("echo")
    uids = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    helm("upgrade", "triton-operator-crds", helm.crds, "--install", "--take-ownership", FORCE)
    cluster.kubectl("delete", "-k", str(ROOT / "manifests" / "monitoring"))
    # Prometheus scrapes the operator until it has loaded the change.
    _loaded(monitoring, lambda: not monitoring.scraped_pods(OPERATORS), "Prometheus to scrape no operator")
    with load("echo", 10) as traffic:
        helm.install("--take-ownership", FORCE, *SWITCHES)
        rule_file = _rules(cluster)
        _is_monitored(cluster, monitoring)
        assert _folders(cluster) == ["Triton"] * 4
        # The adapter serves the load with the chart's rule.
        adapter.use(ADAPTER_RULES)
        namespace.wait_for_condition("echo", "AutoscalerActive", "True", "Scaling", 180)
        eventually(lambda: adapter.load(namespace) is not None, 120, "the metric of the adapter")
        # A new limit, because that of the former monitoring is live already.
        namespace.kubectl("annotate", "tm/echo", "--overwrite", "tritonoperator.io/max-qps=800")
        _loaded(monitoring, lambda: _is_live(namespace, "max-qps 800"), lambda: namespace.conditions_text("echo"))

        option = "--set=monitoring.labels.team=vision,dashboards.annotations.grafana_folder=Serving"
        helm.install("--reset-then-reuse-values", option, "--set=settings.LOG_LEVEL=DEBUG", FORCE)
        assert [_labels(cluster, kind).get("team") for kind in ("ServiceMonitor", "PrometheusRule")] == ["vision"] * 2
        assert _folders(cluster) == ["Serving"] * 4
        _is_monitored(cluster, monitoring)

        helm("rollback", "triton-operator", "1", FORCE)
        assert "team" not in _labels(cluster, "ServiceMonitor") | _labels(cluster, "PrometheusRule")
        assert _folders(cluster) == ["Triton"] * 4
        _is_monitored(cluster, monitoring)
        assert _rules(cluster) == rule_file, "the PrometheusRule was changed, not replaced"

        helm("uninstall", "triton-operator")
        for kind in ("ServiceMonitor", "PrometheusRule"):
            assert cluster.api.find(kind, "triton-operator", NAMESPACE) is None, kind
        assert cluster.api.find("ConfigMap", ADAPTER_RULES, "monitoring") is None
        assert _folders(cluster) == []
        _loaded(monitoring, lambda: rule_file not in monitoring.rule_files(), "Prometheus drops the operator's rules")
        # The TritonModel's own monitoring stays, and so does the metric of a running adapter.
        assert any(file.startswith(f"{namespace.name}-echo-") for file in monitoring.rule_files())
        assert adapter.load(namespace) is not None
    assert traffic.failures() == []
    assert {pod["metadata"]["uid"] for pod in namespace.pods("echo")} == uids, "no server was replaced"


class Adapter:
    """prometheus-adapter in the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._deployment = cluster.api.get("Deployment", "prometheus-adapter", "monitoring")
        self.rules = _config(self._deployment["spec"]["template"])

    def use(self, rules: str) -> None:
        """Makes the adapter read this ConfigMap, as the value rules.existing of its Helm chart does."""
        old_volumes = self._deployment["spec"]["template"]["spec"]["volumes"]
        volumes = [{**v, "configMap": {"name": rules}} if v["name"] == "config" else v for v in old_volumes]
        patch = [{"op": "replace", "path": "/spec/template/spec/volumes", "value": volumes}]
        deployment = ("-n", "monitoring", "deployment/prometheus-adapter")
        self._cluster.kubectl("patch", *deployment, "--type=json", f"--patch={json.dumps(patch)}")
        self._cluster.kubectl("rollout", "status", *deployment, "--timeout=180s")
        labels = self._deployment["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        # A pod with the former rules answers until it has ended.
        eventually(
            lambda: {_config(pod) for pod in self._cluster.api.list("Pod", selector, "monitoring")} == {rules}, 120,
            f"only adapters with the rules {rules}",
        )  # fmt: skip

    def load(self, namespace: Namespace) -> object | None:
        """Returns the load of the TritonModel `echo` that the autoscaler gets, or None."""
        path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace.name}/tritonmodels.tritonoperator.io/echo"
        answer = self._cluster.kubectl("get", "--raw", f"{path}/triton_autoscaler_load", check=False)
        return json.loads(answer)["items"][0]["value"] if answer.startswith("{") else None


@pytest.fixture
def adapter(cluster: Cluster) -> Iterator[Adapter]:
    """Afterwards the adapter reads its former rules again."""
    adapter = Adapter(cluster)
    yield adapter
    adapter.use(adapter.rules)


def _config(pod: Any) -> str:
    """Returns the name of the ConfigMap with the rules of an adapter's pod or pod template."""
    [volume] = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "config"]
    return str(volume["configMap"]["name"])


def _is_monitored(cluster: Cluster, monitoring: Monitoring) -> None:
    """Asserts that Prometheus scrapes exactly the operator's pods, and has loaded the operator's rules."""

    def names() -> set[str]:
        return {pod["metadata"]["name"] for pod in _running(cluster)}

    def scrapes_all() -> bool:
        # Prometheus leaves out an address whose pod it hasn't seen yet, until the EndpointSlice changes once more.
        for endpoints in cluster.api.list("EndpointSlice", OPERATOR, NAMESPACE):
            body = {"metadata": {"annotations": {"example.com/changed": str(time.time())}}}
            cluster.api.patch("EndpointSlice", endpoints["metadata"]["name"], body, namespace=NAMESPACE)
        return monitoring.scraped_pods(OPERATORS) == names()

    # A pod of the former revision may still be ending when Helm returns, so both sides are read again.
    _loaded(
        monitoring,
        scrapes_all,
        lambda: f"Prometheus scrapes {monitoring.scraped_pods(OPERATORS)}, the operator's pods are {names()}",
    )
    _loaded(
        monitoring,
        lambda: _rules(cluster) in monitoring.rule_files(),
        "Prometheus loads the operator's rules",
    )


def _loaded(monitoring: Monitoring, look: Callable[[], T], what: Callable[[], object] | str) -> T:
    """Waits for what Prometheus does after it has loaded a change, without the kubelet's delay of about a minute."""

    def hurried() -> T:
        monitoring.hurry()
        return look()

    return eventually(hurried, 150, what, every=3)


def _rules(cluster: Cluster) -> str:
    """Returns the name of Prometheus' file of the operator's PrometheusRule."""
    uid = cluster.api.get("PrometheusRule", "triton-operator", NAMESPACE)["metadata"]["uid"]
    return f"{NAMESPACE}-triton-operator-{uid}"


def _labels(cluster: Cluster, kind: str) -> dict[str, str]:
    return dict(cluster.api.get(kind, "triton-operator", NAMESPACE)["metadata"]["labels"])


def _folders(cluster: Cluster) -> list[str]:
    """Returns the folder of each dashboard that Grafana's sidecar finds, and asserts that Grafana can read it."""
    dashboards = cluster.api.list("ConfigMap", "grafana_dashboard=1", NAMESPACE)
    assert all(json.loads(text)["title"] for dashboard in dashboards for text in dashboard["data"].values())
    return [dashboard["metadata"]["annotations"]["grafana_folder"] for dashboard in dashboards]


def _is_live(namespace: Namespace, limit: str) -> bool:
    entry = condition(namespace.api.get("TritonModel", "echo"), "ThresholdLive")
    return entry.get("status") == "True" and limit in entry["message"]


def _operators(cluster: Cluster) -> set[str]:
    """Returns the uids of the operator's pods that aren't being deleted."""
    return {pod["metadata"]["uid"] for pod in _running(cluster)}


def _running(cluster: Cluster) -> list[Any]:
    """Returns the operator's pods that aren't being deleted."""
    pods = cluster.api.list("Pod", OPERATOR, NAMESPACE)
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
