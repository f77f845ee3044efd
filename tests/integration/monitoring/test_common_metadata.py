"""A cluster whose policy demands a label and an annotation of all objects of the operator, and of the pods."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from integration.monitoring.steps import QUICK, SOON, serving, versions, wait_for_condition
from support import gen, operator_process
from support.api import Api, Object, eventually
from support.controlplane import ControlPlane
from support.operator_process import Operator
from support.people import dry_run, make, refusal, tritonmodel
from triton_operator.api import names
from triton_operator.render import children

pytestmark = pytest.mark.integration

ADMISSION = "admissionregistration.k8s.io/v1"
WORDS = "every object needs the label cost-centre and the annotation example.com/owner"
COMMON: Object = {"labels": {"cost-centre": "4711", "team": "vision"}, "annotations": {"example.com/owner": "vision"}}
SPEC: Object = {
    "entrypoint": "detection",
    "server": {"modelControl": "explicit", "loadModels": ["detection"]},
    "networkPolicy": {},
    "route": {"gateway": {"name": "models"}, "hostnames": ["a.example.com"], "grpc": {"listener": "grpc"}},
    "monitoring": {"labels": {"release": "prometheus"}},
}
KINDS = {
    "HPA": {kind.kind for kind in children.KINDS} - {"ScaledObject"},
    "KEDA": {kind.kind for kind in children.KINDS} - {"HorizontalPodAutoscaler"},
}


@pytest.fixture
def policy(plane: ControlPlane, own: Api) -> Iterator[None]:
    """Refuses, in the namespace of the test, all objects of these kinds that don't have both."""
    groups = {**children.PLURALS, "": (*children.PLURALS[""], "pods")}
    resources = [
        {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [*plurals]}
        for group, plurals in groups.items()
    ]
    here = {"namespaceSelector": {"matchLabels": {names.LABEL_NAMESPACE: own.namespace}}}
    demands = (
        "'cost-centre' in object.metadata.?labels.orValue({}) && "
        "'example.com/owner' in object.metadata.?annotations.orValue({})"
    )
    spec = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": resources, **here},
            "validations": [{"expression": demands, "message": WORDS}]}  # fmt: skip
    binding = {"policyName": own.namespace, "validationActions": ["Deny"]}
    paths = {}
    for kind, content in (("Policy", spec), ("PolicyBinding", binding)):
        path = f"/apis/{ADMISSION}/validatingadmission{'policies' if kind == 'Policy' else 'policybindings'}"
        metadata = {"name": own.namespace}
        body = {"apiVersion": ADMISSION, "kind": f"ValidatingAdmission{kind}", "metadata": metadata, "spec": content}
        plane.api.request("POST", path, body)
        paths[kind] = f"{path}/{own.namespace}"
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}}
    eventually(lambda: WORDS in refusal(lambda: dry_run(own, probe)), 60, "the policy")
    yield
    for path in paths.values():
        plane.api.request("DELETE", path)


@pytest.fixture
def operator(kubeconfig: Path, own: Api, tmp_path: Path) -> Iterator[Operator]:
    settings = {**QUICK, "WATCH_NAMESPACES": own.namespace, "PROMETHEUS_URL": "http://127.0.0.1:9"}
    with operator_process.running(kubeconfig, tmp_path, **settings) as process:
        yield process
        assert "Traceback" not in process.log


def objects(api: Api) -> list[Object]:
    """Returns the objects of the TritonModel, with their kind."""
    return [
        {**obj, "kind": kind.kind} for kind in children.KINDS for obj in api.list(kind.kind, names.MANAGED_SELECTOR)
    ]


def kinds(api: Api) -> set[str]:
    return {obj["kind"] for obj in objects(api)}


@pytest.mark.parametrize("engine", ["HPA", "KEDA"])
@pytest.mark.usefixtures("policy")
def test_such_a_cluster_accepts_all_objects_with_the_common_metadata(engine: str, own: Api, operator: Operator) -> None:
    autoscaling = {"engine": engine, "min": 2, "max": 3}
    # What could be set before reaches only the pods and the objects for Prometheus.
    template = {"metadata": COMMON}
    make(own, autoscaling=autoscaling, podTemplate=template, **SPEC)
    message = wait_for_condition(own, "Progressing", "False", "ApplyRefused")
    assert WORDS in message, message
    assert not kinds(own), kinds(own)

    own.patch(names.KIND, gen.NAME, {"spec": {"commonMetadata": COMMON, "podTemplate": None}})
    serving(own, operator)
    own.patch("Deployment", gen.NAME, {"spec": {"replicas": 2}}, "scale")
    eventually(lambda: kinds(own) == KINDS[engine], SOON, lambda: (kinds(own), operator.log[-4000:]))
    for obj in [*objects(own), *own.list("Pod")]:
        for field, values in COMMON.items():
            assert values.items() <= obj["metadata"][field].items(), (obj.get("kind"), obj["metadata"]["name"])
    wait_for_condition(own, "Progressing", "True", "RollingOut")


def test_a_label_that_kubectl_apply_removes_leaves_all_objects(
    own: Api, operator: Operator, plane: ControlPlane, tmp_path: Path
) -> None:
    file = tmp_path / "model.yaml"

    def apply(**common: Object) -> None:
        obj = tritonmodel(gen.NAME, autoscaling={"min": 2, "max": 3}, commonMetadata=common, **SPEC)
        file.write_text(yaml.safe_dump(obj))
        command = ["kubectl", f"--kubeconfig={plane.kubeconfig}", f"--namespace={own.namespace}", "apply", "-f"]
        result = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr

    apply(**COMMON)
    serving(own, operator)
    own.patch("Deployment", gen.NAME, {"spec": {"replicas": 2}}, "scale")
    eventually(lambda: kinds(own) == KINDS["HPA"], SOON, lambda: (kinds(own), operator.log[-4000:]))
    others = {"labels": {"example.com/others": "a"}, "annotations": {"example.com/others": "b"}}
    for obj in objects(own):
        own.patch(obj["kind"], obj["metadata"]["name"], {"metadata": others})
    before = own.get("Deployment", gen.NAME)["spec"]["template"]["metadata"]

    # Only removals: another value would be written anyway.
    apply(labels={"cost-centre": "4711"})

    def metadata() -> list[Object]:
        template = own.get("Deployment", gen.NAME)["spec"]["template"]
        return [obj["metadata"] for obj in (*objects(own), template)]

    def changed(fields: Object) -> bool:
        labels = fields["labels"]
        return (
            labels.get("cost-centre") == "4711"
            and "team" not in labels
            and "example.com/owner" not in fields.get("annotations", {})
        )

    eventually(lambda: all(map(changed, metadata())), SOON, lambda: (metadata(), operator.log[-4000:]))
    for obj in objects(own):
        for field, values in others.items():
            assert values.items() <= obj["metadata"][field].items(), (obj["kind"], obj["metadata"])
        assert names.labels(gen.NAME).items() <= obj["metadata"]["labels"].items()
    after = own.get("Deployment", gen.NAME)["spec"]["template"]["metadata"]
    assert before["annotations"][names.ANNOTATION_TEMPLATE] != after["annotations"][names.ANNOTATION_TEMPLATE]
    assert own.get("Deployment", gen.NAME)["spec"]["selector"] == {"matchLabels": names.selector(gen.NAME)}

    # The operator notices the annotation, and has nothing to write but its status.
    still, passes = versions(own, *KINDS["HPA"]), operator.reconciles(result="ok")
    own.patch(names.KIND, gen.NAME, {"metadata": {"annotations": {"max_qps_unknown": "1"}}})
    eventually(lambda: operator.reconciles(result="ok") > passes, SOON, lambda: operator.log[-2000:])
    assert versions(own, *KINDS["HPA"]) == still
