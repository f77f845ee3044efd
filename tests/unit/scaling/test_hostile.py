"""The decision of the engine Direct against hostile servers and against people who edit the same objects."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from triton_operator.api.servers import Sample
from triton_operator.scaling import Observed, ScaleDecision, State, decide
from unit.scaling.simulation import BEHAVIOR

POLL, WINDOW = 2.0, 300.0
"""Seconds between decisions, and the window of `behavior.scaleDown`."""
NUMBERS = st.one_of(
    st.sampled_from([0.0, -1.0, 1e300, 1e308, math.inf, -math.inf, math.nan, 2.0**53]), st.floats(), st.floats(0, 1e4)
)


class Cluster(RuleBasedStateMachine):
    """Servers with counters, the Deployment, and a HorizontalPodAutoscaler that keeps its minimum and its maximum.

    Each rule changes one thing; `poll` decides and does what was decided, as the operator does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state: State | None = None
        self.decision: ScaleDecision | None = None
        self.seen = Observed(
            now=0, histories={}, per_server=10, coefficient=1, least=1, most=10, utilization=0.75,
            replicas=1, floor=1, behavior=BEHAVIOR,
        )  # fmt: skip
        self.samples: dict[str, list[Sample]] = {"a": []}
        self.silent: set[str] = set()
        self.rates: dict[str, float] = {"a": 5.0}
        self.names = itertools.count()
        self.raised = [(0.0, 1)]
        self.least_needed: list[tuple[float, int]] = []

    @initialize(least=st.integers(1, 5), more=st.integers(0, 20), predict=st.booleans())
    def begin(self, least: int, more: int, predict: bool) -> None:
        self.seen = replace(self.seen, least=least, most=least + more, replicas=least, floor=least, predict=predict)

    @rule(server=st.integers(0, 9), rate=st.floats(0, 1e5))
    def load_changes(self, server: int, rate: float) -> None:
        self.rates[self.server_name(server)] = rate

    @rule(server=st.integers(0, 9), numbers=st.tuples(*[NUMBERS] * 5))
    def server_lies(self, server: int, numbers: tuple[float, ...]) -> None:
        self.samples[self.server_name(server)].append(Sample(self.seen.now, *numbers))

    @rule(server=st.integers(0, 9))
    def server_falls_silent_or_answers_again(self, server: int) -> None:
        self.silent ^= {self.server_name(server)}

    @rule(server=st.integers(0, 9))
    def server_restarts(self, server: int) -> None:
        self.samples[self.server_name(server)] = []

    @rule(server=st.integers(0, 9), rate=st.floats(0, 1e3))
    def server_is_replaced(self, server: int, rate: float) -> None:
        old, new = self.server_name(server), f"new-{next(self.names)}"
        del self.samples[old], self.rates[old]
        self.silent.discard(old)
        self.samples[new], self.rates[new] = [], rate

    @rule(rollout=st.booleans(), limited=st.booleans())
    def rollout_or_limit_changes(self, rollout: bool, limited: bool) -> None:
        self.seen = replace(self.seen, rollout=rollout, limited=limited)

    @rule(replicas=st.integers(0, 60))
    def someone_scales_by_hand(self, replicas: int) -> None:
        self.seen = replace(self.seen, replicas=replicas)

    @rule(least=st.integers(1, 8), more=st.integers(0, 20))
    def limits_change(self, least: int, more: int) -> None:
        self.seen = replace(self.seen, least=least, most=least + more)

    @rule(per_server=st.one_of(st.just(math.inf), st.floats(1e-9, 1e9)), coefficient=st.floats(1e-6, 1e6))
    def thresholds_change(self, per_server: float, coefficient: float) -> None:
        self.seen = replace(self.seen, per_server=per_server, coefficient=coefficient)

    @rule()
    def another_replica_leads(self) -> None:
        self.state = None

    @rule()
    def autoscaler_looks(self) -> None:
        if self.seen.replicas:
            self.seen = replace(self.seen, replicas=min(self.seen.most, max(self.seen.floor, self.seen.replicas)))

    @rule(polls=st.integers(1, 90))
    def poll(self, polls: int) -> None:
        for _ in range(polls):
            now = self.seen.now + POLL
            for name in self.samples.keys() - self.silent:
                last = self.samples[name][-1] if self.samples[name] else Sample(now, 0.0, 0.0)
                count = last.requests + POLL * self.rates[name]
                self.samples[name] = [*self.samples[name], Sample(now, count, 0.0)][-60:]
            histories = {name: tuple(samples) for name, samples in self.samples.items()}
            self.seen = replace(self.seen, now=now, histories=histories)
            self.state, decision = decide(self.state, self.seen)
            self.check(decision)
            self.seen = replace(self.seen, replicas=decision.target, floor=decision.floor)

    def check(self, decision: ScaleDecision) -> None:
        observed = self.seen
        assert isinstance(decision.target, int)
        assert decision.load is None or (decision.load >= 0 and math.isfinite(decision.load))
        # It never removes a server, and never starts what someone has scaled to zero.
        assert decision.target >= observed.replicas
        assert observed.replicas or not decision.target
        # It adds none above the maximum, and at most doubles in 15 s.
        assert decision.target <= max(observed.replicas, observed.most)
        assert decision.target <= max(2 * observed.replicas, observed.replicas + 2)
        # The autoscaler gets a minimum between the spec's limits.
        assert observed.least <= decision.floor <= max(observed.least, min(observed.most, decision.target))
        if math.isinf(observed.per_server):
            assert (decision.target, decision.load) == (observed.replicas, None)

    def server_name(self, number: int) -> str:
        return sorted(self.samples)[number % len(self.samples)]

    @invariant()
    def state_is_bounded(self) -> None:
        if self.state is not None:
            assert len(self.state.loads) <= 31
            assert len(self.state.needed) + len(self.state.replicas) <= 2 * 3600 / POLL + 4
            assert self.state.since.keys() <= {*self.samples, *self.state.since}


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=30)
