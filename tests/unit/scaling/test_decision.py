"""When the engine Direct adds servers, how many, and for how long it keeps the HorizontalPodAutoscaler from removing
them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_operator.api.servers import History, Sample
from triton_operator.scaling import Observed, ScaleDecision, State, decide
from unit.scaling.simulation import BEHAVIOR

LEFT = Observed(
    now=0, histories={}, per_server=10, coefficient=1, least=2, most=20, utilization=1.0,
    replicas=2, floor=2, behavior=BEHAVIOR,
)  # fmt: skip


class World:
    """Two servers that are polled every 2 s, and what was decided. A scale-up is done at once, as is a new floor."""

    def __init__(self, **fixed: Any) -> None:
        self.seen, self.state = replace(LEFT, **fixed), None
        self.decisions: list[ScaleDecision] = []
        self._success, self._samples = 0.0, list[Sample]()

    state: State | None

    def run(
        self, seconds: int, rate: float, *, answer: bool = True, follow: bool = True, **fixed: Any
    ) -> ScaleDecision:
        """Runs with `rate` requests per second for each server. `follow`: whether decisions are carried out."""
        for _ in range(seconds // 2):
            now = self.seen.now + 2
            self._success += 2 * rate
            if answer:
                self._samples = [*self._samples, Sample(now, self._success, 0.0)][-30:]
            histories: dict[str, History] = dict.fromkeys(("a", "b"), tuple(self._samples))
            self.seen = replace(self.seen, now=now, histories=histories, **fixed)
            self.state, decision = decide(self.state, self.seen)
            self.decisions.append(decision)
            if follow:
                self.seen = replace(self.seen, replicas=decision.target, floor=decision.floor)
        return self.decisions[-1]


def test_at_rest_leaves_everything_to_the_autoscaler() -> None:
    world = World()
    world.run(600, 7)
    assert {(d.target, d.floor) for d in world.decisions} == {(2, 2)}
    assert world.decisions[-1].reason == "LeftToHPA"
    assert world.decisions[-1].load == pytest.approx(1.4, rel=0.1)


def test_a_step_is_answered_within_seconds() -> None:
    world = World()
    world.run(120, 7)
    before = len(world.decisions)
    last = world.run(6, 28)
    first = next(n for n, d in enumerate(world.decisions[before:]) if d.target > 2)
    assert first <= 1
    assert last.reason == "ScaledUp"
    assert last.floor == last.target
    assert "scaled up from 2 to" in world.decisions[before + first].message


def test_at_most_doubles_in_fifteen_seconds() -> None:
    world = World()
    world.run(120, 7)
    assert world.run(14, 1000).target == 4
    assert world.run(6, 1000).target == 8
    assert world.run(60, 1000).target == 20


@pytest.mark.parametrize(
    ("scale_up", "most"),
    [({"selectPolicy": "Disabled", "policies": []}, 2),
     ({"policies": [{"type": "Pods", "value": 1, "periodSeconds": 600}]}, 3),
     ({"selectPolicy": "Min", "policies": [{"type": "Pods", "value": 5, "periodSeconds": 600},
                                           {"type": "Percent", "value": 50, "periodSeconds": 600}]}, 3)],
)  # fmt: skip
def test_follows_the_policies_of_the_autoscaler(scale_up: dict[str, Any], most: int) -> None:
    world = World(behavior={"scaleUp": scale_up})
    world.run(120, 7)
    assert world.run(120, 1000).target == most


def test_waits_for_the_stabilization_window_of_scale_ups() -> None:
    behavior = {"scaleUp": {**BEHAVIOR["scaleUp"], "stabilizationWindowSeconds": 60}}
    world = World(behavior=behavior)
    world.run(120, 7)
    assert world.run(40, 28).target == 2
    assert world.run(30, 28).target > 2


def test_keeps_the_floor_for_the_window_while_the_autoscaler_wants_fewer() -> None:
    world = World()
    world.run(120, 7)
    assert world.run(60, 28).floor == 6
    assert world.run(280, 7, limited=True).floor == 6
    last = world.run(120, 7, limited=True)
    assert (last.floor, last.reason) == (2, "LeftToHPA")


def test_removes_the_floor_when_the_autoscaler_wants_as_many() -> None:
    world = World()
    world.run(120, 7)
    assert world.run(60, 28).floor == 6
    last = world.run(120, 28, limited=False)
    assert (last.target, last.floor) == (6, 2)


def test_the_floor_is_never_above_the_number_of_servers() -> None:
    world = World()
    world.run(120, 7)
    for _ in range(30):
        decision = world.run(2, 1000)
        assert decision.floor <= decision.target


def test_the_floor_follows_a_lowered_maximum() -> None:
    world = World()
    world.run(120, 7)
    assert world.run(60, 28).floor == 6
    assert world.run(2, 28, most=4).floor == 4


def test_no_answer_changes_nothing() -> None:
    world = World()
    world.run(120, 7)
    world.run(60, 28)
    last = world.run(60, 0, answer=False, limited=True)
    assert (last.target, last.floor, last.load) == (6, 6, None)
    assert World().run(20, 0, answer=False).reason == "NoAnswer"


def test_without_a_threshold_nothing_is_decided() -> None:
    last = World(per_server=math.inf).run(60, 1000)
    assert (last.target, last.floor, last.reason) == (2, 2, "NoThreshold")


def test_a_rollout_counts_the_last_minute_only() -> None:
    world = World()
    world.run(120, 7)
    assert world.run(6, 28, rollout=True).target == 2
    assert world.run(60, 28, rollout=True).target == 6


def test_a_growing_load_is_answered_earlier_with_a_prediction() -> None:
    def seconds(predict: bool) -> int:
        world = World(predict=predict)
        world.run(300, 7)
        for second in range(0, 900, 2):
            if world.run(2, 7 + 0.005 * second).target > 2:
                return second
        raise AssertionError(world.decisions[-1])

    assert 300 < seconds(True) <= seconds(False) - 90


def test_a_prediction_changes_nothing_at_rest_or_while_the_load_falls() -> None:
    world = World(predict=True)
    world.run(600, 9)
    for second in range(0, 300, 2):
        world.run(2, 9 - 0.03 * second)
    assert {(d.target, d.floor) for d in world.decisions} == {(2, 2)}


def test_servers_that_were_scaled_to_zero_stay_there() -> None:
    assert World(replicas=0).run(120, 1000).target == 0


def test_a_new_leader_keeps_the_floor_and_then_returns_it() -> None:
    world = World(replicas=6, floor=6)
    assert world.run(100, 7).floor == 6
    assert world.run(400, 7).floor == 2


@given(
    st.lists(st.tuples(st.floats(0), st.floats(0)), min_size=1, max_size=20),
    st.integers(1, 30), st.integers(1, 30), st.floats(1e-6, 1e9), st.floats(0.01, 1),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_stays_within_the_spec_whatever_servers_answer(
    counters: list[tuple[float, float]], least: int, more: int, per_server: float, utilization: float,
    limited: bool, rollout: bool,
) -> None:  # fmt: skip
    state, observed = None, replace(LEFT, least=least, most=least + more, floor=least, replicas=least)
    observed = replace(observed, per_server=per_server, utilization=utilization, limited=limited, rollout=rollout)
    samples: History = ()
    for n, counts in enumerate(counters):
        samples = (*samples, Sample(2.0 * n, *counts))
        observed = replace(observed, now=2.0 * n, histories={"a": samples})
        state, decision = decide(state, observed)
        fastest = max(2 * observed.replicas, observed.replicas + 2)
        assert observed.replicas <= decision.target <= min(observed.most, fastest)
        assert observed.least <= decision.floor <= decision.target
        observed = replace(observed, replicas=decision.target, floor=decision.floor)


def of_tokens(tokens: float, streams: float = 0, **fixed: Any) -> ScaleDecision:
    """Returns the decision after 20 s in which each of two servers generated `tokens` per second for `streams`.

    Half of its cache is in use.
    """
    state, observed = None, replace(LEFT, **fixed)
    for n in range(11):
        samples = tuple(Sample(2.0 * k, 2.0 * k, 0.0, 2 * tokens * k, streams, 0.5) for k in range(n + 1))
        observed = replace(observed, now=2.0 * n, histories={"a": samples, "b": samples})
        state, decision = decide(state, observed)
    return decision


@pytest.mark.parametrize(
    ("limits", "load"),
    [
        ({"per_server": math.inf, "tokens_per_server": 100.0}, 6),
        ({"per_server": 10.0, "tokens_per_server": 100.0}, 6),
        ({"per_server": 0.1, "tokens_per_server": 100.0}, 20),
        ({"per_server": 1.0, "tokens_per_server": math.inf}, 2),
    ],
)
def test_the_load_is_the_larger_one_of_requests_and_tokens(limits: dict[str, float], load: float) -> None:
    decision = of_tokens(300, **limits)
    assert decision.load == pytest.approx(load, rel=0.05)
    assert decision.reason == ("ScaledUp" if load > 2 else "LeftToHPA")


@pytest.mark.parametrize(
    ("limits", "load"),
    [
        ({"per_server": math.inf, "streams_per_server": 8.0}, 2 * 24 / 8),
        ({"per_server": 10.0, "streams_per_server": 8.0}, 6),
        ({"per_server": 0.1, "streams_per_server": 8.0}, 20),
        ({"per_server": 1.0, "tokens_per_server": 100.0, "streams_per_server": 8.0, "cache_per_server": 0.05}, 20),
        ({"per_server": math.inf, "cache_per_server": 0.5}, 2),
    ],
)
def test_the_load_is_the_largest_one_also_of_streams_and_of_the_cache(limits: dict[str, float], load: float) -> None:
    decision = of_tokens(300, 24, **limits)
    assert decision.load == pytest.approx(load, rel=0.05)
    assert decision.reason == ("ScaledUp" if load > 2 else "LeftToHPA")


def test_streams_that_begin_to_wait_are_answered_within_seconds() -> None:
    """Eight streams run in each server, and then forty more wait. The mean of ten seconds counts them."""
    state, observed, samples = None, replace(LEFT, per_server=math.inf, streams_per_server=10.0), dict[int, Sample]()
    for n in range(40):
        samples[n] = Sample(2.0 * n, 0.0, 0.0, 0.0, 8.0 if n < 35 else 48.0)
        history = tuple(samples.values())[-30:]
        observed = replace(observed, now=2.0 * n, histories={"a": history, "b": history})
        state, decision = decide(state, observed)
        assert decision.target == (2 if n < 35 else 4)
    assert decision.load == pytest.approx(2 * 48 / 10)


def test_without_any_limit_there_is_no_load() -> None:
    decision = of_tokens(300, per_server=math.inf)
    assert (decision.load, decision.reason) == (None, "NoThreshold")


def at_scale(change: Callable[[Observed], Observed]) -> ScaleDecision:
    state, observed = None, LEFT
    for n in range(10):
        samples = tuple(Sample(2.0 * k, 56.0 * k, 0.0) for k in range(n + 1))
        observed = change(replace(observed, now=2.0 * n, histories={"a": samples}))
        state, decision = decide(state, observed)
    return decision


def test_thresholds_apply_at_once() -> None:
    assert at_scale(lambda observed: observed).target == 3
    assert at_scale(lambda observed: replace(observed, coefficient=2)).target == 4
    assert at_scale(lambda observed: replace(observed, per_server=30)).target == 2
