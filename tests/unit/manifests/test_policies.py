"""The policies in manifests/policies agree with the code and with each other. tests/security tries what they refuse."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import yaml

from support import gen
from support.controlplane import ROOT
from triton_operator.api import kinds, names, thresholds
from triton_operator.manifests import rbac
from triton_operator.render.children import PLURALS

Object = dict[str, Any]
FOLDER = ROOT / "manifests" / "policies"
FILES: list[str] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]


def load(file: str) -> tuple[Object, Object]:
    policy, binding = yaml.safe_load_all((FOLDER / file).read_text())
    return policy, binding


def expressions(file: str) -> dict[str, str]:
    return {variable["name"]: variable["expression"] for variable in load(file)[0]["spec"]["variables"]}


def rules(file: str) -> set[tuple[str, str, str]]:
    """Returns the group, resource and operation of each request that the policy checks."""
    return {
        (group, resource, operation)
        for rule in load(file)[0]["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }


@pytest.mark.parametrize("file", FILES)
def test_each_policy_has_a_binding_and_refuses_what_it_cannot_evaluate(file: str) -> None:
    policy, binding = load(file)
    name = f"{file.removesuffix('.yaml').replace('_', '-')}.{names.GROUP}"
    assert policy["metadata"]["name"] == binding["metadata"]["name"] == binding["spec"]["policyName"] == name
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"]["validationActions"] == ["Warn" if "deletion" in file else "Deny", "Audit"]
    for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
        assert (rule["apiVersions"], rule["scope"]) == (["*"], "Namespaced")


def test_checks_the_values_of_all_thresholds() -> None:
    """A map and a string of CEL have the syntax of Python."""
    variables = expressions("threshold_values.yaml")
    assert ast.literal_eval(variables["lower"]) == {kind.name: kind.lower for kind in thresholds.KINDS}
    assert ast.literal_eval(variables["upper"]) == {kind.name: kind.upper for kind in thresholds.KINDS}
    assert ast.literal_eval(variables["limits"]) == {
        kind.name: f"above {kind.lower:g} and at most {kind.upper:.0f}" for kind in thresholds.KINDS
    }
    assert ast.literal_eval(variables["number"]) == thresholds.VALUE_PATTERN
    assert thresholds.VERSION_PATTERN in variables["wrong"]
    assert all(thresholds.PREFIX + kind.name in variables["wrong"] for kind in thresholds.KINDS)
    assert [kind.name for kind in thresholds.KINDS if kind.alias or kind.versioned] == ["max-qps"]
    assert thresholds.MAX_QPS.alias == "max_qps"
    assert [kind.name for kind in thresholds.KINDS if kind.too_low] == ["max-qps", "max-qps-peak", "max-tps"]
    assert all(kind.too_low in variables["wrong"] for kind in thresholds.KINDS)
    texts = [rule["expression"] + rule["message"] for rule in load("threshold_values.yaml")[0]["spec"]["validations"]]
    assert f"variables.countAfter <= {thresholds.MAX_THRESHOLDS} ||" in texts[1]
    assert f"<= {names.CALIBRATION_MAX} ||" in texts[3]
    of_series = [kind for kind in thresholds.KINDS if kind.source]
    assert all(f"'{kind.name}'" in variables["unnamed"] for kind in of_series)
    assert all(f"?{field}.orValue" in variables["unnamed"] for kind in of_series for field in kind.source.fields)


@pytest.mark.parametrize(("file", "variable"), [("thresholds.yaml", "guarded"), ("threshold_deletion.yaml", "lost")])
def test_guards_all_thresholds(file: str, variable: str) -> None:
    text = " ".join(expressions(file)[variable].split())
    assert str([kind.name for kind in thresholds.KINDS]) in text
    assert f"k.startsWith('{thresholds.PREFIX}') && k.substring({len(thresholds.PREFIX)})" in text
    assert "k == 'max_qps' || k.startsWith('max_qps.')" in text


def test_protects_all_kinds_of_children() -> None:
    children = [(group, plural) for group, plurals in PLURALS.items() for plural in plurals]
    writes = {(*child, operation) for child in children for operation in ("CREATE", "UPDATE", "DELETE")}
    status = {(group, f"{plural}/status", "UPDATE") for group, plural in children if plural != "configmaps"}
    assert rules("generated.yaml") == writes | status
    servers = {
        (kind.group, kind.plural, operation)
        for kind in (kinds.POD, kinds.REPLICA_SET)
        for operation in ("CREATE", "UPDATE", "DELETE")
    }
    subresources = {("apps", "deployments/scale", "UPDATE"), ("", "pods/eviction", "CREATE")}
    assert rules("own_account.yaml") == writes | servers | subresources


def test_asks_for_the_verbs_of_the_roles() -> None:
    verbs = {verb for file in FILES for verb in (rbac.SET_THRESHOLDS, rbac.EDIT_GENERATED) if verb in file_text(file)}
    assert verbs == {rbac.SET_THRESHOLDS, rbac.EDIT_GENERATED}


def file_text(file: str) -> str:
    return "".join(f"{rule['expression']}" for rule in load(file)[0]["spec"]["validations"])


def test_allows_mounts_of_all_volumes_of_a_pod() -> None:
    pod = gen.child("Deployment")["spec"]["template"]["spec"]
    own = sorted(volume["name"] for volume in pod["volumes"])
    assert str(sorted({*own, "tools"})) in expressions("pod_template.yaml")["mounts"]


def test_knows_the_names_that_the_operator_gives() -> None:
    text = (FOLDER / "own_account.yaml").read_text()
    assert f"'{names.account('')}' + variables.model" in text
    for file, words in {
        "own_account.yaml": (names.LABEL_MODEL, names.LABEL_MANAGED_BY, f"== '{names.KIND}'"),
        "servers.yaml": (names.LABEL_MODEL,),
        "server_addresses.yaml": (names.LABEL_MODEL,),
        "generated.yaml": (names.LABEL_MODEL, names.LABEL_MANAGED_BY),
        "thresholds.yaml": (names.ANNOTATION_CALIBRATION,),
        "pod_template.yaml": (f"'{names.CONTAINER_SERVER}'",),
    }.items():
        assert all(word in (FOLDER / file).read_text() for word in words), file
