"""The store: keeps the last state of each watched object, in whatever order the events arrive."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from support import gen
from triton_operator.cluster import shallow
from triton_operator.cluster import store as module
from triton_operator.cluster.store import Store
from triton_operator.render import Choices, render
from triton_operator.status import pods

KEY = f"{gen.NAMESPACE}/{gen.NAME}"


def child(kind: str = "Deployment", version: int = 10, uid: str = "", **spec: Any) -> dict[str, Any]:
    obj = next(o for o in render(gen.model(**spec), Choices("t", "Copy")) if o["kind"] == kind)
    return gen.live(obj, version=version, uid=uid)


def stored_names(store: Store) -> set[tuple[str, str]]:
    return {(o["kind"], o["metadata"]["name"]) for o in store.children(KEY, gen.UID)}


def test_finds_objects_by_their_tritonmodel() -> None:
    store = Store()
    assert [store.put(o) for o in (gen.raw(), child(), gen.pod())] == [KEY, KEY, KEY]
    assert store.all_keys() == [KEY]
    assert store.model(KEY) == gen.raw()
    assert stored_names(store) == {("Deployment", "detection")}
    assert [p["metadata"]["name"] for p in store.of_kind(KEY, "Pod")] == ["detection-abc-1"]


def test_children_are_found_only_by_the_uid_of_their_owner() -> None:
    store = Store()
    store.put(child())
    assert store.children(KEY, "uid-of-the-next-tritonmodel") == []


def test_ignores_objects_that_are_not_managed_by_the_operator() -> None:
    store = Store()
    foreign = {"apiVersion": "apps/v1", "kind": "Deployment",
               "metadata": {"name": "x", "namespace": "vision", "uid": "1", "resourceVersion": "1"}}  # fmt: skip
    assert store.put(foreign) is None
    assert store.remove(foreign) is None
    assert store.all_keys() == []


@pytest.mark.parametrize(("version", "changed"), [(9, False), (10, False), (11, True), (100, True)])
def test_put_reports_a_change_only_for_a_newer_resource_version(version: int, changed: bool) -> None:
    store = Store()
    store.put(child(version=10))
    assert (store.put(gen.modified(child(version=version), gen.put("spec.replicas", 5))) is not None) == changed
    (known,) = store.children(KEY, gen.UID)
    assert (known["spec"]["replicas"] == 5) == changed


def test_keeps_the_successor_when_the_predecessors_deletion_arrives_late() -> None:
    store = Store()
    store.put(child(version=10, uid="first"))
    assert store.put(child(version=5, uid="second")) == KEY
    assert store.remove(child(uid="first")) == KEY
    assert [o["metadata"]["uid"] for o in store.children(KEY, gen.UID)] == ["second"]
    store.remove(child(uid="second"))
    assert store.all_keys() == []


def test_replace_removes_unlisted_objects_of_that_kind_and_namespace() -> None:
    store = Store()
    other = gen.raw(name="other", namespace="elsewhere")
    for obj in (gen.raw(), other, child(), child("Service"), gen.pod()):
        store.put(obj)
    store.replace("Deployment", [])
    assert stored_names(store) == {("Service", "detection")}
    store.replace("TritonModel", [], "vision")
    assert store.model(KEY) is None
    assert store.model("elsewhere/other") is not None
    store.replace("TritonModel", [gen.raw()])
    assert store.model(KEY) is not None
    assert store.model("elsewhere/other") is None


def test_listing_does_not_restore_an_object_that_was_deleted_during_the_listing() -> None:
    store = Store()
    store.put(gen.pod())

    def listing() -> Iterator[dict[str, Any]]:
        yield gen.pod()
        store.remove(gen.pod())

    store.replace("Pod", listing())
    assert store.of_kind(KEY, "Pod") == []


def test_listing_keeps_an_object_that_was_created_during_the_listing() -> None:
    store = Store()

    def listing() -> Iterator[dict[str, Any]]:
        store.put(child())
        yield from ()

    store.replace("Deployment", listing())
    assert stored_names(store) == {("Deployment", "detection")}
    store.replace("Deployment", [])
    assert stored_names(store) == set()


def version_of(store: Store) -> list[str]:
    return [o["metadata"]["resourceVersion"] for o in store.children(KEY, gen.UID)]


def test_listing_replaces_newer_objects_after_a_restore_from_backup() -> None:
    """A restored etcd continues with lower resource versions."""
    store = Store()
    store.put(gen.raw(gen.put("metadata.resourceVersion", "1000"), gen.put("metadata.annotations", {"max_qps": "8"})))
    store.put(child(version=1001))
    old = gen.raw(gen.put("metadata.resourceVersion", "50"), gen.put("metadata.annotations", {"max_qps": "5"}))
    assert store.put(old) is None
    assert store.replace("TritonModel", [old])
    assert store.model(KEY) == old
    assert store.map_kind("TritonModel", lambda o: o["metadata"]["annotations"]) == [(KEY, {"max_qps": "5"})]
    assert store.replace("Deployment", [child(version=51)])
    assert version_of(store) == ["51"]
    assert not store.replace("Deployment", [child(version=51)])
    assert store.put(child(version=52)) is None, "only its resource version changed"
    assert version_of(store) == ["52"]


def test_listing_restores_an_object_that_a_restore_from_backup_restored() -> None:
    store = Store()
    store.put(child(version=1000))
    store.remove(child(version=1001))
    assert store.replace("Deployment", [child(version=50)])
    assert version_of(store) == ["50"]
    assert store.put(gen.modified(child(version=51), gen.put("spec.replicas", 5))) == KEY


def test_event_during_the_first_listing_after_a_restore_is_newer_than_the_listing() -> None:
    store = Store()
    store.put(child(version=1000))

    def listing() -> Iterator[dict[str, Any]]:
        yield child(version=50)
        assert store.put(child(version=51)) is None
        assert store.put(child(version=49)) is None

    assert store.replace("Deployment", listing())
    assert version_of(store) == ["51"]


def test_listing_does_not_replace_an_object_that_changed_during_the_listing() -> None:
    """This holds for a newer state of the same object and for its successor."""
    store = Store()
    store.put(child(version=10))

    def listing() -> Iterator[dict[str, Any]]:
        yield child(version=10)
        store.put(child(version=11))

    assert not store.replace("Deployment", listing())
    assert version_of(store) == ["11"]

    def overtaken() -> Iterator[dict[str, Any]]:
        yield child(version=11)
        store.put(child(version=13, uid="successor"))

    assert not store.replace("Deployment", overtaken())
    assert [o["metadata"]["uid"] for o in store.children(KEY, gen.UID)] == ["successor"]


def test_old_event_does_not_restore_an_object_that_a_listing_lacks() -> None:
    store = Store()
    store.put(child(version=10))

    def listing() -> Iterator[dict[str, Any]]:
        assert store.put(child(version=9)) is None
        yield from ()

    store.replace("Deployment", listing())
    assert stored_names(store) == set()


def test_failed_listing_changes_nothing() -> None:
    store = Store()
    store.put(child())

    def listing() -> Iterator[dict[str, Any]]:
        yield child(version=99)
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - checks only that it is raised
        store.replace("Deployment", listing())
    assert [o["metadata"]["resourceVersion"] for o in store.children(KEY, gen.UID)] == ["10"]
    store.replace("Deployment", [])
    assert stored_names(store) == set()


def test_keeps_only_the_fields_that_the_operator_reads() -> None:
    store = Store()
    foreign = {**gen.managed(child()), "manager": "kube-controller-manager"}
    store.put(gen.modified(child(), lambda o: o["metadata"]["managedFields"].append(foreign)))
    store.put(gen.pod(gen.put("spec.containers.0.env", [{"name": "A", "value": "x" * 1000}])))
    (deployment,) = store.children(KEY, gen.UID)
    assert [f["manager"] for f in deployment["metadata"]["managedFields"]] == ["triton-operator"]
    (pod,) = store.of_kind(KEY, "Pod")
    assert set(pod["spec"]["containers"][0]) == {"name", "resources", "startupProbe"}


def autoscaler(version: int = 10, **status: Any) -> dict[str, Any]:
    obj = next(
        o for o in render(gen.model(autoscaling={"max": 3}), Choices("t", "Copy"))
        if o["kind"] == "HorizontalPodAutoscaler"
    )  # fmt: skip
    return gen.live(obj, gen.put("status", {"conditions": [{"type": "ScalingActive", "status": "True"}], **status}),
                    version=version)  # fmt: skip


def test_stores_a_change_of_unread_status_fields_without_reporting_it() -> None:
    store = Store()
    first = autoscaler(10, currentMetrics=[{"value": "1"}], currentReplicas=1)
    assert store.put(first) == KEY
    assert store.put(autoscaler(11, currentMetrics=[{"value": "2"}], currentReplicas=2)) is None
    (known,) = store.children(KEY, gen.UID)
    assert known["metadata"]["resourceVersion"] == "11"
    assert known["status"] == {"conditions": [{"type": "ScalingActive", "status": "True"}]}
    # An older event stays older, although no kept field differs.
    assert store.put(autoscaler(9, conditions=[])) is None
    assert store.put(autoscaler(12, conditions=[])) == KEY


@pytest.mark.parametrize(
    "change",
    [gen.put("metadata.labels.team", "a"), gen.put("metadata.annotations.a", "b"), gen.put("spec.maxReplicas", 9),
     gen.put("metadata.managedFields.0.fieldsV1", {}), gen.deleting],
)  # fmt: skip
def test_reports_a_change_of_a_field_that_the_operator_reads(change: gen.Modifier) -> None:
    store = Store()
    store.put(autoscaler(10))
    assert store.put(gen.modified(autoscaler(11), change)) == KEY


def test_accepts_an_autoscaler_without_a_status() -> None:
    store = Store()
    bare = autoscaler()
    del bare["status"]
    assert store.put(bare) == KEY
    assert store.children(KEY, gen.UID)[0]["status"] == {}


def test_reports_a_change_of_an_annotation_of_the_tritonmodel() -> None:
    store = Store()
    store.put(gen.raw())
    changed = gen.raw(gen.put("metadata.resourceVersion", "2"), gen.put("metadata.annotations", {"max_qps": "8"}))
    assert store.put(changed) == KEY


def test_ignores_a_response_to_a_write_that_arrives_after_the_deletion() -> None:
    store = Store()
    store.put(gen.raw())
    assert store.remove(child(version=12)) == KEY
    assert store.put(child(version=11)) is None
    assert stored_names(store) == set()


def test_accepts_an_object_again_that_only_lost_its_label() -> None:
    """The watch reports a deletion with the resource version of the edit that removed the label."""
    store = Store()
    store.put(child(version=10))
    store.remove(child(version=11))
    assert store.put(child(version=11)) == KEY
    assert stored_names(store) == {("Deployment", "detection")}


def test_remembers_a_limited_number_of_deleted_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 3)
    store = Store()
    for number in range(5):
        store.remove(child(version=12, uid=str(number)))
    assert [store.put(child(version=11, uid=str(n))) is None for n in range(5)] == [False, False, True, True, True]


def test_ignores_replica_counts_in_the_status_of_a_deployment() -> None:
    store = Store()
    assert store.put(child(version=10)) == KEY
    counted = gen.put("status", {"observedGeneration": 1, "replicas": 2, "conditions": [{"type": "Progressing"}]})
    assert store.put(gen.modified(child(version=11), counted)) == KEY  # observedGeneration changed
    counted = gen.put("status", {"observedGeneration": 1, "replicas": 3, "conditions": [{"type": "Available"}]})
    assert store.put(gen.modified(child(version=12), counted)) is None
    failed = gen.put("status", {"observedGeneration": 1, "conditions": [{"type": "ReplicaFailure", "status": "True"}]})
    assert store.put(gen.modified(child(version=13), failed)) == KEY
    assert store.children(KEY, gen.UID)[0]["status"]["conditions"] == [{"type": "ReplicaFailure", "status": "True"}]


def test_map_kind_calls_the_function_once_per_state() -> None:
    store, calls = Store(), []

    def version(model: dict[str, Any]) -> str:
        calls.append(model["metadata"]["resourceVersion"])
        return str(model["metadata"]["resourceVersion"])

    store.put(gen.raw())
    store.put(child())
    assert [store.map_kind("TritonModel", version) for _ in range(2)] == [[(KEY, "1")]] * 2
    store.put(gen.raw(gen.put("metadata.resourceVersion", "2")))
    assert store.map_kind("TritonModel", version) == [(KEY, "2")]
    assert calls == ["1", "2"]


def test_lists_the_latest_changed_keys_first() -> None:
    store = Store()
    for number, name in enumerate(("first", "last", "second")):
        version = gen.put("metadata.resourceVersion", str(10 + number))
        store.put(gen.raw(version, name=name))
    store.put(gen.raw(gen.put("metadata.resourceVersion", "9" * 5), name="last"))
    assert [key.split("/")[1] for key in store.all_keys()] == ["last", "second", "first"]


RULES = {"monitoring": True, "entrypoint": "detection"}
LOST = ("PrometheusRule", "detection")


def rules(version: int = 10) -> dict[str, Any]:
    obj = next(o for o in render(gen.model(), Choices("t", "Copy", **RULES)) if o["kind"] == "PrometheusRule")
    return gen.live(obj, version=version, uid="rules")


@pytest.fixture
def lossy_store() -> Store:
    """Watches have reported deletions, of which some may only be lost labels."""
    store = Store()
    for obj in (gen.raw(), child(), rules()):
        store.put(obj)
    assert store.mark_lost(rules(11)) == store.mark_lost(child(version=11)) == KEY
    return store


def test_marks_an_optional_child_as_lost_until_it_is_found(lossy_store: Store) -> None:
    assert lossy_store.lost(KEY) == {LOST}, "a Deployment is always desired, so the operator creates it again"
    assert stored_names(lossy_store) == set()
    lossy_store.put(rules(11))
    assert lossy_store.lost(KEY) == set()
    lossy_store.mark_lost(rules(12))
    lossy_store.found(KEY, LOST)
    assert lossy_store.lost(KEY) == set()


@pytest.mark.parametrize("listed", [[], [rules(11)]])
def test_complete_listing_clears_the_lost_mark(lossy_store: Store, listed: list[dict[str, Any]]) -> None:
    lossy_store.replace("PodMonitor", [])
    lossy_store.replace("PrometheusRule", [], "elsewhere")
    assert lossy_store.lost(KEY) == {LOST}
    lossy_store.replace("PrometheusRule", listed, "vision")
    assert lossy_store.lost(KEY) == set()
    assert stored_names(lossy_store) == {LOST for _ in listed}


def test_keeps_the_mark_of_an_object_that_was_lost_during_the_listing(lossy_store: Store) -> None:
    lossy_store.put(rules(12))

    def listing() -> Iterator[dict[str, Any]]:
        yield rules(12)
        lossy_store.mark_lost(rules(13))

    lossy_store.replace("PrometheusRule", listing())
    assert lossy_store.lost(KEY) == {LOST}
    assert stored_names(lossy_store) == set()


def test_deleted_tritonmodel_has_no_lost_objects(lossy_store: Store) -> None:
    lossy_store.remove(gen.raw())
    lossy_store.mark_lost(rules(12))
    lossy_store.put(gen.raw())
    assert lossy_store.lost(KEY) == set()
    lossy_store.put(rules(13))
    lossy_store.mark_lost(rules(14))
    lossy_store.replace("TritonModel", [])
    lossy_store.put(gen.raw())
    assert lossy_store.lost(KEY) == set()


def test_removed_object_is_not_marked_as_lost() -> None:
    store = Store()
    for obj in (gen.raw(), rules()):
        store.put(obj)
    store.remove(rules())
    assert store.lost(KEY) == set()


NO_MANAGER = {"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}


def test_ignores_managed_fields_without_a_manager() -> None:
    store = Store()
    odd = gen.modified(gen.raw(), gen.put("metadata.managedFields", [NO_MANAGER, {}]))
    assert store.put(odd) == KEY
    store.replace("TritonModel", [odd])
    assert store.model(KEY) == gen.raw()


def unreadable(name: str) -> dict[str, Any]:
    """Returns an object that the store can't read. No API server returns it; it represents other bad objects."""
    return gen.modified(gen.raw(name=name, uid=name), gen.put("metadata.managedFields", "none"))


def test_listing_skips_an_unreadable_object_and_keeps_its_last_state() -> None:
    store = Store()
    store.put(gen.raw(name="odd", uid="odd"))
    store.replace("TritonModel", [unreadable("odd"), gen.raw()])
    assert sorted(store.all_keys()) == sorted([KEY, f"{gen.NAMESPACE}/odd"])
    store.replace("TritonModel", [unreadable("other"), {"kind": "TritonModel"}, gen.raw()])
    assert store.all_keys() == [KEY]


def test_map_kind_leaves_out_objects_on_which_the_function_fails() -> None:
    store = Store()
    store.put(gen.raw())
    store.put(gen.raw(name="odd", uid="odd"))

    def label(obj: dict[str, Any]) -> str:
        return {gen.NAME: "fine"}[obj["metadata"]["name"]]

    assert store.map_kind("TritonModel", label) == [(KEY, "fine")]


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
    kept = store.model(KEY)
    assert kept is not None
    assert (kept["spec"], kept["status"], len(kept["metadata"]["finalizers"])) == ({}, status, 8)
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
    deployment = padded(child(), 3 * module.LARGEST)
    store.put(deployment)
    assert large_of(store) == []
    assert store.children(KEY, gen.UID)[0]["spec"] == deployment["spec"]


def in_outline(obj: dict[str, Any]) -> dict[str, Any]:
    """Returns the outline of `obj`, as it is read if it is too large."""
    text = orjson.dumps(gen.modified(obj, gen.put("spec.padding", "x" * shallow.MAX_BYTES)))
    found: dict[str, Any] = shallow.loads(text)
    return found


def test_reports_a_large_child_only_for_its_own_tritonmodel() -> None:
    store = Store()
    for obj in (gen.raw(), in_outline(child()), child("Service")):
        store.put(obj)
    assert large_of(store) == [("Deployment", "detection", False)]
    assert store.large(KEY, "uid-of-the-next-model") == []
    [kept] = [o for o in store.children(KEY, gen.UID) if o["kind"] == "Deployment"]
    assert (kept["spec"], [r["name"] for r in kept["metadata"]["ownerReferences"]]) == ({}, [gen.NAME])


def test_a_large_pod_looks_like_a_pod_that_has_not_started() -> None:
    store = Store()
    store.put(in_outline(gen.pod()))
    [pod] = store.of_kind(KEY, "Pod")
    assert pods.alive(pod)
    assert pods.phase(pod).reason == "Scheduling"
    assert pods.problem(pod) is None
    assert pods.server(pod) is None


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


def test_removed_objects_free_their_memory() -> None:
    store = Store(room=50_000)
    objects = [of_namespace("greedy", n) for n in range(60)]
    for _ in range(3):
        for obj in objects:
            store.put(obj)
            store.put(obj)
        for obj in objects:
            store.remove(obj)
        assert store._shares._sum == 0
        assert not store._shares._taken
        store._gone.clear()

    def broken() -> Iterator[dict[str, Any]]:
        yield from objects
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        store.replace("TritonModel", broken())
    assert store._shares._sum == 0


def test_a_brief_has_the_conditions_but_not_the_models() -> None:
    store = Store(room=1)
    status = {"conditions": [{"type": "Ready"}], "models": [{"name": "a"}]}
    store.put(gen.raw(gen.put("status", status)))
    assert large_of(store) == [("TritonModel", gen.NAME, True)]
    kept = store.model(KEY)
    assert kept is not None
    assert kept["status"] == {"conditions": [{"type": "Ready"}]}


def test_a_listing_does_not_compress_known_states_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store, objects = Store(), [child(), child("Service")]
    store.replace("Deployment", objects[:1])
    monkeypatch.setattr(module, "slim", lambda _: pytest.fail("compressed again"))
    store.replace("Deployment", objects[:1])
    assert stored_names(store) == {("Deployment", "detection")}
