"""The CRD is made from the types, and the API server must take it: structural, and sound by itself."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from support import gen
from triton_operator.api import names
from triton_operator.api.types import RESERVED_FLAGS, TritonModel, TritonModelSpec
from triton_operator.manifests import crd, rbac
from triton_operator.render.children import KINDS

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC = SCHEMA["properties"]["spec"]


DEEP: dict[str, Any] = functools.reduce(lambda inner, _: {"a": [inner]}, range(40), {})
"""What no field without a schema needs, and the API server takes."""


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from nodes(below, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from nodes(schema[name], f"{path}.{name}")


def test_the_schema_is_structural() -> None:
    for path, node in nodes(SCHEMA):
        forbidden = {"$ref", "$defs", "title", "nullable", "oneOf", "allOf", "const", "uniqueItems"}
        assert not forbidden & node.keys(), path
        assert node.get("exclusiveMinimum", True) is True, path  # a flag here, a number in JSON schema
        if node.get("x-kubernetes-int-or-string"):
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
        else:
            assert isinstance(node["type"], str), path
            assert "anyOf" not in node, path
        assert node.get("default", "") is not None, path


def test_every_field_says_what_it_is() -> None:
    for path, node in nodes(SPEC, "spec"):
        if not path.endswith((".items", ".additionalProperties")):
            assert len(node.get("description", "")) > 10, path


def test_strings_of_users_are_bounded() -> None:
    """CEL rules are priced by the largest value that the schema admits."""
    for path, node in nodes(SPEC, "spec"):
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if node.get("type") == "string" and not path.startswith("spec.podTemplate") and "enum" not in node:
            assert "maxLength" in node, path


def filled(schema: dict[str, Any], value: Any) -> Any:
    """`value` with the schema's defaults, as the API server fills them in."""
    if not isinstance(value, dict):
        return value
    out = dict(value)
    for name, below in schema.get("properties", {}).items():
        if name not in out and "default" in below:
            out[name] = below["default"]
        if name in out:
            out[name] = filled(below, out[name])
    return out


def test_defaults_mean_the_same_to_the_api_server_and_to_the_operator() -> None:
    sparse = gen.raw()
    complete = {**sparse, "spec": filled(SPEC, sparse["spec"])}
    assert complete["spec"]["server"]["modelControl"] == "none"
    assert TritonModel.model_validate(complete) == TritonModel.model_validate(sparse)


def test_servers_may_listen_on_ipv6() -> None:
    TritonModel.model_validate(gen.raw(server={"args": ["--http-address=ipv6:[::]"]}))


def test_unknown_fields_are_left_to_the_api_server() -> None:
    TritonModel.model_validate(gen.raw(fieldOfTomorrow=1))


@pytest.mark.parametrize(
    "spec", [{"modelImage": {}}, {"replicas": -1}, {"server": {"image": ""}}, {"entrypoint": "a/b"},
             {"server": {"resources": {"limits": {"cpu": "many"}}}}, {"podTemplate": {"spec": DEEP}},
             {"autoscaling": {"max": 1, "behavior": DEEP}}, {"server": {"env": [DEEP]}},
             {"modelImage": {"reference": "x", "delivery": "x"}}, {"server": {"loadModels": ["a,b"]}},
             {"server": {"args": ["--http-por=9000"]}}, {"server": {"args": ["--load-model", "a"]}},
             {"server": {"loadModels": [".."]}}, {"server": {"loadModels": ["a\x01"]}}]
)  # fmt: skip
def test_bad_specs_are_refused_without_a_cluster_too(spec: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TritonModel.model_validate(gen.raw(**spec))


def test_space_and_bounds_are_the_same_to_the_api_server_and_to_the_operator() -> None:
    """Go's \\s is five characters, and that of the types' library is Unicode's: names with others were let in, and
    then not understood."""
    assert not [path for path, node in nodes(SCHEMA) if "\\s" in node.get("pattern", "")]
    TritonModel.model_validate(gen.raw(entrypoint="a\u00a0b", modelImage={"reference": "a\u2003b", "path": "/\u3000"}))
    utilization = SPEC["properties"]["autoscaling"]["properties"]["utilization"]
    assert (utilization["minimum"], utilization["exclusiveMinimum"]) == (0, True)


def test_every_flag_that_the_operator_sets_is_reserved() -> None:
    from triton_operator.render.server import arguments

    model = gen.model(entrypoint="a", server={"modelControl": "explicit", "loadModels": ["a"], "logVerbosity": 1})
    flags = {a.removeprefix("--").split("=")[0] for a in arguments(model)}
    # There theirs wins, or is added.
    assert flags - set(RESERVED_FLAGS) == {"grpc-max-connection-age", "metrics-config"}


def test_the_scale_subresource_points_at_fields_that_exist() -> None:
    scale = crd.definition()["spec"]["versions"][0]["subresources"]["scale"]
    for path in scale.values():
        node = SCHEMA
        for step in path.lstrip(".").split("."):
            node = node["properties"][step]
        assert node["type"] in ("integer", "string")


def test_the_columns_point_at_fields_that_exist() -> None:
    for column in crd.definition()["spec"]["versions"][0]["additionalPrinterColumns"]:
        node = SCHEMA
        steps = column["jsonPath"].split("[")[0].lstrip(".").split(".")
        for step in steps if steps[0] != "metadata" else []:
            node = node["properties"][step]


def test_the_checked_in_files_are_those_of_the_code() -> None:
    text = (ROOT / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml").read_text()
    assert yaml.safe_load(text) == crd.definition()
    assert list(yaml.safe_load_all((ROOT / "manifests/rbac/operator.yaml").read_text())) == rbac.manifests()


def test_the_operator_may_do_what_it_does_and_not_more() -> None:
    granted = [*rbac.grants(), *rbac.cluster_grants(), *rbac.own_grants()]
    allowed: dict[tuple[str, str], set[str]] = {}
    for grant in granted:
        assert grant.why.endswith(".")
        for resource in grant.resources:
            allowed.setdefault((grant.group, resource), set()).update(grant.verbs)
    for kind in KINDS:
        assert allowed[kind.group, kind.plural] == {"get", "list", "watch", "create", "patch", "delete"}
    assert allowed["", "pods"] == {"list", "watch", "delete"}
    assert not any("*" in verbs for verbs in allowed.values())
    assert [r for (_, r), verbs in allowed.items() if "update" in verbs] == ["tritonmodels/finalizers", "leases"]
    assert not any(r in ("secrets", "configmaps") for _, r in allowed)


def test_the_types_round_trip() -> None:
    spec = gen.model(server={"loadModels": ["a"], "modelControl": "explicit"}, entrypoint="a").spec
    again = TritonModelSpec.model_validate(spec.model_dump(mode="json", by_alias=True))
    assert again == spec
