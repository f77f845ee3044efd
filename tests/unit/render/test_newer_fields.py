"""Fields that a cluster may not know: which are left out, and in which version they exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import gen
from support.controlplane import documents
from triton_operator.api import kinds
from triton_operator.api.kinds import NewerField
from triton_operator.render import Facts, children, render, routes
from triton_operator.render.facts import Enforced
from triton_operator.render.newer_fields import dispensable, undeclared, without, without_lacking

ROOT = Path(__file__).resolve().parents[3]
VENDORED = ROOT / "tests" / "support" / "vendor"
FACTS = Facts(
    "tools:1", "Copy", entrypoint="a", prometheus="http://prometheus.example:9090", enforced=Enforced(80.0, "Gateway")
)
REFUSED = (
    "failed to create typed patch object (vision/detection; monitoring.coreos.com/v1, Kind=PrometheusRule): errors:\n"
    '  .spec.groups[name="detection-slow"].rules[9].keep_firing_for: field not declared in schema\n'
    '  .spec.groups[name="detection-slow"].rules[10].keep_firing_for: field not declared in schema'
)
SCALED_OBJECT = children.BY_NAME["ScaledObject"]


def rendered(kind: str, **spec: Any) -> dict[str, Any]:
    route = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"], "hashHeader": "x-sequence"}
    model = gen.model(autoscaling={"engine": "KEDA", "min": 0, "max": 4}, route=route, **spec)
    return next(obj for obj in render(model, FACTS) if obj["kind"] == kind)


def undeclared_in(value: Any, schema: dict[str, Any], path: str) -> set[str]:
    """Returns the paths of the fields that the schema of a CRD doesn't have."""
    if isinstance(value, list):
        return {name for item in value for name in undeclared_in(item, schema["items"], path)}
    if not isinstance(value, dict) or "additionalProperties" in schema:
        return set()
    properties = schema.get("properties", {})
    unknown = {f"{path}.{key}" for key in value if key not in properties}
    return unknown.union(*(undeclared_in(value[k], properties[k], f"{path}.{k}") for k in value if k in properties))


def test_reads_the_paths_of_unknown_fields_without_places_in_lists() -> None:
    assert undeclared(REFUSED) == ("spec.groups.rules.keep_firing_for",)
    assert undeclared("the name of the field must be a string") == ()


def test_dispenses_only_with_what_the_object_can_be_without() -> None:
    behavior = "spec.advanced.horizontalPodAutoscalerConfig.behavior.scaleDown.tolerance"
    message = (
        f"errors:\n  .{behavior}: field not declared in schema\n  .spec.fallback.behavior: field not declared in schema"
    )
    assert dispensable(SCALED_OBJECT, message) == {"spec.fallback.behavior"}
    assert dispensable(SCALED_OBJECT, f".{behavior}: field not declared in schema") == frozenset()
    assert dispensable(SCALED_OBJECT, ".spec.new: field not declared in schema") == frozenset()


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("old-podmonitors", "PodMonitor"),
        ("old-prometheusrules", "PrometheusRule"),
        ("old-scaledobjects", "ScaledObject"),
        ("old-backendtrafficpolicies", "BackendTrafficPolicy"),
    ],
)
def test_the_old_crds_have_all_but_what_is_left_out(file: str, kind: str) -> None:
    [crd] = documents(VENDORED / f"{file}.yaml")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    obj, child = rendered(kind), children.BY_NAME[kind]
    unknown = undeclared_in(obj["spec"], schema, "spec")
    assert unknown
    reduced, left_out = without_lacking(child, obj, {(kind, path) for path in unknown})
    assert {field.path for field in left_out} == unknown
    assert undeclared_in(reduced["spec"], schema, "spec") == set()


def test_changes_nothing_else() -> None:
    pod_monitor = rendered("PodMonitor")
    child = children.of(pod_monitor)
    reduced, left_out = without_lacking(child, pod_monitor, {("PodMonitor", "spec.bodySizeLimit"), ("Other", "spec")})
    assert [field.since for field in left_out] == ["prometheus-operator 0.73"]
    assert {**reduced["spec"], "bodySizeLimit": pod_monitor["spec"]["bodySizeLimit"]} == pod_monitor["spec"]
    assert without_lacking(child, pod_monitor, ()) == (pod_monitor, ())


def test_a_fallback_that_would_reduce_the_servers_is_left_out_as_a_whole() -> None:
    obj, _ = without(rendered("ScaledObject"), SCALED_OBJECT.newer)
    assert "fallback" not in obj["spec"]
    assert obj["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["name"] == gen.NAME


def test_items_of_a_list_are_left_out_as_a_whole() -> None:
    copy, other = {"type": "RequestMirror", "requestMirror": {"percent": 5}}, {"type": "Other", "other": {}}
    route = {"kind": "HTTPRoute", "spec": {"rules": [{"filters": [other, copy]}, {"filters": [copy]}, {}]}}
    reduced, left_out = without(route, [routes.PERCENT])
    assert reduced["spec"]["rules"] == [{"filters": [other]}, {"filters": []}, {}]
    assert left_out == (routes.PERCENT,)


def test_only_the_value_that_a_cluster_refuses_is_replaced() -> None:
    child = children.BY_NAME["HorizontalPodAutoscaler"]
    head = 'HorizontalPodAutoscaler.autoscaling "detection" is invalid: spec.minReplicas: Invalid value: '
    assert dispensable(child, f"{head}0: must be greater than or equal to 1") == {"spec.minReplicas"}
    assert dispensable(child, f"{head}5: must be less than or equal to `maxReplicas`") == frozenset()
    denied = 'admission webhook "a.example.com" denied the request: spec.minReplicas: Invalid value: 0: no zero here'
    assert dispensable(child, denied) == frozenset()
    for least, there in ((0, 1), (2, 2)):
        obj = {"kind": child.kind.kind, "spec": {"minReplicas": least, "maxReplicas": 4}}
        found, _ = without_lacking(child, obj, {(child.kind.kind, "spec.minReplicas")})
        assert found["spec"] == {"minReplicas": there, "maxReplicas": 4}


def test_what_an_object_does_not_have_is_not_left_out() -> None:
    obj = {"kind": kinds.POD_MONITOR.kind, "spec": {"list": [{"a": 1}, 2], "text": "b"}}
    fields = [NewerField(f"spec.{path}", "c 1", f"spec.{path}") for path in ("list.b", "text.c", "d")]
    assert without(obj, fields) == (obj, ())


def test_the_documentation_names_the_version_of_each_field() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text()
    for child in children.CHILDREN:
        for field in child.newer:
            rows = [line for line in text.splitlines() if f"`{field.path.rpartition('.')[2]}`" in line]
            assert any(field.since.rpartition(" ")[2] in row and child.kind.kind in row for row in rows), field
