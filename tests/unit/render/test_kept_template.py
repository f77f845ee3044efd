"""Which pod template the servers get after an upgrade of the operator."""

from __future__ import annotations

import base64
import copy
import json
import random
import zlib
from dataclasses import replace
from typing import Any

import pytest

from support import gen
from triton_operator.api import names
from triton_operator.api.types import TritonModelSpec
from triton_operator.plan import is_template_of
from triton_operator.render import Facts, choose, deployment, render
from triton_operator.render.facts import KeptTemplate
from triton_operator.render.kept_template import NOT_IN_PODS, pack, unpack

OLD, NEW = Facts("operator:1", "Copy"), Facts("operator:2", "Copy")


def deployment_of(
    facts: Facts, live: dict[str, Any] | None = None, *modifiers: gen.Modifier, **spec: Any
) -> dict[str, Any]:
    """Returns the Deployment that a reconcile renders when `live` exists."""
    model = gen.model(*modifiers, **spec)
    objects = render(model, choose(model, live, facts))
    return next(obj for obj in objects if obj["kind"] == "Deployment")


def annotated(live: dict[str, Any], **annotations: str) -> dict[str, Any]:
    keys = {"spec": names.ANNOTATION_SPEC, "template": names.ANNOTATION_POD_TEMPLATE}
    values = {keys[name]: value for name, value in annotations.items()}
    return gen.modified(live, lambda obj: obj["metadata"]["annotations"].update(values))


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A Deployment of an earlier version of the operator, whose pod template was different."""
    before = deployment_of(OLD)
    rendered = deployment._pod_spec
    monkeypatch.setattr(deployment, "_pod_spec", lambda *a: {**rendered(*a), "hostname": "newer"})
    return before


def test_servers_keep_their_template(upgraded: dict[str, Any]) -> None:
    assert deployment_of(NEW, upgraded) == upgraded
    template = choose(gen.model(), upgraded, NEW).template
    assert isinstance(template, KeptTemplate)
    assert template.newer
    assert "hostname" in deployment_of(NEW)["spec"]["template"]["spec"]


@pytest.mark.parametrize("spec", [
    {"server": {"image": "triton:2"}}, {"rollout": {"restartedAt": "2026-01-01T00:00:00Z"}},
    {"modelImage": {"reference": "registry.example.com/models:2"}}, {"podTemplate": {"spec": {"priority": 3}}},
])  # fmt: skip
def test_a_changed_pod_spec_gets_the_newer_template(upgraded: dict[str, Any], spec: dict[str, Any]) -> None:
    template = deployment_of(NEW, upgraded, **spec)["spec"]["template"]
    assert template["spec"]["hostname"] == "newer"
    assert "operator:2" in json.dumps(template)
    assert "operator:1" not in json.dumps(template)


def test_a_spec_with_the_same_pods_restarts_no_server(upgraded: dict[str, Any]) -> None:
    live = deployment_of(NEW, upgraded, replicas=4, monitoring={"enabled": False}, disruption={"maxUnavailable": 2})
    assert live["spec"]["template"] == upgraded["spec"]["template"]
    assert live["spec"]["replicas"] == 4


LATENCY = {"monitoring": {"latency": {"p99": "200ms"}}}


def test_measured_latency_gets_the_newer_template(upgraded: dict[str, Any]) -> None:
    template = deployment_of(NEW, upgraded, **LATENCY)["spec"]["template"]
    assert [c["name"] for c in template["spec"]["containers"]] == ["triton", "measure-latency"]


@pytest.mark.parametrize("latency", [{}, {"p99": "1s"}, {"p50": "20ms", "p99": "200ms"}])
def test_another_objective_of_latency_restarts_no_server(latency: dict[str, str]) -> None:
    live = deployment_of(OLD, None, **LATENCY)
    after = deployment_of(NEW, live, monitoring={"latency": latency})
    assert after["spec"]["template"] == live["spec"]["template"]


def test_shown_processes_get_the_newer_template(upgraded: dict[str, Any]) -> None:
    template = deployment_of(NEW, upgraded, monitoring={"processes": True})["spec"]["template"]
    assert [c["name"] for c in template["spec"]["containers"]] == ["triton", "show-processes"]
    assert "show_processes" in template["spec"]["containers"][0]["command"][3]
    live = deployment_of(NEW, upgraded, monitoring={"processes": False})
    assert live["spec"]["template"] == upgraded["spec"]["template"]


@pytest.mark.parametrize("monitoring", [{}, {"enabled": False, "latency": {"p99": "200ms"}}])
def test_without_measured_latency_there_is_no_container(monitoring: dict[str, Any]) -> None:
    live = deployment_of(OLD, None, **LATENCY)
    template = deployment_of(NEW, live, monitoring=monitoring)["spec"]["template"]
    assert [c["name"] for c in template["spec"]["containers"]] == ["triton"]
    assert not any("trace" in argument for argument in template["spec"]["containers"][0]["args"])


def test_pod_template_does_not_depend_on_the_other_fields() -> None:
    """Changes each of these fields and compares the pod templates."""
    assert set(TritonModelSpec.model_fields) > NOT_IN_PODS
    other = {"replicas": 4, "monitoring": {"enabled": False}, "disruption": {"maxUnavailable": 2}, "networkPolicy": {}}
    for spec in (other, {"autoscaling": {"max": 9}}):
        assert deployment_of(OLD, None, **spec)["spec"]["template"] == deployment_of(OLD)["spec"]["template"]


@pytest.mark.parametrize("text", [
    "", "no base64", "bm8gemxpYg==", base64.b64encode(zlib.compress(b"[1]")).decode(),
    base64.b64encode(zlib.compress(b"[" * 10_000)).decode(), base64.b64encode(zlib.compress(b" " * (8 << 20))).decode(),
    base64.b64encode(zlib.compress(b"{}")[:-3]).decode(),
])  # fmt: skip
def test_renders_a_new_template_if_the_kept_one_is_invalid(upgraded: dict[str, Any], text: str) -> None:
    assert unpack(text) is None
    assert "hostname" in deployment_of(NEW, annotated(upgraded, template=text))["spec"]["template"]["spec"]


def test_keeps_a_template_that_admission_has_rewritten(upgraded: dict[str, Any]) -> None:
    live = copy.deepcopy(upgraded)
    live["spec"]["template"]["spec"]["initContainers"][0]["image"] = "mirror/operator:1"
    model = gen.model()
    chosen = choose(model, live, NEW, agrees=is_template_of)
    assert isinstance(chosen.template, KeptTemplate)
    assert (chosen.template.template, chosen.tools_image) == (upgraded["spec"]["template"], "operator:1")


def forged(live: dict[str, Any], change: gen.Modifier) -> dict[str, Any]:
    """Returns the Deployment after a user who may write only its status has written another pod template."""
    template = copy.deepcopy(live["spec"]["template"])
    change(template)
    return annotated(live, template=pack(template))


FORGED = {
    "user": gen.put("spec.securityContext.runAsUser", 0),
    "root": gen.put("spec.securityContext.runAsNonRoot", False),
    "account": gen.put("spec.serviceAccountName", ""),
    "variable": gen.put("spec.containers.0.env", [{"name": "A", "value": ""}]),
    "hash": gen.put("metadata.annotations", {names.ANNOTATION_TEMPLATE: ""}),
}


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "of-an-earlier-version"])
@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED.keys())
def test_keeps_no_template_that_another_client_wrote(upgraded: dict[str, Any], change: Any, sealed: bool) -> None:
    live = gen.live(forged(upgraded, change))
    if not sealed:
        del live["metadata"]["labels"][names.LABEL_KEPT]
    chosen = choose(gen.model(), live, NEW, agrees=is_template_of)
    assert not isinstance(chosen.template, KeptTemplate)


def test_keeps_a_template_of_an_earlier_version_that_is_the_live_one(upgraded: dict[str, Any]) -> None:
    live = gen.live(upgraded)
    del live["metadata"]["labels"][names.LABEL_KEPT]
    assert isinstance(choose(gen.model(), live, NEW, agrees=is_template_of).template, KeptTemplate)


def test_does_not_keep_a_template_that_is_too_large_for_an_annotation() -> None:
    random_ = random.Random(1)
    noise = [{"name": f"V{n}", "value": random_.randbytes(100).hex()} for n in range(1000)]
    live = deployment_of(OLD, None, podTemplate={"spec": {"initContainers": [{"name": "a", "env": noise}]}})
    assert names.ANNOTATION_POD_TEMPLATE not in live["metadata"]["annotations"]
    small = deployment_of(OLD)
    packed = small["metadata"]["annotations"][names.ANNOTATION_POD_TEMPLATE]
    assert len(packed) < 6 << 10
    assert unpack(packed) == small["spec"]["template"]
    assert pack(small["spec"]["template"]) == packed


def test_a_deployment_without_a_kept_template_is_unchanged() -> None:
    before = deployment_of(OLD)
    for key in (names.ANNOTATION_SPEC, names.ANNOTATION_POD_TEMPLATE):
        del before["metadata"]["annotations"][key]
    assert deployment_of(NEW, before) == deployment_of(OLD)


def test_a_restart_sets_the_pod_annotation() -> None:
    template = deployment_of(OLD, None, rollout={"restartedAt": "now"})["spec"]["template"]
    assert template["metadata"]["annotations"][names.ANNOTATION_RESTARTED] == "now"


# Labels and accounts


def rendered(live: dict[str, Any] | None, **spec: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the objects that a reconcile renders, by kind and name."""
    model = gen.model(replicas=2, networkPolicy={}, **spec)
    objects = render(model, choose(model, live, NEW))
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}


def selectors(objects: dict[tuple[str, str], dict[str, Any]]) -> list[dict[str, str]]:
    """Returns the selectors of all objects that select pods."""
    out = []
    for (kind, _), obj in objects.items():
        selector = obj.get("spec", {}).get("podSelector" if kind == "NetworkPolicy" else "selector")
        out += [selector.get("matchLabels", selector)] if selector else []
    return out


def test_all_selectors_use_the_operators_label() -> None:
    assert selectors(rendered(None)) == [{"tritonoperator.io/model": gen.NAME}] * 6


def test_pods_lack_the_labels_that_other_services_select_by() -> None:
    labels = deployment_of(NEW)["spec"]["template"]["metadata"]["labels"]
    assert labels == {
        "app.kubernetes.io/name": "tritonmodel", "app.kubernetes.io/managed-by": "triton-operator",
        "tritonoperator.io/model": gen.NAME,
    }  # fmt: skip


def accounts(objects: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    return [name for kind, name in objects if kind == "ServiceAccount"]


def test_service_account_name_has_a_prefix() -> None:
    objects = rendered(None)
    assert accounts(objects) == ["tritonmodel-detection"]
    assert objects["Deployment", gen.NAME]["spec"]["template"]["spec"]["serviceAccountName"] == "tritonmodel-detection"


# A recreated Deployment


def test_a_recreated_deployment_starts_with_the_last_number_of_servers() -> None:
    """Another client scales the Deployment; the spec has no replicas."""
    before = replace(NEW, replicas=7)
    assert deployment_of(before)["spec"]["replicas"] == 7
    assert "replicas" not in deployment_of(NEW)["spec"]
    assert "replicas" not in deployment_of(before, gen.live(deployment_of(before)))["spec"]
    assert deployment_of(before, None, replicas=2)["spec"]["replicas"] == 2
