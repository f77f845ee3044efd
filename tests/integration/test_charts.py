"""What the Helm charts render: the same objects as the kustomize manifests."""

from __future__ import annotations

import copy
import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from support.api import Object
from support.helm import CRDS, NAMESPACE, OPERATOR, HelmError, Key, by_key, file, kustomized, rendered, run
from triton_operator.runtime.settings import Settings

pytestmark = pytest.mark.release

ELSEWHERE = "elsewhere"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
Objects = dict[Key, Object]
MONITORING = "--set=monitoring.serviceMonitor.enabled=true,monitoring.rules.enabled=true,dashboards.enabled=true"


def deployment(*options: str, values: str = "", namespace: str = NAMESPACE) -> Object:
    objects = rendered(OPERATOR, *options, values=values, namespace=namespace)
    return objects["Deployment", namespace, "triton-operator"]


def environment(of: Object) -> dict[str, str]:
    (container,) = of["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def without(objects: Objects, *kinds: str) -> Objects:
    return {key: obj for key, obj in objects.items() if key[0] not in kinds}


def installation() -> Objects:
    """Returns the objects of the installation that the chart triton-operator renders.

    `helm install --create-namespace` creates the namespace, and the chart triton-operator-crds contains the CRD.
    """
    return without(kustomized("default"), "Namespace", "CustomResourceDefinition")


def test_both_charts_together_render_the_installation() -> None:
    charts = rendered(OPERATOR) | rendered(CRDS, "--set=keep=false")
    assert charts == without(kustomized("default"), "Namespace")


def test_the_chart_of_the_crd_adds_only_that_helm_keeps_it() -> None:
    (crd,) = rendered(CRDS).values()
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    (plain,) = rendered(CRDS, "--set=keep=false").values()
    assert crd == {**plain, "metadata": {"name": plain["metadata"]["name"]}}


POLICY_KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
SWITCHES = [
    ("--set=policies.enabled=false", lambda: without(installation(), *POLICY_KINDS)),
    ("--set=networkPolicy.enabled=false", lambda: without(installation(), "NetworkPolicy")),
    ("--set=userRoles.enabled=false", lambda: minus(installation(), file("rbac/roles.yaml"))),
    ("--set=scope=None", lambda: kustomized("policies") | file("rbac/roles.yaml")),
    (MONITORING, lambda: installation() | kustomized("monitoring")),
    (
        "--set=monitoring.serviceMonitor.enabled=true",
        lambda: installation() | file("monitoring/service_monitor.yaml"),
    ),
    ("--set=monitoring.rules.enabled=true", lambda: installation() | file("monitoring/rules.yaml")),
    ("--set=dashboards.enabled=true", lambda: installation() | kustomized("monitoring/dashboards")),
]


def minus(objects: Objects, others: Objects) -> Objects:
    return {key: obj for key, obj in objects.items() if key not in others}


@pytest.mark.parametrize(("option", "expected"), SWITCHES, ids=[option for option, _ in SWITCHES])
def test_a_switch_renders_what_kustomize_does(option: str, expected: Callable[[], Objects]) -> None:
    assert rendered(OPERATOR, option) == expected()


def test_the_scope_namespace_renders_the_namespaced_installation() -> None:
    chart = rendered(OPERATOR, "--set=scope=Namespace", namespace="triton")
    assert with_sorted_variables(chart) == with_sorted_variables(kustomized("namespaced"))


def with_sorted_variables(objects: Objects) -> Objects:
    """Returns the objects with the container's variables sorted. A patch of kustomize changes their order."""
    changed = copy.deepcopy(objects)
    (of,) = (obj for obj in changed.values() if obj["kind"] == "Deployment")
    (container,) = of["spec"]["template"]["spec"]["containers"]
    container["env"].sort(key=lambda entry: entry["name"])
    return changed


def test_the_rule_of_the_adapter_is_that_of_the_manifests() -> None:
    (kustomize,) = (o for key, o in kustomized("monitoring/adapter").items() if key[0] == "ConfigMap")
    own = minus(rendered(OPERATOR, "--set=adapterRules.enabled=true"), installation())
    assert list(own) == [("ConfigMap", "monitoring", "triton-operator-adapter-rules")]
    assert own.popitem()[1]["data"] == kustomize["data"]


def test_objects_are_in_the_namespace_of_the_release() -> None:
    objects = rendered(OPERATOR, MONITORING, namespace=ELSEWHERE)
    assert {namespace for _, namespace, _ in objects} == {"", ELSEWHERE}
    subjects = [s for obj in objects.values() for s in obj.get("subjects", [])]
    assert {s["namespace"] for s in subjects} == {ELSEWHERE}
    rules = yaml.safe_dump(objects["PrometheusRule", ELSEWHERE, "triton-operator"], width=10000)
    assert f'namespace="{ELSEWHERE}"' in rules
    assert "-n triton-operator" not in rules


def test_watched_namespaces_get_a_role_binding_each() -> None:
    objects = rendered(OPERATOR, f"--set=watchNamespaces={{vision,{NAMESPACE}}}")
    assert ("ClusterRoleBinding", "", "triton-operator") not in objects
    for namespace in ("vision", NAMESPACE):
        binding = objects["RoleBinding", namespace, "triton-operator-watch"]
        assert binding["roleRef"]["kind"] == "ClusterRole"
        assert [s["namespace"] for s in binding["subjects"]] == [NAMESPACE]
    assert environment(objects["Deployment", NAMESPACE, "triton-operator"])["WATCH_NAMESPACES"] == f"vision,{NAMESPACE}"
    with pytest.raises(HelmError, match="watchNamespaces needs the scope Cluster, but the scope is Namespace"):
        rendered(OPERATOR, "--set=watchNamespaces={vision},scope=Namespace")


PODS = f"""
image: {{repository: registry.example.com/operator, digest: "{DIGEST}", pullPolicy: Always}}
imagePullSecrets: [{{name: registry}}]
replicas: 3
resources: {{requests: {{cpu: 1}}, limits: {{memory: 2Gi}}}}
nodeSelector: {{pool: system}}
tolerations: [{{key: dedicated, operator: Exists, effect: NoSchedule}}]
affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchFields: [
  {{key: metadata.name, operator: In, values: [a]}}]}}]}}}}}}
topologySpreadConstraints: []
priorityClassName: system-cluster-critical
podSecurityContext: {{runAsUser: 2000, seccompProfile: null}}
podLabels: {{team: serving}}
podAnnotations: {{example.com/note: "1"}}
extraEnv: [{{name: SSL_CERT_FILE, value: /ca/tls.crt}}]
extraVolumes: [{{name: ca, configMap: {{name: company}}}}]
extraVolumeMounts: [{{name: ca, mountPath: /ca, readOnly: true}}]
"""


def test_values_set_the_fields_of_the_pods() -> None:
    spec = deployment(values=PODS)["spec"]
    values = yaml.safe_load(PODS)
    assert spec["replicas"] == 3
    metadata, pod = spec["template"]["metadata"], spec["template"]["spec"]
    assert metadata["labels"] == {"app.kubernetes.io/name": "triton-operator", "team": "serving"}
    assert metadata["annotations"]["example.com/note"] == "1"
    assert pod["nodeSelector"] == {"pool": "system", "kubernetes.io/os": "linux"}
    for key in ("imagePullSecrets", "tolerations", "affinity", "priorityClassName"):
        assert pod[key] == values[key], key
    assert "topologySpreadConstraints" not in pod
    assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 2000}
    (container,) = pod["containers"]
    assert container["image"] == f"registry.example.com/operator@{DIGEST}"
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {"requests": {"cpu": 1, "memory": "160Mi"}, "limits": {"memory": "2Gi"}}
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert variables["TOOLS_IMAGE"] == container["image"]
    assert variables["SSL_CERT_FILE"] == "/ca/tls.crt"
    assert (pod["volumes"], container["volumeMounts"]) == (values["extraVolumes"], values["extraVolumeMounts"])


def test_common_labels_are_on_every_object_and_in_no_selector() -> None:
    label = {"team": "serving"}
    before = rendered(OPERATOR, MONITORING, "--set=adapterRules.enabled=true")
    after = rendered(OPERATOR, MONITORING, "--set=adapterRules.enabled=true,commonLabels.team=serving")
    for key, obj in after.items():
        assert obj["metadata"]["labels"] == before[key]["metadata"].get("labels", {}) | label
        assert {**obj, "metadata": 0} == {**before[key], "metadata": 0}


def test_a_label_of_prometheus_wins_over_a_common_label() -> None:
    objects = rendered(OPERATOR, MONITORING, "--set=commonLabels.release=a,monitoring.labels.release=b")
    for kind in ("ServiceMonitor", "PrometheusRule"):
        assert objects[kind, NAMESPACE, "triton-operator"]["metadata"]["labels"]["release"] == "b"


class Recorded(Mapping[str, str]):
    """Environment variables that record which names are read."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values_, self.read = values, set[str]()

    def __getitem__(self, name: str) -> str:
        self.read.add(name)
        return self.values_[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


def test_every_setting_of_the_operator_is_a_value() -> None:
    chart_settings = yaml.safe_load((OPERATOR / "values.yaml").read_text())["settings"]
    variables = Recorded(environment(deployment()))
    Settings.from_environment(variables)
    # The chart sets these. The port is in the Service and the probes too.
    own = {"TOOLS_IMAGE", "POD_NAME", "POD_NAMESPACE", "MEMORY_MIB", "WATCH_NAMESPACES"}
    assert variables.read - {"PORT", "PROBE_PORT"} == own | set(chart_settings)


SETTINGS = """
settings:
  PROMETHEUS_NAMESPACES: a, b
  PROMETHEUS_URL: https://thanos.example.com
  LOG_FORMAT: plain
  LOG_LEVEL: DEBUG
  WORKERS: 4
  PROGRESS_SECONDS: 0
  RESYNC_SECONDS: "60"
  DISCOVERY_SECONDS: 5
  COLLECT_SECONDS: 6
  SAMPLE_LIMIT: 2000000
  METRICS_JOB: operator
  RUNBOOKS_URL: https://wiki.example.com/runbooks
"""


def test_the_operator_gets_the_settings() -> None:
    settings = Settings.from_environment(environment(deployment(values=SETTINGS)))
    assert settings.prometheus_namespaces == ("a", "b")
    assert settings.prometheus_url == "https://thanos.example.com"
    assert (settings.log_format, settings.log_level) == ("plain", "DEBUG")
    assert (settings.workers, settings.progress_seconds, settings.resync_seconds) == (4, 0, 60)
    assert (settings.discovery_seconds, settings.collect_seconds) == (5, 6)
    assert settings.sample_limit == 2000000
    assert (settings.metrics_job, settings.runbooks) == ("operator", "https://wiki.example.com/runbooks")


@pytest.mark.parametrize("value", ["null", '""'], ids=["null", "empty"])
def test_an_empty_setting_is_the_operators_default(value: str) -> None:
    chart_settings = yaml.safe_load((OPERATOR / "values.yaml").read_text())["settings"]
    names = [name for name in chart_settings if not name.startswith(("LOG_", "PROMETHEUS_NAMESPACES"))]
    names += ["LOG_LEVEL"] if value == "null" else []
    values = "\n".join(["settings:", *(f"  {name}: {value}" for name in names)])
    settings = Settings.from_environment(environment(deployment(values=values)))
    default = Settings.from_environment(environment(deployment()))
    assert dataclasses.replace(settings, identity="") == dataclasses.replace(default, identity="")


REFUSED = [
    ("scope=cluster", "scope"),
    ("replica=3", "replica"),
    ("replicas=two", "replicas"),
    ("settings.LOG_LEVEL=TRACE", "LOG_LEVEL"),
    ("settings.LOGLEVEL=INFO", "LOGLEVEL"),
    ("settings.WORKERS=0", "WORKERS"),
    ("settings.WORKERS=many", "WORKERS"),
    ("settings.SAMPLE_LIMIT=99", "SAMPLE_LIMIT"),
    ("settings.PROMETHEUS_URL=thanos:9090", "PROMETHEUS_URL"),
    ("image.digest=sha256:1", "digest"),
    ("image.pullPolicy=always", "pullPolicy"),
    ("tolerations[0].taint=NoSchedule", "taint"),
    ("affinity.nodeAffinty.a=b", "nodeAffinty"),
    ("commonLabels.app\\.kubernetes\\.io/name=other", "commonLabels"),
    ("watchNamespaces={Vision}", "watchNamespaces"),
    ("monitoring.rules=true", "rules"),
]


@pytest.mark.parametrize(("value", "named"), REFUSED, ids=[value for value, _ in REFUSED])
def test_refuses_a_wrong_value_and_names_it(value: str, named: str) -> None:
    with pytest.raises(HelmError, match="values don't meet the specifications of the schema") as refusal:
        rendered(OPERATOR, f"--set={value}")
    assert named in str(refusal.value)


@pytest.mark.parametrize("chart", [OPERATOR, CRDS], ids=lambda chart: chart.name)
def test_helm_lint_finds_nothing_in_the_chart(chart: Path) -> None:
    assert "0 chart(s) failed" in run("lint", "--strict", chart)


def test_the_packaged_chart_renders_the_same(tmp_path: Path) -> None:
    """The package contains the dashboards and the rule of the adapter."""
    shutil.copytree(OPERATOR, tmp_path / OPERATOR.name)
    run("package", tmp_path / OPERATOR.name, f"--destination={tmp_path}")
    (package,) = tmp_path.glob("*.tgz")
    text = run("template", OPERATOR.name, package, f"--namespace={NAMESPACE}", MONITORING)
    assert by_key(text) == rendered(OPERATOR, MONITORING)
