"""The store: keeps only an outline of objects that are too large, or for which their namespace has no room."""

from __future__ import annotations

import random
import string
import tracemalloc
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from support import gen
from triton_operator.cluster import entry as module
from triton_operator.cluster import shallow
from triton_operator.cluster.entry import Entry
from triton_operator.cluster.store import Store
from triton_operator.pods import Pod
from triton_operator.pods.problems import problem_of, step_of

KEY = f"{gen.NAMESPACE}/{gen.NAME}"


def padded(obj: dict[str, Any], size: int) -> dict[str, Any]:
    """Returns `obj` with about `size` bytes of JSON that can't be compressed."""
    text = "".join(random.Random(size).choices(string.ascii_letters, k=size))
    return gen.modified(obj, gen.put("spec.padding", text))


def large_of(store: Store) -> list[tuple[str, str, bool]]:
    return [(o.kind, o.name, o.crowded) for o in store.large(KEY, gen.UID)]


def test_stores_only_a_brief_of_a_tritonmodel_that_is_too_large() -> None:
    store = Store()
    status = {"conditions": [{"type": "Ready"}], "models": [{"name": "a"}]}
    raw = gen.raw(gen.put("metadata.finalizers", [f"f{n}" for n in range(20)]), gen.put("status", status))
    assert store.put(padded(raw, module.LARGEST)) == KEY
    assert large_of(store) == [("TritonModel", gen.NAME, False)]
    model = store.model(KEY)
    assert model is not None
    assert (model["spec"], model["status"], len(model["metadata"]["finalizers"])) == ({}, status, 8)
    assert store.map_kind("TritonModel", lambda o: o["spec"]["modelImage"]) == [], "skips incomplete objects"
    version = gen.put("metadata.resourceVersion", "2")
    assert store.put(gen.modified(raw, version)) == KEY
    assert large_of(store) == []


def test_stores_only_a_brief_of_a_tritonmodel_with_too_many_values() -> None:
    store = Store()
    store.put(gen.raw(gen.put("spec.many", [{}] * 20_000)))
    [large] = store.large(KEY, gen.UID)
    assert large.size.bytes < module.LARGEST
    assert large.size.values > 20_000


def test_the_status_does_not_count_for_the_maximum_size() -> None:
    store = Store()
    models = [{"name": f"model-{n}", "version": "1", "state": "READY", "pods": "1/1"} for n in range(4000)]
    raw = gen.raw(gen.put("status.models", models))
    store.put(raw)
    assert large_of(store) == []
    assert store.model(KEY) == raw


def test_stores_children_that_are_larger_than_a_tritonmodel_may_be() -> None:
    """A Deployment has its fields again in managedFields, and its pod template again in an annotation."""
    store = Store()
    deployment = padded(gen.child(), 3 * module.LARGEST)
    store.put(deployment)
    assert large_of(store) == []
    assert store.children(KEY, gen.UID)[0]["spec"] == deployment["spec"]


def in_outline(obj: dict[str, Any]) -> dict[str, Any]:
    """Returns the outline of `obj`, as it is read if it is too large."""
    text = orjson.dumps(gen.modified(obj, gen.put("spec.padding", "x" * shallow.MAX_BYTES)))
    outline: dict[str, Any] = shallow.loads(text)
    return outline


def test_reports_a_large_child_only_for_its_own_tritonmodel() -> None:
    store = Store()
    for obj in (gen.raw(), in_outline(gen.child()), gen.child("Service")):
        store.put(obj)
    assert large_of(store) == [("Deployment", "detection", False)]
    assert store.large(KEY, "uid-of-the-next-model") == []
    [deployment] = [o for o in store.children(KEY, gen.UID) if o["kind"] == "Deployment"]
    assert (deployment["spec"], [r["name"] for r in deployment["metadata"]["ownerReferences"]]) == ({}, [gen.NAME])


def test_a_large_pod_looks_like_a_pod_that_has_not_started() -> None:
    store = Store()
    store.put(in_outline(gen.pod()))
    [pod] = store.of_kind(KEY, "Pod")
    assert Pod(pod).is_alive
    assert step_of(Pod(pod)).reason == "Scheduling"
    assert problem_of(Pod(pod)) is None
    assert Pod(pod).server is None


def of_namespace(namespace: str, number: int, size: int = 1000) -> dict[str, Any]:
    return padded(gen.raw(name=f"m{number}", namespace=namespace, uid=f"{namespace}-{number}"), size)


def crowded(store: Store, namespace: str, count: int) -> list[int]:
    return [n for n in range(count) if store.large(f"{namespace}/m{n}", f"{namespace}-{n}")]


def test_a_large_namespace_uses_no_memory_of_others() -> None:
    store = Store(room=50_000)
    for n in range(100):
        store.put(of_namespace("greedy", n))
    without = crowded(store, "greedy", 100)
    assert without[0] > 10
    assert set(without) >= set(range(40, 100))
    for n in range(8):
        store.put(of_namespace("modest", n))
    assert crowded(store, "modest", 8) == []


def test_stores_whole_objects_again_when_there_is_room() -> None:
    store = Store(room=50_000)
    objects = [of_namespace("greedy", n) for n in range(60)]
    store.replace("TritonModel", objects)
    assert crowded(store, "greedy", 60)
    # An update takes the room of the state before.
    store.put(gen.modified(objects[0], gen.put("metadata.resourceVersion", "2")))
    assert 0 not in crowded(store, "greedy", 60)
    store.replace("TritonModel", objects[40:])
    assert crowded(store, "greedy", 60), "there was no room when they were listed"
    store.replace("TritonModel", objects[40:])
    assert crowded(store, "greedy", 60) == []


@pytest.mark.parametrize("size", [0, 1000, 2000, 3500, 6000])
def test_an_object_takes_no_more_memory_than_is_counted(size: int) -> None:
    store, objects = Store(), [of_namespace("a", n, size) for n in range(50)]
    tracemalloc.start()
    try:
        store.replace("TritonModel", objects)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    counted = sum(Entry.of(obj, "").memory for obj in objects)
    assert taken <= counted


def test_the_brief_of_a_crowded_object_names_its_size() -> None:
    store, objects = Store(room=1), [of_namespace("greedy", n, 6000) for n in range(2)]
    store.replace("TritonModel", objects)
    [large] = store.large("greedy/m1", "greedy-1")
    assert large.size.bytes > 6000


def test_removed_objects_free_their_memory() -> None:
    store = Store(room=50_000)
    objects = [of_namespace("greedy", n) for n in range(60)]
    for _ in range(3):
        for obj in objects:
            store.put(obj)
            store.put(obj)
        for obj in objects:
            store.remove(obj)
        assert store.memory == 0

    def broken() -> Iterator[dict[str, Any]]:
        yield from objects
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        store.replace("TritonModel", broken())
    assert store.memory == 0


def test_a_brief_has_the_conditions_but_not_the_models() -> None:
    store = Store(room=1)
    status = {"conditions": [{"type": "Ready"}], "models": [{"name": "a"}]}
    store.put(gen.raw(gen.put("status", status)))
    assert large_of(store) == [("TritonModel", gen.NAME, True)]
    model = store.model(KEY)
    assert model is not None
    assert model["status"] == {"conditions": [{"type": "Ready"}]}
