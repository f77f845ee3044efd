"""Decisions about a TritonModel with a second group of servers (support/second_group.py)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from support import gen, second_group
from support.reconciling import FACTS, MONITORED, Answers
from triton_operator.api import names
from triton_operator.api.servers import ChangeOutcome, IndexEntry, ServerAnswers, Subject
from triton_operator.api.status import ModelStatus, TritonModelStatus
from triton_operator.cluster.store import Store
from triton_operator.decisions.decide import decide
from triton_operator.decisions.groups import wanted
from triton_operator.decisions.memory import Memory
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.decisions.steps import ChangeModels, WriteChildren
from triton_operator.plan import Delete
from triton_operator.pods import Pod, Problem
from triton_operator.reconcile.read_snapshot import SnapshotReader
from triton_operator.reconcile.unread import observe
from triton_operator.render import render
from triton_operator.status.models import merged
from triton_operator.status.untouched import unread

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = f"{gen.NAME}-{second_group.NAME}"
ANNOTATED = gen.put("metadata.annotations", {second_group.ANNOTATION: "registry.example.com/detection:v2"})
Object = dict[str, Any]


class Prober(Answers):
    """A prober that remembers what it reads. `tracked`: the servers whose counters it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[str, tuple[str, ...]] = {}
        self.so_far: dict[str, ChangeOutcome] = {}
        self.tracked: set[str] = set()

    def outcomes(self, _: object, servers: Any = ()) -> dict[str, Any]:
        self.models = {server.pod: tuple(models) for server, models in servers}
        return self.so_far

    def track(self, key: str, target: Any, subject: Any = "", **more: object) -> Any:
        if not isinstance(subject, Subject):
            return super().track(key, target, subject, **more)
        self.tracked = {server.pod for server in target}
        return {}


def pod(name: str, group: str, template: str, *edits: gen.Modifier) -> Object:
    def in_group(obj: Object) -> None:
        obj["metadata"]["labels"] |= names.of_group(group)

    return gen.pod(in_group, gen.put("metadata.uid", f"uid-{name}"), *edits, name=name, template=template)


def objects_of(spec: Object) -> list[Object]:
    """Returns the objects of both groups, rendered without a cluster."""
    main, second = wanted(gen.model(ANNOTATED, **spec), TritonModelStatus(), 1, (second_group.second_group,))
    return render(main.model, FACTS, [(second.model, replace(FACTS, group=second.name))])


def template_of(objects: list[Object], name: str) -> str:
    (deployment,) = (o for o in objects if (o["kind"], o["metadata"]["name"]) == ("Deployment", name))
    return str(deployment["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])


def snapshot_of(spec: Object, prober: Prober, pods: list[Object], before: TritonModelStatus | None = None) -> Snapshot:
    store, before, client = Store(), before or TritonModelStatus(), prober
    for obj in (*map(gen.live, objects_of(spec)), *pods):
        store.put(obj)
    answers: Any = client
    reader = SnapshotReader(store, answers, FACTS, lambda: NOW, (second_group.second_group,))
    return reader.read(gen.model(ANNOTATED, **spec), gen.raw(ANNOTATED, **spec), before, MONITORED, {})


def test_a_group_adds_one_deployment_to_the_objects() -> None:
    spec: Object = {"entrypoint": "a", "autoscaling": {"max": 3}, "networkPolicy": {}}
    without = render(gen.model(ANNOTATED, **spec), FACTS)
    (added,) = (obj for obj in objects_of(spec) if obj not in without)
    assert [obj for obj in objects_of(spec) if obj != added] == without
    assert (added["kind"], added["metadata"]["name"]) == ("Deployment", SECOND)
    assert added["spec"]["template"]["metadata"]["labels"] == names.labels_of_pods(gen.NAME, second_group.NAME)


def test_each_pod_belongs_to_the_group_in_its_label() -> None:
    pods = [pod("one", "", "t"), pod("two", second_group.NAME, "t"), pod("three", "former", "t")]
    snapshot = snapshot_of({}, Prober(), pods)
    assert [[p.name for p in group.pods] for group in snapshot.groups] == [["one"], ["two"]]
    assert [p.name for p in snapshot.ending] == ["three"]
    assert {p.name for p in snapshot.pods} == {"one", "two", "three"}


def test_at_rest_a_second_group_plans_no_write() -> None:
    snapshot = snapshot_of({}, Prober(), [])
    assert not [step for step in decide(snapshot, Memory(), 0).steps if isinstance(step, WriteChildren)]


def test_a_group_that_no_policy_wants_is_deleted() -> None:
    snapshot = snapshot_of({}, Prober(), [])
    alone = replace(snapshot, groups=snapshot.groups[:1])
    (write,) = (step for step in decide(alone, Memory(), 0).steps if isinstance(step, WriteChildren))
    (deletion,) = write.plan
    assert isinstance(deletion, Delete)
    assert deletion.live["metadata"]["name"] == SECOND


EXPLICIT: Object = {"entrypoint": "a", "server": {"modelControl": "explicit", "loadModels": ["a", "b"]}}
ADDRESS = gen.put("status.podIP", "10.0.0.1")


def test_the_models_of_one_server_change_at_a_time_over_all_groups() -> None:
    objects, prober = objects_of(EXPLICIT), Prober()
    first, second = template_of(objects, gen.NAME), template_of(objects, SECOND)
    assert first != second
    pods = [pod("one", "", first, ADDRESS), pod("two", second_group.NAME, second, ADDRESS)]
    loaded = (IndexEntry("a", "1", "READY", ""),)
    prober.of_servers = ServerAnswers({"one": loaded, "two": loaded})

    def changed() -> list[str]:
        decision = decide(snapshot_of(EXPLICIT, prober, pods), Memory(), 0)
        assert decision.load.left == 2
        assert decision.facts.lists.keys() == {first, second}
        return [step.server.pod for step in decision.steps if isinstance(step, ChangeModels)]

    assert changed() == ["one"]
    assert prober.models == {"one": ("a", "b"), "two": ("a", "b")}
    # The one that has begun ends first.
    prober.so_far = {"uid-two": ChangeOutcome("Running")}
    assert changed() == ["two"]


def test_a_group_that_refuses_a_model_holds_up_no_other() -> None:
    objects, prober = objects_of(EXPLICIT), Prober()
    pods = [
        pod("one", "", template_of(objects, gen.NAME), ADDRESS),
        pod("two", second_group.NAME, template_of(objects, SECOND), ADDRESS),
    ]
    prober.of_servers = ServerAnswers({name: (IndexEntry("a", "1", "READY", ""),) for name in ("one", "two")})
    prober.so_far = {"uid-one": ChangeOutcome("Refused", "b: no model.py")}
    decision = decide(snapshot_of(EXPLICIT, prober, pods), Memory(), 0)
    assert [step.server.pod for step in decision.steps if isinstance(step, ChangeModels)] == ["two"]
    assert (decision.load.failure, decision.load.refused) == ("one: b: no model.py", True)


def test_the_engine_direct_counts_the_servers_that_it_scales() -> None:
    spec: Object = {"autoscaling": {"engine": "Direct", "max": 3}, "entrypoint": "a"}
    prober = Prober()
    before = TritonModelStatus(entrypoint="a", entrypoint_type="Model")
    snapshot_of(spec, prober, [pod("one", "", "t", ADDRESS), pod("two", second_group.NAME, "t", ADDRESS)], before)
    assert prober.tracked == {"one"}


def test_a_deleted_deployment_gets_back_the_servers_of_its_own_group() -> None:
    """Status.replicas counts those of the group without a name."""
    prober, before = Prober(), TritonModelStatus(replicas=3)
    spec: Object = {"autoscaling": {"max": 9}}
    pods = [pod(f"second-{number}", second_group.NAME, "t") for number in range(2)]
    assert snapshot_of(spec, prober, pods, before).facts.replicas == 3


def test_an_unreadable_spec_hides_no_server_of_any_group() -> None:
    objects = objects_of({})
    pods = [
        pod("one", "", template_of(objects, gen.NAME), gen.not_ready),
        pod("two", second_group.NAME, template_of(objects, SECOND)),
    ]
    servers = observe([gen.live(obj) for obj in objects], map(Pod, pods), gen.NAME)
    problem = Problem("SpecInvalid", "no")
    status = unread(TritonModelStatus(), problem, servers, "2026-01-01T00:00:00Z", 3, unseen=False)
    assert (status.replicas, status.ready_replicas) == (1, 0)
    assert next(c.status for c in status.conditions if c.type == "Ready") == "True"


def test_the_worst_state_of_a_model_over_all_groups_counts() -> None:
    ready = ModelStatus(name="a", version="1", state="READY", pods="2/2")
    failed = ModelStatus(name="a", version="1", state="UNAVAILABLE", reason="no", pods="0/1")
    other = ModelStatus(name="b", version="1", state="READY", pods="1/1")
    assert merged([[ready, other], [failed]]) == [failed.model_copy(update={"pods": "2/3"}), other]
    assert merged([[ready], []]) == [ready]
