"""The table of engines: the API has the same ones, and a new one is a file and a line."""

from __future__ import annotations

from typing import get_args

import pytest

from support import gen
from triton_operator import engines
from triton_operator.api import kinds
from triton_operator.api.types import Autoscaling
from triton_operator.engines import ENGINES, Engine, Known, Scaler, Verdict
from triton_operator.manifests.crd import definition

NAMES = [engine.name for engine in ENGINES]


def rules() -> list[dict[str, str]]:
    version = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    found: list[dict[str, str]] = version["autoscaling"]["x-kubernetes-validations"]
    return found


def test_the_api_has_the_engines_of_the_table_and_none() -> None:
    assert [*NAMES, "None"] == list(get_args(Autoscaling.model_fields["engine"].annotation))


@pytest.mark.parametrize("engine", ENGINES, ids=NAMES)
def test_the_api_allows_zero_servers_with_the_engines_that_scale_to_zero(engine: Engine) -> None:
    [rule] = [rule["rule"] for rule in rules() if "self.min > 0" in rule["rule"]]
    assert (f"'{engine.name}'" in rule) is engine.to_zero
    assert engine.to_zero or not engine.load_wakes


@pytest.mark.parametrize("engine", ENGINES, ids=NAMES)
def test_a_scaler_says_how_it_is_released_or_needs_no_release(engine: Engine) -> None:
    scaler = engine.scaler
    assert bool(scaler.owner) == bool(scaler.waiting)
    spec = scaler.spec(gen.model(autoscaling={"engine": engine.name, "min": 1, "max": 2}), Known("http://p"))
    assert spec is not None
    assert spec[scaler.minimum] == 1


def test_no_object_is_rendered_for_a_kind_that_another_engine_has() -> None:
    assert len({scaler.kind for scaler in engines.SCALERS}) == len(engines.SCALERS)
    for engine in ENGINES:
        assert engine.scaler in engines.SCALERS


def test_an_engine_needs_nothing_but_its_descriptor() -> None:
    scaler = Scaler(kinds.SCALED_OBJECT, lambda _, known: {"least": known.floor}, minimum="least", copied="")
    new = Engine("New", scaler, lambda _, __: Verdict("True", "Scaling", "it scales"))
    assert (new.to_zero, new.counts, new.settings) == (False, None, ())
