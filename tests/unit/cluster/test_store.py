"""The store: what the watches have shown, in whatever order they show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support import gen
from triton_operator.cluster import store as module
from triton_operator.cluster.store import Store
from triton_operator.render import Choices, render

KEY = f"{gen.NAMESPACE}/{gen.NAME}"


def child(kind: str = "Deployment", version: int = 10, uid: str = "", **spec: Any) -> dict[str, Any]:
    obj = next(o for o in render(gen.model(**spec), Choices("t", "Copy")) if o["kind"] == kind)
    return gen.live(obj, version=version, uid=uid)


def names_of(store: Store) -> set[tuple[str, str]]:
    return {(o["kind"], o["metadata"]["name"]) for o in store.children(KEY, gen.UID)}


def test_objects_are_found_by_their_model() -> None:
    store = Store()
    assert [store.put(o) for o in (gen.raw(), child(), gen.pod())] == [KEY, KEY, KEY]
    assert store.all_keys() == [KEY]
    assert store.model(KEY) == gen.raw()
    assert names_of(store) == {("Deployment", "detection")}
    assert [p["metadata"]["name"] for p in store.of_kind(KEY, "Pod")] == ["detection-abc-1"]


def test_children_of_another_life_are_not_ours() -> None:
    store = Store()
    store.put(child())
    assert store.children(KEY, "uid-of-the-next-model") == []


def test_objects_of_others_are_left_out() -> None:
    store = Store()
    foreign = {"apiVersion": "apps/v1", "kind": "Deployment",
               "metadata": {"name": "x", "namespace": "vision", "uid": "1", "resourceVersion": "1"}}  # fmt: skip
    assert store.put(foreign) is None
    assert store.remove(foreign) is None
    assert store.all_keys() == []


@pytest.mark.parametrize(("version", "news"), [(9, False), (10, False), (11, True), (100, True)])
def test_only_a_newer_version_is_news(version: int, news: bool) -> None:
    store = Store()
    store.put(child(version=10))
    assert (store.put(gen.modified(child(version=version), gen.put("spec.replicas", 5))) is not None) == news
    (known,) = store.children(KEY, gen.UID)
    assert (known["spec"]["replicas"] == 5) == news


def test_a_successor_of_the_same_name_replaces_and_outlives_the_news_of_its_predecessors_end() -> None:
    store = Store()
    store.put(child(version=10, uid="first"))
    assert store.put(child(version=5, uid="second")) == KEY
    assert store.remove(child(uid="first")) == KEY
    assert [o["metadata"]["uid"] for o in store.children(KEY, gen.UID)] == ["second"]
    store.remove(child(uid="second"))
    assert store.all_keys() == []


def test_replace_forgets_what_is_not_listed_of_its_kind_and_namespace() -> None:
    store = Store()
    other = gen.raw(name="other", namespace="elsewhere")
    for obj in (gen.raw(), other, child(), child("Service"), gen.pod()):
        store.put(obj)
    store.replace("Deployment", [])
    assert names_of(store) == {("Service", "detection")}
    store.replace("TritonModel", [], "vision")
    assert store.model(KEY) is None
    assert store.model("elsewhere/other") is not None
    store.replace("TritonModel", [gen.raw()])
    assert store.model(KEY) is not None
    assert store.model("elsewhere/other") is None


def test_a_listing_does_not_bring_back_what_was_deleted_while_it_was_read() -> None:
    store = Store()
    store.put(gen.pod())

    def listing() -> Iterator[dict[str, Any]]:
        yield gen.pod()
        store.remove(gen.pod())

    store.replace("Pod", listing())
    assert store.of_kind(KEY, "Pod") == []


def test_a_listing_does_not_forget_what_was_made_while_it_was_read() -> None:
    store = Store()

    def listing() -> Iterator[dict[str, Any]]:
        store.put(child())
        yield from ()

    store.replace("Deployment", listing())
    assert names_of(store) == {("Deployment", "detection")}
    store.replace("Deployment", [])
    assert names_of(store) == set()


def version_of(store: Store) -> list[str]:
    return [o["metadata"]["resourceVersion"] for o in store.children(KEY, gen.UID)]


def test_a_listing_replaces_what_is_newer_as_after_a_restore_from_a_backup() -> None:
    """The versions of a restored etcd are lower than those before."""
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
    assert store.put(child(version=52)) is None, "nothing but its version is news"
    assert version_of(store) == ["52"]


def test_a_listing_brings_back_what_a_restore_from_a_backup_has_brought_back() -> None:
    store = Store()
    store.put(child(version=1000))
    store.remove(child(version=1001))
    assert store.replace("Deployment", [child(version=50)])
    assert version_of(store) == ["50"]
    assert store.put(gen.modified(child(version=51), gen.put("spec.replicas", 5))) == KEY


def test_a_write_while_a_listing_of_a_restored_cluster_is_read_is_newer_than_the_listing() -> None:
    store = Store()
    store.put(child(version=1000))

    def listing() -> Iterator[dict[str, Any]]:
        yield child(version=50)
        assert store.put(child(version=51)) is None
        assert store.put(child(version=49)) is None

    assert store.replace("Deployment", listing())
    assert version_of(store) == ["51"]


def test_a_listing_does_not_replace_what_was_put_while_it_was_read() -> None:
    """Neither a newer state of the same object nor its successor."""
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


def test_an_old_event_does_not_bring_back_what_a_listing_lacks() -> None:
    store = Store()
    store.put(child(version=10))

    def listing() -> Iterator[dict[str, Any]]:
        assert store.put(child(version=9)) is None
        yield from ()

    store.replace("Deployment", listing())
    assert names_of(store) == set()


def test_a_listing_that_fails_changes_nothing() -> None:
    store = Store()
    store.put(child())

    def listing() -> Iterator[dict[str, Any]]:
        yield child(version=99)
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - only that it comes through
        store.replace("Deployment", listing())
    assert [o["metadata"]["resourceVersion"] for o in store.children(KEY, gen.UID)] == ["10"]
    store.replace("Deployment", [])
    assert names_of(store) == set()


def test_what_is_kept_is_small() -> None:
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


def test_what_changes_only_where_nobody_looks_is_no_news_and_known_all_the_same() -> None:
    store = Store()
    first = autoscaler(10, currentMetrics=[{"value": "1"}], currentReplicas=1)
    assert store.put(first) == KEY
    assert store.put(autoscaler(11, currentMetrics=[{"value": "2"}], currentReplicas=2)) is None
    (known,) = store.children(KEY, gen.UID)
    assert known["metadata"]["resourceVersion"] == "11"
    assert known["status"] == {"conditions": [{"type": "ScalingActive", "status": "True"}]}
    # Older news stays old, although nothing kept differs.
    assert store.put(autoscaler(9, conditions=[])) is None
    assert store.put(autoscaler(12, conditions=[])) == KEY


@pytest.mark.parametrize(
    "change",
    [gen.put("metadata.labels.team", "a"), gen.put("metadata.annotations.a", "b"), gen.put("spec.maxReplicas", 9),
     gen.put("metadata.managedFields.0.fieldsV1", {}), gen.deleting],
)  # fmt: skip
def test_what_is_looked_at_is_news(change: gen.Modifier) -> None:
    store = Store()
    store.put(autoscaler(10))
    assert store.put(gen.modified(autoscaler(11), change)) == KEY


def test_an_autoscaler_that_nobody_has_looked_at_yet() -> None:
    store = Store()
    bare = autoscaler()
    del bare["status"]
    assert store.put(bare) == KEY
    assert store.children(KEY, gen.UID)[0]["status"] == {}


def test_a_models_annotation_is_news() -> None:
    store = Store()
    store.put(gen.raw())
    changed = gen.raw(gen.put("metadata.resourceVersion", "2"), gen.put("metadata.annotations", {"max_qps": "8"}))
    assert store.put(changed) == KEY


def test_the_answer_to_a_write_that_comes_after_the_news_of_its_end_changes_nothing() -> None:
    store = Store()
    store.put(gen.raw())
    assert store.remove(child(version=12)) == KEY
    assert store.put(child(version=11)) is None
    assert names_of(store) == set()


def test_what_only_left_the_selection_of_the_watch_can_be_found_again() -> None:
    """The watch tells of its end with the version of the edit that took its label."""
    store = Store()
    store.put(child(version=10))
    store.remove(child(version=11))
    assert store.put(child(version=11)) == KEY
    assert names_of(store) == {("Deployment", "detection")}


def test_what_is_gone_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 3)
    store = Store()
    for number in range(5):
        store.remove(child(version=12, uid=str(number)))
    assert [store.put(child(version=11, uid=str(n))) is None for n in range(5)] == [False, False, True, True, True]


def test_what_pods_tell_is_no_news_of_their_deployment() -> None:
    store = Store()
    assert store.put(child(version=10)) == KEY
    counted = gen.put("status", {"observedGeneration": 1, "replicas": 2, "conditions": [{"type": "Progressing"}]})
    assert store.put(gen.modified(child(version=11), counted)) == KEY  # the generation
    counted = gen.put("status", {"observedGeneration": 1, "replicas": 3, "conditions": [{"type": "Available"}]})
    assert store.put(gen.modified(child(version=12), counted)) is None
    failed = gen.put("status", {"observedGeneration": 1, "conditions": [{"type": "ReplicaFailure", "status": "True"}]})
    assert store.put(gen.modified(child(version=13), failed)) == KEY
    assert store.children(KEY, gen.UID)[0]["status"]["conditions"] == [{"type": "ReplicaFailure", "status": "True"}]


def test_each_is_looked_at_once_for_each_of_its_states() -> None:
    store, looked = Store(), []

    def look(model: dict[str, Any]) -> str:
        looked.append(model["metadata"]["resourceVersion"])
        return str(model["metadata"]["resourceVersion"])

    store.put(gen.raw())
    store.put(child())
    assert [store.map_kind("TritonModel", look) for _ in range(2)] == [[(KEY, "1")]] * 2
    store.put(gen.raw(gen.put("metadata.resourceVersion", "2")))
    assert store.map_kind("TritonModel", look) == [(KEY, "2")]
    assert looked == ["1", "2"]


def test_what_changed_last_comes_first() -> None:
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
def losing() -> Store:
    """A watch has told of an end, which may be that of a label only."""
    store = Store()
    for obj in (gen.raw(), child(), rules()):
        store.put(obj)
    assert store.mark_lost(rules(11)) == store.mark_lost(child(version=11)) == KEY
    return store


def test_what_may_only_have_lost_its_label_is_lost_until_it_is_found(losing: Store) -> None:
    assert losing.lost(KEY) == {LOST}, "a Deployment is wanted, and so made again"
    assert names_of(losing) == set()
    losing.put(rules(11))
    assert losing.lost(KEY) == set()
    losing.mark_lost(rules(12))
    losing.found(KEY, LOST)
    assert losing.lost(KEY) == set()


@pytest.mark.parametrize("listed", [[], [rules(11)]])
def test_a_listing_has_what_is_lost(losing: Store, listed: list[dict[str, Any]]) -> None:
    losing.replace("PodMonitor", [])
    losing.replace("PrometheusRule", [], "elsewhere")
    assert losing.lost(KEY) == {LOST}
    losing.replace("PrometheusRule", listed, "vision")
    assert losing.lost(KEY) == set()
    assert names_of(losing) == {LOST for _ in listed}


def test_what_is_lost_while_a_listing_is_read_stays_lost(losing: Store) -> None:
    losing.put(rules(12))

    def listing() -> Iterator[dict[str, Any]]:
        yield rules(12)
        losing.mark_lost(rules(13))

    losing.replace("PrometheusRule", listing())
    assert losing.lost(KEY) == {LOST}
    assert names_of(losing) == set()


def test_of_a_model_that_is_gone_nothing_is_lost(losing: Store) -> None:
    losing.remove(gen.raw())
    losing.mark_lost(rules(12))
    losing.put(gen.raw())
    assert losing.lost(KEY) == set()
    losing.put(rules(13))
    losing.mark_lost(rules(14))
    losing.replace("TritonModel", [])
    losing.put(gen.raw())
    assert losing.lost(KEY) == set()


def test_what_is_removed_for_sure_is_not_lost() -> None:
    store = Store()
    for obj in (gen.raw(), rules()):
        store.put(obj)
    store.remove(rules())
    assert store.lost(KEY) == set()


NO_MANAGER = {"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}


def test_an_entry_of_managed_fields_without_a_manager_is_nobodys() -> None:
    store = Store()
    odd = gen.modified(gen.raw(), gen.put("metadata.managedFields", [NO_MANAGER, {}]))
    assert store.put(odd) == KEY
    store.replace("TritonModel", [odd])
    assert store.model(KEY) == gen.raw()


def unreadable(name: str) -> dict[str, Any]:
    """No API server has shown such an object: it stands for the next one that nobody thought of."""
    return gen.modified(gen.raw(name=name, uid=name), gen.put("metadata.managedFields", "none"))


def test_an_object_that_cannot_be_read_stops_no_listing_and_keeps_its_last_state() -> None:
    store = Store()
    store.put(gen.raw(name="odd", uid="odd"))
    store.replace("TritonModel", [unreadable("odd"), gen.raw()])
    assert sorted(store.all_keys()) == sorted([KEY, f"{gen.NAMESPACE}/odd"])
    store.replace("TritonModel", [unreadable("other"), {"kind": "TritonModel"}, gen.raw()])
    assert store.all_keys() == [KEY]


def test_an_object_that_a_look_fails_on_is_left_out() -> None:
    store = Store()
    store.put(gen.raw())
    store.put(gen.raw(name="odd", uid="odd"))

    def look(obj: dict[str, Any]) -> str:
        return {gen.NAME: "fine"}[obj["metadata"]["name"]]

    assert store.map_kind("TritonModel", look) == [(KEY, "fine")]
