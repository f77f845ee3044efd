"""The roles: who may set thresholds, and who may change everything else."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable

import pytest
import yaml

from support import controlplane
from support.api import Api, Object, eventually
from support.controlplane import ROOT
from support.people import Team, bind, dry_run, refusal, tritonmodel
from support.thresholds import MAX_QPS, PREFIX, annotate, current, spelled
from triton_operator.api import names

pytestmark = pytest.mark.integration
_numbers = itertools.count(1)


def test_developer_can_change_everything_except_thresholds(team: Team) -> None:
    developer, name = team.api("developer"), "detector"
    message = refusal(lambda: developer.create(tritonmodel(name, {MAX_QPS: "80"})))
    assert message.startswith("403")
    assert "developer may not set thresholds (tritonoperator.io/max-qps: none → 80)" in message
    developer.create(tritonmodel(name, {"example.com/note": "mine"}))
    developer.patch("TritonModel", name, {"spec": {"server": {"image": "triton:2"}, "replicas": 1}})
    developer.patch("TritonModel", name, {"spec": {"replicas": 2}}, subresource="scale")
    metadata = {"labels": {"a": "b"}, "annotations": {"example.com/note": None}, "finalizers": ["example.com/wait"]}
    developer.patch("TritonModel", name, {"metadata": metadata})
    developer.patch("TritonModel", name, {"metadata": {"finalizers": None}})
    developer.delete("TritonModel", name)
    assert not team.api().find("TritonModel", name)


def test_only_who_sets_thresholds_lets_the_gateway_enforce_them(team: Team) -> None:
    developer, oncall, name = team.api("developer"), team.api("oncall"), "detector"
    developer.create(tritonmodel(name))
    message = refusal(lambda: annotate(developer, name, enforce="true"))
    assert "developer may not set thresholds (tritonoperator.io/enforce: none → true)" in message
    annotate(oncall, name, enforce="true")
    assert refusal(lambda: annotate(developer, name, enforce=None)).startswith("403")


@pytest.mark.parametrize("key", [MAX_QPS, "max_qps", f"{MAX_QPS}.v2", f"{PREFIX}max-qps-per-replica",
                                 f"{PREFIX}max-streams-per-replica",
                                 f"{PREFIX}ensemble-coefficient", f"{PREFIX}token-coefficient",
                                 f"{PREFIX}spike-factor"])  # fmt: skip
def test_developer_cannot_set_a_threshold_by_any_kind_of_request(team: Team, key: str) -> None:
    developer, name = team.api("developer"), "detector"

    def model(name: str, annotations: dict[str, str]) -> Object:
        # Some thresholds need a series.
        monitoring = {"tokenCounter": "tokens_total", "streaming": {"running": "running"}}
        return tritonmodel(name, annotations, monitoring=monitoring)

    team.api().create(model(name, {key: "80"}))

    def patch(value: str | None) -> Callable[[], object]:
        return lambda: developer.patch("TritonModel", name, {"metadata": {"annotations": {key: value}}})

    def replace(annotations: dict[str, str]) -> Callable[[], object]:
        obj = developer.get("TritonModel", name)
        obj["metadata"]["annotations"] = annotations
        return lambda: developer.request("PUT", developer.path("TritonModel", name), obj)

    def apply(annotations: dict[str, str]) -> Callable[[], object]:
        return lambda: developer.apply(model(name, annotations), "developer")

    path = "/metadata/annotations/" + key.replace("~", "~0").replace("/", "~1")
    requests: list[Callable[[], object]] = [
        patch("81"),
        patch(None),
        lambda: developer.patch("TritonModel", name, {"metadata": {"annotations": None}}),
        replace({key: "81"}),
        replace({}),
        apply({key: "81"}),
        lambda: developer.request(
            "PATCH", developer.path("TritonModel", name), [{"op": "remove", "path": path}],
            "application/json-patch+json",
        ),
        lambda: developer.create(model("another", {key: "80"})),
        lambda: developer.apply(model("another", {key: "80"}), "developer"),
        lambda: developer.create({**model("", {key: "80"}), "metadata": {
            "generateName": "made-", "annotations": {key: "80"}}}),
    ]  # fmt: skip
    for number, send in enumerate(requests):
        message = refusal(send)
        assert "developer may not set thresholds" in message, (number, message)
    assert current(team, name) == {key: "80"}
    # A developer can't bypass this by deleting the TritonModel and creating it again.
    developer.delete("TritonModel", name)
    assert "may not set thresholds" in refusal(lambda: developer.create(model(name, {key: "81"})))


def test_warns_a_user_who_deletes_thresholds_and_may_not_set_them(team: Team) -> None:
    for user, warned in (("developer", True), ("", False)):
        team.api().create(tritonmodel("detector", {MAX_QPS: "80"}))
        result = team.kubectl(user, "delete", "tm", "detector")
        assert result.returncode == 0, result.stderr
        warning = "the deletion of detector also deletes its thresholds (tritonoperator.io/max-qps=80)"
        assert (warning in result.stderr) is warned


def test_developer_may_write_an_unchanged_threshold(team: Team) -> None:
    developer = team.api("developer")
    team.api().create(tritonmodel("detector", {MAX_QPS: "80"}))
    obj = developer.get("TritonModel", "detector")
    obj["spec"]["replicas"] = 3
    developer.request("PUT", developer.path("TritonModel", "detector"), obj)
    developer.apply(tritonmodel("detector", {MAX_QPS: "80"}, replicas=4), "developer")
    assert current(team, "detector") == {MAX_QPS: "80"}


@pytest.mark.parametrize("flags", [[], ["--server-side"]], ids=["client", "server"])
def test_kubectl_apply_by_a_developer_keeps_the_oncalls_thresholds(team: Team, flags: list[str]) -> None:
    def manifest(**annotations: str) -> str:
        lines = "".join(f'    {k}: "{v}"\n' for k, v in spelled(annotations).items())
        return (
            f"apiVersion: {names.API_VERSION}\nkind: TritonModel\nmetadata:\n  name: detector\n"
            + (f"  annotations:\n{lines}" if lines else "")
            + f"spec:\n  modelImage:\n    reference: r:{next(_numbers)}\n"
        )

    def developer(text: str) -> subprocess.CompletedProcess[str]:
        return team.kubectl("developer", "apply", *flags, "-f", "-", stdin=text)

    assert developer(manifest()).returncode == 0
    result = team.kubectl("oncall", "annotate", "tm/detector", "max_qps=80", f"{PREFIX}spike-factor=4", "--overwrite")
    assert result.returncode == 0, result.stderr
    result = developer(manifest())
    assert result.returncode == 0, result.stderr
    assert current(team, "detector") == {"max_qps": "80", f"{PREFIX}spike-factor": "4"}
    result = developer(manifest(max_qps="90"))
    assert result.returncode == 1
    # Server-side apply can fail earlier, on the conflict with the manager of kubectl annotate.
    assert "may not set thresholds" in result.stderr or (flags and "conflict" in result.stderr)


def test_removes_a_threshold_from_a_manifest_as_documented(team: Team) -> None:
    plain = f"apiVersion: {names.API_VERSION}\nkind: TritonModel\nmetadata:\n  name: detector\n"
    spec = "spec:\n  modelImage:\n    reference: r:1\n"
    team.kubectl("", "apply", "-f", "-", stdin=f'{plain}  annotations:\n    max_qps: "80"\n{spec}')
    without = plain + spec
    assert "max_qps: 80 → none" in team.kubectl("developer", "apply", "-f", "-", stdin=without).stderr
    forgotten = team.kubectl("developer", "apply", "set-last-applied", "-f", "-", stdin=without)
    assert forgotten.returncode == 0, forgotten.stderr
    assert team.kubectl("developer", "apply", "-f", "-", stdin=without).returncode == 0
    assert current(team, "detector") == {"max_qps": "80"}


def test_oncall_can_change_thresholds_only(team: Team) -> None:
    oncall, name = team.api("oncall"), "detector"
    team.api("developer").create(tritonmodel(name, {"example.com/note": "mine"}))
    annotate(oncall, name, max_qps="80", spike_factor="4")
    annotate(oncall, name, max_qps="90", spike_factor=None, ensemble_coefficient="2")
    edit = {"KUBE_EDITOR": 'sed -i \'s/max_qps: "90"/max_qps: "95"/\''}
    assert team.kubectl("oncall", "edit", "tm", name, env=edit).returncode == 0
    assert team.kubectl("oncall", "annotate", "tm", name, f"{MAX_QPS}.v2=5").returncode == 0
    only = {"name": name, "annotations": {f"{PREFIX}max-qps-per-replica": "20"}}
    oncall.apply({"apiVersion": names.API_VERSION, "kind": "TritonModel", "metadata": only}, "oncall")
    expected = {"max_qps": "95", f"{PREFIX}ensemble-coefficient": "2", f"{MAX_QPS}.v2": "5",
                f"{PREFIX}max-qps-per-replica": "20"}  # fmt: skip
    assert current(team, name) == expected

    last_applied = "kubectl.kubernetes.io/last-applied-configuration"
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}
    for change, part in (
        ({"spec": {"replicas": 5}}, "spec"),
        ({"spec": {"server": {"image": "triton:2"}}, "metadata": {"annotations": {"max_qps": "91"}}}, "spec"),
        ({"metadata": {"labels": {"a": "b"}}}, "labels"),
        ({"metadata": {"annotations": {"example.com/note": "yours"}}}, "the annotation example.com/note"),
        ({"metadata": {"annotations": {last_applied: "{}"}}}, f"the annotation {last_applied}"),
        ({"metadata": {"finalizers": ["example.com/wait"]}}, "finalizers"),
    ):  # fmt: skip
        message = refusal(lambda c=change: oncall.patch("TritonModel", name, c))
        assert f"oncall may set thresholds, but not change {part}: that needs the verb update" in message, message
    # Two policies refuse this.
    message = refusal(lambda: oncall.patch("TritonModel", name, {"metadata": {"ownerReferences": [reference]}}))
    assert "change ownerReferences" in message or "may not set its owners" in message, message
    for send in (
        lambda: oncall.create(tritonmodel("another")),
        lambda: oncall.apply(tritonmodel("another", {MAX_QPS: "1"})),
        lambda: oncall.request("DELETE", oncall.path("TritonModel", name)),
        lambda: oncall.patch("TritonModel", name, {"spec": {"replicas": 5}}, subresource="scale"),
        lambda: oncall.patch("TritonModel", name, {"status": {"selector": "a"}}, subresource="status"),
    ):
        assert refusal(send).startswith("403"), "RBAC must deny this without the policy"
    assert current(team, name) == expected


def test_role_can_allow_the_thresholds_of_one_tritonmodel(team: Team) -> None:
    group = "rbac.authorization.k8s.io"
    verbs = ["get", "patch", "setthresholds"]
    rule = {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": verbs, "resourceNames": ["detector"]}
    create = {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": ["create", "patch", "update", "get"]}
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "one"}, "rules": [rule, create]}
    team.api().request("POST", f"/apis/{group}/v1/namespaces/{team.namespace}/roles", role)
    bind(team.plane, team.namespace, "one-model", "Role", "one")
    api = team.api("one-model")
    eventually(lambda: not refusal(lambda: dry_run(api, tritonmodel("detector"))), 10, "the role in effect")
    api.create(tritonmodel("detector", {MAX_QPS: "80"}))
    api.create(tritonmodel("other"))
    annotate(api, "detector", max_qps="80")
    assert "may not set thresholds" in refusal(lambda: annotate(api, "other", max_qps="80"))
    nameless = {**tritonmodel(""), "metadata": {"generateName": "detector", "annotations": {MAX_QPS: "80"}}}
    assert "may not set thresholds" in refusal(lambda: api.create(nameless))


def test_setting_owners_needs_the_permission_to_delete(team: Team) -> None:
    """The garbage collector deletes an object when its owners are gone. The deployer of the example may not delete."""
    developer, deployer = team.api("developer"), team.api("model-deployer")
    _, role, _ = yaml.safe_load_all((ROOT / "examples/commit-to-live/deployer.yaml").read_text())
    group = "rbac.authorization.k8s.io"
    team.api().request("POST", f"/apis/{group}/v1/namespaces/{team.namespace}/roles", role)
    bind(team.plane, team.namespace, "model-deployer", "Role", "model-deployer")
    developer.create(tritonmodel("detector"))
    owners = [owner(team.api(), name) for name in ("one", "two")]
    eventually(lambda: not refusal(lambda: deployer.get("TritonModel", "detector")), 10, "the role in effect")

    def owned(*by: Object) -> Object:
        return {"metadata": {"ownerReferences": list(by)}}

    message = refusal(lambda: deployer.patch("TritonModel", "detector", owned(*owners)))
    assert "model-deployer may not delete the TritonModel detector, so may not set its owners" in message, message
    deployer.patch("TritonModel", "detector", {"metadata": {"labels": {"a": "b"}}})
    developer.patch("TritonModel", "detector", owned(*owners))
    # The owners that a developer set don't block other changes. The owner that remains decides, so removing one counts.
    deployer.patch("TritonModel", "detector", {"metadata": {"labels": {"a": "c"}}})
    assert "may not set its owners" in refusal(lambda: deployer.patch("TritonModel", "detector", owned(owners[0])))
    deployer.patch("TritonModel", "detector", owned())


def owner(api: Api, name: str) -> Object:
    """Creates an object and returns a reference to it."""
    obj = api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": obj["metadata"]["uid"]}


def test_viewer_can_only_read(team: Team) -> None:
    team.api().create(tritonmodel("detector"))
    viewer = team.api("viewer")
    assert viewer.get("TritonModel", "detector")
    assert refusal(lambda: annotate(viewer, "detector", max_qps="80")).startswith("403")


def test_namespace_admin_is_a_developer_and_not_oncall(team: Team) -> None:
    if not controlplane.has_controllers():
        pytest.skip("kube-controller-manager, which aggregates roles, is not installed")
    admin = team.api("namespace-admin")

    def refused() -> str:
        return refusal(lambda: dry_run(admin, tritonmodel("a")))

    eventually(lambda: not refused(), 20, refused)
    admin.create(tritonmodel("detector"))
    assert "may not set thresholds" in refusal(lambda: annotate(admin, "detector", max_qps="80"))
    # An admin can't grant the role to themselves.
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{team.namespace}/rolebindings"
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "myself"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "tritonmodel-oncall"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "namespace-admin"}],
    }
    assert "attempting to grant RBAC permissions not currently held" in refusal(
        lambda: admin.request("POST", path, binding)
    )
