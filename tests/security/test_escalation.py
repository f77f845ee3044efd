"""Tests the policies against privilege escalation on a real API server, as different users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from support import allowed
from support.api import Object, eventually
from support.controlplane import ROOT
from support.people import RBAC, Team, bind, dry_run, refusal, tritonmodel
from support.thresholds import MAX_QPS

pytestmark = pytest.mark.integration

SAMPLES = sorted(p for p in (ROOT / "manifests/samples").rglob("*.yaml") if p.name != "kustomization.yaml")
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}


def pod(**spec: Any) -> Object:
    return {"podTemplate": {"spec": spec}}


def server(**fields: Any) -> Object:
    return pod(containers=[{"name": "triton", **fields}])


def env(source: Any) -> Object:
    return {"name": "TOKEN", "valueFrom": source}


SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}
MOUNT = {"name": "data", "mountPath": "/data"}
HOST = {"name": "data", "hostPath": {"path": "/"}}
EMPTY = {"name": "data", "emptyDir": {}}

REFUSED: list[tuple[Object, str]] = [
    # The node
    (pod(hostNetwork=True), "spec.podTemplate.spec.hostNetwork"),
    (pod(hostPID=True), "spec.podTemplate.spec.hostPID"),
    (pod(hostIPC=True), "spec.podTemplate.spec.hostIPC"),
    (pod(hostUsers=True), "spec.podTemplate.spec.hostUsers"),
    (pod(shareProcessNamespace=True), "spec.podTemplate.spec.shareProcessNamespace"),
    (server(ports=[{"containerPort": 8000, "hostPort": 80}]), "containers[triton].ports"),
    (pod(containers=[{"name": "triton"}, {"name": "triton"}]), "several containers with the name triton"),
    (pod(volumes=[HOST]), "the volume data"),
    (pod(volumes=[{**EMPTY, **HOST}]), "the volume data"),
    # Selection of nodes
    (pod(nodeName="control-plane"), "spec.podTemplate.spec.nodeName"),
    (pod(schedulerName="mine"), "spec.podTemplate.spec.schedulerName"),
    (pod(priorityClassName="system-node-critical"), "spec.podTemplate.spec.priorityClassName"),
    (pod(runtimeClassName="bare"), "spec.podTemplate.spec.runtimeClassName"),
    (pod(tolerations=[{"operator": "Exists"}]), "tolerations, which is not a list of"),
    (pod(tolerations=[{"key": "", "operator": "Exists"}]), "the toleration of "),
    (pod(tolerations=[{"key": "team-b", "operator": "Exists"}]), "the toleration of team-b"),
    ({**pod(tolerations=[{"key": "team-b.example.com/only"}]),
      "server": {"resources": {"limits": {"team-b.example.com/only": 0}}}}, "the toleration of team-b."),
    *(({**pod(tolerations=[{"key": "x.example.com/only"}]),
        "server": {"resources": {"limits": {"x.example.com/only": amount}}}}, "the toleration of x.example.com/only")
      for amount in ("0", "0Gi", "0.000", "0e9")),
    # Not extended resources: a pod can have a limit of one and a request of zero.
    *(({**pod(tolerations=[{"key": key, "operator": "Exists"}]), "server": {"resources": resources}},
       f"the toleration of {key}")
      for key in ("node-role.kubernetes.io/control-plane", "node.kubernetes.io/unschedulable", "kubernetes.io/os",
                  "team.kubernetes.io/gpu", "teamkubernetes.io/gpu", "requests.example.com/gpu", "cpu")
      for resources in ({"limits": {key: 1}}, {"limits": {key: "1"}, "requests": {key: 0}})),
    (pod(affinity={"podAntiAffinity": {}}), "spec.podTemplate.spec.affinity.podAntiAffinity"),
    (pod(affinity={"nodeAffinity": {}, "podAffinity": {}}), "spec.podTemplate.spec.affinity.podAffinity"),
    # Another identity
    (pod(serviceAccountName="admin"), "spec.podTemplate.spec.serviceAccountName"),
    (pod(serviceAccount="admin"), "spec.podTemplate.spec.serviceAccount"),
    (pod(automountServiceAccountToken=True), "spec.podTemplate.spec.automountServiceAccountToken"),
    (pod(automountServiceAccountToken=None), "spec.podTemplate.spec.automountServiceAccountToken"),
    (pod(imagePullSecrets=[{"name": "s"}]), "spec.podTemplate.spec.imagePullSecrets"),
    # Privileges of containers
    (pod(securityContext={"runAsUser": 0}), "spec.podTemplate.spec.securityContext"),
    (pod(securityContext=None), "spec.podTemplate.spec.securityContext"),
    ({"podTemplate": {"omit": ["spec.securityContext.runAsUser"]}}, "spec.podTemplate.omit spec.securityContext.runA"),
    (server(securityContext={"privileged": True}), "containers[triton].securityContext"),
    (server(securityContext=None), "containers[triton].securityContext"),
    (server(resources={"claims": [{"name": "gpu"}]}), "containers[triton].resources"),
    (pod(resourceClaims=[{"name": "gpu"}]), "spec.podTemplate.spec.resourceClaims"),
    (server(lifecycle={"postStart": {"httpGet": {"host": "10.0.0.1", "port": 1}}}), "containers[triton].lifecycle"),
    (server(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}), "containers[triton].livenessProbe"),
    (server(volumeDevices=[{"name": "disk", "devicePath": "/dev/x"}]), "containers[triton].volumeDevices"),
    # More containers
    (pod(containers=[{"name": "sidecar", "image": "i"}]), "the additional container sidecar"),
    (pod(containers=[{"name": "triton"}, {"name": "sidecar", "image": "i"}]), "the additional container sidecar"),
    (pod(initContainers=[{"name": "first", "image": "i"}]), "spec.podTemplate.spec.initContainers"),
    (pod(initContainers=[{"name": "tools", "image": "i"}]), "spec.podTemplate.spec.initContainers"),
    # Secrets and other objects of the namespace
    *((pod(volumes=[{"name": "data", kind: {}}]), "the volume data (only emptyDir is allowed)") for kind in (
        "secret", "configMap", "projected", "persistentVolumeClaim", "csi", "ephemeral", "nfs", "downwardAPI",
        "image")),
    *(({"server": {"env": [env(source)]}}, "the variable TOKEN") for source in (
        SECRET, {"configMapKeyRef": {"name": "c", "key": "k"}}, {"fileKeyRef": {}}, None,
        {"fieldRef": {"fieldPath": "metadata.name"}, **SECRET})),
    (server(env=[env(SECRET)]), "the variable TOKEN from a Secret or ConfigMap"),
    (server(envFrom=[{"secretRef": {"name": "s"}}]), "containers[triton].envFrom"),
    (server(volumeMounts=[MOUNT]), "a mount of the volume data"),
    # Two volumes with one name, in both orders.
    *((pod(volumes=v, containers=[{"name": "triton", "volumeMounts": [MOUNT]}]), "a mount of the volume data")
      for v in ([HOST, EMPTY], [EMPTY, HOST])),
    # Labels and annotations that other programs use
    ({"podTemplate": {"metadata": {"labels": {"app": "payments"}}}}, "spec.podTemplate.metadata.labels app"),
    ({"podTemplate": {"metadata": {"annotations": {"vault.hashicorp.com/role": "a"}}}}, "vault.hashicorp.com/role"),
    # Values that the schema allows but a pod can't have
    *((pod(**{field: value}), f"spec.podTemplate.spec.{field}, which is not a list")
      for field in ("containers", "volumes", "tolerations")
      for value in (None, [{}], [{"name": None, "key": None}])),
    (pod(affinity=None), "affinity, which is not an object"),
    *((server(env=value), "env, which is not a list of") for value in (None, [{}])),
    *((server(volumeMounts=value), "volumeMounts, which is not a list of") for value in (None, [{}])),
    # Several at once
    ({**pod(hostNetwork=True, volumes=[HOST]), "server": {"env": [env(SECRET)]}}, "the volume data"),
]  # fmt: skip

MALFORMED: list[Object] = [
    *(pod(**{field: value})
      for field in ("containers", "volumes", "tolerations")
      for value in ("x", 1, True, {}, {"name": "triton", "key": "a"}, [1], [None], [[]], [{"name": 1, "key": 1}])),
    *(pod(affinity=value) for value in ("x", [], 1)),
    *({"server": {"env": [env(value)]}} for value in ("x", [])),
    *(server(env=value) for value in ("x", {}, [1], [{"name": 1}])),
    *(server(volumeMounts=value) for value in ("x", {}, [1])),
]  # fmt: skip

ALLOWED: list[Object] = [
    {},
    pod(),
    {"server": {"env": [{"name": "A", "value": "1"}, {"name": "B"}], "args": ["--x"], "image": "i:2"}},
    {"server": {"env": [env({"fieldRef": {"fieldPath": "status.podIP"}}),
                        env({"resourceFieldRef": {"resource": "limits.cpu"}})]}},
    pod(nodeSelector={"nvidia.com/gpu.product": "NVIDIA-L4"}),
    pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
    pod(topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]),
    {**pod(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]), "server": GPU},
    pod(tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 5}]),
    pod(volumes=[EMPTY, {"name": "cache", "emptyDir": {"medium": "Memory"}}],
        containers=[{"name": "triton", "volumeMounts": [MOUNT, {"name": "tmp", "mountPath": "/home"}],
                     "env": [{"name": "A", "value": "1"}], "command": ["/start"], "args": ["x"], "workingDir": "/"}]),
    {"podTemplate": {"metadata": {"annotations": {"team": "vision", "kubectl.kubernetes.io/restartedAt": "now"}}}},
    {"modelImage": {"reference": "r:1", "pullSecrets": [{"name": "registry"}]}},
]  # fmt: skip


def name_of(value: object) -> str:
    return str(value)[:90] if isinstance(value, dict) else ""


def test_refuses_each_field_of_the_table_only_to_users_who_may_not_create_pods(team: Team) -> None:
    developer, podmaker = team.api("developer"), team.api("podmaker")
    for number, (spec, words) in enumerate(REFUSED):
        obj = tritonmodel(f"refused-{number}", **spec)
        message = refusal(lambda o=obj: dry_run(developer, o))
        assert message.startswith("403"), (spec, message)
        assert "developer may not create pods in " + team.namespace in message, (spec, message)
        assert words in message, (spec, message)
        assert "remove it, or get a role with the verb create on pods" in message
        assert not refusal(lambda o=obj: dry_run(podmaker, o)), spec


def test_rejects_values_of_the_wrong_type_for_every_user(team: Team) -> None:
    for number, spec in enumerate(MALFORMED):
        for user in ("developer", "podmaker"):
            message = refusal(lambda u=user, n=number, s=spec: dry_run(team.api(u), tritonmodel(f"malformed-{n}", **s)))
            assert message.startswith("422"), (spec, message)
            assert "must be of type" in message, (spec, message)


def test_drops_fields_that_a_pod_template_cannot_have(team: Team) -> None:
    """kubectl rejects it, and other clients get a warning."""
    developer = team.api("developer")
    for spec in (pod(ephemeralContainers=[{"name": "e", "image": "i"}]), pod(volumes=[{"name": "a", "yetToCome": {}}])):
        obj = tritonmodel("dropped", **spec)
        answer = developer.request("POST", f"{developer.path('TritonModel')}?dryRun=All", obj)
        assert "yetToCome" not in str(answer["spec"])
        assert "ephemeralContainers" not in str(answer["spec"])
        strict = f"{developer.path('TritonModel')}?dryRun=All&fieldValidation=Strict"
        assert "unknown field" in refusal(lambda p=strict, o=obj, d=developer: d.request("POST", p, o))


def test_allows_ordinary_fields_to_every_developer(team: Team) -> None:
    developer = team.api("developer")
    for number, spec in enumerate(ALLOWED):
        message = refusal(lambda n=number, s=spec: dry_run(developer, tritonmodel(f"allowed-{n}", **s)))
        assert not message, (spec, message)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda p: p.stem)
def test_a_developer_can_create_every_sample(team: Team, sample: Path) -> None:
    for document in yaml.safe_load_all(sample.read_text()):
        if document and document["kind"] == "TritonModel":
            document["metadata"] = {"name": document["metadata"]["name"], "namespace": team.namespace}
            needs = {"networkPolicy": "netadmin", "route": "routeadmin"}
            user = next((user for field, user in needs.items() if field in document["spec"]), "developer")
            assert not refusal(lambda d=document, u=user: dry_run(team.api(u), d))


def test_message_lists_all_faults(team: Team) -> None:
    spec = {**pod(hostNetwork=True, volumes=[HOST]), "server": {"env": [env(SECRET)]}}
    message = refusal(lambda: dry_run(team.api("developer"), tritonmodel("all", **spec)))
    for words in ("hostNetwork", "the volume data", "the variable TOKEN"):
        assert words in message


PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PRIVILEGED: Object = {
    "server": {"env": [env(SECRET)], **GPU},
    "podTemplate": {
        "omit": ["spec.securityContext.fsGroup"],
        "metadata": {"labels": {"app": "payments"}, "annotations": {"example.com/a": "b"}},
        "spec": {
            "hostNetwork": True,
            "tolerations": [{"key": "team-b"}, {"key": "nvidia.com/gpu"}],
            "affinity": {"podAntiAffinity": {PREFERRED: []}},
            "volumes": [HOST],
            "containers": [
                {"name": "triton", "volumeMounts": [{**MOUNT, "readOnly": True}], "securityContext": {"runAsUser": 0}},
                {"name": "sidecar", "image": "i", "env": [{"name": "OTHER", "valueFrom": SECRET}]},
            ],
        },
    },
}
"""A spec by a user who may create pods."""


def test_existing_privileged_fields_do_not_block_other_changes(team: Team) -> None:
    team.api("podmaker").create(tritonmodel("detector", **PRIVILEGED))
    developer = team.api("developer")
    developer.patch("TritonModel", "detector", {"spec": {"modelImage": {"reference": "r:2"}, "replicas": 2}})
    developer.patch("TritonModel", "detector", {"metadata": {"labels": {"a": "b"}}})
    team.api("oncall").patch("TritonModel", "detector", {"metadata": {"annotations": {"max_qps": "80"}}})
    team.api().patch("TritonModel", "detector", {"status": {"selector": "a=b"}}, subresource="status")
    developer.patch("TritonModel", "detector", {"spec": {"replicas": 3}}, subresource="scale")
    # Additions are checked, and can be removed.
    ordinary = {"spec": {"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}}
    developer.patch("TritonModel", "detector", ordinary)
    triton = {"name": "triton", "volumeMounts": [{**MOUNT, "readOnly": True}], "securityContext": {"runAsUser": 0},
              "args": ["--more"]}  # fmt: skip
    sidecar = PRIVILEGED["podTemplate"]["spec"]["containers"][1]
    template = {"podTemplate": {"spec": {"containers": [triton, sidecar]}}}
    developer.patch("TritonModel", "detector", {"spec": template})
    developer.patch("TritonModel", "detector", {"spec": {"podTemplate": {"spec": {"hostNetwork": None}}}})
    developer.patch("TritonModel", "detector", {"spec": {"server": {"env": []}, "podTemplate": None}})
    spec = developer.get("TritonModel", "detector")["spec"]
    assert "env" not in spec["server"] or not spec["server"]["env"]
    assert not spec.get("podTemplate", {}).get("spec")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (pod(hostPID=True), "spec.podTemplate.spec.hostPID"),
        (pod(volumes=[{"name": "data", "hostPath": {"path": "/etc"}}]), "the volume data"),
        (pod(tolerations=[{"key": "team-b", "effect": "NoExecute"}]), "the toleration of team-b"),
        # Without the accelerator, its toleration is refused.
        ({"server": {"resources": {"limits": None}}}, "the toleration of nvidia.com/gpu"),
        (pod(affinity={"podAntiAffinity": {PREFERRED: [{"weight": 1}]}}), "affinity.podAntiAffinity"),
        (server(securityContext={"runAsUser": 1, "privileged": True}), "containers[triton].securityContext"),
        # A mount without its former readOnly, and parts of the sidecar.
        (server(volumeMounts=[MOUNT]), "a mount of the volume data"),
        (server(env=[{"name": "OTHER", "valueFrom": SECRET}]), "the variable OTHER"),
        (pod(containers=[{"name": "sidecar", "image": "mine"}]), "the additional container sidecar"),
        ({"server": {"env": [{"name": "ANOTHER", "valueFrom": SECRET}]}}, "the variable ANOTHER"),
        ({"podTemplate": {"metadata": {"labels": {"app": "other"}}}}, "labels app"),
        (
            {"podTemplate": {"omit": ["spec.securityContext.fsGroup", "spec.securityContext.runAsNonRoot"]}},
            "may not use spec.podTemplate.omit spec.securityContext.runAsNonRoot: remove",
        ),
        ({"podTemplate": {"metadata": {"annotations": {"example.com/a": "c"}}}}, "annotations example.com/a"),
    ],
    ids=name_of,
)
def test_refuses_additions_to_existing_privileged_fields(team: Team, change: Object, words: str) -> None:
    team.api("podmaker").create(tritonmodel("detector", **PRIVILEGED))
    message = refusal(lambda: team.api("developer").patch("TritonModel", "detector", {"spec": change}))
    assert words in message, message
    assert not refusal(lambda: team.api("podmaker").patch("TritonModel", "detector", {"spec": change}))


@pytest.mark.parametrize(
    ("shadowed", "revealed", "words"),
    [
        (pod(containers=[{"name": "triton", "securityContext": {"privileged": True}}, {"name": "triton"}]),
         server(securityContext={"privileged": True}), "containers[triton].securityContext"),
        (pod(volumes=[HOST, EMPTY]), pod(volumes=[HOST]), "the volume data"),
        (server(env=[env(SECRET), {"name": "TOKEN", "value": "x"}]), server(env=[env(SECRET)]), "the variable TOKEN"),
    ],
    ids=["container", "volume", "variable"],
)  # fmt: skip
def test_ignores_existing_items_without_effect(team: Team, shadowed: Object, revealed: Object, words: str) -> None:
    """Of several items with one name only the last has an effect. Without it, the others would."""
    team.api("podmaker").create(tritonmodel("detector", **shadowed))
    developer = team.api("developer")
    assert words in refusal(lambda: developer.patch("TritonModel", "detector", {"spec": revealed}))
    developer.patch("TritonModel", "detector", {"spec": {"replicas": 3}})


def test_applies_to_every_kind_of_write(team: Team) -> None:
    developer = team.api("developer")
    bad = tritonmodel("detector", **pod(hostNetwork=True))
    assert "hostNetwork" in refusal(lambda: developer.apply(bad))
    assert "hostNetwork" in refusal(lambda: developer.create({**bad, "metadata": {"generateName": "made-"}}))
    developer.create(tritonmodel("detector"))
    assert "hostNetwork" in refusal(lambda: developer.apply(bad))
    obj = developer.get("TritonModel", "detector")
    obj["spec"]["podTemplate"] = bad["spec"]["podTemplate"]
    assert "hostNetwork" in refusal(lambda: developer.request("PUT", developer.path("TritonModel", "detector"), obj))
    patch = [{"op": "add", "path": "/spec/podTemplate", "value": bad["spec"]["podTemplate"]}]
    path, kind = developer.path("TritonModel", "detector"), "application/json-patch+json"
    assert "hostNetwork" in refusal(lambda: developer.request("PATCH", path, patch, kind))


def test_network_policy_needs_the_permission_to_create_network_policies(team: Team) -> None:
    developer, admin = team.api("developer"), team.api("netadmin")
    open_to_all = {"networkPolicy": {"clients": [{"namespaceSelector": {}}], "egress": [{}]}}
    for spec in ({"networkPolicy": {}}, open_to_all):
        message = refusal(lambda s=spec: dry_run(developer, tritonmodel("detector", **s)))
        assert "developer may not create networkpolicies in" in message
        assert "get a role with the verb create on networkpolicies" in message
    admin.create(tritonmodel("detector", networkPolicy={}))
    developer.patch("TritonModel", "detector", {"spec": {"replicas": 2}})
    for change in ({"networkPolicy": None}, {"networkPolicy": {"egress": [{}]}}):
        assert "networkpolicies" in refusal(lambda c=change: developer.patch("TritonModel", "detector", {"spec": c}))
    admin.patch("TritonModel", "detector", {"spec": open_to_all})
    admin.patch("TritonModel", "detector", {"spec": {"networkPolicy": None}})
    developer.patch("TritonModel", "detector", {"spec": {"replicas": 3}})


def test_a_route_needs_the_permission_to_create_http_routes(team: Team) -> None:
    developer, admin = team.api("developer"), team.api("routeadmin")
    route = {"gateway": {"name": "models", "namespace": "gateways"}, "hostnames": ["bank.example.com"]}
    message = refusal(lambda: dry_run(developer, tritonmodel("detector", route=route)))
    assert "developer may not create httproutes in" in message
    assert "get a role with the verb create on httproutes" in message
    developer.create(tritonmodel("detector"))
    change = {"spec": {"route": route}}
    assert "httproutes" in refusal(lambda: developer.patch("TritonModel", "detector", change))
    admin.patch("TritonModel", "detector", change)
    developer.patch("TritonModel", "detector", {"spec": {"replicas": 2}})
    other = {"spec": {"route": {"hostnames": ["other.example.com"]}}}
    assert "httproutes" in refusal(lambda: developer.patch("TritonModel", "detector", other))
    # It gives up what it had.
    developer.patch("TritonModel", "detector", {"spec": {"route": None}})


def test_a_deletion_cannot_bypass_the_network_policy(team: Team) -> None:
    """The user could create the TritonModel again without the field."""
    developer, admin = team.api("developer"), team.api("netadmin")
    admin.create(tritonmodel("detector", networkPolicy={}))
    developer.create(tritonmodel("open"))
    path = developer.path("TritonModel", "detector")
    for way in (
        lambda: developer.request("DELETE", path),
        lambda: developer.request("DELETE", path, {"propagationPolicy": "Orphan"}),
        lambda: developer.request("DELETE", developer.path("TritonModel")),
    ):
        message = refusal(way)
        assert ", so may not delete a TritonModel that has spec.networkPolicy" in message, message
        assert "get a role with the verb create on networkpolicies" in message
    assert developer.find("TritonModel", "detector")
    developer.delete("TritonModel", "open")
    admin.delete("TritonModel", "detector")
    assert not admin.find("TritonModel", "detector")


NOBODY = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "00000000-0000-0000-0000-000000000000"}
OWNED = {"metadata": {"ownerReferences": [NOBODY]}}
UNOWNED = {"metadata": {"ownerReferences": None}}


def test_an_owner_cannot_bypass_the_network_policy(team: Team) -> None:
    """The garbage collector deletes an object whose owner doesn't exist."""
    developer, admin = team.api("developer"), team.api("netadmin")
    admin.create(tritonmodel("detector", networkPolicy={}))
    developer.create(tritonmodel("open"))
    message = refusal(lambda: developer.patch("TritonModel", "detector", OWNED))
    assert ", so may not set the owners of one that has spec.networkPolicy: leave it unchanged" in message
    developer.patch("TritonModel", "detector", {"metadata": {"labels": {"a": "b"}}})
    developer.patch("TritonModel", "open", OWNED)
    admin.patch("TritonModel", "detector", OWNED)
    developer.patch("TritonModel", "detector", {"metadata": {"labels": {"a": "c"}}})
    developer.patch("TritonModel", "detector", UNOWNED)


def test_an_owner_cannot_bypass_the_deletion_of_thresholds(team: Team) -> None:
    """An administrator may refuse that deletion, as docs/security.md shows."""
    developer, admin = team.api("developer"), team.api()
    admin.create(tritonmodel("detector", {MAX_QPS: "80"}))
    path = f"{ADMISSION}/validatingadmissionpolicybindings/threshold-deletion.tritonoperator.io"

    def bind_with(*actions: str) -> None:
        admin.request("PATCH", path, {"spec": {"validationActions": actions}}, "application/merge-patch+json")

    before = admin.request("GET", path)["spec"]["validationActions"]
    bind_with("Deny", "Audit")
    try:
        dry = developer.path("TritonModel", "detector") + "?dryRun=All"
        eventually(lambda: "thresholds" in refusal(lambda: developer.request("DELETE", dry)), 60, "Deny")
        message = refusal(lambda: developer.patch("TritonModel", "detector", OWNED))
        assert "the deletion of detector with its owners also deletes its thresholds" in message, message
        developer.patch("TritonModel", "detector", {"metadata": {"labels": {"a": "b"}}})
        developer.create(tritonmodel("other"))
        developer.patch("TritonModel", "other", OWNED)
    finally:
        bind_with(*before)


@pytest.mark.parametrize("blocking", [0, "0%", "000%"])
def test_blocking_drains_needs_the_permission_to_create_disruption_budgets(team: Team, blocking: int | str) -> None:
    developer, admin = team.api("developer"), team.api("budgetadmin")
    spec: Object = {"disruption": {"maxUnavailable": blocking}}
    message = refusal(lambda: dry_run(developer, tritonmodel("detector", replicas=2, **spec)))
    assert "developer may not create poddisruptionbudgets in" in message
    assert "spec.disruption.maxUnavailable to 0, which blocks the drain of nodes: set 1 or more" in message
    assert not refusal(lambda: dry_run(admin, tritonmodel("detector", replicas=2, **spec)))
    developer.create(tritonmodel("detector", replicas=2, disruption={"maxUnavailable": "1%"}))
    assert "maxUnavailable" in refusal(lambda: developer.patch("TritonModel", "detector", {"spec": spec}))
    # The value that an administrator set doesn't block other changes.
    admin.patch("TritonModel", "detector", {"spec": spec})
    developer.patch("TritonModel", "detector", {"spec": {"replicas": 3}})
    developer.patch("TritonModel", "detector", {"spec": {"disruption": None}})


LABEL: Object = {"labels": {"app": "payments"}}
IDENTITY: Object = {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/admin"}}
COMMON_METADATA: list[tuple[Object, str]] = [
    (LABEL, "spec.commonMetadata.labels app"),
    (IDENTITY, "spec.commonMetadata.annotations eks.amazonaws.com/role-arn"),
    ({"annotations": {"iam.gke.io/gcp-service-account": "a@b.iam.gserviceaccount.com"}}, "iam.gke.io/gcp-service-acc"),
    ({"annotations": {"external-dns.alpha.kubernetes.io/hostname": "bank.example.com"}}, "external-dns.alpha.kubernet"),
    ({"annotations": {"team": "vision"}}, "spec.commonMetadata.annotations team"),
    ({**LABEL, **IDENTITY}, "labels app, spec.commonMetadata.annotations eks.amazonaws.com/role-arn"),
]


@pytest.mark.parametrize(("common", "words"), COMMON_METADATA, ids=name_of)
def test_common_metadata_needs_the_permission_to_create_the_objects(team: Team, common: Object, words: str) -> None:
    obj = tritonmodel("detector", commonMetadata=common)
    for user in ("developer", "podmaker"):
        message = refusal(lambda u=user: dry_run(team.api(u), obj))
        assert message.startswith("403"), message
        assert f"{user} may not create all of pods, services and serviceaccounts in {team.namespace}, so" in message
        assert words in message, message
        assert "remove it, or get a role with the verb create on these three" in message
    assert not refusal(lambda: dry_run(team.api("childmaker"), obj))


@pytest.mark.parametrize("missing", ["pods", "services", "serviceaccounts"])
def test_common_metadata_needs_each_of_the_three_permissions(team: Team, missing: str) -> None:
    plane, role = team.plane, f"{team.namespace}-two"
    others = sorted({"pods", "services", "serviceaccounts"} - {missing})
    rules = [{"verbs": ["create"], "apiGroups": [""], "resources": others}]
    plane.api.create({"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": rules})
    bind(plane, team.namespace, "developer", "ClusterRole", role)

    def allowed(plural: str) -> bool:
        attributes = {"namespace": team.namespace, "verb": "create", "resource": plural}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                  "spec": {"user": "developer", "resourceAttributes": attributes}}  # fmt: skip
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(plane.api.request("POST", path, review)["status"]["allowed"])

    eventually(lambda: all(map(allowed, others)), 60, "the roles in effect")
    for common in (LABEL, IDENTITY):
        message = refusal(lambda c=common: dry_run(team.api("developer"), tritonmodel("detector", commonMetadata=c)))
        assert "developer may not create all of pods, services and serviceaccounts" in message, message


def test_existing_common_metadata_does_not_block_other_changes(team: Team) -> None:
    team.api("childmaker").create(tritonmodel("detector", commonMetadata={**LABEL, **IDENTITY}))
    developer = team.api("developer")

    def change(**fields: Any) -> str:
        return refusal(lambda: developer.patch("TritonModel", "detector", {"spec": {"commonMetadata": fields}}))

    developer.patch("TritonModel", "detector", {"spec": {"replicas": 2}})
    developer.patch("TritonModel", "detector", {"spec": {"replicas": 3}}, subresource="scale")
    assert "labels app, which every object" in change(labels={"app": "other"})
    assert "may not use spec.commonMetadata.labels more, which" in change(labels={"more": ""})
    assert "annotations eks.amazonaws.com/role-arn" in change(annotations={"eks.amazonaws.com/role-arn": "other"})
    # A label's name and value as an annotation, and the other way round.
    assert "annotations app" in change(annotations={"app": "payments"})
    # Everyone may remove it, and then not restore it.
    assert not change(annotations=None)
    assert "annotations eks.amazonaws.com/role-arn" in change(**IDENTITY)
    developer.patch("TritonModel", "detector", {"spec": {"commonMetadata": None}})
    assert "labels app" in change(**LABEL)


def test_a_developer_may_move_no_label_of_the_pods_to_all_objects(team: Team) -> None:
    metadata = {**LABEL, "annotations": {"example.com/a": "b"}}
    team.api("podmaker").create(tritonmodel("detector", podTemplate={"metadata": metadata}))
    message = refusal(
        lambda: team.api("developer").patch(
            "TritonModel", "detector", {"spec": {"podTemplate": None, "commonMetadata": metadata}}
        )
    )
    assert "spec.commonMetadata.labels app, spec.commonMetadata.annotations example.com/a" in message, message


def test_rejects_larger_values_than_a_pod_can_use_for_everyone(team: Team) -> None:
    names = [f"v{n}" for n in range(2000)]
    volumes = [*({"name": name, "emptyDir": {}} for name in names), HOST]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in names]
    variables = [{"name": name, "value": "x"} for name in names]
    for spec, field, most in (
        (pod(volumes=volumes, containers=[{"name": "triton", "volumeMounts": [MOUNT]}]), "volumes", 64),
        (server(volumeMounts=mounts), "containers[0].volumeMounts", 64),
        (server(env=variables), "containers[0].env", 128),
        (pod(containers=[{"name": "triton"}] * 20), "containers", 16),
    ):
        for user in ("developer", "podmaker"):
            message = refusal(lambda u=user, s=spec: dry_run(team.api(u), tritonmodel("many", **s)))
            assert f"spec.podTemplate.spec.{field}: Too many: " in message, message
            assert f"must have at most {most} items" in message, message


@pytest.mark.parametrize("amount", ["1e99999999", "1e-99999999", "1e100"])
def test_rejects_exponents_that_cost_the_api_server_minutes(team: Team, amount: str) -> None:
    """Without the bound the API server doesn't answer within its own time limit: it writes out all digits."""
    both = {"limits": {"example.com/a": amount}, "requests": {"example.com/a": amount}}
    for spec, field in (
        ({"server": {"resources": both}}, "spec.server.resources.limits.example.com/a"),
        (server(resources=both), "spec.podTemplate.spec.containers[0].resources.limits.example.com/a"),
        (pod(volumes=[{"name": "v", "emptyDir": {"sizeLimit": amount}}]), "emptyDir.sizeLimit"),
    ):
        message = refusal(lambda s=spec: dry_run(team.api("podmaker"), tritonmodel("dear", **s)))
        assert field in message, message
        assert "should match" in message, message


def test_checks_the_largest_template_that_the_schema_allows(team: Team) -> None:
    """The policy stays within the API server's cost limit and still refuses every fault."""
    names = [f"v{n}" for n in range(64)]
    variables = [{"name": f"{name}-{n}", "value": "x"} for name in names for n in range(2)]
    for number in (1, 16):
        spec = pod(
            volumes=[{"name": name, "emptyDir": {}} for name in names],
            containers=[{"name": "triton", "env": variables, "volumeMounts": [MOUNT] * 64}] * number,
        )
        obj = tritonmodel("many", **spec)
        message = refusal(lambda o=obj: dry_run(team.api("developer"), o))
        assert "may not use several containers" in message if number > 1 else "the verb create on pods" in message
        assert not refusal(lambda o=obj: dry_run(team.api("podmaker"), o))


def test_security_page_has_the_allow_list() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    for word in (*allowed.FIELDS, *allowed.CONTAINER, *allowed.VALUE_FROM, *allowed.ANNOTATIONS):
        assert f"`{word}`" in page, word
