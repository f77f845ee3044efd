"""Whatever ends a reconcile, the status has it: a fault of the operator itself, and a spec that waits."""

from __future__ import annotations

import logging
import typing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from support import gen
from support.api import condition
from support.reconciling import KEY, Accepting, Answers, Object, reconciler
from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.api.servers import Change, RunningServer
from triton_operator.cluster.store import Store
from triton_operator.decisions.memory import Memory
from triton_operator.decisions.outcome import Outcome
from triton_operator.decisions.steps import (
    ChangeModels,
    DeleteLeftoverPods,
    DeleteLeftovers,
    Evict,
    ReadLost,
    ReconcileAfter,
    ScaleUp,
    Step,
    WakeUp,
    WriteChildren,
)
from triton_operator.plan import plan
from triton_operator.pods import Pod
from triton_operator.reconcile import events
from triton_operator.reconcile.execute import Executor
from triton_operator.reconcile.lacking import Lacking
from triton_operator.reconcile.leftover_pods import LeftoverPodCollector
from triton_operator.reconcile.leftovers import LeftoverCollector
from triton_operator.render import Facts, render
from triton_operator.scaling import ScaleDecision

LOG = logging.LoggerAdapter(logging.getLogger(__name__))
SECRET = "the value of a secret"
DESIRED = tuple(render(gen.model(), Facts("tools:1", "Copy")))
DEPLOYMENT = gen.live(next(obj for obj in DESIRED if obj["kind"] == "Deployment"))
SERVER = RunningServer("uid", "pod", "127.0.0.1", (0, True))
STEPS: tuple[Step, ...] = (
    WakeUp(DEPLOYMENT, 1),
    ReadLost((("Service", gen.NAME),)),
    DeleteLeftovers(),
    WriteChildren(plan(DESIRED, (), {}).writes),
    ChangeModels(SERVER, Change(("a",), (), (), 1.0), ("a",)),
    ScaleUp(DEPLOYMENT, ScaleDecision(9, 1, None, "ScaledUp", "more")),
    Evict(Pod(gen.pod(gen.stopped_answering()))),
    DeleteLeftoverPods(),
)


class Broken:
    """An object whose every method fails as no method should."""

    def __getattr__(self, _: str) -> Broken:
        return self

    def __call__(self, *_: object, **__: object) -> None:
        raise ZeroDivisionError(SECRET)


def test_every_step_that_writes_is_tried_here() -> None:
    assert {*map(type, STEPS), ReconcileAfter} == set(typing.get_args(Step))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_a_step_that_fails_is_reported_and_stops_no_other(step: Step) -> None:
    broken: Any = Broken()
    clock = lambda: datetime(2026, 1, 1, tzinfo=UTC)  # noqa: E731
    executor = Executor(
        broken, broken, broken, LeftoverCollector(broken, broken, clock, timedelta()),
        LeftoverPodCollector(broken, broken, clock), lambda: None, clock, Lacking(),
    )  # fmt: skip
    snapshot: Any = SimpleNamespace(
        model=gen.model(), children=(), changes={}, time=clock(),
        facts=SimpleNamespace(cluster=SimpleNamespace(kubernetes=(1, 36))),
    )  # fmt: skip
    outcome = Outcome(kubernetes=(1, 36))
    executor.execute(snapshot, [step, ReconcileAfter(7)], Memory(), outcome, LOG)
    assert outcome.requeue_after == 7
    assert outcome.failed
    problem = outcome.refused[""]
    assert problem.reason == "InternalError"
    assert "with ZeroDivisionError in " in problem.message
    assert SECRET not in problem.message
    if not isinstance(step, WriteChildren):
        assert f"the operator failed {step.action}, with " in problem.message


class Failing(Accepting):
    """An API server at which a write of this kind ends with an exception of another library, say."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(SCALED)
        self.kind: Kind | None = kind

    def apply_new(self, kind: Kind, body: Object) -> Object:
        if kind == self.kind:
            raise ZeroDivisionError(SECRET)
        return super().apply_new(kind, body)

    @property
    def written(self) -> set[str]:
        return {answer["kind"] for answer in self.answers} - {names.KIND}


CHILDREN = [kinds.SERVICE_ACCOUNT, kinds.SERVICE, kinds.DEPLOYMENT, kinds.AUTOSCALER]
SCALED = gen.put("spec.autoscaling", {"min": 1, "max": 2})


@pytest.mark.parametrize("kind", CHILDREN, ids=lambda kind: kind.kind)
def test_an_object_that_cannot_be_written_stops_only_what_depends_on_it(kind: Kind) -> None:
    api, store = Failing(kind), Store()
    subject = reconciler(api, store)
    store.put(gen.raw(gen.put("metadata.resourceVersion", "7"), SCALED))
    result = subject.reconcile(KEY)
    assert (result.failed, result.requeue) == (True, True)
    progressing = condition(api.answers[-1], "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "InternalError")
    assert f"the operator failed to write {kind.kind} " in progressing["message"]
    assert "The other steps are done" in progressing["message"]
    unwritten = {kind.kind, "Deployment"} if kind == kinds.SERVICE_ACCOUNT else {kind.kind}
    assert {child.kind for child in CHILDREN} - api.written == unwritten
    api.kind = None
    again = subject.reconcile(KEY)
    assert (again.failed, again.requeue) == (False, False)
    assert condition(api.answers[-1], "Progressing")["reason"] != "InternalError"
    assert api.written >= {child.kind for child in CHILDREN}


class FailingProber(Answers):
    """A prober whose method `at` fails while it isn't "". Each is called in another part of a reconcile."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def track(self, key: str, target: Any, _: str = "", **more: object) -> Any:
        if self.at == "track":
            raise ZeroDivisionError(SECRET)
        return super().track(key, target, **more)

    def set_waiting(self, _: str, *, waits: bool, outdated: bool) -> None:
        if self.at == "set_waiting":
            raise ZeroDivisionError(SECRET)


@pytest.mark.parametrize("at", ["track", "set_waiting"])
def test_a_reconcile_that_fails_is_reported_with_what_is_known_of_the_servers(at: str) -> None:
    """Before anything was decided, and when the status was made."""
    api, store, answers = Accepting(), Store(), FailingProber("")
    subject = reconciler(api, store, answers=answers)
    subject.reconcile(KEY)
    (deployment,) = store.of_kind(KEY, "Deployment")
    store.put(gen.pod(template=deployment["metadata"]["annotations"][names.ANNOTATION_TEMPLATE]))
    answers.at = at
    result = subject.reconcile(KEY)
    assert (result.failed, result.requeue) == (True, True)
    written = api.answers[-1]
    progressing = condition(written, "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "InternalError")
    assert "the operator failed to reconcile this TritonModel, with ZeroDivisionError in " in progressing["message"]
    assert "Until then the operator changes nothing" in progressing["message"]
    assert SECRET not in str(written)
    assert condition(written, "Ready")["status"] == "True"
    assert condition(written, "Stalled")["status"] == "True"
    number = len(api.answers)
    for _ in range(3):
        assert subject.reconcile(KEY).failed
    assert len(api.answers) == number, "the same fault is written once"
    answers.at = ""
    assert not subject.reconcile(KEY).failed
    assert condition(api.answers[-1], "Progressing")["reason"] != "InternalError"


def test_a_fault_that_comes_and_goes_has_one_event_an_hour() -> None:
    posted: list[Object] = []
    api: Any = SimpleNamespace(create=lambda _, __, body: posted.append(body))
    clock = [0.0]
    recorder = events.Recorder(api, lambda: datetime(2026, 1, 1, tzinfo=UTC), lambda: clock[0])
    for _ in range(61):
        recorder.post(gen.raw(), "Warning", "InternalError", "a fault")
        clock[0] += 60
    recorder.post(gen.raw(name="other"), "Warning", "InternalError", "a fault")
    recorder.post(gen.raw(), "Warning", "ApplyRefused", "another reason")
    assert [one["reason"] for one in posted] == ["InternalError"] * 3 + ["ApplyRefused"]
