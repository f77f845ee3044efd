"""How soon a changed threshold is what Prometheus compares with: the benchmark measures it, and a test holds it to
what is promised."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .api import eventually
from .cluster import Namespace
from .prometheus import Monitoring, threshold

ANNOTATION = "tritonoperator.io/max-qps"
CYCLE_SECONDS = 5
"""How often the operator is scraped, and how often the rules are evaluated here."""
RULE_CYCLE_SECONDS = 60
"""How often the kubelet looks whether Prometheus' rules have changed, at best."""
SPEC = {"monitoring": {"scrapeSeconds": CYCLE_SECONDS, "evaluationSeconds": CYCLE_SECONDS}}
"""What a TritonModel to be measured needs beside its model."""
_EVERY = 0.1
_LIVE_TIMEOUT, _RULE_TIMEOUT = 60, 300


@dataclass(frozen=True)
class Change:
    """One change. `live_s`, `rule_s`: seconds from the start of kubectl until Prometheus uses the new value,
    and until it would have by the rule alone; None where that wasn't waited for."""

    old: float
    new: float
    live_s: float
    rule_s: float | None = None


class Subject:
    """A served TritonModel whose max-qps is changed."""

    def __init__(self, monitoring: Monitoring, namespace: Namespace, name: str) -> None:
        self._monitoring, self._namespace, self.name = monitoring, namespace, name
        self._up = itertools.cycle((True, False))

    def known(self, hurry: bool = False, seconds: float = 240) -> None:
        """Waits until Prometheus has the gauge, the rules, and the server's metrics. `hurry`: see Monitoring.hurry."""
        own = f'namespace="{self._namespace.name}",tritonmodel="{self.name}"'

        def look() -> bool:
            if hurry:
                self._monitoring.hurry()
            literal, live = self.value("triton:threshold:literal"), self.value()
            return live is not None and live == literal and bool(self._monitoring.query(f"up{{{own}}} == 1"))

        eventually(look, seconds, lambda: f"Prometheus to know {self.name}; {self._namespace.told(self.name)}", 3)

    def change(self, rule: bool = False) -> Change:
        """Changes the value, up and down by turns: a higher one is there when the first of the operator's replicas has
        been scraped, a lower one when all have. `rule`: waits until the rule has it, too."""
        old = self.value()
        assert old is not None, f"Prometheus has no limit of {self.name}"
        new = old
        while new == old:
            new = float(random.randrange(5001, 9999) if next(self._up) else random.randrange(1001, 4999))
        start = time.monotonic()
        self.annotate(f"{ANNOTATION}={new:g}")
        live = self._until("triton:threshold", new, start, _LIVE_TIMEOUT)
        return Change(
            old, new, live, self._until("triton:threshold:literal", new, start, _RULE_TIMEOUT) if rule else None
        )

    def annotate(self, *annotations: str) -> str:
        """What an on-call engineer types."""
        return self._namespace.kubectl("annotate", f"tm/{self.name}", "--overwrite", *annotations)

    def lives(self) -> dict[str, int]:
        """The servers' pods by uid, with how often their containers were restarted."""
        return {
            p["metadata"]["uid"]: sum(s["restartCount"] for s in p["status"].get("containerStatuses", []))
            for p in self._namespace.pods(self.name)
        }

    def value(self, series: str = "triton:threshold") -> float | None:
        """The model's max-qps by this series."""
        return self._monitoring.value(threshold(self._namespace.api, self.name, series))

    def _until(self, series: str, value: float, start: float, seconds: float) -> float:
        eventually(
            lambda: self.value(series) == value,
            seconds,
            lambda: f"{series} {value:g}, it is {self.value(series)}",
            _EVERY,
        )
        return time.monotonic() - start


def pause(rule: bool = False) -> None:
    """A random part of the cycles that a change goes through: without it each would begin just after the last ended,
    and all at the same place of the cycle."""
    time.sleep(random.uniform(0, RULE_CYCLE_SECONDS if rule else CYCLE_SECONDS))


def restarts(before: dict[str, int], after: dict[str, int]) -> int:
    """Containers that were restarted and pods that are no longer the same."""
    again = sum(max(0, after[uid] - count) for uid, count in before.items() if uid in after)
    return again + len(before.keys() - after.keys())


def percentile(values: Sequence[float], part: float) -> float:
    """The least of `values` that `part` of them don't exceed: of few values the 99th percentile is the largest."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]
