"""Which pod template the servers get after an upgrade of the operator."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import Any

import pytest

from support import gen
from triton_operator.api import names
from triton_operator.api.types import TritonModelSpec
from triton_operator.render import Choices, choose, deployment, render
from triton_operator.render.kept_template import NOT_IN_PODS, pack, unpack

OLD, NEW = Choices("operator:1", "Copy"), Choices("operator:2", "Copy")


def made(choices: Choices, live: dict[str, Any] | None = None, *modifiers: gen.Modifier, **spec: Any) -> dict[str, Any]:
    """The Deployment that a pass renders where `live` is there."""
    model = gen.model(*modifiers, **spec)
    found = render(model, choose(model, live, choices))
    return next(obj for obj in found if obj["kind"] == "Deployment")


def annotated(live: dict[str, Any], **annotations: str) -> dict[str, Any]:
    keys = {"spec": names.ANNOTATION_SPEC, "template": names.ANNOTATION_POD_TEMPLATE}
    values = {keys[name]: value for name, value in annotations.items()}
    return gen.modified(live, lambda obj: obj["metadata"]["annotations"].update(values))


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A Deployment of a former version of the operator; this one renders other pods."""
    before = made(OLD)
    rendered = deployment._pod_spec
    monkeypatch.setattr(deployment, "_pod_spec", lambda *a: {**rendered(*a), "hostname": "newer"})
    return before


def test_the_servers_keep_their_template(upgraded: dict[str, Any]) -> None:
    assert made(NEW, upgraded) == upgraded
    assert choose(gen.model(), upgraded, NEW).newer_template
    assert "hostname" in made(NEW)["spec"]["template"]["spec"]


@pytest.mark.parametrize("spec", [
    {"server": {"image": "triton:2"}}, {"rollout": {"restartedAt": "2026-01-01T00:00:00Z"}},
    {"modelImage": {"reference": "registry.example.com/models:2"}}, {"podTemplate": {"spec": {"priority": 3}}},
])  # fmt: skip
def test_a_spec_that_asks_for_other_pods_gets_the_newer_one(upgraded: dict[str, Any], spec: dict[str, Any]) -> None:
    template = made(NEW, upgraded, **spec)["spec"]["template"]
    assert template["spec"]["hostname"] == "newer"
    assert "operator:2" in json.dumps(template)
    assert "operator:1" not in json.dumps(template)


def test_a_spec_that_asks_for_the_same_pods_restarts_none(upgraded: dict[str, Any]) -> None:
    found = made(NEW, upgraded, replicas=4, monitoring={"enabled": False}, disruption={"maxUnavailable": 2})
    assert found["spec"]["template"] == upgraded["spec"]["template"]
    assert found["spec"]["replicas"] == 4


def test_the_fields_that_are_not_in_pods_are_not() -> None:
    """As far as the template tells: every one of them set to something else."""
    assert set(TritonModelSpec.model_fields) > NOT_IN_PODS
    other = {"replicas": 4, "monitoring": {"enabled": False}, "disruption": {"maxUnavailable": 2}, "networkPolicy": {}}
    for spec in (other, {"autoscaling": {"max": 9}}):
        assert made(OLD, None, **spec)["spec"]["template"] == made(OLD)["spec"]["template"]


@pytest.mark.parametrize("text", [
    "", "no base64", "bm8gemxpYg==", base64.b64encode(zlib.compress(b"[1]")).decode(),
    base64.b64encode(zlib.compress(b"[" * 10_000)).decode(), base64.b64encode(zlib.compress(b" " * (8 << 20))).decode(),
    base64.b64encode(zlib.compress(b"{}")[:-3]).decode(),
])  # fmt: skip
def test_a_template_that_is_none_is_rendered_anew(upgraded: dict[str, Any], text: str) -> None:
    assert unpack(text) is None
    assert "hostname" in made(NEW, annotated(upgraded, template=text))["spec"]["template"]["spec"]


def test_a_template_that_is_too_large_for_an_annotation_is_not_kept() -> None:
    random_ = random.Random(1)
    noise = [{"name": f"V{n}", "value": random_.randbytes(100).hex()} for n in range(1000)]
    found = made(OLD, None, podTemplate={"spec": {"initContainers": [{"name": "a", "env": noise}]}})
    assert names.ANNOTATION_POD_TEMPLATE not in found["metadata"]["annotations"]
    small = made(OLD)
    packed = small["metadata"]["annotations"][names.ANNOTATION_POD_TEMPLATE]
    assert len(packed) < 4096
    assert unpack(packed) == small["spec"]["template"]
    assert pack(small["spec"]["template"]) == packed


def test_a_deployment_of_a_version_that_kept_no_template_is_taken_as_it_is() -> None:
    before = made(OLD)
    for key in (names.ANNOTATION_SPEC, names.ANNOTATION_POD_TEMPLATE):
        del before["metadata"]["annotations"][key]
    assert made(NEW, before) == made(OLD)


def test_a_restart_is_asked_for_in_the_pods() -> None:
    template = made(OLD, None, rollout={"restartedAt": "now"})["spec"]["template"]
    assert template["metadata"]["annotations"][names.ANNOTATION_RESTARTED] == "now"
