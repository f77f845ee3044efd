"""The pod template when spec.server.loadModels changes."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from triton_operator.api import names
from triton_operator.render import Choices, choose, deployment, render, switched
from triton_operator.render.load_models import listed, with_models

OLD, NEW = Choices("operator:1", "Copy"), Choices("operator:2", "Copy")


def model(*models: str, **spec: Any) -> Any:
    server = {"modelControl": "explicit", "loadModels": list(models), **spec.pop("server", {})}
    return gen.model(**{"entrypoint": "a", "server": server, **spec})


def made(found: Any, choices: Choices) -> dict[str, Any]:
    return next(obj for obj in render(found, choices) if obj["kind"] == "Deployment")


def first(*models: str) -> dict[str, Any]:
    return made(model(*models), choose(model(*models), None, OLD))


def template_hash(live: dict[str, Any]) -> str:
    return str(live["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])


def test_template_keeps_the_old_models_until_the_servers_have_the_new_ones() -> None:
    live = first("a", "b")
    choices = choose(model("a", "c"), live, NEW)
    assert made(model("a", "c"), choices) == live
    after = made(model("a", "c"), switched(model("a", "c"), choices))
    assert listed(after["spec"]["template"]["spec"]) == ("a", "c")
    check = next(c for c in after["spec"]["template"]["spec"]["initContainers"] if c["name"] == "check")
    assert "--load-models=a,c" in check["command"]
    assert template_hash(after) == template_hash(live), "so that the running servers are current"
    assert with_models(after["spec"]["template"], ["a", "b"]) == live["spec"]["template"]
    again = choose(model("a", "c"), after, NEW)
    assert made(model("a", "c"), again) == after
    assert not again.only
    assert not again.newer_template
    # and back, although the template's hash is that of the first list
    back = choose(model("a", "b"), after, OLD)
    assert back.only == "spec.server.loadModels"
    assert made(model("a", "b"), back) == after
    assert made(model("a", "b"), switched(model("a", "b"), back)) == live


@pytest.mark.parametrize("spec", [
    {"server": {"image": "triton:2"}}, {"rollout": {"restartedAt": "2026-01-01T00:00:00Z"}}, {"entrypoint": "c"},
    {"modelImage": {"reference": "registry.example.com/models:2"}},
])  # fmt: skip
def test_another_change_at_the_same_time_replaces_the_servers(spec: dict[str, Any]) -> None:
    changed = model("a", "c", **spec)
    live = first("a", "b")
    choices = choose(changed, live, NEW)
    assert not choices.only
    assert template_hash(made(changed, choices)) != template_hash(live)


def test_says_why_the_servers_are_replaced() -> None:
    live = made(model("a", entrypoint=None), choose(model("a", entrypoint=None), None, OLD))
    assert "isn't ready while it loads" in choose(model("c", entrypoint=None), live, OLD).rollout
    stuck = choose(model("a", "c"), first("a", "b"), OLD, replace_servers="c is still LOADING")
    assert stuck.rollout == "c is still LOADING"
    assert listed(made(model("a", "c"), stuck)["spec"]["template"]["spec"]) == ("a", "c")


def test_replaced_servers_get_another_hash_even_with_the_first_models() -> None:
    changed = switched(model("a", "c"), choose(model("a", "c"), first("a", "b"), OLD))
    live = made(model("a", "c"), changed)
    replaced = choose(model("a", "b"), live, OLD, replace_servers="b is still LOADING")
    after = made(model("a", "b"), replaced)
    assert template_hash(after) not in (template_hash(live), template_hash(first("a", "b")))
    assert made(model("a", "b"), choose(model("a", "b"), after, OLD)) == after


def test_a_deployment_of_an_earlier_version_changes_without_new_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    live, rendered = first("a", "b"), deployment._pod_spec
    monkeypatch.setattr(deployment, "_pod_spec", lambda *a: {**rendered(*a), "hostname": "newer"})
    choices = choose(model("a", "c"), live, NEW)
    after = made(model("a", "c"), switched(model("a", "c"), choices))
    assert "hostname" not in after["spec"]["template"]["spec"]
    assert template_hash(after) == template_hash(live)
    assert choose(model("a", "c"), after, NEW).newer_template


def test_without_explicit_model_control_nothing_changes() -> None:
    plain = gen.model()
    live = made(plain, choose(plain, None, OLD))
    assert not choose(gen.model(server={"modelControl": "explicit", "loadModels": ["a"]}), live, OLD).only
