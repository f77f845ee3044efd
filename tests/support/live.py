"""Measures the time until a changed threshold is live, for a benchmark and for a test of the promised time."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .api import eventually
from .cluster import NAMESPACE, OPERATOR, Namespace
from .prometheus import OPERATORS, Monitoring, threshold

ANNOTATION = "tritonoperator.io/max-qps"
CYCLE_SECONDS = 5
"""The interval of scrapes of the operator and of rule evaluations."""
RULE_CYCLE_SECONDS = 60
"""The interval at which the kubelet updates Prometheus' rules, at best."""
SPEC = {"monitoring": {"scrapeSeconds": CYCLE_SECONDS, "evaluationSeconds": CYCLE_SECONDS}}
"""The spec of a measured TritonModel, besides its model."""
_EVERY = 0.1
_LIVE_TIMEOUT, _RULE_TIMEOUT = 60, 300


@dataclass(frozen=True)
class Change:
    """A change of max-qps.

    `live_s` and `rule_s` are the seconds from the start of kubectl until the new value is live, and until the rule
    contains it (None if not measured).
    """

    old: float
    new: float
    live_s: float
    rule_s: float | None = None


class Subject:
    """A served TritonModel whose max-qps the test changes."""

    def __init__(self, monitoring: Monitoring, namespace: Namespace, name: str) -> None:
        self._monitoring, self._namespace, self.name = monitoring, namespace, name
        self._up = itertools.cycle((True, False))

    def wait_for_metrics(self, hurry: bool = False, seconds: float = 240) -> None:
        """Waits until Prometheus has the operator's metric, the rules and the server's metrics.

        `hurry`: see Monitoring.hurry.
        """
        own = f'namespace="{self._namespace.name}",tritonmodel="{self.name}"'
        selector = threshold(self._namespace.api, self.name, "triton_operator_threshold")

        def look() -> bool:
            if hurry:
                self._monitoring.hurry()
            literal, live = self.value("tritonmodel:threshold:fallback"), self.value()
            # Without the operator's own metric, the limit is that in the rule, and a change takes a minute.
            pods = {series["metric"].get("pod") for series in self._monitoring.query(selector)}
            operators = {
                pod["metadata"]["name"] for pod in self._namespace.cluster.api.list("Pod", OPERATOR, NAMESPACE)
            }
            scraped = self._monitoring.scraped_pods(OPERATORS)
            up = bool(self._monitoring.query(f"up{{{own}}} == 1"))
            return live is not None and live == literal and up and scraped == operators <= pods

        eventually(look, seconds, f"Prometheus to know {self.name} and to get its limit from each operator", 3)

    def change(self, rule: bool = False) -> Change:
        """Changes max-qps and waits until it is live. `rule`: waits until the rule contains it, too.

        Raises and lowers it by turns: a higher value is live after the scrape of one operator replica, a lower one
        after the scrapes of all.
        """
        old = self.value()
        assert old is not None, f"Prometheus has no limit for {self.name}"
        new = old
        while new == old:
            new = float(random.randrange(5001, 9999) if next(self._up) else random.randrange(1001, 4999))
        start = time.monotonic()
        self.annotate(f"{ANNOTATION}={new:g}")
        live = self._until("tritonmodel:threshold:effective", new, start, _LIVE_TIMEOUT)
        return Change(
            old, new, live, self._until("tritonmodel:threshold:fallback", new, start, _RULE_TIMEOUT) if rule else None
        )

    def annotate(self, *annotations: str) -> str:
        """Runs kubectl annotate, as an on-call engineer does."""
        return self._namespace.kubectl("annotate", f"tm/{self.name}", "--overwrite", *annotations)

    def lives(self) -> dict[str, int]:
        """Returns the restarts of the servers' containers, by pod uid."""
        return {
            p["metadata"]["uid"]: sum(s["restartCount"] for s in p["status"].get("containerStatuses", []))
            for p in self._namespace.pods(self.name)
        }

    def value(self, series: str = "tritonmodel:threshold:effective") -> float | None:
        """Returns the model's max-qps in this series."""
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
    """Sleeps for a random part of a cycle: the place in the cycle decides how long a change takes."""
    time.sleep(random.uniform(0, RULE_CYCLE_SECONDS if rule else CYCLE_SECONDS))


def restarts(before: dict[str, int], after: dict[str, int]) -> int:
    """Returns the number of restarted containers and replaced pods."""
    number = sum(max(0, after[uid] - count) for uid, count in before.items() if uid in after)
    return number + len(before.keys() - after.keys())


def percentile(values: Sequence[float], part: float) -> float:
    """Returns the smallest value that at least the fraction `part` of the values don't exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]
