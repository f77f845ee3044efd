"""Who may set a threshold, and who anything else."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable

import pytest

from support import controlplane
from support.api import eventually
from support.people import Team, bind, dry_run, refusal, tritonmodel
from support.thresholds import MAX_QPS, PREFIX, annotate, current, spelled
from triton_operator.api import names

pytestmark = pytest.mark.integration
_numbers = itertools.count(1)


def test_a_developer_creates_and_changes_anything_but_thresholds(world: Team) -> None:
    developer, name = world.api("developer"), "detector"
    said = refusal(lambda: developer.create(tritonmodel(name, {MAX_QPS: "80"})))
    assert said.startswith("403")
    assert "developer may not set thresholds (tritonoperator.io/max-qps: none → 80)" in said
    developer.create(tritonmodel(name, {"example.com/note": "mine"}))
    developer.patch("TritonModel", name, {"spec": {"server": {"image": "triton:2"}, "replicas": 1}})
    developer.patch("TritonModel", name, {"spec": {"replicas": 2}}, subresource="scale")
    metadata = {"labels": {"a": "b"}, "annotations": {"example.com/note": None}, "finalizers": ["example.com/wait"]}
    developer.patch("TritonModel", name, {"metadata": metadata})
    developer.patch("TritonModel", name, {"metadata": {"finalizers": None}})
    developer.delete("TritonModel", name)
    assert not world.api().find("TritonModel", name)


@pytest.mark.parametrize("key", [MAX_QPS, "max_qps", f"{MAX_QPS}.v2", f"{PREFIX}max-qps-per-replica",
                                 f"{PREFIX}ensemble-coefficient", f"{PREFIX}spike-factor"])  # fmt: skip
def test_a_developer_cannot_set_a_threshold_in_any_way(world: Team, key: str) -> None:
    developer, name = world.api("developer"), "detector"
    world.api().create(tritonmodel(name, {key: "80"}))

    def patched(value: str | None) -> Callable[[], object]:
        return lambda: developer.patch("TritonModel", name, {"metadata": {"annotations": {key: value}}})

    def replaced(annotations: dict[str, str]) -> Callable[[], object]:
        obj = developer.get("TritonModel", name)
        obj["metadata"]["annotations"] = annotations
        return lambda: developer.request("PUT", developer.path("TritonModel", name), obj)

    def applied(annotations: dict[str, str]) -> Callable[[], object]:
        return lambda: developer.apply(tritonmodel(name, annotations), "developer")

    path = "/metadata/annotations/" + key.replace("~", "~0").replace("/", "~1")
    ways: list[Callable[[], object]] = [
        patched("81"),
        patched(None),
        lambda: developer.patch("TritonModel", name, {"metadata": {"annotations": None}}),
        replaced({key: "81"}),
        replaced({}),
        applied({key: "81"}),
        lambda: developer.request(
            "PATCH", developer.path("TritonModel", name), [{"op": "remove", "path": path}],
            "application/json-patch+json",
        ),
        lambda: developer.create(tritonmodel("another", {key: "80"})),
        lambda: developer.apply(tritonmodel("another", {key: "80"}), "developer"),
        lambda: developer.create({**tritonmodel("", {key: "80"}), "metadata": {
            "generateName": "made-", "annotations": {key: "80"}}}),
    ]  # fmt: skip
    for number, way in enumerate(ways):
        said = refusal(way)
        assert "developer may not set thresholds" in said, (number, said)
    assert current(world, name) == {key: "80"}
    # To delete it and make it anew with another value is no way round it.
    developer.delete("TritonModel", name)
    assert "may not set thresholds" in refusal(lambda: developer.create(tritonmodel(name, {key: "81"})))


def test_who_deletes_thresholds_and_cannot_set_them_again_is_warned(world: Team) -> None:
    for user, warned in (("developer", True), ("", False)):
        world.api().create(tritonmodel("detector", {MAX_QPS: "80"}))
        done = world.kubectl(user, "delete", "tm", "detector")
        assert done.returncode == 0, done.stderr
        assert ("detector has thresholds (tritonoperator.io/max-qps=80) that go with it" in done.stderr) is warned


def test_an_unchanged_threshold_in_what_a_developer_writes_is_no_change(world: Team) -> None:
    developer = world.api("developer")
    world.api().create(tritonmodel("detector", {MAX_QPS: "80"}))
    obj = developer.get("TritonModel", "detector")
    obj["spec"]["replicas"] = 3
    developer.request("PUT", developer.path("TritonModel", "detector"), obj)
    developer.apply(tritonmodel("detector", {MAX_QPS: "80"}, replicas=4), "developer")
    assert current(world, "detector") == {MAX_QPS: "80"}


@pytest.mark.parametrize("flags", [[], ["--server-side"]], ids=["client", "server"])
def test_kubectl_apply_by_a_developer_leaves_the_oncalls_threshold_alone(world: Team, flags: list[str]) -> None:
    def manifest(**annotations: str) -> str:
        lines = "".join(f'    {k}: "{v}"\n' for k, v in spelled(annotations).items())
        return (
            f"apiVersion: {names.API_VERSION}\nkind: TritonModel\nmetadata:\n  name: detector\n"
            + (f"  annotations:\n{lines}" if lines else "")
            + f"spec:\n  modelImage:\n    reference: r:{next(_numbers)}\n"
        )

    def developer(text: str) -> subprocess.CompletedProcess[str]:
        return world.kubectl("developer", "apply", *flags, "-f", "-", stdin=text)

    assert developer(manifest()).returncode == 0
    done = world.kubectl("oncall", "annotate", "tm/detector", "max_qps=80", f"{PREFIX}spike-factor=4", "--overwrite")
    assert done.returncode == 0, done.stderr
    done = developer(manifest())
    assert done.returncode == 0, done.stderr
    assert current(world, "detector") == {"max_qps": "80", f"{PREFIX}spike-factor": "4"}
    done = developer(manifest(max_qps="90"))
    assert done.returncode == 1
    # Server-side apply meets kubectl annotate's ownership first.
    assert "may not set thresholds" in done.stderr or (flags and "conflict" in done.stderr)


def test_a_threshold_comes_out_of_a_manifest_as_the_page_on_security_says(world: Team) -> None:
    plain = f"apiVersion: {names.API_VERSION}\nkind: TritonModel\nmetadata:\n  name: detector\n"
    spec = "spec:\n  modelImage:\n    reference: r:1\n"
    world.kubectl("", "apply", "-f", "-", stdin=f'{plain}  annotations:\n    max_qps: "80"\n{spec}')
    without = plain + spec
    assert "max_qps: 80 → none" in world.kubectl("developer", "apply", "-f", "-", stdin=without).stderr
    forgotten = world.kubectl("developer", "apply", "set-last-applied", "-f", "-", stdin=without)
    assert forgotten.returncode == 0, forgotten.stderr
    assert world.kubectl("developer", "apply", "-f", "-", stdin=without).returncode == 0
    assert current(world, "detector") == {"max_qps": "80"}


def test_an_oncall_engineer_sets_thresholds_and_nothing_else(world: Team) -> None:
    oncall, name = world.api("oncall"), "detector"
    world.api("developer").create(tritonmodel(name, {"example.com/note": "mine"}))
    annotate(oncall, name, max_qps="80", spike_factor="4")
    annotate(oncall, name, max_qps="90", spike_factor=None, ensemble_coefficient="2")
    edit = {"KUBE_EDITOR": 'sed -i \'s/max_qps: "90"/max_qps: "95"/\''}
    assert world.kubectl("oncall", "edit", "tm", name, env=edit).returncode == 0
    assert world.kubectl("oncall", "annotate", "tm", name, f"{MAX_QPS}.v2=5").returncode == 0
    only = {"name": name, "annotations": {f"{PREFIX}max-qps-per-replica": "20"}}
    oncall.apply({"apiVersion": names.API_VERSION, "kind": "TritonModel", "metadata": only}, "oncall")
    expected = {"max_qps": "95", f"{PREFIX}ensemble-coefficient": "2", f"{MAX_QPS}.v2": "5",
                f"{PREFIX}max-qps-per-replica": "20"}  # fmt: skip
    assert current(world, name) == expected

    last_applied = "kubectl.kubernetes.io/last-applied-configuration"
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}
    for change, part in (
        ({"spec": {"replicas": 5}}, "spec"),
        ({"spec": {"server": {"image": "triton:2"}}, "metadata": {"annotations": {"max_qps": "91"}}}, "spec"),
        ({"metadata": {"labels": {"a": "b"}}}, "labels"),
        ({"metadata": {"annotations": {"example.com/note": "yours"}}}, "the annotation example.com/note"),
        ({"metadata": {"annotations": {last_applied: "{}"}}}, f"the annotation {last_applied}"),
        ({"metadata": {"finalizers": ["example.com/wait"]}}, "finalizers"),
        ({"metadata": {"ownerReferences": [owner]}}, "ownerReferences"),
    ):  # fmt: skip
        said = refusal(lambda c=change: oncall.patch("TritonModel", name, c))
        assert f"oncall may set thresholds only, and not change {part}: that needs the verb update" in said, said
    for way in (
        lambda: oncall.create(tritonmodel("another")),
        lambda: oncall.apply(tritonmodel("another", {MAX_QPS: "1"})),
        lambda: oncall.request("DELETE", oncall.path("TritonModel", name)),
        lambda: oncall.patch("TritonModel", name, {"spec": {"replicas": 5}}, subresource="scale"),
        lambda: oncall.patch("TritonModel", name, {"status": {"selector": "a"}}, subresource="status"),
    ):
        assert refusal(way).startswith("403"), "RBAC alone"
    assert current(world, name) == expected


def test_a_role_can_give_the_thresholds_of_one_tritonmodel(world: Team) -> None:
    group = "rbac.authorization.k8s.io"
    verbs = ["get", "patch", "setthresholds"]
    rule = {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": verbs, "resourceNames": ["detector"]}
    create = {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": ["create", "patch", "update", "get"]}
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "one"}, "rules": [rule, create]}
    world.api().request("POST", f"/apis/{group}/v1/namespaces/{world.namespace}/roles", role)
    bind(world.plane, world.namespace, "one-model", "Role", "one")
    one = world.api("one-model")
    eventually(lambda: not refusal(lambda: dry_run(one, tritonmodel("detector"))), 10, "the role in force")
    one.create(tritonmodel("detector", {MAX_QPS: "80"}))
    one.create(tritonmodel("other"))
    annotate(one, "detector", max_qps="80")
    assert "may not set thresholds" in refusal(lambda: annotate(one, "other", max_qps="80"))
    nameless = {**tritonmodel(""), "metadata": {"generateName": "detector", "annotations": {MAX_QPS: "80"}}}
    assert "may not set thresholds" in refusal(lambda: one.create(nameless))


def test_a_viewer_only_reads(world: Team) -> None:
    world.api().create(tritonmodel("detector"))
    viewer = world.api("viewer")
    assert viewer.get("TritonModel", "detector")
    assert refusal(lambda: annotate(viewer, "detector", max_qps="80")).startswith("403")


def test_an_admin_of_a_namespace_is_a_developer_and_not_oncall(world: Team) -> None:
    if not controlplane.has_controllers():
        pytest.skip("no controller that aggregates roles")
    admin = world.api("namespace-admin")

    def refused() -> str:
        return refusal(lambda: dry_run(admin, tritonmodel("a")))

    eventually(lambda: not refused(), 20, refused)
    admin.create(tritonmodel("detector"))
    assert "may not set thresholds" in refusal(lambda: annotate(admin, "detector", max_qps="80"))
    # Nor can they give it to themselves.
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}/rolebindings"
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
