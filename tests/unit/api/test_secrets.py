"""Redacts sensitive values of a spec from log messages and conditions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support import gen
from triton_operator.api import secrets
from triton_repository_check.text import one_line

PEM = '-----BEGIN\n"KEY"\t'


def env(value: Any) -> dict[str, Any]:
    return {"name": "A", "value": value}


@pytest.mark.parametrize("location", ["server", "containers", "initContainers"])
@pytest.mark.parametrize("value", ["hunter22", "pass word", PEM, "ключ-ключ"])
def test_redacts_values_of_environment_variables(location: str, value: str) -> None:
    spec: dict[str, Any] = {"server": {"env": [env(value)]}}
    if location != "server":
        spec = {"podTemplate": {"spec": {location: [{"name": "triton", "env": [env(value)]}]}}}
    hidden = secrets.values(gen.model(**spec))
    words = f"Invalid value: {value} is not"
    for message in (words, one_line(words), f"Invalid value: {json.dumps(value, ensure_ascii=False)}: is not"):
        redacted = secrets.redact(message, hidden)
        assert value not in redacted
        assert "hunter" not in redacted
        assert "BEGIN" not in redacted
        assert redacted.startswith("Invalid value: ")
        assert secrets.REDACTED in redacted


def test_redacts_an_unquoted_number() -> None:
    hidden = secrets.values(gen.model(server={"env": [env(9876543210)]}))
    assert secrets.redact("expected string, got &{9876543210}", hidden) == "expected string, got &{(hidden)}"


@pytest.mark.parametrize("value", [["hunter22"], {"hunter22": [{"a": "hunter22"}]}])
def test_redacts_values_that_are_not_strings(value: Any) -> None:
    assert secrets.values(gen.model(server={"env": [env(value)]})) == ("hunter22",)


def test_redacts_a_longer_value_before_its_prefix() -> None:
    hidden = secrets.values(gen.model(server={"env": [env("hunter"), env("hunter-two")]}))
    assert secrets.redact("hunter-two hunter", hidden) == "(hidden) (hidden)"


@pytest.mark.parametrize("value", ["1", "true", "info", "", None, [], {}])
def test_keeps_short_and_common_values_readable(value: Any) -> None:
    hidden = secrets.values(gen.model(server={"env": [env(value), {"name": "B"}, {}]}))
    assert secrets.redact("1 true info", hidden) == "1 true info"


@pytest.mark.parametrize("wrong", [None, "x", 1, ["x"], [None], [{"env": "x"}], [{"env": [1]}], [{"env": None}]])
def test_accepts_a_malformed_pod_template(wrong: Any) -> None:
    assert secrets.values(gen.model(podTemplate={"spec": {"containers": wrong, "initContainers": wrong}})) == ()


@pytest.mark.parametrize("location", ["server", "args", "command"])
@pytest.mark.parametrize(
    ("argument", "redacted"),
    [
        ("--cache-config=redis,password=hunter22", "--cache-config=redis,password=(hidden)"),
        ("redis,password=hunter22", "redis,password=(hidden)"),
        ("--cache-config=redis,password=hunter22,user=somebody", "--cache-config=redis,password=(hidden)"),
        ("--cache-config=redis,password=a,hunter22", "--cache-config=redis,password=(hidden)"),
        ("--http-restricted-api=metadata:admin-key=hunter22", "--http-restricted-api=metadata:admin-key=(hidden)"),
        # Not a setting, or a value that is too short or common.
        ("--log-file=/tmp/hunter22", "--log-file=/tmp/hunter22"),
        ("--metrics-config=summary_latencies=true", "--metrics-config=summary_latencies=true"),
        ("--backend-config=python,hunter22", "--backend-config=python,hunter22"),
    ],
)
def test_redacts_sensitive_settings_in_arguments(location: str, argument: str, redacted: str) -> None:
    spec: dict[str, Any] = {"server": {"args": [argument]}}
    if location != "server":
        spec = {"podTemplate": {"spec": {"containers": [{"name": "triton", location: [argument]}]}}}
    assert secrets.redact(f"got {argument!r}", secrets.values(gen.model(**spec))) == f"got {redacted!r}"


def test_redacts_each_part_of_an_argument() -> None:
    model = gen.model(server={"args": ["--cache-config=redis,password=hunter22,user=somebody"]})
    assert secrets.redact("AUTH hunter22 as somebody", secrets.values(model)) == "AUTH (hidden) as (hidden)"


def test_hides_the_whole_message_of_a_spec_with_too_many_settings() -> None:
    """A search for each in the message of each model would take seconds."""
    parts = [",".join(f"a=value-{n:04}" for n in range(m, m + 100)) for m in range(0, secrets.MAX_VALUES + 100, 100)]
    many, few = (
        secrets.values(gen.model(server={"args": [f"--backend-config={part}" for part in parts[:number]]}))
        for number in (len(parts), 5)
    )
    told = "(hidden): the spec has more than 1000 settings, each of which may be secret"
    assert secrets.redact("got value-0001", many) == told
    assert secrets.redact("got value-0001", few) == "got (hidden)"
