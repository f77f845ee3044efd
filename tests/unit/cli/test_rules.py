"""The CRD's own rules without a cluster. tests/integration/test_values.py compares them with an API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from integration.test_values import ACCEPTED, RULES
from kubectl_triton import rules
from triton_operator.api.plain_yaml import KubectlLoader
from triton_operator.manifests import values


def messages(text: str) -> list[str]:
    return [fault.message for fault in rules.faults(values.stored(yaml.load(text, KubectlLoader)))]


def words(part: dict[str, Any]) -> Iterator[str]:
    for rule in part.get(values.RULES, ()):
        yield rule["message"]
    for inner in (*part.get("properties", {}).values(), part.get("items"), part.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from words(inner)


def test_each_rule_refuses_an_example() -> None:
    told = [message for text in RULES for message in messages(text)]
    assert [rule for rule in words(values.schema()) if not any(message.endswith(rule) for message in told)] == []


@pytest.mark.parametrize("text", ACCEPTED)
def test_no_rule_refuses_what_the_api_server_takes(text: str) -> None:
    assert messages(text) == []


def test_a_rule_names_the_place() -> None:
    text = next(text for text in RULES if "['a,b']" in text)
    document = values.stored(yaml.load(text, KubectlLoader))
    assert "spec.server.loadModels[0]" in [fault.path for fault in rules.faults(document)]
    assert "loadModels" in str(document)


def test_the_document_stays_as_it_is() -> None:
    document = {"metadata": {"name": "a"}, "spec": {"modelImage": {"reference": "r"}, "autoscaling": {"max": 2}}}
    assert [*rules.faults(document)] == []
    assert document["spec"]["autoscaling"] == {"max": 2}
