"""Cuts JSON that is nested too deeply to read."""

from __future__ import annotations

import json

import orjson
import pytest

from support import gen
from triton_operator.cluster import shallow
from triton_operator.cluster.store import Store


def nested(levels: int) -> str:
    return '{"a": "]}", "b": ' + '{"c\\"": [' * (levels // 2) + "1" + "]}" * (levels // 2) + ', "d": [{}, "[{"]}'


@pytest.mark.parametrize("levels", [2, 90])
def test_keeps_json_of_usual_depth(levels: int) -> None:
    assert shallow.loads(nested(levels)) == json.loads(nested(levels))
    assert json.loads(shallow.dumps(json.loads(nested(levels)))) == json.loads(nested(levels))


@pytest.mark.parametrize("levels", [300, 900, 5_000, 10_000])
def test_cuts_values_that_are_nested_too_deeply_and_keeps_the_rest(levels: int) -> None:
    found = json.loads(shallow.dumps(shallow.loads(nested(levels).encode())))
    assert (found["a"], found["d"]) == ("]}", [{}, "[{"])
    assert shallow.CUT in json.dumps(found)


def test_rejects_invalid_json() -> None:
    for text in ("", "{", "[" * 5000, "]" * 5000, '"', '{"a": "'):
        with pytest.raises(orjson.JSONDecodeError):
            shallow.loads(text)


def test_store_keeps_an_object_that_is_nested_too_deeply() -> None:
    store = Store()
    raw = gen.raw()
    raw["spec"]["podTemplate"] = {"spec": json.loads(nested(600))}
    assert store.put(raw) == "vision/detection"
    assert store.model("vision/detection") is not None
