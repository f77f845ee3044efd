"""The store: keeps the last state of each watched object, in whatever order the events arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support import gen
from triton_operator.cluster import absent, entry
from triton_operator.cluster.store import Store
from triton_operator.cluster.table import MAX_ENDED
from triton_operator.render import Facts, render

KEY = f"{gen.NAMESPACE}/{gen.NAME}"


def stored_names(store: Store) -> set[tuple[str, str]]:
    return {(o["kind"], o["metadata"]["name"]) for o in store.children(KEY, gen.UID)}


def test_finds_objects_by_their_tritonmodel() -> None:
    store = Store()
    assert [store.put(o) for o in (gen.raw(), gen.child(), gen.pod())] == [KEY, KEY, KEY]
    assert store.all_keys() == [KEY]
    assert store.model(KEY) == gen.raw()
    assert stored_names(store) == {("Deployment", "detection")}
    assert [p["metadata"]["name"] for p in store.of_kind(KEY, "Pod")] == ["detection-abc-1"]


def test_children_are_found_only_by_the_uid_of_their_owner() -> None:
    store = Store()
    store.put(gen.child())
    assert store.children(KEY, "uid-of-the-next-tritonmodel") == []


def test_reads_only_changed_children_again() -> None:
    store, service = Store(), gen.modified(gen.child("Service"), gen.put("metadata.uid", "uid-of-the-service"))
    for obj in (gen.child(), service):
        store.put(obj)
    before = store.children(KEY, gen.UID)
    changed = gen.modified(service, gen.put("metadata.resourceVersion", "100"), gen.put("spec.a", 1))
    store.put(changed)
    after = store.children(KEY, gen.UID, before)
    assert after[0] is before[0]
    assert after[1]["spec"] == changed["spec"]


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
    store.put(gen.child(version=10))
    assert (store.put(gen.modified(gen.child(version=version), gen.put("spec.replicas", 5))) is not None) == changed
    (child,) = store.children(KEY, gen.UID)
    assert (child["spec"]["replicas"] == 5) == changed


def test_keeps_the_successor_when_the_predecessors_deletion_arrives_late() -> None:
    store = Store()
    store.put(gen.child(version=10, uid="first"))
    assert store.put(gen.child(version=5, uid="second")) == KEY
    assert store.remove(gen.child(uid="first")) == KEY
    assert [o["metadata"]["uid"] for o in store.children(KEY, gen.UID)] == ["second"]
    store.remove(gen.child(uid="second"))
    assert store.all_keys() == []


def test_replace_removes_unlisted_objects_of_that_kind_and_namespace() -> None:
    store = Store()
    other = gen.raw(name="other", namespace="elsewhere")
    for obj in (gen.raw(), other, gen.child(), gen.child("Service"), gen.pod()):
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
        store.put(gen.child())
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
    store.put(gen.child(version=1001))
    old = gen.raw(gen.put("metadata.resourceVersion", "50"), gen.put("metadata.annotations", {"max_qps": "5"}))
    assert store.put(old) is None
    assert store.replace("TritonModel", [old])
    assert store.model(KEY) == old
    assert store.map_kind("TritonModel", lambda o: o["metadata"]["annotations"]) == [(KEY, {"max_qps": "5"})]
    assert store.replace("Deployment", [gen.child(version=51)])
    assert version_of(store) == ["51"]
    assert not store.replace("Deployment", [gen.child(version=51)])
    assert store.put(gen.child(version=52)) is None, "only its resource version changed"
    assert version_of(store) == ["52"]


def test_listing_restores_an_object_that_a_restore_from_backup_restored() -> None:
    store = Store()
    store.put(gen.child(version=1000))
    store.remove(gen.child(version=1001))
    assert store.replace("Deployment", [gen.child(version=50)])
    assert version_of(store) == ["50"]
    assert store.put(gen.modified(gen.child(version=51), gen.put("spec.replicas", 5))) == KEY


def test_event_during_the_first_listing_after_a_restore_is_newer_than_the_listing() -> None:
    store = Store()
    store.put(gen.child(version=1000))

    def listing() -> Iterator[dict[str, Any]]:
        yield gen.child(version=50)
        assert store.put(gen.child(version=51)) is None
        assert store.put(gen.child(version=49)) is None

    assert store.replace("Deployment", listing())
    assert version_of(store) == ["51"]


def test_listing_does_not_replace_an_object_that_changed_during_the_listing() -> None:
    """This holds for a newer state of the same object and for its successor."""
    store = Store()
    store.put(gen.child(version=10))

    def listing() -> Iterator[dict[str, Any]]:
        yield gen.child(version=10)
        store.put(gen.child(version=11))

    assert not store.replace("Deployment", listing())
    assert version_of(store) == ["11"]

    def overtaken() -> Iterator[dict[str, Any]]:
        yield gen.child(version=11)
        store.put(gen.child(version=13, uid="successor"))

    assert not store.replace("Deployment", overtaken())
    assert [o["metadata"]["uid"] for o in store.children(KEY, gen.UID)] == ["successor"]


def test_old_event_does_not_restore_an_object_that_a_listing_lacks() -> None:
    store = Store()
    store.put(gen.child(version=10))

    def listing() -> Iterator[dict[str, Any]]:
        assert store.put(gen.child(version=9)) is None
        yield from ()

    store.replace("Deployment", listing())
    assert stored_names(store) == set()


def test_failed_listing_changes_nothing() -> None:
    store = Store()
    store.put(gen.child())

    def listing() -> Iterator[dict[str, Any]]:
        yield gen.child(version=99)
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - checks only that it is raised
        store.replace("Deployment", listing())
    assert [o["metadata"]["resourceVersion"] for o in store.children(KEY, gen.UID)] == ["10"]
    store.replace("Deployment", [])
    assert stored_names(store) == set()


def test_keeps_only_the_fields_that_the_operator_reads() -> None:
    store = Store()
    foreign = {**gen.managed(gen.child()), "manager": "kube-controller-manager"}
    store.put(gen.modified(gen.child(), lambda o: o["metadata"]["managedFields"].append(foreign)))
    store.put(gen.pod(gen.put("spec.containers.0.env", [{"name": "A", "value": "x" * 1000}])))
    (deployment,) = store.children(KEY, gen.UID)
    assert [f["manager"] for f in deployment["metadata"]["managedFields"]] == ["triton-operator"]
    (pod,) = store.of_kind(KEY, "Pod")
    assert set(pod["spec"]["containers"][0]) == {"name", "resources", "startupProbe"}


def autoscaler(version: int = 10, **status: Any) -> dict[str, Any]:
    obj = next(
        o for o in render(gen.model(autoscaling={"max": 3}), Facts("t", "Copy"))
        if o["kind"] == "HorizontalPodAutoscaler"
    )  # fmt: skip
    return gen.live(obj, gen.put("status", {"conditions": [{"type": "ScalingActive", "status": "True"}], **status}),
                    version=version)  # fmt: skip


def test_stores_a_change_of_unread_status_fields_without_reporting_it() -> None:
    store = Store()
    first = autoscaler(10, currentMetrics=[{"value": "1"}], currentReplicas=1)
    assert store.put(first) == KEY
    assert store.put(autoscaler(11, currentMetrics=[{"value": "2"}], currentReplicas=2)) is None
    (child,) = store.children(KEY, gen.UID)
    assert child["metadata"]["resourceVersion"] == "11"
    assert child["status"] == {"conditions": [{"type": "ScalingActive", "status": "True"}]}
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
    assert store.remove(gen.child(version=12)) == KEY
    assert store.put(gen.child(version=11)) is None
    assert stored_names(store) == set()


def test_accepts_an_object_again_that_only_lost_its_label() -> None:
    """The watch reports a deletion with the resource version of the edit that removed the label."""
    store = Store()
    store.put(gen.child(version=10))
    store.remove(gen.child(version=11))
    assert store.put(gen.child(version=11)) == KEY
    assert stored_names(store) == {("Deployment", "detection")}


def test_remembers_a_limited_number_of_deleted_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absent, "_REMEMBERED", 3)
    store = Store()
    for number in range(5):
        store.remove(gen.child(version=12, uid=str(number)))
    assert [store.put(gen.child(version=11, uid=str(n))) is None for n in range(5)] == [False, False, True, True, True]


def test_ignores_replica_counts_in_the_status_of_a_deployment() -> None:
    store = Store()
    assert store.put(gen.child(version=10)) == KEY
    counted = gen.put("status", {"observedGeneration": 1, "replicas": 2, "conditions": [{"type": "Progressing"}]})
    assert store.put(gen.modified(gen.child(version=11), counted)) == KEY  # observedGeneration changed
    counted = gen.put("status", {"observedGeneration": 1, "replicas": 3, "conditions": [{"type": "Available"}]})
    assert store.put(gen.modified(gen.child(version=12), counted)) is None
    failed = gen.put("status", {"observedGeneration": 1, "conditions": [{"type": "ReplicaFailure", "status": "True"}]})
    assert store.put(gen.modified(gen.child(version=13), failed)) == KEY
    assert store.children(KEY, gen.UID)[0]["status"]["conditions"] == [{"type": "ReplicaFailure", "status": "True"}]


def test_map_kind_calls_the_function_once_per_state() -> None:
    store, calls = Store(), []

    def version(model: dict[str, Any]) -> str:
        calls.append(model["metadata"]["resourceVersion"])
        return str(model["metadata"]["resourceVersion"])

    store.put(gen.raw())
    store.put(gen.child())
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


LOST = ("PrometheusRule", "detection")


def rules(version: int = 10) -> dict[str, Any]:
    facts = Facts("t", "Copy", entrypoint="detection")
    obj = next(o for o in render(gen.model(), facts) if o["kind"] == "PrometheusRule")
    return gen.live(obj, version=version, uid="rules")


@pytest.fixture
def lossy_store() -> Store:
    """Watches have reported deletions, of which some may only be lost labels."""
    store = Store()
    for obj in (gen.raw(), gen.child(), rules()):
        store.put(obj)
    assert store.mark_lost(rules(11)) == store.mark_lost(gen.child(version=11)) == KEY
    return store


def test_marks_an_optional_child_as_lost_until_it_is_found(lossy_store: Store) -> None:
    assert lossy_store.lost(KEY) == {LOST}, "a Deployment is always desired, so the operator creates it again"
    assert stored_names(lossy_store) == set()
    lossy_store.put(rules(11))
    assert lossy_store.lost(KEY) == set()
    lossy_store.mark_lost(rules(12))
    lossy_store.unmark_lost(KEY, LOST)
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


def test_a_listing_does_not_compress_known_states_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store, objects = Store(), [gen.child(), gen.child("Service")]
    store.replace("Deployment", objects[:1])
    monkeypatch.setattr(entry, "without_unused", lambda _: pytest.fail("compressed again"))
    store.replace("Deployment", objects[:1])
    assert stored_names(store) == {("Deployment", "detection")}


def evicted(number: int) -> Any:
    return gen.pod(
        gen.put("status.phase", "Failed"), gen.put("status.reason", "Evicted"),
        gen.put("metadata.resourceVersion", str(100 + number)), name=f"detection-abc-{number}",
    )  # fmt: skip


def read_pods(store: Store) -> set[str]:
    return {pod["metadata"]["name"] for pod in store.of_kind(KEY, "Pod")}


def test_keeps_the_newest_of_many_ended_pods_and_every_running_one() -> None:
    """An evicted server leaves a pod, and Kubernetes keeps up to 12,500 of them."""
    running = gen.pod(name="detection-abc-running")
    newest = {f"detection-abc-{number}" for number in range(5000 - MAX_ENDED, 5000)} | {"detection-abc-running"}
    listed, watched = Store(), Store()
    listed.replace("Pod", [running, *map(evicted, range(5000))])
    watched.put(running)
    for number in range(5000):
        watched.put(evicted(number))
    assert read_pods(listed) == read_pods(watched) == newest
    # They also give back their memory.
    kept = Store()
    for pod in listed.of_kind(KEY, "Pod"):
        kept.put(pod)
    assert listed.memory == watched.memory == kept.memory
    # A deletion of one that was dropped changes nothing, and one that is deleted makes no room for older ones.
    listed.remove(evicted(0))
    listed.remove(evicted(4999))
    assert read_pods(listed) == newest - {"detection-abc-4999"}
    listed.replace("Pod", [running])
    assert read_pods(listed) == {"detection-abc-running"}


def test_a_pod_that_ends_counts_as_ended() -> None:
    store = Store()
    for number in range(2 * MAX_ENDED):
        store.put(gen.pod(name=f"detection-abc-{number}"))
    assert len(read_pods(store)) == 2 * MAX_ENDED
    for number in range(2 * MAX_ENDED):
        store.put(evicted(number))
    assert len(read_pods(store)) == MAX_ENDED
