"""Simulates servers, the HorizontalPodAutoscaler and the engine Direct, second by second, for a trace of requests.

`PYTHONPATH=operator:tests .venv/bin/python -m unit.scaling.simulation` prints the table of docs/scaling.md.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triton_operator.api.servers import History, Sample
from triton_operator.scaling import Observed, State, decide, prediction

COLD_START = 40
"""Seconds until a new server is ready."""
LATE = 1.0
"""Requests that wait longer are late."""
BEHAVIOR: dict[str, Any] = {
    "scaleUp": {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15},
                             {"type": "Pods", "value": 2, "periodSeconds": 15}]},
    "scaleDown": {"stabilizationWindowSeconds": 300},
}  # fmt: skip
UTILIZATION, LEAST, MOST = 0.75, 2, 40
PHASES = (0, 4, 8, 12)
"""Places of the HorizontalPodAutoscaler's interval at which a load begins."""
_SYNC, _LAG, _WINDOW, _POLL, _EVALUATION = 15, 15, 60, 2, 10


def trace(name: str) -> list[float]:
    """Returns the requests of each second."""
    return [float(n) for n in (Path(__file__).parent / "traces" / f"{name}.txt").read_text().split()]


def peak(load: Sequence[float], part: float = 0.99) -> float:
    """Returns the rate over a minute that this part of all minutes doesn't exceed."""
    sums = list(itertools.accumulate(load, initial=0.0))
    rates = sorted((b - a) / 60 for a, b in zip(sums, sums[60:], strict=False))
    return rates[int(part * (len(rates) - 1))]


@dataclass
class Server:
    """A server, or one that starts. `history` has what a prober would have read."""

    name: str
    ready_at: int
    success: float = 0.0
    history: collections.deque[Sample] = field(default_factory=lambda: collections.deque(maxlen=30))


@dataclass
class Outcome:
    """What came of it.

    - `first`: seconds from `since` to the first scale-up after it; None without one.
    - `numbers`: the number of servers, ready or not, in each second.
    """

    late_seconds: int = 0
    late_part: float = 0.0
    replicas: float = 0.0
    changes: int = 0
    first: int | None = None
    numbers: list[int] = field(default_factory=list, repr=False)


@dataclass
class Autoscaler:
    """The HorizontalPodAutoscaler with the recorded load, which it sees `_LAG` seconds late."""

    capacity: float
    utilization: float = UTILIZATION
    predict: bool = False
    floor: int = LEAST
    limited: bool = False
    recommendations: list[tuple[int, int]] = field(default_factory=list)

    def sync(self, second: int, load: Sequence[float], replicas: int) -> int:
        needed = self._seen(second - _LAG, load) / self.utilization
        number = replicas if abs(needed / replicas - 1) <= 0.1 else math.ceil(needed - 1e-9)
        self.recommendations = [(at, n) for at, n in self.recommendations if at > second - 300] + [(second, number)]
        if number < replicas:
            number = min(replicas, max(n for _, n in self.recommendations))
        slowest = replicas - max(1, replicas // 4) if second % 60 < _SYNC else replicas
        least = max(self.floor, slowest)
        self.limited = number < least
        return min(MOST, max(least, min(number, max(2 * replicas, replicas + 2))))

    def _seen(self, second: int, load: Sequence[float]) -> float:
        """Returns the load that the rules have recorded at `second`, as a number of servers."""
        now = _rate(load, second) / self.capacity
        if not self.predict:
            return now
        span = range(second, max(0, second - int(prediction.TREND_SECONDS)), -_EVALUATION)
        recorded = tuple((float(at), _rate(load, at) / self.capacity) for at in reversed(span))
        return max(now, prediction.predicted(recorded, second))


def _rate(load: Sequence[float], second: int) -> float:
    window = load[max(0, second - _WINDOW) : max(1, second)]
    return sum(window) / max(1, len(window))


def run(
    load: Sequence[float], capacity: float, *, direct: bool, phase: int = 0, since: int = 0,
    predict: bool = False, utilization: float = UTILIZATION,
) -> Outcome:  # fmt: skip
    """Returns what came of `load` (requests of each second). Each server handles `capacity` requests per second."""
    names = itertools.count()
    start = max(LEAST, math.ceil(sum(load[:300]) / 300 / capacity / utilization))
    servers = [Server(f"pod-{next(names)}", 0) for _ in range(start)]
    scaler, state, queue, out = Autoscaler(capacity, utilization, predict), None, 0.0, Outcome()
    late = 0.0
    for second, arrived in enumerate(load):
        ready = [s for s in servers if s.ready_at <= second]
        queue += arrived
        served = min(queue, len(ready) * capacity)
        queue -= served
        for server in ready:
            server.success += served / len(ready)
        if queue / (len(ready) * capacity) > LATE:
            out.late_seconds += 1
            late += arrived
        out.replicas += len(servers) / len(load)
        out.numbers.append(len(servers))
        number = len(servers)
        if direct and second % _POLL == 0:
            pending = queue / len(ready)
            for server in ready:
                server.history.append(Sample(second, server.success, pending))
            state, number = _decide(state, second, ready, scaler, number)
        if (second + phase) % _SYNC == 0 and second > _WINDOW:
            number = scaler.sync(second, load, number)
        if number != len(servers):
            out.changes += 1
            if number > len(servers) and second >= since and out.first is None:
                out.first = second - since
        servers += [Server(f"pod-{next(names)}", second + COLD_START) for _ in range(number - len(servers))]
        del servers[number:]
    return replace(out, late_part=late / sum(load))


def mean(load: Sequence[float], capacity: float, *, direct: bool, since: int = 0, **scaling: Any) -> Outcome:
    """Returns the mean of all phases; of `first` and `changes` the maximum."""
    runs = [run(load, capacity, direct=direct, phase=p, since=since, **scaling) for p in PHASES]
    return Outcome(
        sum(r.late_seconds for r in runs) // len(runs),
        sum(r.late_part for r in runs) / len(runs),
        sum(r.replicas for r in runs) / len(runs),
        max(r.changes for r in runs),
        max((r.first for r in runs if r.first is not None), default=None),
    )


def step() -> list[float]:
    """Returns an hour with 200 requests per second, and 750 from minute 15 to 40."""
    return [750.0 if 900 <= second < 2400 else 200.0 for second in range(3600)]


def ramp() -> list[float]:
    """Returns an hour with 200 requests per second, which grow to 800 from minute 15 to 25."""
    return [200 + 600 * min(1.0, max(0.0, (second - 900) / 600)) for second in range(3600)]


def _decide(
    state: State | None, second: int, ready: Sequence[Server], scaler: Autoscaler, replicas: int
) -> tuple[State, int]:
    histories: dict[str, History] = {s.name: tuple(s.history) for s in ready}
    state, decision = decide(
        state,
        Observed(
            now=second, histories=histories, per_server=scaler.capacity, coefficient=1,
            least=LEAST, most=MOST, utilization=scaler.utilization, predict=scaler.predict, replicas=replicas,
            floor=scaler.floor, behavior=BEHAVIOR, limited=scaler.limited,
        ),
    )  # fmt: skip
    scaler.floor = decision.floor
    return state, decision.target


if __name__ == "__main__":
    LOADS = {"step": step(), "ramp": ramp(), **{name: trace(name) for name in ("conv", "code")}}
    VARIANTS: dict[str, dict[str, Any]] = {"": {}, " with 0.65": {"utilization": 0.65}, " predict": {"predict": True}}
    for name, load in LOADS.items():
        for direct, (words, scaling) in itertools.product((False, True), VARIANTS.items()):
            capacity = 100 if name in ("step", "ramp") else peak(load) / 8
            out = mean(load, capacity, direct=direct, since=900, **scaling)
            print(f"{name} {'Direct' if direct else 'HPA'}{words}: {out}")
