"""What a change of spec.server.loadModels does to the rendered objects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support import gen
from triton_operator.api import names
from triton_operator.render import Facts, choose, render
from triton_operator.render.facts import Models, NewTemplate
from triton_operator.render.load_models import key_of
from triton_operator.render.model_lists import read

OLD, NEW = Facts("operator:1", "Copy"), Facts("operator:2", "Copy")


def model(*models: str, **spec: Any) -> Any:
    server = {"modelControl": "explicit", "loadModels": list(models), **spec.pop("server", {})}
    return gen.model(**{"entrypoint": "a", "server": server, **spec})


def child(subject: Any, facts: Facts, kind: str = "Deployment") -> dict[str, Any] | None:
    return next((obj for obj in render(subject, facts) if obj["kind"] == kind), None)


def deployed(*models: str, **spec: Any) -> Any:
    return child(model(*models, **spec), choose(model(*models, **spec), None, OLD))


def template_hash(live: Any) -> str:
    return str(live["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])


def test_the_models_are_in_a_configmap_and_not_in_the_template() -> None:
    live = deployed("a", "b")
    assert live == deployed("a", "c")
    facts = choose(model("a", "c"), live, NEW)
    assert child(model("a", "c"), facts) == live
    assert facts.template == NewTemplate()
    key = key_of(live["spec"]["template"]["spec"])
    assert read(child(model("a", "c"), facts, "ConfigMap")) == {key: Models(("a", "c"))}
    server, check = (
        next(c for c in live["spec"]["template"]["spec"][kind] if c["name"] == name)
        for kind, name in (("containers", "triton"), ("initContainers", "check"))
    )
    assert not any("--load-model" in argument for argument in server["args"])
    assert "--load-models-file=/.triton-operator/load-models/models" in check["command"]
    mounted = [m["mountPath"] for c in (server, check) for m in c["volumeMounts"] if m["name"] == "load-models"]
    assert mounted == ["/.triton-operator/load-models"] * 2


@pytest.mark.parametrize("flag", ["--grpc-use-ssl=true", "--http-restricted-api=model-repository:key=x"])
def test_a_change_replaces_servers_that_the_operator_cannot_change(flag: str) -> None:
    closed = {"server": {"args": [flag]}}
    live = deployed("a", "b", **closed)
    (server,) = live["spec"]["template"]["spec"]["containers"]
    assert [a for a in server["args"] if a.startswith("--load-model")] == ["--load-model=a", "--load-model=b"]
    facts = choose(model("a", "c", **closed), live, NEW)
    assert child(model("a", "c", **closed), facts, "ConfigMap") is None
    changed = child(model("a", "c", **closed), facts)
    assert changed is not None
    assert template_hash(changed) != template_hash(live)


def test_the_configmap_has_what_is_known() -> None:
    key = key_of(deployed("a", "b")["spec"]["template"]["spec"])
    lists = {key: Models(("a",), ("b", "c")), "models": Models(("d",), ("e",)), "0a": Models((), ())}
    assert read(child(model("a", "b"), replace(OLD, lists=lists), "ConfigMap")) == lists


@pytest.mark.parametrize("spec", [
    {"server": {"image": "triton:2"}}, {"rollout": {"restartedAt": "2026-01-01T00:00:00Z"}}, {"entrypoint": "c"},
    {"modelImage": {"reference": "registry.example.com/models:2"}},
])  # fmt: skip
def test_another_change_at_the_same_time_replaces_the_servers(spec: dict[str, Any]) -> None:
    changed, live = model("a", "c", **spec), deployed("a", "b")
    assert template_hash(child(changed, choose(changed, live, NEW))) != template_hash(live)


def test_without_an_entrypoint_the_models_are_in_the_template() -> None:
    """The readiness probe then asks for all models, and would fail while a server loads one."""
    plain = model("a", entrypoint=None)
    assert child(plain, OLD, "ConfigMap") is None
    live = deployed("a", entrypoint=None)
    assert "--load-model=a" in live["spec"]["template"]["spec"]["containers"][0]["args"]
    changed = model("c", entrypoint=None)
    assert template_hash(child(changed, choose(changed, live, OLD))) != template_hash(live)


def test_replaced_servers_get_another_hash_that_stays() -> None:
    live = deployed("a", "b")
    after = child(model("a", "c"), choose(model("a", "c"), live, OLD, replace_servers=True))
    assert template_hash(after) != template_hash(live)
    assert child(model("a", "c"), choose(model("a", "c"), after, OLD)) == after
    assert child(model("a", "d"), choose(model("a", "d"), after, NEW)) == after
