"""The queries of `kubectl triton top` on a real Prometheus, which scrapes a recorded page of Triton and evaluates the
rendered rules."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rules.pages import NAME, NAMESPACE, SimulatedTargets, scrape_configs
from support import ports
from support.prometheus_process import running, serving
from triton_operator.cli import samples
from triton_operator.cli.samples import Samples

pytestmark = pytest.mark.rules

KEY = f"{NAMESPACE}/{NAME}"
SECONDS = 50
"""Timeout until every value is known."""
FIELDS = ("demand", "load", "p50", "p99", "queue", "errors", "alerts")


def complete(found: Samples) -> bool:
    return not found.error and all(KEY in (getattr(found, name) or {}) for name in FIELDS)


def test_every_value_of_top_comes_from_the_rules_and_from_triton(tmp_path: Path) -> None:
    world, address = SimulatedTargets(), f"127.0.0.1:{ports.free()[0]}"
    with (
        serving(world.pages()) as targets,
        running(tmp_path, scrape_configs(targets), world.groups(), address=address),
    ):
        found, end = Samples(), time.monotonic() + SECONDS
        while not complete(found) and time.monotonic() < end:
            time.sleep(1)
            found = samples.read(f"http://{address}", NAMESPACE)
        assert complete(found), found
        assert found.alerts is not None
        assert all(alert.name.startswith("TritonModel") for alert in found.alerts[KEY])
        assert 0.001 < found.p50[KEY] <= found.p99[KEY] < 60
        assert found.demand[KEY] > 0
        assert 0 < found.errors[KEY] < 1
        everywhere = samples.read(f"http://{address}", None)
        assert everywhere.demand.keys() == found.demand.keys()
        assert samples.read(f"http://{address}", "another").demand == {}
