"""What a new TritonModel may not have doesn't stop the one whose servers run with it."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from support import gen
from triton_operator.api import names
from triton_operator.api.fields import RUNNING
from triton_operator.api.types import TritonModel
from triton_operator.pods import Problem
from triton_operator.reconcile.unread import SPEC_INVALID, read
from triton_operator.render.kept_template import spec_hash

KEPT = {
    "a reserved flag": ("server.args", ["--http-port=1"], "spec.server.args[0]: --http-port: args has a flag"),
    "a flag and its value": ("server.args", ["--id a"], "a flag and its value are one item"),
    "a key for the probes": ("server.args", ["--http-restricted-api", "health:k=v"], "spec.server.args: --http-r"),
    "a setting": ("models", [{"name": "a", "config": {"input": []}}], "input can't be set here"),
    "a model twice": ("models", [{"name": "a", "config": {}}] * 2, "has two items for 'a'"),
    "two models in one item": (
        "server",
        {"modelControl": "explicit", "loadModels": ["a,b"]},
        "loadModels needs one model per item",
    ),
}
REFUSED = {
    "another type": ("entrypoint", 1),
    "a quantity that can't be computed": ("server.resources", {"limits": {"cpu": "many"}}),
    "a label that selects": ("commonMetadata.labels", {"app.kubernetes.io/name": "a"}),
    "deep nesting": ("podTemplate.spec", functools.reduce(lambda inner, _: {"a": inner}, range(99), {})),
}


def deployment(raw: dict[str, Any]) -> dict[str, Any]:
    """Returns the Deployment of servers that run with this spec."""
    recorded = spec_hash(TritonModel.model_validate(raw, context=RUNNING), "Copy")
    annotations = {names.ANNOTATION_SPEC: recorded, names.ANNOTATION_DELIVERY: "Copy"}
    return {"metadata": {"annotations": annotations}}


@pytest.mark.parametrize(("path", "value", "words"), KEPT.values(), ids=KEPT)
def test_what_servers_run_with_stays(path: str, value: Any, words: str) -> None:
    raw = gen.raw(gen.put(f"spec.{path}", value))
    live = deployment(raw)
    parsed = read(raw, live)
    assert isinstance(parsed, tuple)
    model, note = parsed
    assert model.metadata.name == gen.NAME
    assert words in note
    assert note.endswith("until it is corrected")
    for other in (None, {"metadata": {}}, deployment(gen.raw(gen.put("spec.server.logVerbosity", 3)))):
        refused = read(raw, other)
        assert isinstance(refused, Problem)
        assert refused.reason == SPEC_INVALID
        assert words in refused.message


def test_what_concerns_no_pod_may_change_beside_it() -> None:
    raw = gen.raw(gen.put("spec.server.args", ["--http-port=1"]))
    live = deployment(raw)
    assert isinstance(read(gen.modified(raw, gen.put("spec.replicas", 7)), live), tuple)
    assert isinstance(read(gen.modified(raw, gen.put("spec.modelImage.reference", "b")), live), Problem)


@pytest.mark.parametrize(("path", "value"), REFUSED.values(), ids=REFUSED)
def test_what_the_operator_cannot_read_is_refused_always(path: str, value: Any) -> None:
    raw = gen.raw()
    live = deployment(raw)
    assert isinstance(read(gen.modified(raw, gen.put(f"spec.{path}", value)), live), Problem)


def test_a_spec_without_a_fault_has_no_note() -> None:
    parsed = read(gen.raw(), None)
    assert isinstance(parsed, tuple)
    assert parsed[1] == ""
