"""Decisions depend on nothing but the snapshot and the memory, and change neither."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from support import gen
from support.reconciling import FACTS, KEY, MONITORED, Answers
from triton_operator.api.status import TritonModelStatus
from triton_operator.cluster.store import Store
from triton_operator.decisions.decide import decide
from triton_operator.decisions.memory import Memory
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.plan import applied_record, identity
from triton_operator.reconcile.read_snapshot import SnapshotReader
from triton_operator.render import Facts, render

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "models by list": {"entrypoint": "a", "server": {"modelControl": "explicit", "loadModels": ["a", "b"]}},
    "scaled": {"entrypoint": "a", "autoscaling": {"engine": "Direct", "max": 3}},
    "health request": {"entrypoint": "a", "healthRequest": {"file": "a/warmup/health.json"}},
}


class Idle:
    """Servers without a request."""

    def track(self, *_: Any) -> dict[str, Any]:
        return {}

    def forget(self, key: str) -> None:
        """Does nothing."""


def snapshot_of(spec: dict[str, Any], *edits: gen.Modifier) -> Snapshot:
    """Returns the snapshot of a TritonModel whose Deployment another client has edited."""
    model, store, prober = gen.model(**spec), Store(), Answers()
    for obj in render(model, Facts("tools:1", "Copy")):
        store.put(gen.live(obj, *(edits if obj["kind"] == "Deployment" else ())))
    store.put(gen.pod(gen.stopped_answering()))
    answers: Any = prober
    answers.loads = Idle()
    reader = SnapshotReader(store, answers, FACTS, lambda: NOW)
    before = TritonModelStatus()
    return reader.read(model, gen.raw(**spec), before, MONITORED, {})


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_same_snapshot_and_memory_give_the_same_decision(spec: dict[str, Any]) -> None:
    snapshot = snapshot_of(spec, gen.put("spec.template.spec.enableServiceLinks", 77))
    rendered = render(snapshot.model, Facts("tools:1", "Copy"))
    memory = Memory(applied={identity(obj): applied_record(obj, gen.live(obj)) for obj in rendered})
    for _ in range(3):
        before, seen = copy.deepcopy(memory), copy.deepcopy(snapshot)
        decision = decide(snapshot, memory, 60.0)
        assert decide(snapshot, memory, 60.0) == decision
        assert (memory, snapshot) == (before, seen)
        memory = decision.memory
    assert snapshot.model.key == KEY
