"""What a stolen token of the operator can write, with the policy for its account."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import gen, operator_process
from support.api import Api, Object, condition, eventually
from support.people import Team, dry_run, make, refusal
from triton_operator.api import names

pytestmark = pytest.mark.integration

APPARMOR = "container.apparmor.security.beta.kubernetes.io"
PRIVILEGES = f"{names.GROUP}/privileges"

SPEC: Object = {"containers": [{"name": "a", "image": "a", "securityContext": {"privileged": True}}], "hostPID": True}

IMAGE = ([{"op": "replace", "path": "/spec/containers/0/image", "value": "b"}], "application/json-patch+json")


def deployment(name: str, pod: Object = SPEC, **metadata: object) -> Object:
    labels = names.selector(name) if "ownerReferences" in metadata else {"app": name}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, **metadata},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }  # fmt: skip


def owned(name: str, by: str = "") -> Object:
    owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": by or name, "uid": "1", "controller": True}
    return {"labels": names.labels(name), "ownerReferences": [owner]}


def of_group(model: str, group: str) -> Object:
    metadata = owned(model)
    return {**metadata, "labels": {**metadata["labels"], **names.of_group(group)}}


def stolen(team: Team, namespace: str = "") -> Api:
    """Returns a client with the operator's own credentials."""
    return Api.of(operator_process.install(team.plane)).in_namespace(namespace or team.namespace)


def test_a_stolen_token_writes_nothing_of_others(team: Team) -> None:
    admin, thief = team.api(), stolen(team)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": SPEC}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other"}, "spec": {"ports": [{"port": 1}]}}
    closed = {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"},
        "spec": {"podSelector": {}},
    }  # fmt: skip
    server = {**pod, "metadata": {"name": "server", "labels": names.selector("server")}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}
    for obj in (pod, service, closed, server, config, deployment("other")):
        admin.create(obj)
    label = {"metadata": {"labels": names.labels("other"), **owned("other")}}
    for what, way in {
        "a Deployment": lambda: thief.create(deployment("mine")),
        "one with the label": lambda: thief.create(deployment("mine", labels=names.labels("mine"))),
        "one of another TritonModel": lambda: thief.create(deployment("mine", **owned("mine", "other"))),
        "one of no group": lambda: thief.create(deployment("mine-two", **owned("mine"))),
        "one with the name of another group": lambda: thief.create(deployment("mine-two", **of_group("mine", "one"))),
        "one that selects the servers of all groups": lambda: thief.create(
            deployment("mine-two", **of_group("mine", "two"))
        ),
        "a ConfigMap": lambda: thief.patch("ConfigMap", "other", {"data": {"a": "b"}}),
        "one in kube-system": lambda: stolen(team, "kube-system").create(deployment("mine", **owned("mine"))),
        "a Deployment of others": lambda: thief.patch("Deployment", "other", {"spec": {"replicas": 9}}),
        "taking it over": lambda: thief.patch("Deployment", "other", label),
        "its scale": lambda: thief.patch("Deployment", "other", {"spec": {"replicas": 0}}, subresource="scale"),
        "the selector of a Service": lambda: thief.patch("Service", "other", {"spec": {"selector": {"a": "b"}}}),
        "a closed network": lambda: thief.delete("NetworkPolicy", "closed"),
        "all of them": lambda: thief.request("DELETE", thief.path("NetworkPolicy")),
        "an image of a pod": lambda: thief.request("PATCH", thief.path("Pod", "other"), *IMAGE),
        "an image of a server": lambda: thief.request("PATCH", thief.path("Pod", "server"), *IMAGE),
        "the label of a server": lambda: thief.patch("Pod", "server", {"metadata": {"labels": {"app": "bank"}}}),
        "a pod": lambda: thief.delete("Pod", "other"),
    }.items():
        message = refusal(way)
        assert "own-account.tritonoperator.io" in message or message.startswith("403"), (what, message)
    assert refusal(lambda: thief.delete("Pod", "server")) == ""
    assert admin.get("Service", "other")["spec"].get("selector") is None
    assert admin.find("NetworkPolicy", "closed")
    assert admin.find("Pod", "other")


MINE = names.selector("mine")
OTHERS: Object = {"app": "bank"}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "mine"}
PORTS = [{"port": 1}]
QUERY = {"type": "prometheus", "metadata": {}}
BACKEND = {"name": "mine", "port": 1}
COPY = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "mine-canary", "port": 1}}}
COPY_TO_OTHERS = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "bank", "port": 1}}}
EXTENSION = {
    "type": "ExtensionRef", "extensionRef": {"group": "gateway.envoyproxy.io", "kind": "HTTPRouteFilter", "name": "f"},
}  # fmt: skip
ROUTE = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "mine"}
OWN: dict[str, tuple[str, Object]] = {
    "Service": ("v1", {"selector": MINE, "ports": PORTS}),
    "NetworkPolicy": ("networking.k8s.io/v1", {"podSelector": {"matchLabels": MINE}}),
    "PodDisruptionBudget": ("policy/v1", {"selector": {"matchLabels": MINE}}),
    "PodMonitor": ("monitoring.coreos.com/v1", {"selector": {"matchLabels": MINE}, "podMetricsEndpoints": []}),
    "PrometheusRule": ("monitoring.coreos.com/v1", {"groups": []}),
    "HorizontalPodAutoscaler": ("autoscaling/v2", {"scaleTargetRef": TARGET, "maxReplicas": 1}),
    "ScaledObject": ("keda.sh/v1alpha1", {"scaleTargetRef": TARGET, "triggers": [QUERY]}),
    "HTTPRoute": ("gateway.networking.k8s.io/v1", {"rules": [{"backendRefs": [BACKEND], "filters": [COPY]}]}),
    "GRPCRoute": ("gateway.networking.k8s.io/v1", {"rules": [{"backendRefs": [BACKEND]}]}),
    "BackendTrafficPolicy": ("gateway.envoyproxy.io/v1alpha1", {"targetRefs": [ROUTE]}),
}
"""The version and a spec of objects of the TritonModel `mine`."""
FOREIGN: list[tuple[str, Object]] = [
    ("Service", {"selector": OTHERS}),
    ("Service", {"selector": None}),
    ("Service", {"externalIPs": ["192.0.2.1"]}),
    ("Service", {"type": "ExternalName", "externalName": "attacker.example.com"}),
    ("Service", {"type": "NodePort"}),
    ("NetworkPolicy", {"podSelector": {"matchLabels": None}}),
    ("NetworkPolicy", {"podSelector": {"matchLabels": OTHERS}}),
    ("PodDisruptionBudget", {"selector": {"matchLabels": None}}),
    ("PodMonitor", {"selector": {"matchLabels": OTHERS}}),
    ("HorizontalPodAutoscaler", {"scaleTargetRef": {**TARGET, "name": "bank"}}),
    ("ScaledObject", {"scaleTargetRef": {**TARGET, "kind": "StatefulSet"}}),
    ("HTTPRoute", {"rules": [{"backendRefs": [BACKEND]}, {"backendRefs": [{**BACKEND, "name": "bank"}]}]}),
    ("HTTPRoute", {"rules": [{"backendRefs": [{**BACKEND, "namespace": "bank"}]}]}),
    ("HTTPRoute", {"rules": [{"backendRefs": [BACKEND], "filters": [COPY, COPY_TO_OTHERS]}]}),
    ("HTTPRoute", {"rules": [{"backendRefs": [{**BACKEND, "filters": [COPY_TO_OTHERS]}]}]}),
    ("HTTPRoute", {"rules": [{"backendRefs": [BACKEND], "filters": [EXTENSION]}]}),
    ("GRPCRoute", {"rules": [{"backendRefs": [{**BACKEND, "name": "bank"}]}]}),
    ("GRPCRoute", {"rules": [{"backendRefs": [BACKEND], "filters": [COPY_TO_OTHERS]}]}),
    ("BackendTrafficPolicy", {"targetRefs": [{**ROUTE, "name": "bank"}]}),
    ("BackendTrafficPolicy", {"targetRefs": None, "targetRef": {**ROUTE, "name": "bank"}}),
    ("BackendTrafficPolicy", {"targetSelectors": [{"kind": "HTTPRoute", "matchLabels": OTHERS}]}),
]


def of_mine(kind: str, name: str = "mine", **spec: object) -> Object:
    version, own = OWN[kind]
    return {
        "apiVersion": version, "kind": kind, "metadata": {"name": name, **owned("mine")}, "spec": {**own, **spec},
    }  # fmt: skip


def test_a_stolen_token_writes_only_names_selectors_and_targets_of_the_tritonmodel(team: Team) -> None:
    admin, thief = team.api(), stolen(team)
    for kind in OWN:
        assert "those of their TritonModel" in refusal(lambda k=kind: dry_run(thief, of_mine(k, "bank"))), kind
        thief.create(of_mine(kind))
    for kind in ("ServiceAccount", "ConfigMap"):
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "mine", **owned("mine")}}
        assert "those of their TritonModel" in refusal(lambda b=body: dry_run(thief, b)), kind
    for kind, spec in FOREIGN:
        message = refusal(lambda k=kind, s=spec: thief.patch(k, "mine", {"spec": s}))
        assert "those of their TritonModel" in message, (kind, spec, message)
    # What another client has set may stay while the operator writes something else, and it may set it back.
    admin.patch("Service", "mine", {"spec": {"externalIPs": ["192.0.2.1"], "selector": OTHERS}})
    thief.patch("Service", "mine", {"metadata": {"annotations": {"a": "b"}}})
    thief.patch("Service", "mine", {"spec": {"externalIPs": None, "selector": {"app": None, **MINE}}})


def test_a_stolen_token_evicts_no_pods_of_kubernetes_and_of_databases(team: Team) -> None:
    admin = team.api()
    for namespace, name, may in (
        (team.namespace, "detector-6d4cf56db6-x7k2p", True),
        (team.namespace, f"{'d' * 54}-6d4", True),  # cut off
        (team.namespace, "mysql-0", False),  # of a StatefulSet
        (team.namespace, "agent-x7k2p", False),  # of a DaemonSet
        ("kube-system", "coredns-6d4cf56db6-x7k2p", False),
    ):
        name += "x7k2p" if len(name) == 58 else ""
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": container()}
        admin.in_namespace(namespace).create(pod)
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        thief = stolen(team, namespace)
        message = refusal(lambda t=thief, n=name, b=body: t.request("POST", f"{t.path('Pod', n)}/eviction", b))
        assert ("own-account.tritonoperator.io" in message) != may, (name, message)
        assert may or admin.in_namespace(namespace).find("Pod", name), name


def container(**fields: object) -> Object:
    return {"containers": [{"name": "a", "image": "a", **fields}]}


FORBIDDEN = {
    "another account": {**container(), "serviceAccountName": "admin"},
    "the default account": {**container(), "serviceAccountName": "default"},
    "the host's processes": {**container(), "hostPID": True},
    "the host's network": {**container(), "hostNetwork": True},
    "the host's memory": {**container(), "hostIPC": True},
    "the host's files": {**container(), "volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
    "sysctls": {**container(), "securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
    "no seccomp": {**container(), "securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    "a privileged container": container(securityContext={"privileged": True}),
    "a privileged init container": {**container(), "initContainers": [{**SPEC["containers"][0], "name": "b"}]},
    "a capability": container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
    "the host of a probe": container(readinessProbe={"httpGet": {"port": 1, "host": "169.254.169.254"}}),
    "the host of a hook": container(lifecycle={"preStop": {"tcpSocket": {"port": 1, "host": "10.0.0.1"}}}),
    "a host port": container(ports=[{"containerPort": 1, "hostPort": 1}]),
}


def test_a_stolen_token_gets_no_privileges(team: Team) -> None:
    """Not even with a Deployment that looks like one of a TritonModel."""
    thief, account = stolen(team), names.account("mine")
    for what, pod in FORBIDDEN.items():
        body = deployment("mine", {"serviceAccountName": account, **pod}, **owned("mine"))
        message = refusal(lambda body=body: thief.create(body))
        assert "own-account.tritonoperator.io" in message, (what, message)
        assert ("own account" if "account" in what else "baseline") in message, (what, message)
    fitting = deployment("mine", {**container(), "serviceAccountName": account}, **owned("mine"))
    fitting["spec"]["template"]["metadata"]["annotations"] = {f"{APPARMOR}/a": "unconfined"}
    assert "turn AppArmor off" in refusal(lambda: thief.create(fitting))
    fitting["spec"]["template"]["metadata"]["annotations"] = {f"{APPARMOR}/a": "runtime/default"}
    assert refusal(lambda: thief.request("POST", thief.path("Deployment") + "?dryRun=All", fitting)) == ""


def test_a_namespace_may_allow_privileges(team: Team, tmp_path: Path) -> None:
    """By a label. Without it, the status says what to do. Removing the label stops no server."""
    api, namespace = team.api(), team.namespace
    kubeconfig = operator_process.install(team.plane)
    with operator_process.running(kubeconfig, tmp_path, WATCH_NAMESPACES=namespace) as operator:
        make(api, podTemplate={"spec": {"serviceAccountName": "robot", "hostIPC": True}})

        def message() -> str:
            text = condition(api.get("TritonModel", gen.NAME), "Ready").get("message", "")
            return text if f"{PRIVILEGES}=any" in text else ""

        assert "serviceAccountName" in eventually(message, 30, lambda: operator.log[-3000:])
        team.plane.api.patch("Namespace", namespace, {"metadata": {"labels": {PRIVILEGES: "any"}}})
        eventually(lambda: api.find("Deployment", gen.NAME), 90, lambda: operator.log[-3000:])
        team.plane.api.patch("Namespace", namespace, {"metadata": {"labels": {PRIVILEGES: None}}})
        api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 3}})
        eventually(lambda: api.get("Deployment", gen.NAME)["spec"]["replicas"] == 3, 30, lambda: operator.log[-3000:])
        assert operator.stop() == 0


def test_the_operator_works_under_the_policy(team: Team, tmp_path: Path) -> None:
    """It creates, changes, adopts, scales and deletes what it needs."""
    api = team.api()
    kubeconfig = operator_process.install(team.plane)
    with operator_process.running(kubeconfig, tmp_path, WATCH_NAMESPACES=team.namespace) as operator:
        make(api, replicas=2)
        eventually(lambda: api.find("PodDisruptionBudget", gen.NAME), 10, lambda: operator.log)
        # A user removes the label, or the owner, and edits a port; the operator restores all.
        ports = api.get("Service", gen.NAME)["spec"]["ports"]
        lost: Object = {"labels": dict.fromkeys(names.labels(gen.NAME))}
        unowned: Object = {"ownerReferences": None}
        edited = {"ports": [{**ports[0], "port": 80}], "selector": {"app": "bank", names.LABEL_MODEL: None}}
        for change in (
            {"metadata": lost},
            {"metadata": unowned},
            *({"metadata": m, "spec": edited} for m in (lost, unowned)),
        ):
            api.patch("Service", gen.NAME, change)
            eventually(lambda: restored(api.get("Service", gen.NAME), ports), 10, lambda: operator.log[-3000:])
        api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 1}})
        eventually(lambda: not api.find("PodDisruptionBudget", gen.NAME), 10, lambda: operator.log[-3000:])
        assert "own-account" not in operator.log
        assert operator.stop() == 0


def restored(service: Object, ports: list[Object]) -> bool:
    metadata, spec = service["metadata"], service["spec"]
    has_owner = bool(metadata.get("ownerReferences")) and names.LABEL_MANAGED_BY in metadata.get("labels", {})
    return has_owner and (spec["ports"], spec["selector"]) == (ports, names.selector(gen.NAME))
