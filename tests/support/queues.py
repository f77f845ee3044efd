"""Simulated servers for the tests of the calibration: queues with random arrivals."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from kubectl_triton.calibrate.search import LATENCY, Latency, Point, Step

Service = Callable[[random.Random], float]


def measured(step: Step, latencies: list[float], seconds: float | None = None) -> Point:
    """Returns the point of a measurement with these latencies."""
    values = sorted(latencies)
    quantiles = Latency(values[len(values) // 2], values[int(len(values) * 0.99)])
    took = step.seconds if seconds is None else seconds
    return Point(step.phase, step.rate, step.rate, {LATENCY: quantiles}, len(values), 0, took)


def latencies(rate: float, seconds: float, servers: int, service: Service, source: random.Random) -> list[float]:
    """Returns the latencies of requests that arrive at random at `servers` servers with one queue, from empty."""
    free = [0.0] * servers
    now, values = 0.0, []
    for _ in range(max(10, round(rate * seconds))):
        now += source.expovariate(rate)
        end = max(now, heapq.heappop(free)) + service(source)
        heapq.heappush(free, end)
        values.append(end - now)
    return values


def queue(servers: int, service: Service, source: random.Random) -> Callable[[Step], Point]:
    """Returns a measurement of a simulated server with `servers` instances."""
    return lambda step: measured(step, latencies(step.rate, step.seconds, servers, service, source))


def capacity(p99: float, servers: int, service: Service, highest: float) -> float:
    """Returns the rate at which p99 of a long simulation is the target, within 1 %. `highest`: an upper bound."""
    low, high = 0.0, highest
    while high > low * 1.01:
        rate = (low + high) / 2
        values = sorted(latencies(rate, 20_000 / rate, servers, service, random.Random(1)))
        low, high = (rate, high) if values[int(len(values) * 0.99)] <= p99 else (low, rate)
    return low
