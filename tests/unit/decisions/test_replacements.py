"""Servers whose memory grows are replaced before the limit: when, when not, and never in a loop."""

from __future__ import annotations

import dataclasses
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import gen
from support.memory_use import HOUR, LIMIT, Use, by_day, filled, leak, looks
from support.reconciling import FACTS, MONITORED, Answers
from triton_operator.api import names
from triton_operator.api.servers import MemoryGrowth
from triton_operator.api.status import TritonModelStatus, timestamp
from triton_operator.cluster.store import Store
from triton_operator.decisions.decide import Decision, decide
from triton_operator.decisions.growth import replace_growing
from triton_operator.decisions.memory import Memory
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.model_changes import LoadDecision
from triton_operator.pods.replacements import replacement_of
from triton_operator.reconcile.read_snapshot import SnapshotReader
from triton_operator.render import Facts, render
from triton_operator.render.kept_template import pack, seal, with_annotation

NOW = datetime(2026, 12, 1, 14, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SPEC: dict[str, Any] = {
    "entrypoint": "a", "replicas": 1, "memoryGrowth": "Replace", "monitoring": {"processes": True},
    "rollout": {"drainSeconds": 10},
}  # fmt: skip
"""With a start in 20 s, the replacement of one takes 90 s: 60 s are for delays."""
ONE = 1.5 * MINUTE
EDITED = "tritonoperator.io/edited-for-a-test"


class Scene:
    """A TritonModel, its Deployment and its servers, and what becomes of the decisions."""

    def __init__(self, servers: int = 1, age: timedelta = timedelta(hours=10), **spec: Any) -> None:
        self.spec = {**SPEC, "replicas": servers, **spec}
        self.store, self.now, self.number, self.memory = Store(), NOW, 0, Memory()
        self.growing: dict[str, MemoryGrowth] | None = {}
        self.limit, self.start = "1Gi", timedelta(seconds=20)
        model = gen.model(**self.spec)
        children = render(model, Facts("tools:1", "Copy"))
        self.deployment = next(obj for obj in children if obj["kind"] == "Deployment")
        for obj in children:
            self.store.put(gen.live(obj))
        self.version = 10
        self.put_deployment(self.deployment)
        self.pods: dict[str, dict[str, Any]] = {}
        for _ in range(servers):
            self.add_pod(age)

    @property
    def template(self) -> dict[str, Any]:
        template: dict[str, Any] = self.deployment["spec"]["template"]
        return template

    def put_deployment(self, desired: dict[str, Any]) -> None:
        self.version += 1
        self.deployment = gen.live(desired, gen.put("status", {"observedGeneration": 1}), version=self.version)
        self.store.put(self.deployment)

    def edit(self, *edits: gen.Modifier) -> None:
        self.put_deployment(gen.modified(self.deployment, *edits))

    def add_pod(self, age: timedelta = timedelta()) -> str:
        """Adds a ready server of the Deployment's pod template, created `age` ago."""
        self.number += 1
        created = self.now - age
        pod = gen.pod(
            gen.put("metadata.creationTimestamp", timestamp(created)),
            gen.put("metadata.annotations", dict(self.template["metadata"]["annotations"])),
            gen.put("spec.containers.0.resources.limits", {"memory": self.limit} if self.limit else {}),
            gen.put("status.containerStatuses.0.state.running.startedAt", timestamp(created)),
            gen.condition("Ready", "True", lastTransitionTime=timestamp(created + self.start)),
            name=f"server-{self.number}",
        )
        self.pods[pod["metadata"]["name"]] = pod
        self.store.put(pod)
        return f"server-{self.number}"

    def remove(self, pod: str) -> None:
        self.store.remove(self.pods.pop(pod))

    def grow(self, left: timedelta, pod: str = "server-1", *, nearly_full: bool = False) -> None:
        assert self.growing is not None
        self.growing[pod] = MemoryGrowth(self.now + left, nearly_full)

    def snapshot(self) -> Snapshot:
        reader = SnapshotReader(self.store, Answers(), FACTS, lambda: self.now)  # type: ignore[arg-type]
        found = reader.read(gen.model(**self.spec), gen.raw(**self.spec), TritonModelStatus(), MONITORED, {})
        return dataclasses.replace(found, growing=self.growing)

    def decide(self) -> Decision:
        decision = decide(self.snapshot(), self.memory, 60.0)
        self.memory = decision.memory
        return decision

    def reconcile(self) -> bool:
        """Does what was decided; returns whether the servers are replaced."""
        decision = self.decide()
        desired = next(obj for obj in decision.desired if obj["kind"] == "Deployment")
        changes = desired["spec"]["template"]["metadata"] != self.template["metadata"]
        if changes:
            self.put_deployment(desired)
        assert changes == bool(decision.replacement.value)
        return changes

    def roll_out(self) -> None:
        """Replaces each server that isn't of the Deployment's pod template."""
        for pod, obj in list(self.pods.items()):
            if obj["metadata"]["annotations"] != self.template["metadata"]["annotations"]:
                self.add_pod()
                self.remove(pod)
                if self.growing is not None:
                    self.growing.pop(pod, None)


def test_replaces_all_when_the_limit_is_near_and_once_only() -> None:
    scene = Scene(servers=2)
    scene.grow(timedelta(hours=1), nearly_full=True)
    before = scene.template
    assert scene.reconcile()
    assert scene.template["metadata"]["annotations"][names.ANNOTATION_MEMORY] == "2026-12-01T14:00:00Z server-1"
    # Nothing else of the servers changes.
    assert with_annotation(before, names.ANNOTATION_MEMORY, "x") == with_annotation(
        scene.template, names.ANNOTATION_MEMORY, "x"
    )
    assert not scene.reconcile()
    assert "replaces all servers now" in scene.decide().replacement.note
    scene.now += MINUTE
    assert not scene.reconcile(), "the other server is still of before"
    scene.roll_out()
    assert not scene.reconcile()
    assert scene.decide().replacement.note == ""


def test_waits_until_most_of_the_memory_is_used() -> None:
    """Growth may stop before."""
    scene = Scene()
    scene.grow(timedelta(hours=2))
    replacement = scene.decide().replacement
    assert replacement.value == ""
    assert replacement.note.startswith("all servers are replaced when 90 % of the limit is used")
    assert replacement.after == (2 * 60 - 3) * 60
    assert not scene.reconcile()
    scene.now += 2 * timedelta(hours=1) - 2 * ONE
    assert scene.reconcile()


@pytest.mark.parametrize(
    ("servers", "rollout", "steps"),
    [(1, {}, 1), (4, {}, 4), (4, {"maxSurge": 2}, 2), (4, {"maxSurge": "50%", "maxUnavailable": 1}, 2),
     (4, {"maxSurge": 0, "maxUnavailable": "30%"}, 4), (3, {"maxSurge": "10%", "maxUnavailable": "10%"}, 3)],
)  # fmt: skip
def test_begins_in_time_for_all_servers(servers: int, rollout: dict[str, Any], steps: int) -> None:
    scene = Scene(servers, rollout={"drainSeconds": 10, **rollout})
    scene.grow(2 * steps * ONE + timedelta(seconds=1))
    assert not scene.reconcile()
    scene.now += timedelta(seconds=2)
    assert scene.reconcile()


def test_an_unknown_start_counts_as_the_longest() -> None:
    scene = Scene(rollout={"drainSeconds": 0, "startupSeconds": 600})
    pod = gen.modified(scene.pods["server-1"], gen.condition("Ready", "True"), gen.put("metadata.resourceVersion", "2"))
    scene.store.put(pod)
    scene.grow(23 * MINUTE)
    assert not scene.reconcile()
    scene.now += 2 * MINUTE
    assert scene.reconcile()


@pytest.mark.parametrize(("life", "replaced"), [(14.9 * MINUTE, False), (15.1 * MINUTE, True)])
def test_new_servers_must_live_for_ten_starts(life: timedelta, replaced: bool) -> None:
    scene = Scene(age=life - 2 * MINUTE)
    scene.grow(2 * MINUTE)
    decision = scene.decide()
    assert bool(decision.replacement.value) is replaced
    if not replaced:
        assert decision.replacement.note == (
            "the servers aren't replaced before, because new ones would reach the limit as fast: server-1 15 min "
            "after its start, and to replace all takes 2 min"
        )


def test_new_servers_must_live_for_three_replacements_of_all() -> None:
    scene = Scene(servers=10, age=30 * MINUTE)
    scene.grow(14 * MINUTE)
    assert not scene.reconcile()
    scene.grow(16 * MINUTE)
    assert scene.reconcile()


def test_a_page_that_is_not_true_makes_no_loop() -> None:
    scene = Scene(age=timedelta())
    replaced = []
    for minute in range(300):
        scene.now = NOW + minute * MINUTE
        scene.growing = {pod: MemoryGrowth(scene.now + timedelta(days=300), nearly_full=True) for pod in scene.pods}
        if scene.reconcile():
            replaced.append(minute)
            scene.roll_out()
    assert all(after - before >= 5 for before, after in itertools.pairwise(replaced))
    assert len(replaced) <= 60


def obstacle(scene: Scene) -> str:
    scene.grow(timedelta(minutes=1), nearly_full=True)
    assert not scene.reconcile()
    return scene.decide().replacement.note


def test_not_while_a_server_is_missing_or_not_ready() -> None:
    scene = Scene(servers=2)
    scene.remove("server-2")
    assert "while one is missing" in obstacle(scene)
    scene.add_pod()
    assert scene.reconcile()


def test_not_while_the_deployment_is_paused() -> None:
    scene = Scene()
    scene.edit(gen.put("spec.paused", True))
    assert "is paused" in obstacle(scene)


def test_not_in_a_rollout_of_another_spec() -> None:
    scene = Scene()
    scene.grow(timedelta(minutes=1), nearly_full=True)
    scene.spec = {**scene.spec, "entrypoint": "b"}
    decision = scene.decide()
    assert decision.replacement.value == ""
    assert "during a rollout" in decision.replacement.note
    template = next(obj for obj in decision.desired if obj["kind"] == "Deployment")["spec"]["template"]
    assert names.ANNOTATION_MEMORY not in template["metadata"]["annotations"]


def test_not_while_the_models_of_servers_change() -> None:
    scene = Scene()
    scene.grow(timedelta(minutes=1), nearly_full=True)
    decided = replace_growing(scene.snapshot(), FACTS, LoadDecision(left=1), scene.memory.silent)
    assert "while the models of one change" in decided.note


@pytest.mark.parametrize(
    ("servers", "rollout"),
    [
        (1, {"maxSurge": 0, "maxUnavailable": 1}),
        (1, {"maxSurge": 1, "maxUnavailable": 1}),
        (2, {"maxSurge": 1, "maxUnavailable": "100%"}),
    ],
)
def test_not_if_no_server_would_answer(servers: int, rollout: dict[str, Any]) -> None:
    assert "set spec.rollout.maxSurge to 1, and maxUnavailable to 0" in obstacle(Scene(servers, rollout=rollout))
    more = Scene(servers + 1, rollout={"maxSurge": 0, "maxUnavailable": servers})
    more.grow(timedelta(minutes=1))
    assert more.reconcile()


def test_a_write_that_is_refused_or_undone_is_tried_with_the_same_content() -> None:
    """So it counts as one that another writer undoes, which waits longer and longer."""
    scene = Scene()
    scene.grow(timedelta(minutes=1), nearly_full=True)
    values = set()
    for _ in range(3):
        values.add(scene.decide().replacement.value)
        scene.now += MINUTE
    assert values == {"2026-12-01T14:00:00Z server-1"}


def test_each_server_is_judged_by_itself() -> None:
    scene = Scene(servers=2)
    scene.grow(timedelta(days=-300), "server-1")
    scene.grow(timedelta(minutes=20), "server-2", nearly_full=True)
    assert scene.decide().replacement.value.endswith(" server-2")


def test_an_edited_pod_stops_nothing() -> None:
    scene = Scene()
    scene.grow(timedelta(minutes=1), nearly_full=True)
    scene.reconcile()
    scene.roll_out()
    (name,) = scene.pods
    pod = gen.modified(scene.pods[name], gen.put("metadata.resourceVersion", "2"))
    del pod["metadata"]["annotations"][names.ANNOTATION_MEMORY]
    scene.store.put(pod)
    scene.now += timedelta(hours=10)
    scene.grow(timedelta(minutes=1), name)
    assert scene.reconcile()


def test_reports_only_by_default() -> None:
    scene = Scene(memoryGrowth="Report")
    assert obstacle(scene) == ""


def test_says_that_servers_without_a_limit_have_nothing_to_reach() -> None:
    scene = Scene()
    scene.remove("server-1")
    scene.limit = ""
    scene.add_pod(timedelta(hours=10))
    assert "no memory limit" in scene.decide().replacement.warning


def test_nothing_is_decided_while_a_server_was_not_polled() -> None:
    scene = Scene()
    scene.growing = None
    assert not scene.reconcile()


def test_an_older_pod_template_is_kept() -> None:
    """That of an earlier version of the operator: a night isn't the time for a newer one."""
    scene = Scene()
    old = with_annotation(scene.template, EDITED, "of another version")
    metadata = scene.deployment["metadata"]
    scene.edit(
        gen.put("spec.template", old),
        gen.put("metadata.labels", metadata["labels"] | {names.LABEL_KEPT: seal(old)}),
        gen.put(
            "metadata.annotations",
            metadata["annotations"]
            | {
                names.ANNOTATION_TEMPLATE: old["metadata"]["annotations"][names.ANNOTATION_TEMPLATE],
                names.ANNOTATION_POD_TEMPLATE: pack(old),
            },
        ),
    )
    scene.roll_out()
    scene.now += timedelta(hours=10)
    (pod,) = scene.pods
    scene.grow(MINUTE, pod, nearly_full=True)
    assert scene.reconcile()
    assert scene.template["metadata"]["annotations"][EDITED] == "of another version"
    scene.roll_out()
    for _ in range(3):
        assert not scene.reconcile()
    assert scene.decide().has_newer_template


def test_the_deployment_says_for_which_server_they_were_replaced() -> None:
    scene = Scene()
    assert replacement_of(scene.deployment, scene.now) is None
    scene.grow(MINUTE)
    scene.reconcile()
    repair = replacement_of(scene.deployment, scene.now)
    assert repair is not None
    assert (repair.reason, repair.server, repair.time) == ("MemoryGrew", "server-1", "2026-12-01T14:00:00Z")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x y",
        "2026-12-01 pod",
        "0001-01-01T00:00:00+14:00 a",
        "0001-01-01T00:30:00Z a",
        "2026-12-01T14:00:01Z a",
        " ",
        "2026-12-01T14:00:00Z",
    ],
)
def test_another_value_of_the_annotation_is_no_replacement(value: str) -> None:
    template = {"metadata": {"annotations": {names.ANNOTATION_MEMORY: value}}}
    assert replacement_of({"spec": {"template": template}}, NOW) is None


class Simulated:
    """A life after the other of one server, by simulated looks."""

    def __init__(self) -> None:
        self.scene, self.replaced, self.killed = Scene(age=timedelta()), 0, 0

    def live(self, use: Use, hours: float) -> None:
        """Lives for these hours; each new server begins again."""
        end = hours * HOUR
        while end > 0:
            began = self.scene.now
            at = 0.0
            for at, used, full in looks(use, end / HOUR):
                self.scene.now = began + timedelta(seconds=at)
                (pod,) = self.scene.pods
                if used >= LIMIT:
                    self.killed += 1
                    self.scene.remove(pod)
                    self.scene.add_pod()
                    break
                if full is None:
                    continue
                nearly = used >= 0.9 * LIMIT
                self.scene.growing = {pod: MemoryGrowth(began + timedelta(seconds=full), nearly)}
                if self.scene.reconcile():
                    self.replaced += 1
                    self.scene.roll_out()
                    break
            else:
                return
            end -= at


@pytest.mark.parametrize("per_hour", [1500, 500, 100])
def test_a_leak_never_reaches_the_limit(per_hour: float) -> None:
    simulated = Simulated()
    simulated.live(leak(per_hour), 24)
    assert simulated.killed == 0
    expected = 24 * per_hour / (0.9 * LIMIT - 300)
    assert 0.8 * expected - 1 <= simulated.replaced <= 1.3 * expected + 1


def test_a_leak_that_is_too_fast_makes_no_loop() -> None:
    simulated = Simulated()
    simulated.live(leak(6000), 2)
    assert simulated.killed >= 14
    assert simulated.replaced == 0


HONEST = {
    "a cache of 69 %, in an hour": filled(500, 1),
    "a cache of 76 %, in six hours": filled(550, 6),
    "a cache of 83 %, in an hour": filled(600, 1),
    "days of 69 %": by_day(500),
}
"""Growth that is reported until it stops (docs/limits.md)."""


@pytest.mark.parametrize("use", HONEST.values(), ids=HONEST.keys())
def test_growth_that_stops_below_90_percent_replaces_no_server(use: Use) -> None:
    simulated = Simulated()
    simulated.live(use, 24)
    assert (simulated.killed, simulated.replaced) == (0, 0)
