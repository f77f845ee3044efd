"""The queries of `kubectl triton top` and `explain-alert` on a real Prometheus, which scrapes a recorded page of Triton
and evaluates the rendered rules."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from kubectl_triton import cluster, samples
from kubectl_triton.explain import incident
from kubectl_triton.main import main
from kubectl_triton.samples import Samples
from rules.pages import NAME, NAMESPACE, SimulatedTargets, scrape_configs
from support import fleet as objects
from support import gen, ports
from support.prometheus_process import Json, running, serving
from triton_operator.api import thresholds

pytestmark = pytest.mark.rules

T = TypeVar("T")
KEY = f"{NAMESPACE}/{NAME}"
SECONDS = 90
"""Timeout until every value is known, and until the alert fires."""
FIELDS = ("demand", "load", "p50", "p99", "queue", "errors", "alerts")
ALERT = "TritonModelQpsOverflow"


class Overloaded(SimulatedTargets):
    """The pages with a limit that the load exceeds from the start."""

    def model(self, seconds: float | None = None) -> Json:
        raw = super().model(seconds)
        raw["metadata"]["annotations"][thresholds.PREFIX + "max-qps"] = "1"
        return raw


def soon(groups: list[Any]) -> list[Any]:
    """Returns the groups with alerts that fire after a second, to shorten the tests."""
    for rule in (rule for group in groups for rule in group["rules"]):
        rule.update({"for": "1s"} if "for" in rule else {})
    return groups


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Returns the URL of the Prometheus."""
    world, address = Overloaded(), f"127.0.0.1:{ports.free()[0]}"
    with (
        serving(world.pages()) as targets,
        running(tmp_path_factory.mktemp("prometheus"), scrape_configs(targets), soon(world.groups()), address=address),
    ):
        yield f"http://{address}"


def until(read: Callable[[], T], good: Callable[[T], bool]) -> T:
    """Returns the first value that is good; the last one after the timeout."""
    value, end = read(), time.monotonic() + SECONDS
    while not good(value) and time.monotonic() < end:
        time.sleep(1)
        value = read()
    return value


def complete(values: Samples) -> bool:
    return not values.error and all(KEY in (getattr(values, name) or {}) for name in FIELDS)


def test_every_value_of_top_comes_from_the_rules_and_from_triton(url: str) -> None:
    values = until(lambda: samples.read(url, NAMESPACE), complete)
    assert complete(values), values
    assert values.alerts is not None
    assert all(alert.name.startswith("TritonModel") for alert in values.alerts[KEY])
    assert 0.001 < values.p50[KEY] <= values.p99[KEY] < 60
    assert values.demand[KEY] > 0
    assert 0 < values.errors[KEY] < 1
    everywhere = samples.read(url, None)
    assert everywhere.demand.keys() == values.demand.keys()
    assert samples.read(url, "another").demand == {}


def test_the_alert_that_fires_is_explained(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Connection:
        namespace = NAMESPACE

        def model(self, name: str) -> Any:
            return gen.raw(objects.status(), name=name)

        def autoscaler(self, _: Any) -> None:
            return None

    monkeypatch.setattr(cluster, "connect", lambda *_: Connection())
    alerts = until(
        lambda: incident.firing(url, NAMESPACE, NAME), lambda firing: any(f.alert.name == ALERT for f in firing)
    )
    svg, now = tmp_path / "alert.svg", time.time()
    result = CliRunner().invoke(main, ["explain-alert", NAME, "QpsOverflow", "--prometheus", url, "--svg", str(svg)])
    words = " ".join(result.output.split())
    assert result.exit_code == 0, result.output
    assert words.startswith(f"{ALERT} (critical) fires for {KEY}"), result.output
    assert "its condition holds since 20" in words
    assert "the demand has been above `max-qps`" in words
    # The status says 80, and the operator's metric 1.
    assert "threshold max-qps 80, accepted" in words
    assert "the rules use 1" in words
    command = f"second command) kubectl annotate tm/{NAME} -n {NAMESPACE} tritonoperator.io/max-qps"
    assert re.search(re.escape(command) + r"(\.v1)?=[0-9.]+ --overwrite", words), result.output
    assert "Demand in requests/s, the last hour" in words
    assert all(f.since is not None and now - 600 < f.since <= now for f in alerts)
    assert len([e for e in ElementTree.parse(svg).getroot().iter() if e.tag.endswith("path")]) == 2
    series = incident.Shown("", "", incident.queries(NAMESPACE, NAME)["load"])
    numbers = incident.numbers(url, NAMESPACE, NAME, series, time.time())
    assert numbers.value
    assert all(numbers.now[name] for name in incident.queries(NAMESPACE, NAME)), numbers.now
    assert incident.firing(url, "another", NAME) == []
