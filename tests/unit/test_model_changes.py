"""How a change of spec.server.loadModels reaches the servers: the decision, also with servers that fail at any time."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from triton_operator.api.servers import Change, Outcome, Server
from triton_operator.model_changes import Behind, Decision, change, decide, same

WANTED = ("entry", "new")


def server(name: str = "a") -> Server:
    return Server(f"uid-{name}", name, name, (0, True))


def behind(name: str = "a", *models: str) -> Behind:
    return Behind(server(name), models or ("entry", "old"))


def decided(*servers: Behind, **outcomes: Outcome) -> Decision:
    return decide(servers, {f"uid-{k}": v for k, v in outcomes.items()}, WANTED, "entry", 9.0)


def test_loads_what_is_new_and_then_unloads_what_is_gone() -> None:
    assert change(behind(), WANTED, "entry", 9.0) == Change(("new",), ("old",), ("entry", "new"), 9.0)
    assert change(behind(), ("new",), "entry", 9.0).keep == ("new", "entry"), "the entrypoint always stays"


def test_changes_one_server_after_the_other() -> None:
    first = decided(behind("b"), behind("a"))
    assert first.start is not None
    assert first.start[0] == server("a")
    assert first.left == 2
    assert decided(behind("b"), behind("a"), a=Outcome("Running")).start == (
        server("a"), change(behind("a"), WANTED, "entry", 9.0),
    )  # fmt: skip
    assert decided(behind("b"), behind("a"), b=Outcome("Running")).start[0] == server("b")  # type: ignore[index]
    done = decided(behind("b"), behind("a"), a=Outcome("Done", "", ("new",), ("old",)))
    assert done.record[0] == (server("a"), WANTED, ())
    assert done.record[1] == (server("b"), ("entry",), ("old", "new")), "before the change begins"
    assert done.start is not None
    assert done.start[0] == server("b")
    assert decided(behind("a"), a=Outcome("Done")).left == 0


def test_stops_at_a_server_that_refuses_a_model() -> None:
    found = decided(behind("a"), behind("b"), a=Outcome("Refused", "new: no model.py", ("other",)))
    assert (found.start, found.failure, found.refused) == (None, "a: new: no model.py", True)
    assert not found.rollout


def test_replaces_the_servers_only_if_a_model_stays_loading() -> None:
    assert decided(behind("a"), a=Outcome("Stuck", "new is still LOADING")).rollout == "a: new is still LOADING"


def test_goes_on_with_the_next_server_while_one_does_not_answer() -> None:
    found = decided(behind("a"), behind("b"), a=Outcome("Unreachable", "no answer"))
    assert found.start is not None
    assert found.start[0] == server("b")
    assert (found.failure, found.refused, found.left) == ("a: no answer", False, 2)


def test_order_of_the_list_does_not_matter() -> None:
    assert same(("a", "b"), ("b", "a"))
    assert not same(("a",), ("a", "b"))


MODELS = st.lists(st.sampled_from("pqrs"), unique=True, max_size=4).map(lambda found: ("entry", *found))


class Fleet(RuleBasedStateMachine):
    """Servers, an operator that forgets everything at times, and a list that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: tuple[str, ...] = ("entry",)
        self.template = self.wanted
        self.loaded: dict[str, set[str]] = {}
        self.noted: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.running: tuple[str, Change] | None = None
        self.broken: set[str] = set()
        self.names = iter(range(10_000))

    @rule(wanted=MODELS)
    def change_the_list(self, wanted: tuple[str, ...]) -> None:
        self.wanted = wanted
        self.forget()

    @rule()
    def forget(self) -> None:
        """The operator is killed, or ends its changes."""
        self.outcomes, self.running = {}, None

    @precondition(lambda self: len(self.loaded) < 4)
    @rule()
    def start_server(self) -> None:
        name = f"s{next(self.names)}"
        self.loaded[name], self.noted[name] = set(self.template), (self.template, ())

    @precondition(lambda self: self.loaded)
    @rule(data=st.data())
    def restart_server(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.loaded)))
        self.loaded[name], self.noted[name] = set(self.template), (self.template, ())
        self.outcomes.pop(f"uid-{name}", None)
        if self.running and self.running[0] == name:
            self.running = None

    @rule(broken=st.sets(st.sampled_from("pqrs"), max_size=1))
    def some_models_do_not_load(self, broken: set[str]) -> None:
        self.broken = broken

    @rule()
    def reconcile(self) -> None:
        late = [Behind(server(n), *k) for n, k in self.noted.items() if k[1] or not same(k[0], self.wanted)]
        found = decide(late, self.outcomes, self.wanted, "entry", 9.0)
        for one, sure, perhaps in found.record:
            self.noted[one.pod] = sure, perhaps
        if not found.left:
            self.template = self.wanted
        if found.start and found.start[0].uid not in self.outcomes:
            assert self.running is None, "one server after the other"
            self.running = found.start[0].pod, found.start[1]
            self.outcomes[found.start[0].uid] = Outcome("Running")

    @precondition(lambda self: self.running)
    @rule()
    def change_ends(self) -> None:
        assert self.running
        name, made = self.running
        has, loaded = self.loaded[name], []
        self.running = None
        for model in made.load:
            if model in self.broken:
                self.outcomes[f"uid-{name}"] = Outcome("Refused", model, tuple(loaded))
                return
            has.add(model)
            loaded.append(model)
        has.difference_update(set(made.unload) - set(made.keep))
        self.outcomes[f"uid-{name}"] = Outcome("Done", "", tuple(loaded), made.unload)

    @invariant()
    def every_server_keeps_the_entrypoint_and_what_its_note_says(self) -> None:
        for name, has in self.loaded.items():
            assert "entry" in has
            assert set(self.noted[name][0]) <= has <= {*self.noted[name][0], *self.noted[name][1]}

    @invariant()
    def converges_when_nothing_else_happens(self) -> None:
        other = Fleet.__new__(Fleet)
        other.__dict__.update(self.__dict__)
        other.loaded = {name: set(has) for name, has in self.loaded.items()}
        other.noted, other.outcomes, other.broken, other.running = dict(self.noted), {}, set(), None
        for _ in range(3 * len(other.loaded) + 2):
            other.reconcile()
            if other.running:
                other.change_ends()
        assert other.template == other.wanted
        for has in other.loaded.values():
            assert set(other.wanted) == has


Fleet.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestFleet = Fleet.TestCase
