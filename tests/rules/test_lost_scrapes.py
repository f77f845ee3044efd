"""One overload causes one alert, although some scrapes of a real Prometheus fail.

All durations are a tenth of those in a cluster.
"""

from __future__ import annotations

import itertools
import re
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from support import gen
from support.api import eventually
from support.prometheus_process import Prometheus, running, scrape_config, serving
from triton_operator.api import thresholds
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.render.choices import Choices
from triton_operator.render.pod_monitor import pod_monitor
from triton_operator.render.prometheus_rule import prometheus_rule

pytestmark = pytest.mark.rules

FASTER = 10
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LIMITS = thresholds.effective({ThresholdKey("max-qps"): Decimal(100)}, 1)
CHOICES = Choices("operator:1", "Copy", entrypoint="net", thresholds=LIMITS)
FIRING = f'ALERTS{{alertname="TritonModelQpsOverflow",alertstate="firing",tritonmodel="{gen.NAME}"}}'


def hastened(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rules with every duration divided by ten."""

    def quick(found: re.Match[str]) -> str:
        return f"{found[1]}{int(found[2]) * SECONDS[found[3]] * 1000 // FASTER}ms"

    def rule(one: dict[str, Any]) -> dict[str, Any]:
        expr = re.sub(r"(\[|\boffset )(\d+)([smhd])\b", quick, one["expr"])
        waits = {k: re.sub(r"()(\d+)([smhd])", quick, one[k]) for k in ("for", "keep_firing_for") if k in one}
        return {**one, "expr": expr, **waits}

    return [{**group, "rules": [rule(one) for one in group["rules"]]} for group in groups]


class Server:
    """A server that gets `rate` requests per second. Every `fails`-th scrape of it fails."""

    def __init__(self, rate: float, fails: int) -> None:
        self.rate, self._fails, self._turns = rate, fails, itertools.count(1)
        self._served, self._at = 0.0, time.monotonic()

    def page(self) -> str:
        now = time.monotonic()
        self._served, self._at = self._served + self.rate * (now - self._at), now
        if next(self._turns) % self._fails == 0:
            return "this is no page {{{"
        return f'nv_inference_request_success{{model="net",version="1"}} {self._served}\n'


def times_fired(prometheus: Prometheus, since: float) -> int:
    """Returns how many times the alert started to fire. Each time causes a notification."""
    found = prometheus.ask("query", query=f"{FIRING}[{round(time.time() - since) + 1}s]")["result"]
    at = sorted(float(sample[0]) for series in found for sample in series["values"])
    return bool(at) + sum(later - earlier > 1.5 for earlier, later in itertools.pairwise(at))


def test_one_overload_causes_one_alert_despite_failed_scrapes(tmp_path: Path) -> None:
    server, since = Server(rate=106, fails=6), time.time()
    with serving({"/metrics": server.page}) as address:
        configs = scrape_config(pod_monitor(gen.model(), CHOICES), {address: "a"})
        groups = hastened(prometheus_rule(gen.model(), CHOICES)["spec"]["groups"])
        with running(tmp_path, configs, groups) as prometheus:
            eventually(lambda: prometheus.value(FIRING), 60)
            time.sleep(45)
            lost = prometheus.value("count_over_time((up == 0)[45s:1s])")
            assert lost is not None
            assert lost >= 4
            assert times_fired(prometheus, since) == 1
            assert prometheus.value(FIRING)
            server.rate, stopped = 50, time.monotonic()
            eventually(lambda: prometheus.value(FIRING) is None, 60)
            assert time.monotonic() - stopped < 6 + 30 + 10, "a minute's rate, and five minutes, by a tenth"
            assert times_fired(prometheus, since) == 1
