"""A real Prometheus tells servers that replace their series from others.

All durations are a tenth of those in a cluster.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import gen
from support.api import eventually
from support.controlplane import ROOT
from support.prometheus_process import Page, Prometheus, running, scrape_config, serving
from triton_operator.api import names
from triton_operator.render.choices import Choices
from triton_operator.render.pod_monitor import pod_monitor
from triton_operator.render.rules.churn import series_churn
from triton_operator.render.series import SUMMARIES

pytestmark = pytest.mark.rules

CHOICES = Choices("operator:1", "Copy", entrypoint="net")
QUERY = re.sub(r"\[(1m|1h)\]", lambda found: {"1m": "[6s]", "1h": "[6m]"}[found[1]], series_churn(names.SAMPLE_LIMIT))
TRITON = [
    line
    for line in (ROOT / "tests" / "rules" / "data" / "triton_24.10.txt").read_text().splitlines()
    if 'model="yolov5s"' in line
]
"""The series of one version of a model."""
KEPT = sum(not re.fullmatch(SUMMARIES, re.split("[{ ]", line)[0]) for line in TRITON)


def monitor(name: str) -> dict[str, Any]:
    """Returns a PodMonitor that keeps all names and labels, as with devices or TARGET_LABELS a server can vary some."""
    found = pod_monitor(gen.model(gen.put("metadata.name", name)), CHOICES)
    (endpoint,) = found["spec"]["podMetricsEndpoints"]
    endpoint["metricRelabelings"] = [{"sourceLabels": ["__name__"], "regex": SUMMARIES, "action": "drop"}]
    found["spec"] |= {"sampleLimit": names.SAMPLE_LIMIT, "bodySizeLimit": f"{names.SAMPLE_LIMIT * 256}B"}
    return found


def page(models: list[str]) -> str:
    """Returns the page of a server with these models."""
    return "\n".join(line.replace("yolov5s", model) for model in models for line in TRITON) + "\n"


def changing(size: int, replaced: int) -> Page:
    """A server with `size` models, of which it replaces `replaced` before each scrape."""
    turns = itertools.count()

    def render() -> str:
        first = next(turns) * replaced
        return page([f"m{number}" for number in range(first, first + size)])

    return render


def loading(size: int, loaded: int) -> Page:
    """A server that loads `size` models, a few of them between two scrapes."""
    turns = itertools.count(1)
    return lambda: page([f"m{number}" for number in range(min(next(turns) * loaded, size))])


def failing(size: int, answer: str) -> Page:
    """A server with `size` models. Two of three scrapes get `answer` instead."""
    turns = itertools.count()
    return lambda: answer if next(turns) % 3 else page([f"m{number}" for number in range(size)])


def above_the_limit(*, replaced: bool) -> Page:
    """A server with four times as many series as a scrape may have."""
    turns = itertools.count()

    def render() -> str:
        turn = next(turns) if replaced else 0
        return "".join(f'own{{request="{turn}-{number}"}} 1\n' for number in range(4 * names.SAMPLE_LIMIT))

    return render


HOSTILE: dict[str, Callable[[], Page]] = {
    "all-new": lambda: changing(60, 60),
    "some-new": lambda: changing(60, 20),
    "above-the-limit": lambda: above_the_limit(replaced=True),
}
HONEST: dict[str, Callable[[], Page]] = {
    "constant": lambda: changing(60, 0),
    "constant-above-the-limit": lambda: above_the_limit(replaced=False),
    "loads-models": lambda: loading(80, 15),
    "unavailable": lambda: failing(60, ""),
    "broken": lambda: failing(60, "this is no page {{{"),
}
SCALED, PODS = "scaled", 20


@contextlib.contextmanager
def scraped() -> Iterator[list[dict[str, Any]]]:
    """Yields the scrape configuration of all TritonModels. One has many servers, each with a page of its own."""
    with contextlib.ExitStack() as stack:
        configs = []
        for name, server in {**HOSTILE, **HONEST, SCALED: HONEST["constant"]}.items():
            pages = [server() for _ in range(PODS if name == SCALED else 1)]
            targets = {stack.enter_context(serving({"/metrics": one})): f"{name}-{n}" for n, one in enumerate(pages)}
            configs += scrape_config(monitor(name), targets)
        yield configs


def found(prometheus: Prometheus, since: float) -> set[str]:
    """Returns the TritonModels that the query returned at any time since then."""
    answer = prometheus.ask("query_range", query=QUERY, start=since, end=time.time(), step=0.5)["result"]
    return {one["metric"]["tritonmodel"] for one in answer}


def added(prometheus: Prometheus, name: str) -> float | None:
    return prometheus.value(f'sum(sum_over_time(scrape_series_added{{tritonmodel="{name}"}}[6m]))')


def test_finds_only_servers_that_replace_their_series(tmp_path: Path) -> None:
    with scraped() as configs:
        since = time.time()
        with running(tmp_path, configs, []) as prometheus:
            quick = HOSTILE.keys() - {"some-new"}
            eventually(lambda: found(prometheus, since) >= quick, 30)
            assert time.time() - since < 30
            time.sleep(10)
        with running(tmp_path, configs, []) as prometheus:
            # All series are new again.
            eventually(lambda: added(prometheus, "constant") == 2 * 60 * KEPT, 30)
            eventually(lambda: (added(prometheus, "loads-models") or 0) >= 2 * 80 * KEPT, 30)
            eventually(lambda: (added(prometheus, SCALED) or 0) >= 2 * PODS * 60 * KEPT, 30)
            eventually(lambda: found(prometheus, since) >= HOSTILE.keys(), 120)
            assert found(prometheus, since) == HOSTILE.keys()


def test_alert_has_the_expression_of_the_operator() -> None:
    groups = yaml.safe_load((ROOT / "manifests" / "monitoring" / "rules.yaml").read_text())["spec"]["groups"]
    (expr,) = [r["expr"] for g in groups for r in g["rules"] if r["alert"] == "TritonModelSeriesChurn"]
    assert expr == series_churn(names.SAMPLE_LIMIT)
