"""The words for values that a TritonModel can't have, from the operator and from the CRD's schema."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from support import gen
from triton_operator.api import faults
from triton_operator.manifests import values
from triton_operator.reconcile import unread


def error(**spec: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        gen.model(**spec)
    return caught.value


TYPED: list[tuple[dict[str, Any], str]] = [
    ({"entrypoint": 2}, 'spec.entrypoint: is the number 2, but must be text: quote it: "2"'),
    ({"server": {"args": ["a", True]}}, 'spec.server.args[1]: is true, but must be text: quote it: "true"'),
    ({"server": {"args": "a"}}, "spec.server.args: is text, but must be a list: write a list, such as [a, b]"),
    ({"server": {"args": {}}}, 'spec.server.args: is a map, but must be a list: write "- " before its first line'),
    ({"server": []}, 'spec.server: is a list, but must be a map: write it without "- "'),
    ({"server": None}, "spec.server: is empty (null), but must be a map: write a value, or remove it"),
    ({"replicas": 2.5}, "spec.replicas: is the number 2.5, but must be a whole number: leave out the fraction"),
    ({"replicas": "two"}, "spec.replicas: is text, but must be a whole number: write a whole number"),
    ({"monitoring": {"enabled": 2.5}}, "spec.monitoring.enabled: is the number 2.5, but must be true or false: write "
     "true or false"),
    ({"server": {"resources": {"limits": {"cpu": None}}}}, "spec.server.resources.limits.cpu: is empty (null), but "
     "must be text or a whole number or a number: write a value, or remove it"),
    ({"modelImage": {}}, "spec.modelImage.reference: is missing: add it"),
    ({"replicas": -1}, "spec.replicas: must be greater than or equal to 0"),
    ({"repair": "Never"}, "spec.repair: must be 'Restart' or 'Report'"),
    ({"server": {"args": ["--http-port=1"]}}, "spec.server.args[0]: --http-port: args has a flag"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "words"), TYPED, ids=[words.partition(":")[0] for _, words in TYPED])
def test_tells_what_to_write(spec: dict[str, Any], words: str) -> None:
    (fault,) = faults.of(error(**spec))
    assert str(fault).startswith(words)


def test_the_condition_has_the_same_words() -> None:
    problem = unread.invalid(error(entrypoint=2, server={"args": list(range(9))}))
    assert problem.message.startswith("the spec can't be read: spec.entrypoint: is the number 2, but must be text: ")
    assert 'spec.server.args[3]: is the number 3, but must be text: quote it: "3"; and 5 more faults' in problem.message


def test_quotes_no_text_that_may_be_a_secret() -> None:
    spec = {"replicas": "hunter2", "server": {"args": "hunter2", "resources": {"limits": "hunter2"}}}
    assert "hunter2" not in str(faults.of(error(**spec)))
    document = gen.raw(**spec, podTemplate={"spec": {"hostNetwork": "hunter2", "containers": ["hunter2"]}})
    told = [*values.faults(document)]
    assert len(told) == 5
    assert "hunter2" not in str(told)


def test_a_number_is_cut() -> None:
    assert len(faults.wrong_type(10**400, faults.TEXT)) < 200
    assert faults.wrong_type(2**63, faults.WHOLE).endswith("write one of at most 64 bits")
    assert faults.wrong_type("9" * 400, faults.WHOLE) == "is text, but must be a whole number: write a whole number"


@pytest.mark.parametrize("text", ["1", "-1.5", "1e3", ".5"])
def test_a_number_in_quotes_needs_none(text: str) -> None:
    assert faults.wrong_type(text, faults.NUMBER).endswith(f"remove the quotes: {text}")
    assert "quotes" not in faults.wrong_type(text, faults.BOOLEAN)
    assert "quotes" not in faults.wrong_type(text, faults.MAP)


def test_drops_the_nulls_that_the_api_server_drops() -> None:
    pod = {"nodeSelector": {"a": None, "b": "c"}, "hostname": None, "containers": [{"name": "a", "env": [None]}]}
    document = gen.raw(server=None, entrypoint=None, podTemplate={"spec": pod, "omit": None})
    assert values.stored(document)["spec"] == {
        "modelImage": {"reference": gen.IMAGE},
        "podTemplate": {"spec": {**pod, "nodeSelector": {"b": "c"}}},
    }
    assert document["spec"]["server"] is None


@pytest.mark.parametrize("document", [{}, {"spec": None}, {"spec": {"server": []}}, {"metadata": []}, [], None, 1, "a"])
def test_compares_anything(document: Any) -> None:
    list(values.faults(values.stored(document)))
    list(values.unknown(document))
