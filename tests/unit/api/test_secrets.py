"""Which values of a spec are kept out of logs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support import gen
from triton_operator.api import secrets
from triton_operator.api.text import one_line

PEM = '-----BEGIN\n"KEY"\t'


def env(value: Any) -> dict[str, Any]:
    return {"name": "A", "value": value}


@pytest.mark.parametrize("place", ["server", "containers", "initContainers"])
@pytest.mark.parametrize("value", ["hunter22", "pass word", PEM, "ключ-ключ"])
def test_values_of_the_environment_are_hidden(place: str, value: str) -> None:
    spec: dict[str, Any] = {"server": {"env": [env(value)]}}
    if place != "server":
        spec = {"podTemplate": {"spec": {place: [{"name": "triton", "env": [env(value)]}]}}}
    hidden = secrets.values(gen.model(**spec))
    words = f"Invalid value: {value} is not"
    for said in (words, one_line(words), f"Invalid value: {json.dumps(value, ensure_ascii=False)}: is not"):
        told = secrets.redact(said, hidden)
        assert value not in told
        assert "hunter" not in told
        assert "BEGIN" not in told
        assert told.startswith("Invalid value: ")
        assert secrets.REDACTED in told


def test_a_number_that_should_have_been_quoted_is_hidden_too() -> None:
    hidden = secrets.values(gen.model(server={"env": [env(9876543210)]}))
    assert secrets.redact("expected string, got &{9876543210}", hidden) == "expected string, got &{(hidden)}"


@pytest.mark.parametrize("value", [["hunter22"], {"hunter22": [{"a": "hunter22"}]}])
def test_what_is_no_text_is_hidden_too(value: Any) -> None:
    assert secrets.values(gen.model(server={"env": [env(value)]})) == ("hunter22",)


def test_what_holds_another_is_hidden_first() -> None:
    hidden = secrets.values(gen.model(server={"env": [env("hunter"), env("hunter-two")]}))
    assert secrets.redact("hunter-two hunter", hidden) == "(hidden) (hidden)"


@pytest.mark.parametrize("value", ["1", "true", "info", "", None, [], {}])
def test_what_is_no_secret_stays_readable(value: Any) -> None:
    hidden = secrets.values(gen.model(server={"env": [env(value), {"name": "B"}, {}]}))
    assert secrets.redact("1 true info", hidden) == "1 true info"


@pytest.mark.parametrize("wrong", [None, "x", 1, ["x"], [None], [{"env": "x"}], [{"env": [1]}], [{"env": None}]])
def test_a_template_of_any_form_is_looked_through(wrong: Any) -> None:
    assert secrets.values(gen.model(podTemplate={"spec": {"containers": wrong, "initContainers": wrong}})) == ()


@pytest.mark.parametrize("place", ["server", "args", "command"])
@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("--cache-config=redis,password=hunter22", "--cache-config=redis,password=(hidden)"),
        ("redis,password=hunter22", "redis,password=(hidden)"),
        ("--cache-config=redis,password=hunter22,user=somebody", "--cache-config=redis,password=(hidden)"),
        ("--cache-config=redis,password=a,hunter22", "--cache-config=redis,password=(hidden)"),
        ("--http-restricted-api=health:admin-key=hunter22", "--http-restricted-api=health:admin-key=(hidden)"),
        # No setting, or none that is long enough to be a secret.
        ("--log-file=/tmp/hunter22", "--log-file=/tmp/hunter22"),
        ("--metrics-config=summary_latencies=true", "--metrics-config=summary_latencies=true"),
        ("--backend-config=python,hunter22", "--backend-config=python,hunter22"),
    ],
)
def test_settings_in_arguments_are_hidden(place: str, argument: str, shown: str) -> None:
    spec: dict[str, Any] = {"server": {"args": [argument]}}
    if place != "server":
        spec = {"podTemplate": {"spec": {"containers": [{"name": "triton", place: [argument]}]}}}
    assert secrets.redact(f"got {argument!r}", secrets.values(gen.model(**spec))) == f"got {shown!r}"


def test_a_part_of_an_argument_is_hidden_too() -> None:
    model = gen.model(server={"args": ["--cache-config=redis,password=hunter22,user=somebody"]})
    assert secrets.redact("AUTH hunter22 as somebody", secrets.values(model)) == "AUTH (hidden) as (hidden)"
