"""The CRD that is generated from the types: structural, bounded, and consistent with the operator."""

from __future__ import annotations

import functools
import json
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
"""Deeper nesting than the operator accepts in a field without a schema. The API server accepts it."""


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from nodes(below, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from nodes(schema[name], f"{path}.{name}")


EMBEDDED = ("spec.podTemplate.spec", "spec.server.env.items", "spec.autoscaling.behavior")
"""Fields with Kubernetes' own types, which kubectl explain describes for those types."""
TRITONS = ("spec.models.items.config", "spec.canary.models.items.config")
"""The field with Triton's own types."""


def test_schema_is_structural() -> None:
    for path, node in nodes(SCHEMA):
        forbidden = {"$ref", "$defs", "title", "oneOf", "allOf", "const", "uniqueItems"}
        assert not forbidden & node.keys(), path
        assert node.get("exclusiveMinimum", True) is True, path  # a bool in OpenAPI v3.0, a number in JSON Schema
        if node.get("x-kubernetes-int-or-string"):
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
        elif node.get("x-kubernetes-preserve-unknown-fields"):
            assert (node["maxItems"], node["maxProperties"]) == (0, 0), path
        else:
            assert isinstance(node["type"], str), path
            assert "anyOf" not in node, path
        assert node.get("default", "") is not None, path


def test_every_field_has_a_description() -> None:
    for path, node in nodes(SPEC, "spec"):
        if not path.endswith((".items", ".additionalProperties")) and not path.startswith(
            tuple(f"{e}." for e in (*EMBEDDED, *TRITONS))
        ):
            assert len(node.get("description", "")) > 10, path


def test_all_values_of_users_have_a_maximum_size() -> None:
    """The API server estimates the cost of CEL rules from the largest value that the schema allows, and the operator
    stores all that it allows."""
    for path, node in nodes(SPEC, "spec"):
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path
        if node.get("type") == "string" and "enum" not in node:
            assert "maxLength" in node, path
        if node.get("type") == "object":
            assert "properties" in node or "additionalProperties" in node, path


def test_embedded_types_have_no_required_fields_and_allow_null() -> None:
    for path, node in nodes(SPEC, "spec"):
        if path.startswith(EMBEDDED) and path not in EMBEDDED:
            assert "required" not in node, path
            assert "default" not in node, path
            assert node.get("nullable") or path.endswith((".items", ".additionalProperties")), path


def test_crd_fits_into_the_annotation_of_a_client_side_apply() -> None:
    assert len(json.dumps(crd.definition())) < 200_000


def with_defaults(schema: dict[str, Any], value: Any) -> Any:
    """Returns `value` with the schema's defaults, as the API server sets them."""
    if not isinstance(value, dict):
        return value
    out = dict(value)
    for name, below in schema.get("properties", {}).items():
        if name not in out and "default" in below:
            out[name] = below["default"]
        if name in out:
            out[name] = with_defaults(below, out[name])
    return out


def test_api_server_and_operator_have_the_same_defaults() -> None:
    sparse = gen.raw()
    complete = {**sparse, "spec": with_defaults(SPEC, sparse["spec"])}
    assert complete["spec"]["server"]["modelControl"] == "none"
    assert TritonModel.model_validate(complete) == TritonModel.model_validate(sparse)


def test_accepts_an_ipv6_address() -> None:
    TritonModel.model_validate(gen.raw(server={"args": ["--http-address=ipv6:[::]"]}))


def test_operator_ignores_unknown_fields() -> None:
    TritonModel.model_validate(gen.raw(fieldOfTomorrow=1))


@pytest.mark.parametrize(
    "spec", [{"modelImage": {}}, {"replicas": -1}, {"server": {"image": ""}}, {"entrypoint": "a/b"},
             {"server": {"resources": {"limits": {"cpu": "many"}}}}, {"podTemplate": {"spec": DEEP}},
             {"autoscaling": {"max": 1, "behavior": DEEP}}, {"server": {"env": [DEEP]}},
             {"modelImage": {"reference": "x", "delivery": "x"}}, {"server": {"loadModels": ["a,b"]}},
             {"server": {"args": ["--http-por=9000"]}}, {"server": {"args": ["--load-model", "a"]}},
             {"server": {"loadModels": [".."]}}, {"server": {"loadModels": ["a\x01"]}},
             {"models": [{"name": "a", "config": {"input": []}}]}, {"models": [{"name": "a/b", "config": {}}]},
             {"models": [{"name": "a", "config": {"parameters": {"a": {"string_value": "ü" * (50 << 10)}}}}]}]
)  # fmt: skip
def test_rejects_invalid_specs_without_a_cluster(spec: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TritonModel.model_validate(gen.raw(**spec))


def test_api_server_and_operator_agree_on_whitespace_and_bounds() -> None:
    """Go's \\s matches five characters, pydantic's all Unicode whitespace. With \\s in a pattern, the API server would
    accept names that the operator then rejects."""
    assert not [path for path, node in nodes(SCHEMA) if "\\s" in node.get("pattern", "")]
    TritonModel.model_validate(gen.raw(entrypoint="a\u00a0b", modelImage={"reference": "a\u2003b", "path": "/\u3000"}))
    utilization = SPEC["properties"]["autoscaling"]["properties"]["utilization"]
    assert (utilization["minimum"], utilization["exclusiveMinimum"]) == (0, True)


def test_reserves_every_flag_that_the_operator_sets() -> None:
    from triton_operator.render.server import arguments

    model = gen.model(entrypoint="a", server={"modelControl": "explicit", "loadModels": ["a"], "logVerbosity": 1})
    flags = {a.removeprefix("--").split("=")[0] for a in arguments(model)}
    # For these two, the user's flag overrides ours or is added to it.
    assert flags - set(RESERVED_FLAGS) == {"grpc-max-connection-age", "metrics-config"}


def test_models_have_the_fields_of_the_schema_of_triton() -> None:
    fields = SPEC["properties"]["models"]["items"]["properties"]["config"]["properties"]
    group = fields["instance_group"]["items"]["properties"]
    assert group["kind"]["enum"] == ["KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"]
    assert group["count"] == {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
    assert fields["version_policy"]["maxProperties"] == 1
    assert fields["parameters"]["additionalProperties"]["properties"].keys() == {"string_value"}
    assert not {"name", "platform", "backend", "input", "output", "ensemble_scheduling"} & fields.keys()


def test_scale_subresource_refers_to_existing_fields() -> None:
    scale = crd.definition()["spec"]["versions"][0]["subresources"]["scale"]
    for path in scale.values():
        node = SCHEMA
        for step in path.lstrip(".").split("."):
            node = node["properties"][step]
        assert node["type"] in ("integer", "string")


def test_printer_columns_refer_to_existing_fields() -> None:
    for column in crd.definition()["spec"]["versions"][0]["additionalPrinterColumns"]:
        node = SCHEMA
        steps = column["jsonPath"].split("[")[0].lstrip(".").split(".")
        for step in steps if steps[0] != "metadata" else []:
            node = node["properties"][step]


def test_generated_crd_and_roles_are_up_to_date() -> None:
    text = (ROOT / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml").read_text()
    assert yaml.safe_load(text) == crd.definition()
    assert list(yaml.safe_load_all((ROOT / "manifests/rbac/operator.yaml").read_text())) == rbac.manifests()


def test_operator_has_exactly_the_permissions_that_it_needs() -> None:
    granted = [*rbac.grants(), *rbac.cluster_grants(), *rbac.own_grants()]
    allowed: dict[tuple[str, str], set[str]] = {}
    for grant in granted:
        assert grant.why.endswith(".")
        for resource in grant.resources:
            allowed.setdefault((grant.group, resource), set()).update(grant.verbs)
    for kind in KINDS:
        assert allowed[kind.group, kind.plural] == {"get", "list", "watch", "create", "patch", "delete"}
    assert allowed["", "pods"] == {"list", "watch", "delete"}
    assert allowed["apps", "replicasets"] == {"get", "list", "delete"}
    assert not any("*" in verbs for verbs in allowed.values())
    assert [r for (_, r), verbs in allowed.items() if "update" in verbs] == ["tritonmodels/finalizers", "leases"]
    assert not any(r == "secrets" for _, r in allowed)


def test_spec_survives_serialization() -> None:
    spec = gen.model(server={"loadModels": ["a"], "modelControl": "explicit"}, entrypoint="a").spec
    parsed = TritonModelSpec.model_validate(spec.model_dump(mode="json", by_alias=True))
    assert parsed == spec
