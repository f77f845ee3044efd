"""Who may set a threshold, and who may touch what the operator makes: the shipped policies and roles on a real API
server, with people who have just these roles, and what its audit log holds afterwards."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import controlplane, gen, operator_process
from support.api import Api, Object, condition, eventually
from support.controlplane import AUDIT_POLICY, ROOT, ControlPlane
from support.people import Team, apply_folder, bind, dry_run, refusal
from triton_operator.api import names, thresholds

pytestmark = pytest.mark.integration

PREFIX = thresholds.PREFIX
MAX_QPS = f"{PREFIX}max-qps"
MANAGED = {names.LABEL_MANAGED_BY: names.FIELD_MANAGER, names.LABEL_INSTANCE: "detector"}
ROLES = {
    "developer": "tritonmodel-developer",
    "oncall": "tritonmodel-oncall",
    "viewer": "tritonmodel-viewer",
    "namespace-admin": "admin",  # Kubernetes' own
}
_numbers = itertools.count(1)


@dataclass(frozen=True)
class World(Team):
    """A control plane with the policies in force, and a namespace in which each user has the role of ROLES."""

    def kubectl(
        self, user: str, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        config = self.plane.kubeconfig_of_user(user) if user else self.plane.kubeconfig
        command = ["kubectl", f"--kubeconfig={config}", f"--namespace={self.namespace}", *arguments]
        everything = {**os.environ, **(env or {})}
        return subprocess.run(command, input=stdin, env=everything, capture_output=True, text=True, check=False)

    def audited(self, name: str) -> list[Object]:
        """The audit events about this TritonModel."""
        key = {"namespace": self.namespace, "name": name, "resource": names.PLURAL}
        return [e for e in self.plane.audit_events() if key.items() <= e["objectRef"].items()]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    users = [*ROLES, "one-model", "stranger"]
    with controlplane.running(controllers=controlplane.has_controllers(), audit=AUDIT_POLICY, users=users) as plane:
        plane.install_crds()
        plane.api.create(tritonmodel("stored-before", {MAX_QPS: "fast", f"{PREFIX}depth": "2"}))
        operator_process.install(plane)
        for folder in ("rbac", "policies"):
            apply_folder(plane, ROOT / "manifests" / folder)
        _wait_for_policies(plane)
        yield plane


@pytest.fixture
def world(plane: ControlPlane) -> World:
    namespace = f"team-{next(_numbers)}"
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    world = World(plane, namespace)
    for user, role in ROLES.items():
        bind(world.plane, world.namespace, user, "ClusterRole", role)
    eventually(lambda: _may_list(world, "viewer") and _may_list(world, "oncall"), 10, "the roles in force")
    return world


def _wait_for_policies(plane: ControlPlane) -> None:
    """Each policy comes into force by itself, a moment after it was made."""
    api, obj = plane.api, tritonmodel("probe", {MAX_QPS: "fast"})
    eventually(lambda: refusal(lambda: dry_run(api, obj)), 20, "policy threshold-values in force")
    # Someone who may write anything, but has none of the verbs of our own.
    group = "rbac.authorization.k8s.io"
    wide = {"verbs": ["create", "patch", "update", "delete"], "apiGroups": ["*"], "resources": ["*"]}
    role = {"apiVersion": f"{group}/v1", "metadata": {"name": "wide"}}
    api.create({**role, "kind": "ClusterRole", "rules": [wide]})
    subject = {"apiGroup": group, "kind": "User", "name": "stranger"}
    ref = {"apiGroup": group, "kind": "ClusterRole", "name": "wide"}
    api.create({**role, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": ref})
    stranger = Api.of(plane.kubeconfig_of_user("stranger"))
    for probe in (tritonmodel("probe", {MAX_QPS: "1"}), generated("ServiceAccount", "probe")):
        eventually(lambda p=probe: "Validating" in refusal(lambda: dry_run(stranger, p)), 20, "the policies in force")


def _may_list(world: World, user: str) -> bool:
    return not refusal(lambda: world.api(user).list("TritonModel"))


def tritonmodel(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    obj = gen.raw(**spec)
    obj["metadata"] = {"name": name, **({"annotations": annotations} if annotations else {})}
    return obj


def generated(kind: str, name: str, labels: dict[str, str] = MANAGED) -> Object:
    version = {"ServiceAccount": "v1", "Service": "v1", "Deployment": "apps/v1"}[kind]
    obj: Object = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}}
    if kind == "Service":
        obj["spec"] = {"ports": [{"port": 80}]}
    if kind == "Deployment":
        template = {"metadata": {"labels": {"a": name}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
        obj["spec"] = {"replicas": 0, "selector": {"matchLabels": {"a": name}}, "template": template}
    return obj


def annotate(api: Api, name: str, **annotations: str | None) -> Object:
    """max_qps="80" is the alias; the other kinds with their dashes as underscores."""
    return api.patch("TritonModel", name, {"metadata": {"annotations": spelled(annotations)}})


def spelled(annotations: dict[str, Any]) -> dict[str, Any]:
    return {k if k == "max_qps" else PREFIX + k.replace("_", "-"): v for k, v in annotations.items()}


def current(world: World, name: str) -> dict[str, str]:
    found: dict[str, str] = world.api().get("TritonModel", name)["metadata"].get("annotations", {})
    return {k: v for k, v in found.items() if thresholds.is_threshold(k)}


# Values: the policy and the operator's parser have one mind

NUMBERS = [
    "1", "80", "12.5", "0.5", "0.000001", "2.000000", "1000", "1000.000001", "1001", "999999999", "999999999.999999",
    "0", "0.0", "0.000000", "1000000000", "", " ", " 80", "80 ", "80\n", "\n80", "+5", "-1", "-0", "080", "00", "1.",
    ".5", "1.2345678", "1e3", "1E3", "0x10", "1_000", "1,5", "1,000", "80qps", "80/s", "5k", "inf", "Infinity", "nan",
    "NaN", "none", "true", "1.2.3", "٣", "８０", "²", "8" * 400, "80\x00",
]  # fmt: skip
KEYS = [
    *(PREFIX + k.name for k in thresholds.KINDS), "max_qps",
    *(f"{base}.{v}" for base in (MAX_QPS, "max_qps") for v in
      ("2", "v2", "v12", "999999999", "v0", "0", "02", "v02", "V2", "x", "latest", "vv2", "2v", "2.3", "v2.v3",
       "1234567890")),
    *(f"{PREFIX}{name}.v2" for name in ("max-qps-per-replica", "max-tps", "ensemble-coefficient", "spike-factor")),
]  # fmt: skip
PAIRS = [
    {MAX_QPS: "80", "max_qps": "80"}, {MAX_QPS: "80", "max_qps": "80.0"}, {MAX_QPS: "80", "max_qps": "80.000001"},
    {MAX_QPS: "80", "max_qps": "fast"}, {MAX_QPS: "999999999", "max_qps": "999999998.999999"},
    {f"{MAX_QPS}.v2": "80", f"{MAX_QPS}.2": "80.0"}, {f"{MAX_QPS}.v2": "80", f"{MAX_QPS}.2": "81"},
    {f"{MAX_QPS}.v2": "80", "max_qps.v2": "81"}, {f"{MAX_QPS}.2": "80", "max_qps.v2": "81"},
    {"max_qps.2": "80", "max_qps.v2": "81"}, {"max_qps.2": "80", "max_qps.v2": "80"},
    {MAX_QPS: "80", f"{MAX_QPS}.v2": "20", "max_qps.3": "30"}, {f"{MAX_QPS}.v2": "80", "max_qps.v22": "81"},
    {MAX_QPS: "80", "example.com/max-qps": "fast"}, {"example.com/note": "max_qps=fast"},
]  # fmt: skip


def same_mind(plane: ControlPlane, annotations: dict[str, str], counter: str = "") -> str:
    """Fails where only one of the two refuses; the policy's words, where both do."""
    monitoring: Object = {"monitoring": {"tokenCounter": counter}} if counter else {}
    said = refusal(lambda: dry_run(plane.api, tritonmodel("values", annotations, **monitoring)))
    wrong = thresholds.parse(annotations, counter).wrong
    assert bool(said) == bool(wrong), (annotations, said, wrong)
    assert not said or "threshold-values.tritonoperator.io" in said
    return said


@pytest.mark.parametrize("kind", thresholds.KINDS, ids=lambda k: k.name)
def test_the_policy_refuses_just_the_values_that_the_operator_cannot_read(
    plane: ControlPlane, kind: thresholds.Kind
) -> None:
    refused = [n for n in NUMBERS if same_mind(plane, {PREFIX + kind.name: n}, "tokens_total")]
    assert len(NUMBERS) - len(refused) >= 4
    assert len(refused) >= 35


@pytest.mark.parametrize("value", ["80", "fast", "0"])
def test_the_policy_refuses_just_the_keys_that_the_operator_cannot_read(plane: ControlPlane, value: str) -> None:
    for key, counter in itertools.product(KEYS, ("", "tokens_total")):
        same_mind(plane, {key: value}, counter)


def test_the_policy_refuses_just_the_pairs_that_differ(plane: ControlPlane) -> None:
    assert [bool(same_mind(plane, pair)) for pair in PAIRS].count(True) == 7


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({MAX_QPS: "80qps"}, "tritonoperator.io/max-qps: '80qps' is not a number such as 80 or 12.5, without a unit"),
        ({MAX_QPS: "80\n"}, "tritonoperator.io/max-qps: its value is not a number"),
        ({MAX_QPS: "0"}, "must be above 0 and at most 1000000000; to have none, remove the annotation"),
        ({f"{PREFIX}spike-factor": "1"}, "tritonoperator.io/spike-factor=1: must be above 1 and at most 1000"),
        ({f"{MAX_QPS}.x": "8"}, "tritonoperator.io/max-qps.x: x is not a model version such as 2 or v2"),
        ({f"{PREFIX}max-tps.v2": "8"}, "max-tps is for the whole model and takes no version; remove the .v2"),
        ({f"{PREFIX}max-tps": "8"}, "name the counter that Triton exposes in spec.monitoring.tokenCounter"),
        ({MAX_QPS: "8", "max_qps": "9"}, "differ: remove one"),
        # What would do nothing, in silence
        ({f"{PREFIX}max-qsp": "8"}, "tritonoperator.io/max-qsp is no threshold; there are tritonoperator.io/max-qps "),
        ({f"{PREFIX}max_qps": "8"}, "tritonoperator.io/max_qps is no threshold"),
        ({f"{PREFIX}max-tps-per-replica": "8"}, "is no threshold"),
        ({"max-qps": "8"}, "max-qps is no threshold; there are tritonoperator.io/max-qps (and max-qps.v2 for"),
        ({"spike_factor": "8"}, "spike_factor is no threshold"),
        # All at once
        ({MAX_QPS: "x", f"{PREFIX}spike-factor": "y"}, "spike-factor: 'y' is not a number"),
    ],
)  # fmt: skip
def test_a_refusal_says_which_annotation_and_what_to_do(
    plane: ControlPlane, annotations: dict[str, str], said: str
) -> None:
    assert said in refusal(lambda: dry_run(plane.api, tritonmodel("words", annotations)))


def test_a_wrong_value_from_before_the_policy_holds_nothing_up(plane: ControlPlane) -> None:
    api, name = plane.api, "stored-before"
    api.patch("TritonModel", name, {"spec": {"server": {"image": "triton:2"}}, "metadata": {"labels": {"a": "b"}}})
    api.patch("TritonModel", name, {"metadata": {"finalizers": ["example.com/wait"]}})
    api.patch("TritonModel", name, {"metadata": {"finalizers": None}})
    api.patch("TritonModel", name, {"status": {"selector": "a=b"}}, subresource="status")
    annotate(api, name, spike_factor="4")
    assert "'slow' is not a number" in refusal(lambda: annotate(api, name, max_qps="slow"))
    assert "'slower' is not a number" in refusal(
        lambda: api.patch("TritonModel", name, {"metadata": {"annotations": {MAX_QPS: "slower"}}})
    )
    api.patch("TritonModel", name, {"metadata": {"annotations": {MAX_QPS: "80", f"{PREFIX}depth": None}}})


def test_the_token_counter_stays_as_long_as_max_tps_does(world: World) -> None:
    api = world.api("developer")
    world.api().create(tritonmodel("llm", {f"{PREFIX}max-tps": "100"}, monitoring={"tokenCounter": "tokens_total"}))
    without: Object = {"spec": {"monitoring": {"tokenCounter": None}}}
    assert "remove that annotation first" in refusal(lambda: api.patch("TritonModel", "llm", without))
    annotate(world.api("oncall"), "llm", max_tps=None)
    api.patch("TritonModel", "llm", without)


# Who may


def test_a_developer_creates_and_changes_anything_but_thresholds(world: World) -> None:
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
def test_a_developer_cannot_set_a_threshold_in_any_way(world: World, key: str) -> None:
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


def test_who_deletes_thresholds_and_cannot_set_them_again_is_warned(world: World) -> None:
    for user, warned in (("developer", True), ("", False)):
        world.api().create(tritonmodel("detector", {MAX_QPS: "80"}))
        done = world.kubectl(user, "delete", "tm", "detector")
        assert done.returncode == 0, done.stderr
        assert ("detector has thresholds (tritonoperator.io/max-qps=80) that go with it" in done.stderr) is warned


def test_an_unchanged_threshold_in_what_a_developer_writes_is_no_change(world: World) -> None:
    developer = world.api("developer")
    world.api().create(tritonmodel("detector", {MAX_QPS: "80"}))
    obj = developer.get("TritonModel", "detector")
    obj["spec"]["replicas"] = 3
    developer.request("PUT", developer.path("TritonModel", "detector"), obj)
    developer.apply(tritonmodel("detector", {MAX_QPS: "80"}, replicas=4), "developer")
    assert current(world, "detector") == {MAX_QPS: "80"}


@pytest.mark.parametrize("flags", [[], ["--server-side"]], ids=["client", "server"])
def test_kubectl_apply_by_a_developer_leaves_the_oncalls_threshold_alone(world: World, flags: list[str]) -> None:
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


def test_a_threshold_comes_out_of_a_manifest_as_the_page_on_security_says(world: World) -> None:
    plain = f"apiVersion: {names.API_VERSION}\nkind: TritonModel\nmetadata:\n  name: detector\n"
    spec = "spec:\n  modelImage:\n    reference: r:1\n"
    world.kubectl("", "apply", "-f", "-", stdin=f'{plain}  annotations:\n    max_qps: "80"\n{spec}')
    without = plain + spec
    assert "max_qps: 80 → none" in world.kubectl("developer", "apply", "-f", "-", stdin=without).stderr
    forgotten = world.kubectl("developer", "apply", "set-last-applied", "-f", "-", stdin=without)
    assert forgotten.returncode == 0, forgotten.stderr
    assert world.kubectl("developer", "apply", "-f", "-", stdin=without).returncode == 0
    assert current(world, "detector") == {"max_qps": "80"}


def test_an_oncall_engineer_sets_thresholds_and_nothing_else(world: World) -> None:
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


def test_a_role_can_give_the_thresholds_of_one_tritonmodel(world: World) -> None:
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


def test_a_viewer_only_reads(world: World) -> None:
    world.api().create(tritonmodel("detector"))
    viewer = world.api("viewer")
    assert viewer.get("TritonModel", "detector")
    assert refusal(lambda: annotate(viewer, "detector", max_qps="80")).startswith("403")


def test_an_admin_of_a_namespace_is_a_developer_and_not_oncall(world: World) -> None:
    if not controlplane.has_controllers():
        pytest.skip("no controller that aggregates roles")
    admin = world.api("namespace-admin")
    eventually(lambda: not refusal(lambda: dry_run(admin, tritonmodel("a"))), 20, "edit with the developer's verbs")
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


# On record


def changes(events: list[Object]) -> list[tuple[str, str, int, str, str]]:
    """(verb, who, the answer's code, the changes, who in the policy's words) of every event with a change."""
    key = "thresholds.tritonoperator.io/"
    return [
        (e["verb"], e["user"]["username"], e["responseStatus"]["code"], a[f"{key}changes"], a[f"{key}changed-by"])
        for e in events
        if f"{key}changes" in (a := e.get("annotations", {}))
    ]


def test_the_audit_log_has_every_change_old_new_and_who(world: World) -> None:
    oncall, developer, name = world.api("oncall"), world.api("developer"), "detector"
    developer.create(tritonmodel(name))
    refusal(lambda: annotate(developer, name, max_qps="1000"))
    annotate(oncall, name, max_qps="80")
    refusal(lambda: annotate(oncall, name, max_qps="fast"))
    annotate(oncall, name, max_qps="90")
    developer.patch("TritonModel", name, {"spec": {"replicas": 2}})
    oncall.request(
        "PATCH", oncall.path("TritonModel", name) + "?dryRun=All",
        {"metadata": {"annotations": {"max_qps": "95"}}}, "application/merge-patch+json",
    )  # fmt: skip
    annotate(oncall, name, max_qps=None)
    annotate(oncall, name, **{"max-qps.v2": "7"})
    developer.delete("TritonModel", name)
    world.api().create(tritonmodel(name, {MAX_QPS: "5"}))
    admin = "admin"
    expected = [
        ("patch", "developer", 403, "max_qps: none → 1000", "developer"),
        ("patch", "oncall", 200, "max_qps: none → 80", "oncall"),
        ("patch", "oncall", 422, "max_qps: 80 → fast", "oncall"),
        ("patch", "oncall", 200, "max_qps: 80 → 90", "oncall"),
        ("patch", "oncall", 200, "dry run: max_qps: 90 → 95", "oncall"),
        ("patch", "oncall", 200, "max_qps: 90 → none", "oncall"),
        ("patch", "oncall", 200, "tritonoperator.io/max-qps.v2: none → 7", "oncall"),
        ("delete", "developer", 200, "tritonoperator.io/max-qps.v2: 7 → none", "developer"),
        ("create", admin, 201, "tritonoperator.io/max-qps: none → 5", admin),
    ]
    eventually(lambda: changes(world.audited(name)) == expected, 5, lambda: changes(world.audited(name)))
    # The words of a refusal stand there as well.
    refused = next(e for e in world.audited(name) if e["responseStatus"]["code"] == 403)
    failure = refused["annotations"]["validation.policy.admission.k8s.io/validation_failure"]
    assert "developer may not set thresholds" in failure
    writes = {e["verb"] for e in world.plane.audit_events()}
    assert writes <= {"create", "update", "patch", "delete", "deletecollection"}, "nothing is logged but writes"


def test_several_changes_of_one_request_stand_in_one_event(world: World) -> None:
    world.api().create(tritonmodel("detector", {MAX_QPS: "80"}))
    annotate(world.api("oncall"), "detector", **{"max-qps": "70", "spike-factor": "4"})
    (_, change) = eventually(lambda: len(c := changes(world.audited("detector"))) == 2 and c, 5)
    assert set(change[3].split(", ")) == {
        "tritonoperator.io/max-qps: 80 → 70",
        "tritonoperator.io/spike-factor: none → 4",
    }


# What the operator makes


@pytest.mark.parametrize("kind", ["ServiceAccount", "Service", "Deployment"])
def test_a_generated_object_is_not_for_an_admin_of_its_namespace(world: World, kind: str) -> None:
    admin, cluster_admin = world.api("namespace-admin"), world.api()
    cluster_admin.create(generated(kind, "detector"))
    theirs = generated(kind, "theirs", {"app": "other"})
    eventually(lambda: not refusal(lambda: dry_run(admin, theirs)), 20, "the role in force")
    admin.create(theirs)
    labels = {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}}
    collection = admin.path(kind) + f"?labelSelector={names.MANAGED_SELECTOR}"
    for way in (
        lambda: admin.patch(kind, "detector", {"metadata": {"annotations": {"a": "b"}}}),
        lambda: admin.patch(kind, "detector", labels),
        lambda: admin.patch(kind, "theirs", {"metadata": {"labels": MANAGED}}),
        lambda: admin.apply(generated(kind, "detector", {**MANAGED, "a": "b"})),
        lambda: admin.create(generated(kind, "another")),
        lambda: admin.request("DELETE", admin.path(kind, "detector")),
        lambda: admin.request("DELETE", collection),
    ):
        said = refusal(way)
        assert "they are the operator's. Change the TritonModel detector instead" in said, said
    admin.patch(kind, "theirs", {"metadata": {"annotations": {"a": "b"}}})
    admin.delete(kind, "theirs")
    cluster_admin.patch(kind, "detector", {"metadata": {"annotations": {"a": "b"}}})


def test_the_operator_works_and_garbage_is_collected(world: World, tmp_path: Path) -> None:
    if not controlplane.has_controllers():
        pytest.skip("no kube-controller-manager beside kube-apiserver (the published tarballs have none)")
    admin, name = world.api("namespace-admin"), "detector"
    eventually(lambda: not refusal(lambda: dry_run(admin, tritonmodel("a"))), 20, "edit with the developer's verbs")
    kubeconfig = world.plane.kubeconfig_of(operator_process.NAMESPACE, operator_process.NAME)
    with operator_process.running(kubeconfig, tmp_path) as operator:
        admin.create(tritonmodel(name, replicas=2))
        eventually(lambda: admin.find("Deployment", name), 10, lambda: operator.log)
        # Kubernetes' own controllers write it.
        revision = "deployment.kubernetes.io/revision"
        eventually(lambda: admin.get("Deployment", name)["metadata"].get("annotations", {}).get(revision), 20)
        assert "may not write" in refusal(lambda: admin.patch("Deployment", name, {"spec": {"replicas": 9}}))
        admin.patch("TritonModel", name, {"spec": {"server": {"image": "triton:2"}, "replicas": 1}})
        eventually(
            lambda: admin.get("Deployment", name)["spec"]["template"]["spec"]["containers"][0]["image"] == "triton:2",
            10, lambda: operator.log,
        )  # fmt: skip
        # What is no longer wanted goes, and what a cluster admin breaks comes back.
        eventually(lambda: not admin.find("PodDisruptionBudget", name), 10, lambda: operator.log)
        world.api().delete("Service", name)
        eventually(lambda: admin.find("Service", name), 10, lambda: operator.log)
        ready = condition(admin.get("TritonModel", name), "Ready")
        assert ready, operator.log
        admin.delete("TritonModel", name)
        for kind in ("Deployment", "Service", "ServiceAccount"):
            eventually(lambda k=kind: not admin.list(k, names.MANAGED_SELECTOR), 60, f"no {kind} left")
        # A namespace that goes takes all with it.
        admin.create(tritonmodel(name))
        eventually(lambda: admin.find("Deployment", name), 10, lambda: operator.log)
        world.plane.api.delete("Namespace", world.namespace)
        eventually(lambda: not world.plane.api.find("Namespace", world.namespace), 60, "the namespace gone")
        assert operator.stop() == 0
        assert "denied request" not in operator.log
        assert "Traceback" not in operator.log


def test_kinds_that_come_later_are_guarded_too(world: World) -> None:
    """The policy names kinds of prometheus-operator; without it, they did no harm to all the tests above."""
    api, group = world.api(), "monitoring.coreos.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"podmonitors.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    api.create(crd)
    path = f"/apis/{group}/v1/namespaces/{world.namespace}/podmonitors"
    stranger = Api.of(world.plane.kubeconfig_of_user("stranger"))

    def create(name: str, labels: dict[str, str]) -> str:
        obj = {"apiVersion": f"{group}/v1", "kind": "PodMonitor", "metadata": {"name": name, "labels": labels}}
        return refusal(lambda: stranger.request("POST", path, obj))

    try:
        eventually(lambda: not create("theirs", {"a": "b"}) or None, 20, "PodMonitors served")
        assert "may not write podmonitors" in create("detector", MANAGED)
    finally:
        api.delete("CustomResourceDefinition", f"podmonitors.{group}")


def test_the_api_server_finds_no_fault_with_the_policies(world: World) -> None:
    if not controlplane.has_controllers():
        pytest.skip("no controller that checks types")
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def checked() -> list[Object] | None:
        found: list[Object] = world.api().request("GET", path)["items"]
        return found if all("status" in p for p in found) else None

    for policy in eventually(checked, 20, "the types checked"):
        assert not policy["status"].get("typeChecking", {}).get("expressionWarnings"), policy["status"]
