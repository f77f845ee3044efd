"""Which servers are taken away because their Deployment is gone, and which never are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import gen
from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.cluster.api import ApiError
from triton_operator.cluster.store import Store
from triton_operator.reconcile.cache import ReconcileCache
from triton_operator.reconcile.leftover_pods import LeftoverPodCollector

KEY = f"{gen.NAMESPACE}/{gen.NAME}"
MADE = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
Object = dict[str, Any]


def owned(kind: str, name: str, uid: str, by: tuple[str, str, str] | None) -> Object:
    """An object whose controller is `by`: kind, name and uid."""
    reference = by and {"apiVersion": "apps/v1", "kind": by[0], "name": by[1], "uid": by[2], "controller": True}
    metadata = {"name": name, "namespace": gen.NAMESPACE, "uid": uid, "ownerReferences": [reference] if by else []}
    return {"kind": kind, "metadata": metadata}


class Cluster:
    """An API server with one Deployment `now`, and these ReplicaSets, of which not all may be listed."""

    def __init__(self, *sets: Object, unlisted: tuple[Object, ...] = (), now: str = "now") -> None:
        self._sets, self._unlisted, self._now = sets, unlisted, now
        self.deleted: list[str] = []
        self.labelled = names.as_query(names.selector(gen.NAME))
        self.selectors: list[str] = []
        self.refusal: ApiError | None = None

    def list(self, kind: Kind, namespace: str, selector: str, *, cached: bool) -> tuple[Object, ...]:
        assert cached
        assert (kind, namespace) == (kinds.REPLICA_SET, gen.NAMESPACE)
        self.selectors.append(selector)
        return self._sets if selector == self.labelled else ()

    def uid_of(self, kind: Kind, namespace: str, name: str) -> str:
        if kind == kinds.DEPLOYMENT:
            return self._now
        found = (o["metadata"]["uid"] for o in (*self._sets, *self._unlisted) if o["metadata"]["name"] == name)
        return next(found, "")

    def delete(self, kind: Kind, namespace: str, name: str, uid: str, *, foreground: bool) -> bool:
        assert foreground == (kind == kinds.REPLICA_SET)
        if self.refusal:
            raise self.refusal
        self.deleted.append(f"{kind.kind} {name} {uid}")
        return True


def collector(cluster: Cluster, *pods: Object, after: float = 60) -> LeftoverPodCollector:
    """So many seconds after the Deployment `now` was made."""
    store = Store()
    for pod in pods:
        store.put(pod)
    api: Any = cluster
    return LeftoverPodCollector(api, store, lambda: MADE + timedelta(seconds=after))


def look(cluster: Cluster, *pods: Object, after: float = 60, cache: ReconcileCache | None = None) -> float | None:
    """What it does about the Deployment `now`."""
    metadata = {"name": gen.NAME, "namespace": gen.NAMESPACE, "uid": "now", "creationTimestamp": "2026-06-01T12:00:00Z"}
    found = collector(cluster, *pods, after=after)
    return found.delete_leftovers(KEY, {"kind": "Deployment", "metadata": metadata}, cache or ReconcileCache())


def replica_set(name: str, deployment: str, *modifiers: gen.Modifier) -> Object:
    made = owned("ReplicaSet", name, f"{name}-uid", ("Deployment", gen.NAME, deployment))
    return gen.modified(made, *modifiers)


def pod(name: str, owner: str, *modifiers: gen.Modifier) -> Object:
    """A server's pod, of the ReplicaSet with this name."""
    reference = owned("Pod", name, name, ("ReplicaSet", owner, f"{owner}-uid"))["metadata"]["ownerReferences"]
    return gen.pod(gen.put("metadata.ownerReferences", reference), *modifiers, name=name)


def test_replica_sets_of_an_earlier_deployment_of_that_name_go() -> None:
    cluster = Cluster(replica_set("a", "before"), replica_set("b", "now"), replica_set("c", "long before"))
    assert look(cluster) is None
    assert cluster.deleted == ["ReplicaSet a a-uid", "ReplicaSet c c-uid"]


def test_replica_sets_of_former_versions_are_found_by_the_labels_of_their_pods() -> None:
    cluster = Cluster(replica_set("a", "before"))
    cluster.labelled = names.as_query(names.former_labels(gen.NAME))
    look(cluster, pod("a-1", "a", gen.put("metadata.labels", names.former_labels(gen.NAME))))
    assert cluster.selectors == [names.as_query(names.selector(gen.NAME)), cluster.labelled]
    assert cluster.deleted == ["ReplicaSet a a-uid"]


def test_for_a_minute_that_is_left_to_kubernetes() -> None:
    cluster = Cluster(replica_set("a", "before"))
    assert look(cluster, after=22) == 38
    assert (cluster.selectors, cluster.deleted) == ([], [])


@pytest.mark.parametrize("after", [-5, 60, 599])
def test_it_is_looked_for_once(after: float) -> None:
    """And at once where the clocks don't agree on when the Deployment was made."""
    cluster, cache = Cluster(), ReconcileCache()
    look(cluster, after=after, cache=cache)
    look(cluster, after=after, cache=cache)
    assert cluster.selectors == [cluster.labelled]


def test_old_deployments_are_not_looked_at_by_each_new_leader() -> None:
    cluster = Cluster(replica_set("a", "before"))
    assert look(cluster, after=600) is None
    assert cluster.selectors == []


@pytest.mark.parametrize(
    "other",
    [
        owned("ReplicaSet", "a", "a-uid", None),
        owned("ReplicaSet", "a", "a-uid", ("Deployment", "other", "before")),
        owned("ReplicaSet", "a", "a-uid", ("StatefulSet", gen.NAME, "before")),
        gen.modified(replica_set("a", "before"), gen.deleting),
    ],
    ids=["an orphan, that the Deployment takes up", "another Deployment's", "another kind's", "on its way out"],
)
def test_replica_sets_of_others_stay_with_their_pods(other: Object) -> None:
    cluster = Cluster(other)
    look(cluster, pod("p", "a"))
    assert cluster.deleted == []


def test_those_of_a_deployment_stay_of_which_no_watch_has_told_yet() -> None:
    cluster = Cluster(replica_set("a", "newer"), replica_set("b", "before"), now="newer")
    look(cluster)
    assert cluster.deleted == ["ReplicaSet b b-uid"]


def test_of_a_tritonmodel_that_is_gone_all_go_whose_deployment_is() -> None:
    cluster = Cluster(replica_set("a", "before"), replica_set("b", "now"), now="")
    collector(cluster, pod("p", "c")).clean_up(KEY)
    assert cluster.deleted == ["ReplicaSet a a-uid", "ReplicaSet b b-uid", "Pod p uid-of-p"]


def test_a_deployment_that_somebody_kept_keeps_its_servers() -> None:
    """`kubectl delete --cascade=orphan`"""
    cluster = Cluster(replica_set("a", "before"), replica_set("b", "now"))
    collector(cluster, pod("p", "b")).clean_up(KEY)
    assert cluster.deleted == ["ReplicaSet a a-uid"]


def test_pods_go_whose_replica_set_is_gone() -> None:
    cluster = Cluster(replica_set("b", "now"))
    look(cluster, pod("left", "a"), pod("mine", "b"), pod("ending", "a", gen.deleting))
    assert cluster.deleted == ["Pod left uid-of-left"]


def test_pods_stay_whose_replica_set_has_lost_its_labels() -> None:
    cluster = Cluster(unlisted=(replica_set("a", "now"),))
    look(cluster, pod("mine", "a"))
    assert cluster.deleted == []


def test_pods_go_whose_replica_set_was_made_anew() -> None:
    requeue = gen.modified(replica_set("a", "now"), gen.put("metadata.uid", "again"))
    cluster = Cluster(requeue)
    look(cluster, pod("left", "a"))
    assert cluster.deleted == ["Pod left uid-of-left"]


def test_what_may_not_be_deleted_is_told_and_left(caplog: pytest.LogCaptureFixture) -> None:
    cluster, cache = Cluster(replica_set("a", "before")), ReconcileCache()
    cluster.refusal = ApiError(403, "Forbidden", "keep.example.com denied the request")
    assert look(cluster, cache=cache) is None
    assert "ReplicaSet a: keep.example.com denied" in caplog.text
    assert cache.cleaned_up == "now"


def test_what_fails_for_now_is_tried_again() -> None:
    cluster, cache = Cluster(replica_set("a", "before")), ReconcileCache()
    cluster.refusal = ApiError(503, "ServiceUnavailable", "later")
    with pytest.raises(ApiError, match="later"):
        look(cluster, cache=cache)
    assert cache.cleaned_up == ""
