"""What is recorded of a spec stays the same over versions, and covers what the pod template depends on.

Each Deployment has the hash of the spec of its servers. A version that computes another one replaces all servers when
it starts; one that leaves out a field never rolls out a change of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from support import gen
from triton_operator.render import Facts
from triton_operator.render.deployment import pod_template
from triton_operator.render.facts import NewTemplate
from triton_operator.render.kept_template import NOT_IN_PODS, spec_hash
from triton_operator.render.template_choice import models_hash
from unit.render.test_first_defaults import FIRST

RECORDED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("spec_hashes.json").read_text())
"""Specs, and what every version records for them. Never change a line; a new field gets a new one."""
NO_CHANGE_OF_PODS = {"nothing", "values that are defaults", "a delivery", "a surge", "unavailable servers"}
"""Records with the pod template of a spec without them. Some change the hash, which costs a rollout only if this
version renders other pods, too."""
SAME = (
    ("nothing", "values that are defaults"),
    # A change of these models reaches running servers.
    ("explicit models and an entrypoint", "other explicit models and an entrypoint"),
)
OUTSIDE: dict[str, Any] = {
    "replicas": 3,
    "autoscaling": {"engine": "Direct", "min": 2, "max": 5, "utilization": 0.5},
    "monitoring": {"tokenCounter": "tokens", "alertLabels": {"team": "a"}, "streaming": {"names": "VLLM"}},
    "service": {"sessionAffinity": "ClientIP"},
    "route": {"gateway": {"name": "models"}, "hostnames": ["a.example.com"]},
    "canary": {"modelImage": {"reference": "r:2"}, "weight": 20},
    "networkPolicy": {},
    "disruption": {"maxUnavailable": 2},
    "memoryGrowth": "Replace",
}
"""Values of the fields that the pod template doesn't depend on."""


@pytest.mark.parametrize("name", RECORDED)
def test_each_version_records_the_same(name: str) -> None:
    record = RECORDED[name]
    assert spec_hash(gen.model(**record["spec"]), record["delivery"]) == record["hash"], (
        "an upgrade to this version replaces the servers of such a TritonModel"
    )


def test_records_each_field() -> None:
    recorded = {path for record in RECORDED.values() for path in paths(record["spec"])}
    missing = {path for path in FIRST if path != "rollout.strategy"} - recorded
    assert not missing, "add a record with a value of the new field that isn't its default"


def paths(value: Any, path: str = "") -> set[str]:
    """Returns the paths of all values in a spec."""
    below = value.items() if isinstance(value, dict) else ()
    return {path} | {found for key, inner in below for found in paths(inner, f"{path}.{key}".removeprefix("."))}


def template(spec: dict[str, Any], delivery: str) -> dict[str, Any]:
    model = gen.model(**spec)
    return pod_template(model, Facts("tools:1", delivery, template=NewTemplate(models_hash(model))))


@pytest.mark.parametrize("name", RECORDED)
def test_covers_what_the_pod_template_depends_on(name: str) -> None:
    record = RECORDED[name]
    plain, changed = template({}, "Copy"), template(record["spec"], record["delivery"])
    assert (plain != changed) is (name not in NO_CHANGE_OF_PODS)
    if plain != changed:
        assert record["hash"] != RECORDED["nothing"]["hash"]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_some_specs_are_the_same(one: str, other: str) -> None:
    assert RECORDED[one]["hash"] == RECORDED[other]["hash"]


def test_the_pod_template_depends_on_no_other_field() -> None:
    assert {to_camel(field) for field in NOT_IN_PODS} == OUTSIDE.keys()
    for field, value in OUTSIDE.items():
        assert template({field: value}, "Copy") == template({}, "Copy"), field
