"""How a change of spec.server.loadModels reaches the servers: the decision, also with servers that fail at any time."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support import gen
from triton_operator.api.servers import Change, ChangeOutcome, Index, IndexEntry, RunningServer, ServerAnswers
from triton_operator.decisions import load_models
from triton_operator.model_changes import LoadDecision, change, decide
from triton_operator.pods import Pod
from triton_operator.pods.group import Group
from triton_operator.render import Facts, model_lists, template_hash
from triton_operator.render.facts import Models

DESIRED = ("entry", "new")
RECORD = Models(("entry", "old"))


def server(name: str = "a") -> RunningServer:
    return RunningServer(f"uid-{name}", name, name, (0, True))


def index(*ready: str, **states: str) -> Index:
    """Returns an index with these models. `states`: the state and Triton's reason of others."""
    others = [IndexEntry(name, "1", *state.split(": ")) for name, state in states.items()]
    return (*(IndexEntry(name, "1", "READY", "") for name in ready), *others)


def changed(*ready: str, record: Models = RECORD, **states: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    step = change(index(*ready, **states), DESIRED, record, "entry", 9.0)
    return step.load, step.unload


def decided(*names: str, **outcomes: ChangeOutcome) -> LoadDecision:
    """Returns the decision about servers that all need the same change."""
    needed = change(index("entry", "old"), DESIRED, RECORD, "entry", 9.0)
    return decide([(server(n), needed) for n in names], {f"uid-{k}": v for k, v in outcomes.items()})


def test_loads_what_is_new_and_then_unloads_what_is_gone() -> None:
    assert change(index("entry", "old", "other"), DESIRED, RECORD, "entry", 9.0) == Change(
        ("new",), ("old",), ("entry", "new"), 9.0
    )
    assert change(index("entry"), ("new",), RECORD, "entry", 9.0).keep == ("new", "entry"), (
        "the entrypoint always stays"
    )


def test_leaves_alone_what_others_do() -> None:
    """People and applications load and unload models, too."""
    same = Models(DESIRED)
    assert changed("entry", "other", record=same, new="UNAVAILABLE: unloaded") == ((), ())
    assert changed("entry", record=RECORD, new="UNAVAILABLE: unloaded") == (("new",), ()), "it was added again"
    assert changed("entry", "old", "new", record=Models(DESIRED, ("old",))) == ((), ("old",))


@pytest.mark.parametrize("state", ["LOADING: ", "UNAVAILABLE: no module named x", "READY: "])
def test_does_not_load_again_what_the_server_has_tried(state: str) -> None:
    assert changed("entry", record=Models(DESIRED), new=state) == ((), ())


def test_loads_a_listed_model_that_a_server_has_never_loaded() -> None:
    """It restarted before the kubelet had updated its copy of the list."""
    assert changed("entry", record=Models(DESIRED), new=": ") == (("new",), ())


def test_changes_one_server_after_the_other() -> None:
    first = decided("b", "a")
    assert first.start is not None
    assert (first.start[0], first.left) == (server("a"), 2)
    for running in ("a", "b"):
        again = decided("b", "a", **{running: ChangeOutcome("Running")}).start
        assert again is not None
        assert again[0] == server(running)
    decision = decided("b", "a", a=ChangeOutcome("Done", "", ("new",), ("old",)))
    assert decision.start is not None
    assert (decision.start[0], decision.left) == (server("b"), 1)
    assert decided("a", a=ChangeOutcome("Done")).left == 0


def test_waits_for_a_server_whose_models_are_not_known() -> None:
    decision = decide([(server(), None)], {})
    assert (decision.start, decision.left, decision.failure) == (None, 1, "a: the operator doesn't know its models yet")


def test_stops_at_a_server_that_refuses_a_model() -> None:
    decision = decided("a", "b", a=ChangeOutcome("Refused", "new: no model.py", ("other",)))
    assert (decision.start, decision.failure, decision.refused) == (None, "a: new: no model.py", True)
    assert not decision.rollout


def test_replaces_the_servers_only_if_a_model_stays_loading() -> None:
    assert decided("a", a=ChangeOutcome("Stuck", "new is still LOADING")).rollout == "a: new is still LOADING"


def test_goes_on_with_the_next_server_while_one_does_not_answer() -> None:
    decision = decided("a", "b", a=ChangeOutcome("Unreachable", "no answer"))
    assert decision.start is not None
    assert decision.start[0] == server("b")
    assert (decision.failure, decision.refused, decision.left) == ("a: no answer", False, 2)


FACTS = Facts("tools:1", "Copy")
Indexes = dict[str, Index]
SERVER = {"modelControl": "explicit", "loadModels": ["entry"]}
HASH = template_hash(gen.model(entrypoint="entry", server=SERVER), FACTS)
MODELS = st.lists(st.sampled_from("pqrs"), unique=True, max_size=4).map(lambda names: ("entry", *names))


def snapshot(
    models: tuple[str, ...],
    record: Models,
    indexes: Indexes,
    changes: dict[str, ChangeOutcome],
    *,
    pending: bool = False,
) -> Any:
    """Returns what the decision reads, with a pod for each index."""
    subject = gen.model(entrypoint="entry", server={**SERVER, "loadModels": list(models)})
    (config_map,) = model_lists.config_maps(subject, replace(FACTS, lists={HASH: record}))
    group = Group(gen.child("Deployment"), tuple(Pod(pod(name)) for name in indexes), model=subject)
    return SimpleNamespace(
        child=lambda _: config_map,
        groups=[group],
        pods=group.pods,
        ending=(),
        changes=changes,
        servers=ServerAnswers({name: entries for name, entries in indexes.items() if entries}, pending=pending),
    )


def decide_change(there: Any) -> tuple[LoadDecision, dict[str, Models]]:
    """Returns the decision about the only group, and the lists."""
    (decision,), lists = load_models.decide_changes(there, [(group, FACTS) for group in there.groups])
    return decision, lists


def pod(name: str) -> Any:
    return gen.pod(
        gen.put("status.podIP", "10.0.0.1"), gen.put("metadata.uid", f"uid-{name}"), name=name, template=HASH
    )


def test_later_servers_get_the_list_when_all_have_the_models() -> None:
    """So that a model that doesn't load can't keep a server from starting."""

    def record_of(indexes: Indexes, **outcomes: ChangeOutcome) -> Models | None:
        changes = {f"uid-{name}": outcome for name, outcome in outcomes.items()}
        return decide_change(snapshot(DESIRED, RECORD, indexes, changes))[1][HASH]

    before, begun = index("entry", "old"), Models(("entry", "old"), ("new",))
    assert record_of({"a": before}) == begun, "before the change begins"
    assert record_of({"a": before}, a=ChangeOutcome("Refused", "new")) == begun
    assert record_of({"a": ()}) == begun, "a server that hasn't answered yet"
    assert record_of({"a": before, "b": before}, a=ChangeOutcome("Done")) == begun
    assert record_of({"a": before}, a=ChangeOutcome("Done")) == Models(DESIRED, ("old",)), (
        "it hasn't been seen unloaded yet"
    )
    assert record_of({"a": index(*DESIRED)}, a=ChangeOutcome("Done")) == Models(DESIRED)
    assert record_of({}) == Models(DESIRED)


OLD = "template-0"


def rollout(*pods: Any, replicas: int, **lists: Models) -> dict[str, Models]:
    """Returns the lists of models during a rollout of the pod template HASH. `lists`: those before."""
    subject = gen.model(entrypoint="entry", server={**SERVER, "loadModels": list(DESIRED)})
    (config_map,) = model_lists.config_maps(subject, replace(FACTS, lists={"models": RECORD, **lists}))
    deployment = {**gen.child("Deployment", replicas=replicas), "status": {"observedGeneration": 1}}
    group = Group(deployment, tuple(map(Pod, pods)), model=subject)
    there = SimpleNamespace(
        child=lambda _: config_map,
        groups=[group],
        pods=group.pods,
        ending=(),
        changes={},
        servers=ServerAnswers({}),
    )
    return decide_change(there)[1]


def mounts(key: str, *modifiers: gen.Modifier, name: str = "old") -> Any:
    """Returns a pod whose server loads the list at `key`."""
    source = {"name": "x", **({} if key == "models" else {"items": [{"key": key, "path": "models"}]})}
    volumes = gen.put("spec.volumes", [{"name": "load-models", "configMap": source}])
    return gen.pod(volumes, *modifiers, name=name, template=HASH if key == HASH else OLD)


def test_servers_of_the_previous_pod_template_keep_their_list() -> None:
    """A change of the image and of the list at once: a server of the old image has no model of the new one."""
    old, new = mounts("models"), mounts(HASH, gen.not_ready, name="new")
    expected = {"models": RECORD, HASH: Models(DESIRED)}
    assert rollout(old, replicas=1) == expected, "before the first server of the new one"
    assert rollout(old, new, replicas=1) == expected
    assert rollout(new, replicas=1) == expected, "the Deployment may still start a server of the old one"
    assert rollout(mounts(HASH), mounts("models", gen.deleting), replicas=1) == expected, "it still runs"
    assert rollout(mounts(HASH), replicas=1) == {HASH: Models(DESIRED)}


def test_lists_of_pod_templates_that_never_ran_do_not_pile_up() -> None:
    many = {f"{n:012x}": Models((f"m{n}",)) for n in range(30)}
    old = mounts("00000000001d")
    kept = rollout(old, replicas=1, **many)
    assert set(kept) == {HASH, "00000000001d", *list(many)[:3]}
    assert kept["00000000001d"] == Models(("m29",))


class Fleet(RuleBasedStateMachine):
    """The reconciler's decision with servers, an operator that forgets everything at times, and a list that changes.

    `loaded`: the models of each server. `seen`: the ones that the operator has seen last. `listed`: the list that each
    server's pod has a copy of, which the kubelet updates late.
    """

    def __init__(self) -> None:
        super().__init__()
        self.desired: tuple[str, ...] = ("entry",)
        self.record = Models(self.desired)
        self.loaded: dict[str, set[str]] = {}
        self.seen: dict[str, set[str]] = {}
        self.listed: dict[str, tuple[str, ...]] = {}
        self.outcomes: dict[str, ChangeOutcome] = {}
        self.running: tuple[str, Change] | None = None
        self.pending = False
        self.broken: set[str] = set()
        self.names = iter(range(10_000))

    @rule(models=MODELS)
    def change_the_list(self, models: tuple[str, ...]) -> None:
        if set(models) != set(self.desired):
            self.desired, self.outcomes, self.running, self.pending = models, {}, None, True

    @rule()
    def forget(self) -> None:
        """The operator is killed."""
        self.outcomes, self.running, self.seen, self.pending = {}, None, {}, True

    @precondition(lambda self: len(self.loaded) < 4)
    @rule()
    def start_server(self) -> None:
        name = f"s{next(self.names)}"
        self.listed[name] = self.record.listed
        self.loaded[name], self.pending = set(self.record.listed), True

    @precondition(lambda self: self.loaded)
    @rule(data=st.data(), late=st.booleans())
    def restart_server(self, data: Any, late: bool = False) -> None:
        name = data.draw(st.sampled_from(sorted(self.loaded)))
        if not late:
            self.listed[name] = self.record.listed
        self.loaded[name], self.pending = set(self.listed[name]), True
        self.seen.pop(name, None)
        self.outcomes.pop(f"uid-{name}", None)
        if self.running and self.running[0] == name:
            self.running = None

    @rule()
    def look(self) -> None:
        """The prober reads the models of all servers. `pending`: it knows that it must."""
        self.pending = False
        self.seen = {name: set(has) for name, has in self.loaded.items()}

    @rule(broken=st.sets(st.sampled_from("pqrs"), max_size=1))
    def some_models_do_not_load(self, broken: set[str]) -> None:
        self.broken = broken

    @rule()
    def reconcile(self) -> None:
        indexes = {name: self._index(name) if name in self.seen else () for name in self.loaded}
        decision, lists = decide_change(
            snapshot(self.desired, self.record, indexes, self.outcomes, pending=self.pending)
        )
        self.record = lists[HASH]
        if decision.start and decision.start[0].uid not in self.outcomes:
            assert self.running is None, "one server after the other"
            self.running = decision.start[0].pod, decision.start[1]
            self.outcomes[decision.start[0].uid] = ChangeOutcome("Running")

    def _index(self, name: str) -> Index:
        rest = {model: ": " for model in ("entry", *"pqrs") if model not in self.seen[name]}
        return index(*self.seen[name], **rest)

    @precondition(lambda self: self.running)
    @rule()
    def the_first_load_ends(self) -> None:
        """The change may end now: the operator is killed, or the list changes."""
        assert self.running
        name, step = self.running
        self.loaded[name] |= set(step.load[:1])

    @precondition(lambda self: self.running)
    @rule()
    def change_ends(self) -> None:
        assert self.running
        name, step = self.running
        self.pending = True
        has, loaded = self.loaded[name], []
        self.running = None
        for model in step.load:
            if model in self.broken:
                self.outcomes[f"uid-{name}"] = ChangeOutcome("Refused", model, tuple(loaded))
                return
            has.add(model)
            loaded.append(model)
        has.difference_update(set(step.unload) - set(step.keep))
        self.outcomes[f"uid-{name}"] = ChangeOutcome("Done", "", tuple(loaded), step.unload)

    @invariant()
    def every_server_keeps_the_entrypoint(self) -> None:
        assert all("entry" in has for has in self.loaded.values())

    @invariant()
    def converges_when_nothing_else_happens(self) -> None:
        other = Fleet.__new__(Fleet)
        other.__dict__.update(self.__dict__)
        other.loaded = {name: set(has) for name, has in self.loaded.items()}
        other.outcomes, other.broken, other.running = {}, set(), None
        for _ in range(3 * len(other.loaded) + 2):
            other.look()
            other.reconcile()
            if other.running:
                other.change_ends()
        assert other.record == Models(other.desired)
        for has in other.loaded.values():
            assert set(other.desired) <= has
        stale = {name for name, copy in self.listed.items() if set(copy) - set(self.record.all) - set(other.desired)}
        assert {name for name, has in other.loaded.items() if has > set(other.desired)} <= stale


Fleet.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestFleet = Fleet.TestCase
