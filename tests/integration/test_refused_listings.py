"""What the operator may not read blocks only itself: a kind, or a namespace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes
import pytest
import yaml

from support import controlplane, gen, operator_process
from support.api import Api, condition, eventually
from support.controlplane import ROOT, ControlPlane
from support.kubelet import add_pod
from support.operator_process import NAME
from support.people import make
from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.store import Store
from triton_operator.runtime.listing import Listing

pytestmark = pytest.mark.integration
SOON = 15
ROLES = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own, whose roles the tests change, with the kinds of prometheus-operator."""
    with controlplane.running() as running:
        running.install_crds()
        running.install_monitoring()
        yield running


@pytest.fixture
def own(plane: ControlPlane, request: pytest.FixtureRequest) -> Api:
    name = request.node.name.replace("_", "-")[:60]
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return plane.api.in_namespace(name)


def role() -> dict[str, Any]:
    """Returns the operator's ClusterRole."""
    shipped = yaml.safe_load_all((ROOT / "manifests" / "rbac" / "operator.yaml").read_text())
    return next(dict(obj) for obj in shipped if obj["kind"] == "ClusterRole")


def without(resource: str) -> dict[str, Any]:
    """Returns the ClusterRole of a version that doesn't know this resource."""
    full = role()
    rules = [{**rule, "resources": [r for r in rule["resources"] if r != resource]} for rule in full["rules"]]
    return {**full, "rules": [rule for rule in rules if rule["resources"]]}


def put(plane: ControlPlane, body: dict[str, Any]) -> None:
    path = f"{ROLES}/clusterroles/{body['metadata']['name']}?fieldManager=test&force=true"
    plane.api.request("PATCH", path, body, "application/apply-patch+yaml")


def reason(api: Api, kind: str) -> str:
    return str(condition(api.get("TritonModel", gen.NAME), kind).get("reason"))


def test_a_role_without_an_optional_kind_costs_only_that_kind(plane: ControlPlane, own: Api, tmp_path: Path) -> None:
    kubeconfig = operator_process.install(plane)
    put(plane, without("podmonitors"))
    with operator_process.running(kubeconfig, tmp_path) as operator:
        make(own, entrypoint="detection")
        eventually(lambda: own.find("Deployment", gen.NAME), SOON, lambda: operator.log)
        report = gen.report("pre", "detection", entrypoint="detection")
        add_pod(own, gen.checked(report), gen.put("status.podIP", ""))
        eventually(lambda: own.find("PrometheusRule", gen.NAME), SOON, lambda: operator.log)
        eventually(lambda: reason(own, "MonitoringAvailable") == "NotPermitted", SOON, lambda: operator.log)
        eventually(lambda: reason(own, "Ready") == "EntrypointAnswers", SOON, lambda: operator.log)
        assert operator.metric_sum("triton_operator_listing_refused", resource="podmonitors", watched="") == 1
        # The watches of all other kinds work.
        own.delete("Service", gen.NAME)
        eventually(lambda: own.find("Service", gen.NAME), SOON, lambda: operator.log)
        assert own.find("PodMonitor", gen.NAME) is None
        put(plane, role())
        eventually(lambda: own.find("PodMonitor", gen.NAME), SOON, lambda: operator.log)
        eventually(lambda: reason(own, "MonitoringAvailable") != "NotPermitted", SOON)
        eventually(lambda: operator.metric_sum("triton_operator_listing_refused") == 0, SOON)
        own.delete("PodMonitor", gen.NAME)
        eventually(lambda: own.find("PodMonitor", gen.NAME), SOON, lambda: operator.log)
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def test_a_role_without_a_kind_that_few_need_costs_only_those(plane: ControlPlane, own: Api, tmp_path: Path) -> None:
    kubeconfig = operator_process.install(plane)
    put(plane, without("configmaps"))
    try:
        with operator_process.running(kubeconfig, tmp_path, WATCH_NAMESPACES=own.namespace) as operator:
            make(own)
            eventually(lambda: own.find("Deployment", gen.NAME), SOON, lambda: operator.log)
            eventually(lambda: reason(own, "Progressing") == "RollingOut", SOON, lambda: operator.log)
            server = {"modelControl": "explicit", "loadModels": ["detection"]}
            own.patch("TritonModel", gen.NAME, {"spec": {"entrypoint": "detection", "server": server}})
            eventually(lambda: reason(own, "Progressing") == "NotPermitted", SOON, lambda: operator.log)
            assert operator.stop() == 0
    finally:
        put(plane, role())


def test_a_role_without_an_essential_kind_is_in_the_status(plane: ControlPlane, own: Api, tmp_path: Path) -> None:
    kubeconfig = operator_process.install(plane)
    put(plane, without("networkpolicies"))
    try:
        with operator_process.running(kubeconfig, tmp_path, WATCH_NAMESPACES=own.namespace) as operator:
            make(own)
            eventually(lambda: reason(own, "Progressing") == "NotPermitted", SOON, lambda: operator.log)
            assert own.find("Deployment", gen.NAME) is None
            put(plane, role())
            eventually(lambda: own.find("Deployment", gen.NAME), SOON, lambda: operator.log)
            assert operator.stop() == 0
    finally:
        put(plane, role())


def test_ready_follows_the_pods_while_an_essential_kind_cannot_be_read(
    plane: ControlPlane, own: Api, tmp_path: Path
) -> None:
    """As after an upgrade of the operator without its new roles."""
    kubeconfig = operator_process.install(plane)
    with operator_process.running(kubeconfig, tmp_path) as operator:
        make(own, entrypoint="detection")
        eventually(lambda: own.find("Deployment", gen.NAME), SOON, lambda: operator.log)
        add_pod(own, gen.put("status.podIP", ""))
        eventually(lambda: reason(own, "Ready") == "EntrypointAnswers", SOON, lambda: operator.log)
    put(plane, without("networkpolicies"))
    try:
        with operator_process.running(kubeconfig, tmp_path, WATCH_NAMESPACES=own.namespace) as operator:
            eventually(lambda: reason(own, "Progressing") == "NotPermitted", SOON, lambda: operator.log)
            assert reason(own, "Ready") == "EntrypointAnswers"
            own.delete("Pod", "detection-abc-1", gracePeriodSeconds=0)
            eventually(lambda: reason(own, "Ready") == "NotPermitted", SOON, lambda: operator.log)
            status = own.get("TritonModel", gen.NAME)["status"]
            assert (condition({"status": status}, "Ready")["status"], status["readyReplicas"]) == ("False", 0)
            assert condition({"status": status}, "ModelsLoaded")["status"] == "Unknown"
            put(plane, role())
            eventually(lambda: reason(own, "Ready") == "Creating", SOON, lambda: operator.log)
            assert operator.stop() == 0
    finally:
        put(plane, role())


def test_a_namespace_that_cannot_be_read_blocks_only_itself(plane: ControlPlane, own: Api, tmp_path: Path) -> None:
    """As after the deletion of one of WATCH_NAMESPACES, with its RoleBinding."""
    kubeconfig = operator_process.install(plane, bind_cluster=False)
    plane.api.request("DELETE", f"{ROLES}/clusterrolebindings/{NAME}", {})
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": operator_process.NAMESPACE}],
    }  # fmt: skip
    plane.api.request("POST", f"{ROLES}/namespaces/{own.namespace}/rolebindings", binding)
    watched = f"gone-{own.namespace[:50]},{own.namespace}"
    try:
        with operator_process.running(kubeconfig, tmp_path, WATCH_NAMESPACES=watched) as operator:
            make(own)
            eventually(lambda: condition(own.get("TritonModel", gen.NAME), "Ready"), SOON, lambda: operator.log)
            own.delete("Service", gen.NAME)
            eventually(lambda: own.find("Service", gen.NAME), SOON, lambda: operator.log)
            assert operator.metric_sum("triton_operator_listing_refused", watched=watched.partition(",")[0]) > 0
            assert operator.stop() == 0
            assert "Traceback" not in operator.log
    finally:
        operator_process.install(plane)


class Compacting:
    """The API server, whose etcd is compacted once between two pages of ConfigMaps."""

    def __init__(self, plane: ControlPlane) -> None:
        configuration = kubernetes.client.Configuration()
        kubernetes.config.load_kube_config(str(plane.kubeconfig), client_configuration=configuration)
        self._api, self._plane, self.lists = KubernetesApi(kubernetes.client.ApiClient(configuration)), plane, 0

    def list(self, kind: Kind, *arguments: Any, **more: Any) -> Iterator[Any]:
        compacts = kind == kinds.CONFIG_MAP and not more
        self.lists += compacts
        for number, obj in enumerate(self._api.list(kind, *arguments, **more)):
            if compacts and self.lists == 1 and number == 50:
                self._plane.api.in_namespace("default").create(
                    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "newer"}}
                )
                self._plane.compact()
            yield obj


def test_a_list_whose_state_is_compacted_begins_again() -> None:
    """Newer API servers keep such a state in their cache for a while."""
    owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "m", "uid": "u", "controller": True}
    with controlplane.running(server_flags=["--watch-cache=false"]) as uncached:
        uncached.install_crds()
        for number in range(150):
            metadata = {"name": f"list-{number}", "labels": names.labels("m"), "ownerReferences": [owner]}
            uncached.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        api, store = Compacting(uncached), Store()
        listing = Listing(api, store, ())  # type: ignore[arg-type]
        listing.list_all()
    assert api.lists == 2
    assert listing.refused == {}
    assert len(store.of_kind("default/m", "ConfigMap")) == 150
