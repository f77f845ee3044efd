"""Deletes ReplicaSets and pods whose Deployment is gone, and no others."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from support import gen
from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.store import Store
from triton_operator.decisions.memory import Memory
from triton_operator.decisions.outcome import Outcome
from triton_operator.decisions.steps import DeleteLeftoverPods
from triton_operator.reconcile.execute import Executor
from triton_operator.reconcile.lacking import Lacking
from triton_operator.reconcile.leftover_pods import LeftoverPodCollector

KEY = f"{gen.NAMESPACE}/{gen.NAME}"
LOG = logging.LoggerAdapter(logging.getLogger(__name__))
CREATED = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
Object = dict[str, Any]


def owned(kind: str, name: str, uid: str, by: tuple[str, str, str] | None) -> Object:
    """Returns an object whose controller is `by` (kind, name and uid)."""
    reference = by and {"apiVersion": "apps/v1", "kind": by[0], "name": by[1], "uid": by[2], "controller": True}
    metadata = {"name": name, "namespace": gen.NAMESPACE, "uid": uid, "ownerReferences": [reference] if by else []}
    return {"kind": kind, "metadata": metadata}


class SimulatedApi:
    """An API server with one Deployment whose uid is `now`, and these ReplicaSets. A listing leaves out `unlisted`."""

    def __init__(self, *sets: Object, unlisted: tuple[Object, ...] = (), now: str = "now") -> None:
        self._sets, self._unlisted, self._now = sets, unlisted, now
        self.deleted: list[str] = []
        self.labelled = names.as_query(names.selector(gen.NAME))
        self.selectors: list[str] = []
        self.error: ApiError | None = None

    def list(self, kind: Kind, namespace: str, selector: str, *, cached: bool, metadata: bool) -> tuple[Object, ...]:
        assert cached
        assert metadata
        assert (kind, namespace) == (kinds.REPLICA_SET, gen.NAMESPACE)
        self.selectors.append(selector)
        return self._sets if selector == self.labelled else ()

    def uid_of(self, kind: Kind, namespace: str, name: str) -> str:
        if kind == kinds.DEPLOYMENT:
            return self._now
        uids = (o["metadata"]["uid"] for o in (*self._sets, *self._unlisted) if o["metadata"]["name"] == name)
        return next(uids, "")

    def delete(self, kind: Kind, namespace: str, name: str, uid: str, *, foreground: bool) -> bool:
        assert foreground == (kind == kinds.REPLICA_SET)
        if self.error:
            raise self.error
        self.deleted.append(f"{kind.kind} {name} {uid}")
        return True


def collector(cluster: SimulatedApi, *pods: Object, after: float = 60) -> LeftoverPodCollector:
    """Returns a collector whose clock shows `after` seconds after the creation of the Deployment `now`."""
    store = Store()
    for pod in pods:
        store.put(pod)
    api: Any = cluster
    return LeftoverPodCollector(api, store, lambda: CREATED + timedelta(seconds=after))


def delete_leftovers(cluster: SimulatedApi, *pods: Object, after: float = 60) -> float | None:
    """Runs the collector for the Deployment `now`. Returns its requeue delay in seconds."""
    metadata = {"name": gen.NAME, "namespace": gen.NAMESPACE, "uid": "now", "creationTimestamp": "2026-06-01T12:00:00Z"}
    leftovers = collector(cluster, *pods, after=after)
    return leftovers.delete_leftovers(KEY, [{"kind": "Deployment", "metadata": metadata}])


def replica_set(name: str, deployment: str, *modifiers: gen.Modifier) -> Object:
    obj = owned("ReplicaSet", name, f"{name}-uid", ("Deployment", gen.NAME, deployment))
    return gen.modified(obj, *modifiers)


def pod(name: str, owner: str, *modifiers: gen.Modifier) -> Object:
    """Returns the pod of a server. `owner` is the name of its ReplicaSet."""
    reference = owned("Pod", name, name, ("ReplicaSet", owner, f"{owner}-uid"))["metadata"]["ownerReferences"]
    return gen.pod(gen.put("metadata.ownerReferences", reference), *modifiers, name=name)


def test_deletes_replica_sets_of_earlier_deployments_with_the_same_name() -> None:
    cluster = SimulatedApi(replica_set("a", "before"), replica_set("b", "now"), replica_set("c", "long before"))
    assert delete_leftovers(cluster) is None
    assert cluster.deleted == ["ReplicaSet a a-uid", "ReplicaSet c c-uid"]


def test_deletes_replica_sets_of_a_group_whose_deployment_is_gone() -> None:
    """Also of a group that the TritonModel no longer has: the Service still selects its pods."""
    group = owned("ReplicaSet", "a", "a-uid", ("Deployment", f"{gen.NAME}-second", "before"))
    cluster = SimulatedApi(group, replica_set("b", "now"))
    assert delete_leftovers(cluster) is None
    assert cluster.deleted == ["ReplicaSet a a-uid"]
    cluster = SimulatedApi(group, now="before")
    delete_leftovers(cluster)
    assert cluster.deleted == [], "its Deployment exists"


def test_waits_for_a_grace_period_of_one_minute() -> None:
    cluster = SimulatedApi(replica_set("a", "before"))
    assert delete_leftovers(cluster, after=22) == 38
    assert (cluster.selectors, cluster.deleted) == ([], [])


@pytest.mark.parametrize("after", [-5, 60, 599])
def test_lists_replica_sets_once_per_deployment(after: float) -> None:
    """If clocks differ, so that the Deployment seems to be from the future, the collector doesn't wait."""
    cluster, memory, store = SimulatedApi(), Memory(), Store()
    store.put(gen.modified(gen.child(), gen.put("metadata.creationTimestamp", "2026-06-01T12:00:00Z")))
    unused: Any = None
    executor = Executor(unused, store, unused, unused, collector(cluster, after=after), unused, unused, Lacking())
    snapshot: Any = SimpleNamespace(model=gen.model(), children=())
    for _ in range(2):
        outcome = Outcome()
        executor.execute(snapshot, [DeleteLeftoverPods()], memory, outcome, LOG)
        memory = outcome.remember(memory, CREATED)
    assert cluster.selectors == [cluster.labelled]


def test_new_leader_does_not_list_for_old_deployments() -> None:
    cluster = SimulatedApi(replica_set("a", "before"))
    assert delete_leftovers(cluster, after=600) is None
    assert cluster.selectors == []


@pytest.mark.parametrize(
    "other",
    [
        owned("ReplicaSet", "a", "a-uid", None),
        owned("ReplicaSet", "a", "a-uid", ("Deployment", "other", "before")),
        owned("ReplicaSet", "a", "a-uid", ("StatefulSet", gen.NAME, "before")),
        gen.modified(replica_set("a", "before"), gen.deleting),
    ],
    ids=["an orphan that the Deployment adopts", "of another Deployment", "of another kind", "already deleted"],
)
def test_keeps_other_replica_sets_and_their_pods(other: Object) -> None:
    cluster = SimulatedApi(other)
    delete_leftovers(cluster, pod("p", "a"))
    assert cluster.deleted == []


def test_keeps_replica_sets_of_a_deployment_that_the_watch_has_not_shown_yet() -> None:
    cluster = SimulatedApi(replica_set("a", "newer"), replica_set("b", "before"), now="newer")
    delete_leftovers(cluster)
    assert cluster.deleted == ["ReplicaSet b b-uid"]


def test_deletes_all_leftovers_of_a_deleted_tritonmodel_without_deployment() -> None:
    cluster = SimulatedApi(replica_set("a", "before"), replica_set("b", "now"), now="")
    collector(cluster, pod("p", "c")).clean_up(KEY)
    assert cluster.deleted == ["ReplicaSet a a-uid", "ReplicaSet b b-uid", "Pod p uid-of-p"]


def test_keeps_the_servers_of_an_orphaned_deployment() -> None:
    """A user ran `kubectl delete --cascade=orphan`."""
    cluster = SimulatedApi(replica_set("a", "before"), replica_set("b", "now"))
    collector(cluster, pod("p", "b")).clean_up(KEY)
    assert cluster.deleted == ["ReplicaSet a a-uid"]


def test_deletes_pods_whose_replica_set_is_gone() -> None:
    cluster = SimulatedApi(replica_set("b", "now"))
    delete_leftovers(cluster, pod("left", "a"), pod("current", "b"), pod("terminating", "a", gen.deleting))
    assert cluster.deleted == ["Pod left uid-of-left"]


def test_keeps_pods_whose_replica_set_lost_its_labels() -> None:
    cluster = SimulatedApi(unlisted=(replica_set("a", "now"),))
    delete_leftovers(cluster, pod("current", "a"))
    assert cluster.deleted == []


def test_deletes_pods_whose_replica_set_was_recreated() -> None:
    recreated = gen.modified(replica_set("a", "now"), gen.put("metadata.uid", "again"))
    cluster = SimulatedApi(recreated)
    delete_leftovers(cluster, pod("left", "a"))
    assert cluster.deleted == ["Pod left uid-of-left"]


def test_logs_and_keeps_an_object_whose_deletion_is_denied(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SimulatedApi(replica_set("a", "before"))
    cluster.error = ApiError(403, "Forbidden", "keep.example.com denied the request")
    assert delete_leftovers(cluster) is None
    assert "ReplicaSet a: keep.example.com denied" in caplog.text


def test_raises_a_transient_error_so_that_the_reconcile_retries() -> None:
    cluster = SimulatedApi(replica_set("a", "before"))
    cluster.error = ApiError(503, "ServiceUnavailable", "later")
    with pytest.raises(ApiError, match="later"):
        delete_leftovers(cluster)
