"""Cuts JSON that is nested too deeply to read."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable

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
    value = json.loads(shallow.dumps(shallow.loads(nested(levels).encode())))
    assert (value["a"], value["d"]) == ("]}", [{}, "[{"])
    assert shallow.CUT in json.dumps(value)


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


def large(**fields: object) -> dict[str, object]:
    """Returns an object with a map that is larger than the maximum size."""
    fields_of_all = [{"manager": "m", "fieldsV1": {"f:spec": {"f:x": {}}}}]
    return {
        "kind": "TritonModel",
        "metadata": {"name": "a", "managedFields": fields_of_all, "labels": {"metadata": "{["}},
        "spec": {"a": [{}] * 400_000, "metadata": {"name": "b"}},
        "status": {"conditions": [{"type": "Ready"}]},
        **fields,
    }


OUTLINE = {
    "kind": "TritonModel", "metadata": {"name": "a", "managedFields": [], "labels": {"metadata": "{["}}, "spec": {},
    "status": {"conditions": [{"type": "Ready"}]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("around", "at"),
    [
        (lambda obj: obj, ()),
        (lambda obj: {"type": "ADDED", "object": obj}, ("object",)),
        (lambda obj: {"kind": "List", "metadata": {"continue": "x"}, "items": [obj]}, ("items", 0)),
    ],
)
def test_reads_an_object_that_is_too_large_in_outline(
    around: Callable[[object], dict[str, object]], at: shallow.Path
) -> None:
    text = json.dumps(around(large()))
    value = shallow.loads(text, at)
    assert value == around({**OUTLINE, shallow.TOO_LARGE: shallow.size(text.encode())})


def test_object_with_too_many_small_values_is_too_large() -> None:
    text = json.dumps({**large(), "spec": {"a": [{}] * 70_000}})
    assert len(text) < shallow.MAX_BYTES
    assert shallow.loads(text)["spec"] == {}


def test_reads_a_large_object_in_outline_with_little_memory() -> None:
    text = json.dumps(large()).encode()
    tracemalloc.start()
    shallow.loads(text)
    took = tracemalloc.get_traced_memory()[1]
    json.loads(text)
    whole = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took < 1 << 20 < 20 << 20 < whole


@pytest.mark.parametrize(
    "text", [b"[" + b"{}," * 400_000 + b"{}]", b'{"items": [' + b"[]," * 400_000 + b"[]]}", b"[" * 2_000_000]
)
def test_rejects_large_json_that_is_not_a_kubernetes_object(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        shallow.loads(text, ("items", 0))
