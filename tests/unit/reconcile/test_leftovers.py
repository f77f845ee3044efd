"""Leftovers of deleted TritonModels of the same name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import gen
from support.api import condition
from support.reconciling import KEY, Accepting, Object, reconciler
from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.store import Store
from triton_operator.reconcile import Result
from triton_operator.render import Facts, render


class Collecting(Accepting):
    """An API server with one TritonModel or none. It records deletions, or refuses them with `refusal`."""

    def __init__(self, model: Object | None, refusal: ApiError | None = None) -> None:
        super().__init__()
        self.model, self.refusal, self.deleted = model, refusal, list[str]()
        self.is_deleting: Object | None = None

    def uid_of(self, kind: Kind, *_: object) -> str:
        obj = self.model if kind == kinds.TRITON_MODEL else self.is_deleting
        return str(obj["metadata"]["uid"]) if obj else ""

    def delete(self, kind: Kind, namespace: str, name: str, uid: str, *, foreground: bool) -> bool:
        assert foreground == (kind == kinds.DEPLOYMENT)
        if self.refusal:
            raise self.refusal
        self.deleted.append(f"{kind.kind} {namespace}/{name} {uid}")
        return True

    @property
    def written_kinds(self) -> set[str]:
        return {answer["kind"] for answer in self.answers}

    @property
    def progress(self) -> Object:
        """The last written condition Progressing."""
        return condition(self.answers[-1], "Progressing")


def leftover(uid: str = "former", kind: Kind = kinds.DEPLOYMENT, *modifiers: gen.Modifier) -> Object:
    """A child of a TritonModel with this uid."""
    former = gen.model(gen.put("metadata.uid", uid))
    child = next(obj for obj in render(former, Facts("tools:1", "Copy")) if obj["kind"] == kind.kind)
    return gen.modified(gen.live(child, uid="left-uid"), *modifiers)


WAITING = "WaitingForDeletion"
LEFT = f"Deployment {gen.NAMESPACE}/{gen.NAME} left-uid"


class Successor:
    """A new TritonModel and the leftover `left`, with the first reconcile and another one ten seconds later."""

    def __init__(self, left: Object, refusal: ApiError | None = None) -> None:
        self.api, self.store, self._now = Collecting(gen.raw(), refusal), Store(), datetime(2026, 6, 1, tzinfo=UTC)
        self.store.put(left)
        self.api.is_deleting = left
        self._reconciler = reconciler(self.api, self.store, clock=lambda: self._now)
        self.first = self.requeue(0)
        assert self.api.deleted == []
        (status,) = (answer for answer in self.api.answers if answer["kind"] == names.KIND)
        for kind, truth in {"Ready": "False", "Progressing": "True", "Reconciling": "True", "Stalled": "False"}.items():
            assert (condition(status, kind)["status"], condition(status, kind)["reason"]) == (truth, WAITING)
        assert status["status"]["observedGeneration"] == 0, "the spec isn't acted on yet"
        self.second = self.requeue(10)

    def requeue(self, seconds: float = 1) -> Result:
        """Reconciles again after `seconds`."""
        self._now += timedelta(seconds=seconds)
        return self._reconciler.reconcile(KEY)


def test_leaves_leftovers_to_the_garbage_collector_for_ten_seconds() -> None:
    successor = Successor(leftover())
    assert successor.first == Result(requeue_after=10, written=successor.first.written)
    assert successor.api.written_kinds > {"ServiceAccount", "Service"}


def test_deletes_leftovers_after_the_grace_period_and_reports_them() -> None:
    successor = Successor(leftover())
    assert successor.api.deleted == [LEFT]
    assert "Deployment" not in successor.api.written_kinds
    assert successor.second.requeue
    assert (successor.api.progress["status"], successor.api.progress["reason"]) == ("False", "LeftoverNotDeleted")
    assert successor.api.progress["message"] == (
        f"Deployment {gen.NAMESPACE}/{gen.NAME} of a deleted TritonModel with this name still exists: "
        "it is being deleted, and its pods have not ended yet"
    )
    successor.store.remove(leftover("former", kinds.DEPLOYMENT, gen.put("metadata.resourceVersion", "9999")))
    successor.requeue()
    assert "Deployment" in successor.api.written_kinds
    assert successor.api.deleted == [LEFT]
    assert successor.api.progress["reason"] != "LeftoverNotDeleted"


def test_recreates_a_leftover_in_the_same_reconcile() -> None:
    successor = Successor(leftover("former", kinds.SERVICE_ACCOUNT))
    assert successor.api.deleted == [f"ServiceAccount {gen.NAMESPACE}/tritonmodel-{gen.NAME} left-uid"]
    assert successor.api.written_kinds > {"ServiceAccount", "Deployment", "TritonModel"}
    assert not successor.second.requeue


def test_reports_the_finalizers_of_a_leftover() -> None:
    """No server starts with a ServiceAccount that is being deleted."""
    held = gen.put("metadata.finalizers", ["example.com/a", "example.com/b"])
    successor = Successor(leftover("former", kinds.SERVICE_ACCOUNT, held, gen.deleting))
    assert successor.api.deleted == []
    assert "other controllers' finalizers hold it: example.com/a, example.com/b" in successor.api.progress["message"]
    assert "Deployment" not in successor.api.written_kinds


def test_notices_that_a_leftover_without_label_is_gone() -> None:
    """No watch reports the deletion of an object that has lost its label."""
    successor = Successor(
        leftover("former", kinds.SERVICE_ACCOUNT, gen.put("metadata.finalizers", ["a/b"]), gen.deleting)
    )
    successor.api.is_deleting = None
    assert not successor.requeue().requeue
    assert successor.api.written_kinds > {"ServiceAccount", "Deployment"}


def test_reports_a_webhook_that_denies_the_deletion_of_a_leftover() -> None:
    successor = Successor(leftover(), ApiError(403, "Forbidden", "the webhook keep.example.com denied the request"))
    assert "refuses to delete it: the webhook keep.example.com denied" in successor.api.progress["message"]
    assert successor.api.written_kinds > {"ServiceAccount", "Service"}


def test_retries_a_transient_error_without_reporting_it() -> None:
    with pytest.raises(ApiError, match="too busy"):
        Successor(leftover(), ApiError(429, "TooManyRequests", "too busy"))


def test_keeps_children_of_a_new_model_that_no_watch_has_reported() -> None:
    api, store, now = Collecting(gen.raw(gen.put("metadata.uid", "new"))), Store(), datetime(2026, 6, 1, tzinfo=UTC)
    store.put(leftover("new"))
    subject = reconciler(api, store, clock=lambda: now)
    subject.reconcile(KEY)
    now += timedelta(seconds=10)
    with pytest.raises(ApiError, match="created again"):
        subject.reconcile(KEY)
    assert api.deleted == []


@pytest.mark.parametrize(("seconds", "more"), [(300, {}), (30, {"collect_seconds": 30})])
def test_deletes_leftovers_of_a_deleted_tritonmodel_after_the_grace_period(
    seconds: float, more: dict[str, Any]
) -> None:
    api, store, now = Collecting(None), Store(), datetime(2026, 6, 1, tzinfo=UTC)
    subject = reconciler(api, store, clock=lambda: now, **more)
    store.remove(gen.raw())
    assert subject.reconcile(KEY).requeue_after == seconds
    store.put(leftover())
    assert subject.reconcile(KEY).requeue_after == seconds
    now += timedelta(seconds=seconds - 10)
    assert subject.reconcile(KEY).requeue_after == 10
    assert api.deleted == []
    now += timedelta(seconds=10)
    assert subject.reconcile(KEY).requeue_after is None
    assert api.deleted == [LEFT]


@pytest.mark.parametrize("uid", [gen.UID, "former"])
def test_ignores_a_pod_that_a_tritonmodel_owns_directly(uid: str) -> None:
    api, store = Collecting(gen.raw()), Store()
    reference = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": gen.NAME, "uid": uid, "controller": True}
    store.put(gen.pod(gen.put("metadata.ownerReferences", [reference])))
    reconciler(api, store).reconcile(KEY)
    assert api.deleted == []


def test_each_deletion_starts_a_new_grace_period() -> None:
    api, store, now = Collecting(None), Store(), datetime(2026, 6, 1, tzinfo=UTC)
    subject = reconciler(api, store, clock=lambda: now)
    store.remove(gen.raw())
    store.put(leftover())
    subject.reconcile(KEY)
    store.remove(leftover())
    store.put(gen.raw())
    subject.reconcile(KEY)
    store.remove(gen.raw())
    now += timedelta(hours=1)
    store.put(gen.modified(leftover(), gen.put("metadata.resourceVersion", "9999")))
    assert subject.reconcile(KEY).requeue_after == 300
