"""How a changed model image reaches the servers: the decision, also with servers that fail at any time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from triton_operator.image_changes import Decision, Running, decide
from triton_operator.status.image_change import Attempt

NOW = 1000.0


def attempt(state: Any, reference: str = "new", number: int = 1, message: str = "") -> Attempt:
    return Attempt(number, reference, 2000, state, message)


def server(name: str, has: str = "old", last: Attempt | None = None, *, started: bool = True) -> Running:
    return Running(f"uid-{name}", name, has, started, last)


def decided(*servers: Running, now: float = NOW) -> Decision:
    return decide(servers, "new", now)


def test_changes_one_server_after_the_other() -> None:
    assert decided(server("b"), server("a")) == Decision(("uid-a", 1), left=2)
    running = decided(server("b"), server("a", last=attempt("Running")))
    assert (running.start, running.left, running.wait) == (None, 2, 1060.0)
    done = decided(server("b"), server("a", last=attempt("Done")))
    assert done == Decision(("uid-b", 1), (("uid-a", "new"),), left=1, done=True)
    assert decided(server("b", "new", attempt("Done")), server("a", "new", attempt("Done"))) == Decision(done=True)
    assert decided(server("a", "new")) == Decision(), "a later server began with the image"


def test_a_server_that_is_still_starting_is_changed_later() -> None:
    assert decided(server("a", started=False)) == Decision(left=1)
    assert decided(server("a", started=False), server("b")).start == ("uid-b", 1)


def test_the_first_failure_replaces_the_servers() -> None:
    failed = attempt("Failed", message="failed to load 'a'")
    assert decided(server("a", last=failed), server("b")).rollout == "a: failed to load 'a'"
    assert decided(server("a", last=replace(failed, reference="other"))).start == ("uid-a", 2), "of an earlier change"


def test_a_failed_change_that_may_still_go_on_replaces_the_servers() -> None:
    pulling = replace(attempt("Failed", "other", message="not found"), over=False)
    assert "can't be stopped: not found" in decided(server("a", last=pulling)).rollout
    assert "can't be stopped" in decided(server("a", "new", pulling)).rollout, "also if the spec is back"


def test_a_pod_that_ended_during_the_change_replaces_the_servers() -> None:
    evicted = server("b", last=attempt("Running"))
    assert "b: the pod has ended during the change" in decide([server("a")], "new", NOW, [evicted]).rollout
    assert not decide([server("a")], "new", NOW, [server("b"), server("c", "new", attempt("Done"))]).rollout


def test_a_change_that_never_ends_replaces_the_servers() -> None:
    late = decided(server("a", last=attempt("Running")), now=2061.0)
    assert "has not ended in time" in late.rollout
    assert not decided(server("a", last=attempt("Running")), now=2059.0).rollout


def test_the_next_server_waits_until_the_changed_one_is_ready() -> None:
    changed = replace(server("a", last=attempt("Done")), ready=False)
    waiting = decided(changed, server("b"))
    assert (waiting.start, waiting.record, waiting.wait) == (None, (("uid-a", "new"),), 1060.0)
    assert decided(replace(changed, ready=True), server("b")).start == ("uid-b", 1)
    assert "a: the server isn't ready after the change" in decided(changed, server("b"), now=2061.0).rollout
    earlier = replace(server("a", last=attempt("Done", "other")), ready=False)
    assert decided(earlier, server("b", "new")).start == ("uid-a", 2), "the new image may repair it"


def test_an_image_that_changes_meanwhile_waits_for_the_change_that_runs() -> None:
    other = server("a", last=attempt("Running", "other"))
    assert decided(other).start is None
    done = decided(server("a", last=attempt("Done", "other")))
    assert (done.record, done.start, done.done) == ((("uid-a", "other"),), ("uid-a", 2), False)
    # The spec is back at the first image while a server gets another one.
    back = decided(server("a", "new", attempt("Running", "other")))
    assert (back.left, back.start) == (1, None)
    assert decided(server("a", "new", attempt("Done", "other"))).start == ("uid-a", 2)


def test_a_pod_is_changed_five_times_at_most() -> None:
    assert decided(server("a", last=attempt("Done", "old", 4))).start == ("uid-a", 5)
    many = decided(server("a", last=attempt("Done", "old", 5)))
    assert many.start is None
    assert "has been changed 5 times" in many.rollout


class Changes(RuleBasedStateMachine):
    """Servers come, go, finish and fail, and the spec changes, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted, self.servers, self.files, self.count = "a", {}, {}, 0
        self.failed = False

    servers: dict[str, Running]
    files: dict[str, str]

    @rule()
    def a_server_starts(self) -> None:
        self.count += 1
        name = f"s{self.count}"
        self.servers[name] = server(name, "a")
        self.files[name] = "a"

    @precondition(lambda self: self.servers)
    @rule(data=st.data())
    def a_server_ends(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.servers)))
        del self.servers[name], self.files[name]

    @rule(image=st.sampled_from("abc"))
    def the_spec_changes(self, image: str) -> None:
        self.wanted = image

    @rule(killed=st.booleans())
    def reconcile(self, killed: bool) -> None:
        decision = decide(list(self.servers.values()), self.wanted, NOW)
        for uid, image in decision.record:
            name = uid.removeprefix("uid-")
            self.servers[name] = replace(self.servers[name], reference=image)
        if decision.start and not decision.rollout and not killed:
            name = decision.start[0].removeprefix("uid-")
            started = attempt("Running", self.wanted, decision.start[1])
            self.servers[name] = replace(self.servers[name], attempt=started)

    @rule(works=st.booleans())
    def a_change_ends(self, works: bool) -> None:
        for name, one in self.servers.items():
            if one.attempt and one.attempt.state == "Running":
                if works:
                    self.files[name] = one.attempt.reference
                state: Any = "Done" if works else "Failed"
                self.servers[name] = replace(one, attempt=replace(one.attempt, state=state, message="broken"))

    @invariant()
    def one_at_a_time(self) -> None:
        assert sum(1 for s in self.servers.values() if s.attempt and s.attempt.state == "Running") <= 1

    @invariant()
    def says_nothing_is_left_only_if_all_files_are_new(self) -> None:
        decision = decide(list(self.servers.values()), self.wanted, NOW)
        if not decision.left:
            assert set(self.files.values()) <= {self.wanted}

    def teardown(self) -> None:
        for _ in range(3 * len(self.servers) + 1):
            self.a_change_ends(works=True)
            self.reconcile(killed=False)
        decision = decide(list(self.servers.values()), self.wanted, NOW)
        assert decision.rollout or not decision.left


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=200, stateful_step_count=20, deadline=None)
