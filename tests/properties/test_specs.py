"""The operator can parse, render and plan every spec that the CRD's schema accepts."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from support import gen, specs
from support.profiles import examples
from triton_operator.api import names, quantity
from triton_operator.api.types import TritonModel
from triton_operator.cluster import shallow
from triton_operator.decisions.first_objects import first_objects
from triton_operator.plan import plan
from triton_operator.render import Facts, choose, endpoint, render
from triton_operator.render.facts import Capabilities

Json = dict[str, Any]
# As the operator reads them from the API server: integers of more than 64 bits become floats.
SPECS = specs.specs().map(lambda spec: shallow.loads(json.dumps(spec)))
FACTS = st.builds(
    Facts,
    tools_image=st.just("registry.example.com/operator:1"),
    delivery=st.sampled_from(["Copy", "ImageVolume"]),
    entrypoint=st.sampled_from(["", "detection"]),
    ensemble=st.booleans(),
    cluster=st.builds(Capabilities, monitoring=st.booleans()),
)
NAMES = st.one_of(st.just("a" * names.NAME_MAX), st.from_regex(r"[a-z]([-a-z0-9]{0,52}[a-z0-9])?", fullmatch=True))
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def with_route(grpc: Json) -> Json:
    """A policy names an HTTPRoute and a GRPCRoute of the same name."""
    return {"modelImage": {"reference": "a"}, "route": {"gateway": {"name": "a"}, "hostnames": ["a"], "grpc": grpc}}


@examples(80)
@given(SPECS)
@example({"modelImage": {"reference": "a"}, "autoscaling": {"max": 1, "utilization": 5e-324}})
def test_parses_every_spec_that_the_schema_accepts(spec: Json) -> None:
    TritonModel.model_validate(gen.raw(**spec))


@examples(60)
@given(SPECS, FACTS, NAMES)
def test_renders_valid_objects(spec: Json, fresh: Facts, name: str) -> None:
    model = TritonModel.model_validate(gen.raw(name=name, **spec))
    facts = choose(model, None, fresh)
    desired = first_objects(model, fresh)
    assert first_objects(model, fresh) == desired
    for obj in desired:
        text = json.dumps(obj)
        assert json.loads(text) == obj  # contains only JSON values
        assert _LABEL.fullmatch(obj["metadata"]["name"])
        assert len(obj["metadata"]["name"]) <= (253 if obj["kind"] in ("ServiceAccount", "ConfigMap") else 63)
        assert all(len(value) <= 63 for value in obj["metadata"]["labels"].values())
    assert endpoint(model).startswith("http://")

    # A live Deployment has init containers only as the API server accepts them.
    if "initContainers" not in model.spec.pod_template.spec:
        deployment = next(obj for obj in desired if obj["kind"] == "Deployment")
        assert choose(model, deployment, fresh).delivery == facts.delivery


@examples(40)
@given(SPECS, FACTS)
@example(with_route({"listener": "grpc"}), Facts("tools", "Copy"))
def test_plans_nothing_if_live_equals_desired(spec: Json, fresh: Facts) -> None:
    """This leaves out fields whose lists could contain a name twice, which the API server rejects."""
    spec.pop("podTemplate", None)
    spec.get("server", {}).pop("env", None)
    spec.get("modelImage", {}).pop("pullSecrets", None)
    model = TritonModel.model_validate(gen.raw(**spec))
    desired = render(model, choose(model, None, fresh))
    assert plan(desired, [gen.live(obj) for obj in desired], {}).writes == ()


def with_behavior(*rules: Json) -> Json:
    return {"modelImage": {"reference": "a"}, "autoscaling": {"max": 2, "behavior": {"rules": list(rules)}}}


@examples(40)
@given(SPECS, SPECS, FACTS)
@example(with_behavior({"name": "a"}), with_behavior({"name": []}), Facts("tools", "Copy"))
def test_plan_never_raises(spec: Json, other: Json, fresh: Facts) -> None:
    model, before = (TritonModel.model_validate(gen.raw(**s)) for s in (spec, other))
    live = [{**obj, "metadata": {**obj["metadata"], "uid": "u"}} for obj in render(before, choose(before, None, fresh))]
    plan(render(model, choose(model, None, fresh)), live, {})


@examples(80)
@given(st.one_of(specs.QUANTITIES, specs.TEXT))
def test_quantities_are_parsed_within_kubernetes_bounds(text: str | int) -> None:
    """Kubernetes caps quantities at 2^63-1 and rounds small ones up to 1n."""
    try:
        amount = quantity.parse(text)
    except ValueError:
        assert not re.fullmatch(quantity.PATTERN.strip("^$"), str(text)) or isinstance(text, int)
        return
    assert 0 <= amount <= 2**63 - 1
    assert quantity.same(text, text)
    assert len(str(int(amount))) < 20
