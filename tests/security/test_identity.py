"""A TritonModel gets no requests, identities or nodes of others by its name, labels or resources.

The tests use real controllers and a real scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import controlplane, operator_process
from support.api import Api, Object, eventually
from support.controlplane import ROOT, ControlPlane
from support.operator_process import Operator
from support.people import Team, apply_folder, bind, dry_run, refusal, tritonmodel
from support.workload import Kubelet
from triton_operator.api import names

pytestmark = pytest.mark.integration

SOON = 60.0
ADDRESS = "10.255.0.1"
SHOPS: dict[str, dict[str, str]] = {
    "by-instance": {"app.kubernetes.io/instance": "shop"},
    "by-name-and-instance": {"app.kubernetes.io/name": "triton", "app.kubernetes.io/instance": "shop"},
    "by-name": {"app.kubernetes.io/name": "triton"},
    "by-its-own-name": {"app.kubernetes.io/name": "shop"},
    "by-app": {"app": "shop"},
}
"""Typical Services of other applications: a shop and a self-managed Triton."""
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """A cluster with endpoints, a scheduler, the shipped roles and policies, and two tainted nodes."""
    if not controlplane.has_controllers() or controlplane.scheduler() is None:
        pytest.skip("no kube-controller-manager or no kube-scheduler beside kube-apiserver")
    flags = ["--controllers=endpointslice-controller"]
    with controlplane.running(
        controllers=True, schedules=True, manager_flags=flags, users=["developer", "editor"]
    ) as plane:
        plane.install_crds()
        operator_process.install(plane)
        for folder in ("rbac", "policies"):
            apply_folder(plane, ROOT / "manifests" / folder)
        node(plane, "worker")
        node(plane, "control-plane", CONTROL_PLANE)
        node(plane, "accelerator", GPU, device=GPU)
        yield plane


@pytest.fixture(scope="module")
def operator(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    kubeconfig = cluster.kubeconfig_of(operator_process.NAMESPACE, operator_process.NAME)
    with operator_process.running(kubeconfig, tmp_path_factory.mktemp("operator")) as process:
        yield process


@pytest.fixture
def team(cluster: ControlPlane, operator: Operator, request: pytest.FixtureRequest) -> Team:
    """A namespace with the Pod Security level restricted. `developer` has only the role tritonmodel-developer."""
    team = Team(cluster, request.node.name.replace("_", "-")[-40:].strip("-"))
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team.namespace, "labels": labels}}
    )
    bind(cluster, team.namespace, "developer", "ClusterRole", "tritonmodel-developer")
    eventually(lambda: not refusal(lambda: dry_run(team.api("developer"), tritonmodel("probe"))), SOON, "the roles")
    return team


def node(plane: ControlPlane, name: str, taint: str = "", device: str = "") -> None:
    """Creates a ready node. `taint`: key of its taint. `device`: name of an extended resource that it has one of."""
    resources = {"cpu": "64", "memory": "256Gi", "pods": "110", **({device: "1"} if device else {})}
    labels = {"node": name, "kubernetes.io/os": "linux"}  # the second one is the kubelet's
    plane.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    status = {"capacity": resources, "allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}]}
    plane.api.patch("Node", name, {"status": status}, subresource="status")
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    plane.api.patch("Node", name, {"spec": {"taints": taints}})


def endpoints(api: Api, service: str) -> list[str]:
    """Returns the addresses in the EndpointSlices of this Service."""
    slices = api.list("EndpointSlice", f"kubernetes.io/service-name={service}")
    return [
        address
        for endpoint_slice in slices
        for endpoint in endpoint_slice["endpoints"] or []
        for address in endpoint["addresses"]
    ]


def test_a_tritonmodel_gets_no_requests_of_other_services(team: Team, operator: Operator) -> None:
    api = team.api()
    for name, selector in SHOPS.items():
        spec = {"selector": selector, "ports": [{"port": 80, "targetPort": 8000}]}
        api.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
    kubelet = Kubelet(api)
    kubelet.addresses = {"shop": ADDRESS}
    with kubelet.running():
        team.api("developer").create(tritonmodel("shop"))
        eventually(lambda: endpoints(api, "shop") == [ADDRESS], SOON, lambda: operator.log[-3000:])
    (pod,) = api.list("Pod", names.as_query(names.selector("shop")))
    taken = [name for name, selector in SHOPS.items() if pod in api.list("Pod", names.as_query(selector))]
    assert taken == []
    assert {name: endpoints(api, name) for name in SHOPS} == {name: [] for name in SHOPS}


def labelled(kind: str, name: str, model: str, **labels: str) -> Object:
    """Returns another user's object whose pods have the label of a TritonModel's servers."""
    metadata = {"labels": {"app": name, **names.selector(model), **labels}}
    spec: Object = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "c", "image": "i:1",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    }  # fmt: skip
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": metadata, "spec": spec},
        },
    }


def test_other_pods_get_no_requests_for_a_tritonmodel(team: Team, operator: Operator) -> None:
    """A user who may create pods may set any labels, except the label of a TritonModel's servers."""
    bind(team.plane, team.namespace, "editor", "ClusterRole", "edit")
    api, editor = team.api(), team.api("editor")
    kubelet = Kubelet(api)
    kubelet.addresses = {"shop": ADDRESS}
    with kubelet.running():
        team.api("developer").create(tritonmodel("shop"))
        eventually(lambda: endpoints(api, "shop") == [ADDRESS], SOON, lambda: operator.log[-3000:])
        plain = labelled("Pod", "plain", "shop")
        plain["metadata"]["labels"] = {"app": "plain"}
        eventually(lambda: not refusal(lambda: editor.create(plain)), SOON, "the role")
        for way in (
            lambda: editor.create(labelled("Pod", "bare", "shop")),
            lambda: editor.create(labelled("ReplicaSet", "shop-abc", "shop", **{"pod-template-hash": "abc"})),
            # Also for a TritonModel that doesn't exist yet.
            lambda: editor.create(labelled("Deployment", "shop-two", "shop")),
            lambda: editor.create(labelled("Deployment", "shop-two", "shop", **names.of_group("two"))),
            lambda: editor.create(
                labelled("ReplicaSet", "shop-two-abc", "shop", **names.of_group("two"), **{"pod-template-hash": "abc"})
            ),
            lambda: editor.patch("Pod", "plain", {"metadata": {"labels": names.selector("shop")}}),
        ):
            message = refusal(way)
            assert "editor may not set the label tritonoperator.io/model=shop on" in message, message
            assert "Use another label" in message
        api.create(labelled("Deployment", "thief", "shop"))

        def failure() -> str:
            conditions = api.get("Deployment", "thief").get("status", {}).get("conditions", [])
            return "".join(c["message"] for c in conditions if c["type"] == "ReplicaFailure" or c["status"] == "False")

        eventually(lambda: "may not set the label" in failure(), SOON, failure)
        assert endpoints(api, "shop") == [ADDRESS]
        assert api.get("TritonModel", "shop")["status"]["replicas"] == 1
        # A user may remove a server from its Services to debug it.
        (server,) = api.list("Pod", names.as_query(names.selector("shop")))
        editor.patch("Pod", server["metadata"]["name"], {"metadata": {"labels": {names.LABEL_MODEL: None}}})


def place(api: Api, name: str) -> str:
    """Returns the node of this TritonModel's server, or why it isn't scheduled; "" before the scheduler's decision."""
    for pod in api.list("Pod", names.as_query(names.selector(name))):
        reasons = [c.get("message", "") for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
        return str(pod["spec"].get("nodeName") or (reasons or [""])[0])
    return ""


def spec_with_toleration(key: str, limit: int, request: int, where: str) -> Object:
    """Returns a spec with a node and a toleration of its taint. The taint has the name of a device in the spec."""
    return {
        "server": {"resources": {"limits": {key: limit}, "requests": {key: request}}},
        "podTemplate": {"spec": {"nodeSelector": {"node": where}, "tolerations": [{"key": key, "operator": "Exists"}]}},
    }


def test_a_request_for_a_nonexistent_device_gives_no_access_to_a_reserved_node(team: Team, operator: Operator) -> None:
    """A resource of kubernetes.io can have a limit of one and a request of zero, which every node satisfies."""
    developer, outcomes = team.api("developer"), {}
    for name, spec in {
        "free": spec_with_toleration(CONTROL_PLANE, 1, 0, "control-plane"),
        "requested": spec_with_toleration(CONTROL_PLANE, 1, 1, "control-plane"),
        "intolerant": {"podTemplate": {"spec": {"nodeSelector": {"node": "control-plane"}}}},
        "accelerated": spec_with_toleration(GPU, 1, 1, "accelerator"),
        "ordinary": {},
    }.items():
        message = refusal(lambda n=name, s=spec: developer.create(tritonmodel(n, **s)))
        outcomes[name] = message or eventually(lambda n=name: place(team.api(), n), SOON, lambda: operator.log[-3000:])
    assert f"the toleration of {CONTROL_PLANE} (its key is no extended resource" in outcomes["free"], outcomes
    assert f"the toleration of {CONTROL_PLANE} (its key is no extended resource" in outcomes["requested"], outcomes
    assert "untolerated taint" in outcomes["intolerant"]
    assert (outcomes["accelerated"], outcomes["ordinary"]) == ("accelerator", "worker")


def test_kubernetes_rejects_a_device_with_a_limit_and_no_request(team: Team, operator: Operator) -> None:
    """So only a pod with a device gets the toleration."""
    team.api("developer").create(tritonmodel("cheap", **spec_with_toleration(GPU, 1, 0, "accelerator")))

    def is_reported() -> bool:
        conditions = team.api().get("TritonModel", "cheap").get("status", {}).get("conditions", [])
        return any("must be equal to nvidia.com/gpu limit" in c["message"] for c in conditions)

    eventually(is_reported, SOON, lambda: operator.log[-3000:])
    assert not team.api().find("Deployment", "cheap")
