"""What happens between two requests of one pass, which no API server can be made to do at the right moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import gen
from triton_operator.api.kinds import Kind
from triton_operator.cluster.monitoring import Monitoring
from triton_operator.cluster.store import Store, state
from triton_operator.cluster.triton import Servers
from triton_operator.reconcile import Reconciler
from triton_operator.render import Choices

KEY = f"{gen.NAMESPACE}/{gen.NAME}"
Object = dict[str, Any]


class Accepting:
    """Takes every write; `meanwhile` is what others do to the TritonModel just before its status is written."""

    def __init__(self, *meanwhile: gen.Modifier) -> None:
        self._meanwhile, self._version, self.answers = meanwhile, 100, list[Object]()

    def apply_new(self, _: Kind, body: Object) -> Object:
        return self._answer(gen.live(body))

    def apply(self, _: Kind, body: Object, uid: str, *, manager: str = "", subresource: str = "") -> Object:
        assert subresource == "status"
        return self._answer(gen.raw(*self._meanwhile, gen.put("status", body["status"])))

    def create(self, *_: Any) -> None:
        """An Event."""

    def _answer(self, obj: Object) -> Object:
        self._version += 1
        self.answers.append(gen.modified(obj, gen.put("metadata.resourceVersion", str(self._version))))
        return self.answers[-1]


def reconciler(api: Accepting, **more: Any) -> Reconciler:
    store = Store()
    store.put(gen.raw())
    fresh = Choices("tools:1", "Copy")
    watched: Any = api
    monitoring = Monitoring(watched)
    more = {"progress_seconds": 0.0, **more}
    return Reconciler(watched, store, Servers(), monitoring, fresh, served=lambda _: False, **more)


def test_a_pass_knows_what_it_wrote_itself() -> None:
    api = Accepting()
    outcome = reconciler(api).reconcile(KEY)
    assert len(api.answers) > 4
    assert outcome.written == {state(answer) for answer in api.answers}
    assert outcome.after is None


@pytest.mark.parametrize(
    "meanwhile", [gen.put("metadata.generation", 2), gen.put("metadata.annotations", {"max_qps": "8"}), gen.deleting]
)
def test_a_change_that_comes_just_before_the_status_is_written_is_not_lost(meanwhile: gen.Modifier) -> None:
    """The answer has it, so that its event is no news any more."""
    assert reconciler(Accepting(meanwhile)).reconcile(KEY).after == 0


def test_a_clock_that_is_set_back_holds_no_status_back() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    api = Accepting()
    passes = reconciler(api, progress_seconds=5.0, clock=lambda: now)
    assert passes.reconcile(KEY).after == 1
    now -= timedelta(days=365)
    assert passes.reconcile(KEY).after is None
    assert "observedGeneration" in api.answers[-1]["status"]
