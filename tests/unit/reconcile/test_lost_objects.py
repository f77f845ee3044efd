"""Objects that have lost the label that the watches select, or their owner reference."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from support.reconciling import FACTS, KEY, Accepting, Object, reconciler
from triton_operator.api import kinds
from triton_operator.api.kinds import Kind
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.store import Store
from triton_operator.reconcile import Reconciler
from triton_operator.render import Facts, render


class Finding(Accepting):
    """An API server that returns `there` or raises it. It counts reads and records deletions."""

    def __init__(self, there: Object | ApiError) -> None:
        super().__init__()
        self.there, self.requested, self.deleted = there, 0, list[str]()

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        assert (kind, namespace, name) == (kinds.DISRUPTION_BUDGET, gen.NAMESPACE, gen.NAME)
        self.requested += 1
        if isinstance(self.there, ApiError):
            raise self.there
        return self.there

    def delete(self, kind: Kind, namespace: str, name: str, uid: str, *, foreground: bool = False) -> bool:
        self.deleted.append(f"{kind.kind} {uid}")
        return True


def budget(*modifiers: gen.Modifier) -> Object:
    two = Facts("tools:1", "Copy", replicas=2)
    child = next(o for o in render(gen.model(replicas=2), two) if o["kind"] == kinds.DISRUPTION_BUDGET.kind)
    return gen.modified(gen.live(child, uid="lost"), *modifiers)


def losing(api: Finding, **spec: Any) -> Reconciler:
    """A reconciler after a watch has reported the deletion of the PodDisruptionBudget, which the spec doesn't need."""
    store = Store()
    subject = reconciler(api, store)
    store.put(gen.raw(gen.put("metadata.resourceVersion", "2"), **spec))
    store.put(budget())
    store.mark_lost(budget())
    return subject


def test_deletes_an_undesired_object_that_lost_its_label() -> None:
    api = Finding(budget(gen.put("metadata.labels", {}), gen.put("metadata.resourceVersion", "11")))
    subject = losing(api)
    assert subject.reconcile(KEY).requeue_after == 0
    subject.reconcile(KEY)
    assert api.deleted == ["PodDisruptionBudget lost"]


@pytest.mark.parametrize(
    ("there", "requested"),
    [
        (ApiError(404, "NotFound", "gone"), 1),
        (budget(gen.put("metadata.ownerReferences", [])), 1),
        (ApiError(403, "Forbidden", "no"), 2),
    ],
)
def test_reads_a_lost_object_until_its_state_is_known(there: Object | ApiError, requested: int) -> None:
    api = Finding(there)
    subject = losing(api)
    for _ in range(2):
        subject.reconcile(KEY)
    assert (api.requested, api.deleted) == (requested, [])


def test_retries_while_the_api_server_is_too_busy_to_return_a_lost_object() -> None:
    api = Finding(ApiError(429, "TooManyRequests", "too busy"))
    subject = losing(api)
    for _ in range(2):
        with pytest.raises(ApiError, match="too busy"):
            subject.reconcile(KEY)


def test_does_not_read_a_lost_object_that_is_desired() -> None:
    api = Finding(ApiError(404, "NotFound", "gone"))
    losing(api, replicas=2).reconcile(KEY)
    assert api.requested == 0
    assert "PodDisruptionBudget" in {answer["kind"] for answer in api.answers}


class Orphaning(Accepting):
    """An API server with the children of a deletion that orphaned them. `owner`: the TritonModel that it has."""

    def __init__(self, owner: Object | None) -> None:
        super().__init__()
        self.owner = owner

    def apply_new(self, _: Kind, body: Object) -> Object:
        raise ApiError(409, "AlreadyExists", f"{body['kind']} already exists")

    def get(self, kind: Kind, _: str, name: str) -> Object:
        if kind == kinds.TRITON_MODEL:
            if self.owner is None:
                raise ApiError(404, "NotFound", "no TritonModel")
            return self.owner
        obj = next(o for o in render(gen.model(), FACTS) if (o["kind"], o["metadata"]["name"]) == (kind.kind, name))
        return gen.modified(gen.live(obj), gen.put("metadata.ownerReferences", []))


def test_adopts_children_without_owner_reference() -> None:
    api = Orphaning(gen.raw())
    reconciler(api).reconcile(KEY)
    assert "Deployment" in {answer["kind"] for answer in api.answers}


@pytest.mark.parametrize("owner", [gen.raw(gen.deleting), gen.raw(gen.put("metadata.uid", "new")), None])
def test_adopts_nothing_for_a_tritonmodel_whose_deletion_no_watch_has_reported(owner: Object | None) -> None:
    """The garbage collector would delete what has the owner reference of a deleted TritonModel."""
    api = Orphaning(owner)
    with pytest.raises(ApiError, match="deleted in the meantime"):
        reconciler(api).reconcile(KEY)
    assert not api.answers
