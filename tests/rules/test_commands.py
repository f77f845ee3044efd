"""The queries of `kubectl triton top` and `explain-alert` on a real Prometheus, which scrapes a recorded page of Triton
and evaluates the rendered rules."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast
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
from support.api import eventually
from support.prometheus_process import Json, running, serving
from triton_operator.api import thresholds

pytestmark = pytest.mark.rules

T = TypeVar("T")
KEY = f"{NAMESPACE}/{NAME}"
SECONDS = 300
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
    """Returns the first value that is good. Fails with the last one after the timeout.

    Prometheus learns the values one by one. On a busy machine it may lose a scrape, so that a value is missing again
    for a while. So wait for all that the test wants of one value.
    """
    last: list[Any] = [None]

    def look() -> bool:
        try:
            last[0] = value = read()
        except samples.NoAnswerError as error:
            last[0] = error
            return False
        return good(value)

    eventually(look, SECONDS, lambda: last[0], every=1)
    return cast("T", last[0])


def complete(values: Samples) -> bool:
    return not values.error and all(KEY in (getattr(values, name) or {}) for name in FIELDS)


def test_every_value_of_top_comes_from_the_rules_and_from_triton(url: str) -> None:
    values = until(lambda: samples.read(url, NAMESPACE), complete)
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
    svg = tmp_path / "alert.svg"
    command = f"second command) kubectl annotate tm/{NAME} -n {NAMESPACE} tritonoperator.io/max-qps"
    parts = [
        "^" + re.escape(f"{ALERT} (critical) fires for {KEY}"),
        "its condition holds since 20",
        "the demand has been above `max-qps`",
        # The status says 80, and the operator's metric 1.
        "threshold max-qps 80, accepted",
        "the rules use 1",
        re.escape(command) + r"(\.v1)?=[0-9.]+ --overwrite",
        "Demand in requests/s, the last hour",
    ]

    def explained() -> tuple[list[str], int, str]:
        """Returns the parts that the explanation lacks, the number of curves in the picture, and the explanation."""
        command = ["explain-alert", NAME, "QpsOverflow", "--prometheus", url, "--svg", str(svg)]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.output
        words = " ".join(result.output.split())
        tags = [e.tag for e in ElementTree.parse(svg).iter()] if svg.exists() else []  # not before there are values
        curves = len([tag for tag in tags if tag.endswith("path")])
        return [part for part in parts if not re.search(part, words)], curves, result.output

    until(explained, lambda answer: answer[:2] == ([], 3))

    def has_alert(firings: list[incident.Firing]) -> bool:
        return ALERT in {f.alert.name for f in firings} and all(f.since is not None for f in firings)

    firings, now = until(lambda: incident.firing(url, NAMESPACE, NAME), has_alert), time.time()
    assert all(f.since is not None and now - 600 < f.since <= now for f in firings)
    series = incident.Panel("", "", incident.queries(NAMESPACE, NAME)["load"])
    until(
        lambda: incident.numbers(url, NAMESPACE, NAME, series, time.time()),
        lambda numbers: bool(numbers.value) and all(numbers.now[name] for name in incident.queries(NAMESPACE, NAME)),
    )
    assert incident.firing(url, "another", NAME) == []
