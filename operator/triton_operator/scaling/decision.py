"""The decision of the engine Direct: to add servers, and how long the HorizontalPodAutoscaler may not remove them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from triton_operator.api.servers import History

from . import prediction, speed
from .demand import Counted, arrived, cached, demand, generated, queued, streamed
from .prediction import Loads
from .speed import Timeline

STABLE_SECONDS, PANIC_SECONDS = 60.0, 10.0
DRAIN_SECONDS = 30.0
"""The time in which additional servers should empty the queues."""
HANDOVER_SECONDS = 120.0
"""Time after which the HorizontalPodAutoscaler has seen the same load: scrape, rules, adapter, and its own interval."""
_NOISE = 1.0
"""How many standard deviations of a random number of requests the panic window ignores."""

SCALED_UP: Final = "ScaledUp"
Reason = Literal["ScaledUp", "LeftToHPA", "NoAnswer", "NoThreshold"]


@dataclass(frozen=True)
class Observed:
    """The input of a decision.

    - `now`: seconds of a monotonic clock, as in the samples.
    - `histories`: samples of each ready server.
    - `per_server`, `tokens_per_server`: requests and tokens per second that one server is for, infinite if none.
    - `streams_per_server`, `cache_per_server`: the same for open streams, and for the share of the KV cache in use.
    - `coefficient`: the ensemble coefficient.
    - `least`, `most`, `utilization`, `predict`: of spec.autoscaling.
    - `replicas`: the Deployment's desired number of servers.
    - `floor`: minReplicas of the HorizontalPodAutoscaler. `behavior`: its behavior.
    - `limited`: whether the HorizontalPodAutoscaler might remove servers without the floor.
    - `rollout`: whether servers of another pod template run.
    """

    now: float
    histories: Mapping[str, History]
    per_server: float
    coefficient: float
    least: int
    most: int
    utilization: float
    replicas: int
    floor: int
    behavior: Mapping[str, Any]
    limited: bool = False
    rollout: bool = False
    predict: bool = False
    tokens_per_server: float = math.inf
    streams_per_server: float = math.inf
    cache_per_server: float = math.inf


@dataclass(frozen=True)
class State:
    """What a decision remembers. A new leader begins without it.

    - `since`: when each server was seen first.
    - `needed`, `replicas`: the number of servers that the load needs, and that there were, over time.
    - `rose`: time of the last scale-up; None if the HorizontalPodAutoscaler decides alone.
    - `loads`: the load of the stable window over time, for the prediction.
    """

    since: Mapping[str, float] = field(default_factory=dict)
    needed: Timeline = ()
    replicas: Timeline = ()
    rose: float | None = None
    loads: Loads = ()


@dataclass(frozen=True)
class ScaleDecision:
    """The decision.

    - `target`: the number of servers to scale up to; the present number if there is nothing to do.
    - `floor`: minReplicas of the HorizontalPodAutoscaler.
    - `load`: in servers at full use, as predicted if that is more; None if it isn't known.
    """

    target: int
    floor: int
    load: float | None
    reason: Reason
    message: str


def decide(before: State | None, seen: Observed) -> tuple[State, ScaleDecision]:
    """Returns the next state and the decision.

    - Only adds servers. The HorizontalPodAutoscaler removes them.
    - Adds them no faster than `behavior.scaleUp` of the HorizontalPodAutoscaler allows.
    - `floor` is raised with each scale-up, to the number that the load needed at most in the window of
      `behavior.scaleDown`. It ends when the HorizontalPodAutoscaler has had time to see the load, and needs no more
      than its own minimum to keep the servers.
    """
    state, load = _load(_observe(before, seen), seen)
    if load is not None:
        servers = _servers(load, seen)
        state = replace(state, needed=speed.record(state.needed, seen.now, servers))
    target = seen.replicas
    if load is not None and seen.replicas > 0:
        up = seen.behavior.get("scaleUp", {})
        steady = min(speed.values(state.needed, seen.now, up.get("stabilizationWindowSeconds", 0)))
        target = max(target, min(steady, speed.at_most(state.replicas, seen.now, up)))
    if target > seen.replicas:
        state = replace(state, rose=seen.now)
    floor = _floor(state, seen, target)
    if floor <= seen.least:
        state = replace(state, rose=None)
    return state, ScaleDecision(target, floor, load, *_why(seen, load, target, floor))


def _observe(before: State | None, seen: Observed) -> State:
    """Returns the state with the present servers. A new leader keeps the raised floor of the previous one."""
    if before is None:
        raised = seen.floor > seen.least
        before = State(
            needed=((seen.now, min(seen.floor, seen.most)),) if raised else (), rose=seen.now if raised else None
        )
    return replace(
        before,
        since={pod: before.since.get(pod, seen.now) for pod in seen.histories},
        replicas=speed.record(before.replicas, seen.now, seen.replicas),
    )


def _load(state: State, seen: Observed) -> tuple[State, float | None]:
    """Returns the next state, and the load as a number of servers at full use; None if it isn't known.

    It is the largest one of the loads of requests, tokens, streams and the cache. Only numbers of events are random, so
    streams and the cache have no noise. The streams include those that wait.
    """
    queues = queued(seen.histories) / DRAIN_SECONDS
    loads = [
        [value * weight / limit for value in demands]
        for limit, weight, counted, waiting, noise in (
            (seen.per_server, seen.coefficient, arrived, queues, _NOISE),
            (seen.tokens_per_server, 1.0, generated, 0.0, _NOISE),
            (seen.streams_per_server, 1.0, streamed, 0.0, 0.0),
            (seen.cache_per_server, 1.0, cached, 0.0, 0.0),
        )
        if not math.isinf(limit) and (demands := _demands(state, seen, counted, waiting, noise))
    ]
    if not loads:
        return state, None
    load, present = (max(values) for values in zip(*loads, strict=True))
    state = replace(state, loads=prediction.record(state.loads, seen.now, present))
    return state, max(load, prediction.predicted(state.loads, seen.now)) if seen.predict else load


def _demands(
    state: State, seen: Observed, counted: Counted, waiting: float, noise: float
) -> tuple[float, float] | None:
    """Returns the demand that counts now and that of the stable window, per second; None if they aren't known.

    During a rollout, only the stable window counts, because servers that start and stop move requests and queues.
    """
    stable, panic = (
        demand(seen.histories, state.since, seen.now, seconds, counted) for seconds in (STABLE_SECONDS, PANIC_SECONDS)
    )
    if stable is None or panic is None:
        return None
    # The number of requests in a window varies by its square root, although the load is the same.
    certain = panic - noise * math.sqrt(max(panic, 0.0) / PANIC_SECONDS)
    return max(stable, 0.0 if seen.rollout else certain + waiting), stable


def _servers(load: float, seen: Observed) -> int:
    """Returns the number of servers for `load`, within the limits of the spec. The load may be infinite."""
    return max(seen.least, math.ceil(min(load / seen.utilization, seen.most) - 1e-9))


def _floor(state: State, seen: Observed, target: int) -> int:
    """Returns minReplicas. It is never above the number of servers, so that it adds none by itself."""
    handed_over = state.rose is None or (seen.now - state.rose >= HANDOVER_SECONDS and not seen.limited)
    if handed_over or not state.needed:
        return seen.least
    window = seen.behavior.get("scaleDown", {}).get("stabilizationWindowSeconds", 300)
    peak = max(speed.values(state.needed, seen.now, max(window, HANDOVER_SECONDS)))
    return max(seen.least, min(peak, target, seen.most))


def _why(seen: Observed, load: float | None, target: int, floor: int) -> tuple[Reason, str]:
    if floor > seen.least:
        if target > seen.replicas and load is not None:
            cause = f"the load of {load:.3g} servers at full use needs {_servers(load, seen)} servers"
            return SCALED_UP, f"{cause}: scaled up from {seen.replicas} to {target}"
        return SCALED_UP, f"the load of the last minutes needed {floor} servers"
    limits = (seen.per_server, seen.tokens_per_server, seen.streams_per_server, seen.cache_per_server)
    if all(map(math.isinf, limits)):
        return "NoThreshold", "there is no limit for each server; the HorizontalPodAutoscaler decides alone"
    if load is None:
        return "NoAnswer", "no server has answered with its counters; the HorizontalPodAutoscaler decides alone"
    return "LeftToHPA", "the servers are enough for the load; the HorizontalPodAutoscaler decides alone"
