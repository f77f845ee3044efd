"""The engine Direct: what it reads, what it writes, and what it says. The API server and the prober are simulated."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from support import gen
from support.reconciling import Answers
from triton_operator.api.kinds import Kind
from triton_operator.api.servers import History, RunningServer, Sample, Subject
from triton_operator.api.status import AutoscalingStatus, ModelStatus, TritonModelStatus
from triton_operator.api.thresholds import MAX_QPS_PER_REPLICA, PREFIX
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.store import Store
from triton_operator.decisions.outcome import Outcome
from triton_operator.decisions.scale import decide_scale
from triton_operator.decisions.steps import ScaleUp
from triton_operator.reconcile import Cluster
from triton_operator.reconcile.read_snapshot import SnapshotReader
from triton_operator.reconcile.scale import Scaler
from triton_operator.reconcile.write_status import StatusWriter
from triton_operator.render import Facts, render
from triton_operator.render.facts import Capabilities
from triton_operator.scaling import ScaleDecision
from triton_operator.status.last_scale import last_scale

FACTS = Facts("tools:1", "Copy")
CLUSTER = Cluster(Capabilities(monitoring=False))
KEY = f"{gen.NAMESPACE}/{gen.NAME}"
LOG = logging.LoggerAdapter(logging.getLogger(), {})
Object = dict[str, Any]


class World:
    """One TritonModel whose server handles `rate` requests per second. `tracked`: what is read."""

    def __init__(self, **scaling: Any) -> None:
        self.spec: Object = {"autoscaling": {"engine": "Direct", "max": 10, "utilization": 1, **scaling}}
        self.before = TritonModelStatus(entrypoint="m", entrypoint_type="Model")
        objects = {o["kind"]: gen.live(o) for o in render(gen.model(**self.spec), FACTS)}
        self.deployment, self.autoscaler = objects["Deployment"], objects["HorizontalPodAutoscaler"]
        self.pods = [gen.pod()]
        self.now, self.rate, self.scale_ups = 0.0, 0.0, 0
        self.state: object | None = None
        self.error: ApiError | None = None
        self.replicas_now = 7
        self.tracked: tuple[set[str], Subject] | None = None
        self._samples: tuple[Sample, ...] = ()
        self.loads = self
        self.servers = self.prometheuses = self.comparisons = self.memory = self.changes = Answers()
        itself: Any = self
        self.scaler = Scaler(itself, self.count)

    def track(self, key: str, servers: Iterable[RunningServer], subject: Subject) -> Mapping[str, History]:
        assert key == KEY
        self.tracked = {s.pod for s in servers}, subject
        return dict.fromkeys(self.tracked[0], self._samples)

    def forget(self, key: str) -> None:
        self.tracked = None

    def count(self) -> None:
        self.scale_ups += 1

    def scale(self, live: Object, kind: Kind, replicas: int) -> None:
        if self.error:
            raise self.error
        live["spec"]["replicas"] = replicas

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Returns the Deployment as it is now: with the number of the store, or another."""
        return gen.modified(self.deployment, gen.put("spec.replicas", self.replicas_now))

    def decide(self) -> ScaleDecision | None:
        store, itself = Store(), cast(Any, self)
        for obj in (self.deployment, self.autoscaler, *self.pods):
            store.put(copy.deepcopy(obj))
        reader = SnapshotReader(store, itself, FACTS, lambda: datetime.now(UTC))
        annotations = gen.put("metadata.annotations", {f"{PREFIX}{MAX_QPS_PER_REPLICA.name}": "10"})
        model, raw = gen.model(annotations, **self.spec), gen.raw(annotations, **self.spec)
        snapshot = reader.read(model, raw, self.before, CLUSTER, {})
        decided = decide_scale(snapshot, snapshot.facts, self.state, self.now)
        self.state = decided.state
        return decided.scale

    def scale_up(self, decision: ScaleDecision, outcome: Outcome) -> None:
        self.scaler.scale_up(ScaleUp(self.deployment, decision), outcome, LOG)

    def run(self, seconds: int, rate: float) -> ScaleDecision:
        """Runs with this load. Does what the decisions say."""
        for _ in range(seconds // 2):
            self.now += 2
            self.rate += 2 * rate
            self._samples = (*self._samples, Sample(self.now, self.rate, 0.0))[-30:]
            decision = self.decide()
            assert decision is not None
            self.autoscaler["spec"]["minReplicas"] = decision.floor
            outcome = Outcome()
            self.scale_up(decision, outcome)
            assert not outcome.refused
        return decision


@pytest.mark.parametrize(
    "limited", [("ScalingLimited", "True", "TooFewReplicas"), ("ScalingLimited", "True", "ScaleDownLimit"),
                ("ScalingActive", "False", "FailedGetObjectMetric")]
)  # fmt: skip
def test_adds_servers_and_then_leaves_them_to_the_autoscaler(limited: tuple[str, str, str]) -> None:
    world = World()
    world.run(60, 5)
    assert (world.deployment["spec"]["replicas"], world.scale_ups) == (1, 0)
    world.run(60, 38)
    assert (world.deployment["spec"]["replicas"], world.autoscaler["spec"]["minReplicas"]) == (4, 4)
    assert world.scale_ups >= 1
    world.autoscaler["status"] = {"conditions": [dict(zip(("type", "status", "reason"), limited, strict=True))]}
    world.run(120, 38)
    assert world.autoscaler["spec"]["minReplicas"] == 4
    world.autoscaler["status"] = {"conditions": [{"type": "ScalingLimited", "status": "False", "reason": "x"}]}
    world.run(2, 38)
    assert (world.deployment["spec"]["replicas"], world.autoscaler["spec"]["minReplicas"]) == (4, 1)


def test_reads_only_ready_servers() -> None:
    """A server that is starting counts the requests of its warm-up."""
    world = World()
    world.pods = [gen.pod(), gen.pod(gen.not_ready, name="starting")]
    world.decide()
    assert world.tracked == ({"detection-abc-1"}, Subject("m"))


def test_reads_the_steps_of_an_ensemble() -> None:
    world = World()
    models = [ModelStatus(name=n, state="READY", pods="1/1") for n in ("m", "step")]
    world.before = TritonModelStatus(entrypoint="m", entrypoint_type="Ensemble", models=models)
    world.decide()
    assert world.tracked == ({"detection-abc-1"}, Subject("m", frozenset({"step"}), 2))


def test_other_engines_read_nothing() -> None:
    world = World()
    world.run(10, 5)
    world.spec = {"autoscaling": {"max": 10}}
    assert world.decide() is None
    assert (world.tracked, world.state) == (None, None)


def test_a_pod_of_another_template_means_a_rollout() -> None:
    world = World()
    template = world.deployment["metadata"]["annotations"]["tritonoperator.io/template-hash"]
    world.pods = [gen.pod(template=template)]
    world.run(60, 1)
    world.pods = [gen.pod(template=template), gen.pod(name="old", template="old")]
    assert world.run(6, 38).target == 1
    world.pods = world.pods[:1]
    assert world.run(2, 38).target > 1


UP = ScaleDecision(target=3, floor=3, load=2.5, reason="ScaledUp", message="words")


@pytest.mark.parametrize("code", [404, 409, 422])
def test_leaves_a_number_that_has_changed_meanwhile(code: int) -> None:
    world = World()
    world.error = ApiError(code, "", "no")
    outcome = Outcome()
    world.scale_up(UP, outcome)
    assert not outcome.refused
    assert world.scale_ups == 0


@pytest.mark.parametrize("code", [403, 503])
def test_reports_a_refusal(code: int) -> None:
    world, outcome = World(), Outcome()
    world.error = ApiError(code, "", "not now")
    world.scale_up(UP, outcome)
    problem = outcome.refused["HorizontalPodAutoscaler"]
    assert (problem.reason, "not now" in problem.message) == ("ScaleRefused", True)
    assert outcome.outside_cause


def test_reports_what_an_admission_policy_refuses() -> None:
    """It answers with 422, too, and the number has not changed."""
    world, outcome = World(), Outcome()
    world.replicas_now = world.deployment["spec"]["replicas"]
    world.error = ApiError(422, "Invalid", "denied by a policy")
    world.scale_up(UP, outcome)
    assert "denied by a policy" in outcome.refused["HorizontalPodAutoscaler"].message


def test_raises_what_is_no_answer() -> None:
    world = World()
    world.error = ApiError(0, "", "no answer")
    with pytest.raises(ApiError):
        world.scale_up(UP, Outcome())


def test_the_status_changes_with_the_decision_only() -> None:
    first = last_scale(UP, None, "now")
    assert first == AutoscalingStatus(desired=3, load="2.5", reason="ScaledUp", message="words", time="now")
    assert last_scale(ScaleDecision(3, 3, 2.7, "ScaledUp", "others"), first, "later") == first
    changed = last_scale(ScaleDecision(5, 5, None, "ScaledUp", "others"), first, "later")
    assert changed == AutoscalingStatus(desired=5, reason="ScaledUp", message="others", time="later")
    assert last_scale(None, first, "later") is None


class Events:
    """An API server that keeps the reasons of Events."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def apply(self, *_: Any, **__: Any) -> Object:
        return gen.raw()

    def create(self, _: Kind, __: str, event: Object) -> None:
        self.reasons.append(event["reason"])


def test_one_event_for_each_change_of_direction() -> None:
    api: Any = Events()
    writer = StatusWriter(api, Store(), lambda *_: None, lambda _: None, lambda: datetime.now(UTC))
    before = TritonModelStatus()
    for desired, reason in ((1, "NoAnswer"), (1, "LeftToHPA"), (3, "ScaledUp"), (6, "ScaledUp"), (1, "LeftToHPA"),
                            (1, "NoAnswer"), (2, "ScaledUp")):  # fmt: skip
        decision = AutoscalingStatus(desired=desired, reason=reason, message="words", time="t")
        status = TritonModelStatus(autoscaling=decision)
        writer.write(gen.raw(), before, status, LOG)
        before = status
    writer.write(gen.raw(), before, TritonModelStatus(), LOG)
    assert api.reasons == ["ScaledUp", "LeftToHPA", "ScaledUp"]
