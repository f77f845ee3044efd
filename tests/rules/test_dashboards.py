"""Runs every query of every dashboard on a real Prometheus. Each must return samples.

The Prometheus scrapes the same metrics as in a cluster, and evaluates the rendered rules.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from rules.pages import ENTRY, JOB, NAME, NAMESPACE, ROOT, SimulatedTargets, scrape_configs
from support.api import eventually
from support.prometheus_process import Prometheus, running, serving

pytestmark = pytest.mark.rules

FILES = sorted((ROOT / "manifests" / "monitoring" / "dashboards").glob("*.json"))
LABEL_VALUES = re.compile(r"label_values\((.*), (\w+)\)")
SECONDS = 300
"""Timeout until every query must return samples."""
BUILT_IN = {"$__rate_interval": "1m"}
ONE_OF = {"namespace": NAMESPACE, "tritonmodel": NAME, "job": JOB, "objective": "99.9"}
"""Selected values of variables, which must be among the available values."""


@dataclass(frozen=True)
class Query:
    """A query and its location."""

    where: str
    expr: str


@dataclass
class Answers:
    """`values`: the values of each dashboard's variables. `empty`: the queries without samples."""

    prometheus: Prometheus
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    empty: list[Query] = field(default_factory=list)


def queries(name: str) -> list[Query]:
    """Returns all queries of a dashboard, except those of its variables."""
    document = read(name)
    return [
        *(
            Query(f"{name}: {panel['title']} [{target['refId']}]", target["expr"])
            for panel in document["panels"]
            for target in panel.get("targets", [])
        ),
        *(Query(f"{name}: marked: {mark['name']}", mark["expr"]) for mark in document["annotations"]["list"]),
    ]


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FILES[0].parent / f"{name}.json").read_text())
    return document


NAMES = [file.stem for file in FILES]
QUERIES = [(name, query) for name in NAMES for query in queries(name)]


def filled(expr: str, values: dict[str, str]) -> str:
    """Returns `expr` with the values of its variables, as Grafana sends it."""
    for variable, value in BUILT_IN.items():
        expr = expr.replace(variable, value)
    return re.sub(r"\$(\w+)", lambda m: values[m[1]], expr)


def choose(prometheus: Prometheus, name: str) -> dict[str, str]:
    """Returns the value of each variable of a dashboard that has available values."""
    values: dict[str, str] = {}
    for variable in read(name)["templating"]["list"]:
        offered: list[str] = []
        if variable["type"] == "custom":
            offered = variable["query"].split(",")
        elif variable["type"] == "query":
            query = LABEL_VALUES.fullmatch(variable["query"]["query"])
            assert query, variable
            # A variable that the query uses may have no values yet.
            with contextlib.suppress(KeyError):
                offered = prometheus.ask(f"label/{query[2]}/values", **{"match[]": filled(query[1], values)})
        expected = ONE_OF.get(variable["name"])
        if expected in offered:
            values[variable["name"]] = expected
        elif expected is None and offered:
            values[variable["name"]] = f"({'|'.join(offered)})"
    return values


def has_values(prometheus: Prometheus, expr: str, since: float) -> bool:
    """Returns whether a graph of `expr` since `since` has values."""
    result = prometheus.ask("query_range", query=expr, start=since, end=time.time(), step="1s")["result"]
    return any(value != "NaN" for series in result for _, value in series["values"])


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """Repeats the queries until all return samples or the timeout passes."""
    world, since = SimulatedTargets(), time.time()
    with (
        serving(world.pages()) as address,
        running(tmp_path_factory.mktemp("prometheus"), scrape_configs(address), world.groups()) as prometheus,
    ):
        out = Answers(prometheus)
        left = list(QUERIES)
        while left and time.time() < since + SECONDS:
            time.sleep(1)
            out.values = {name: choose(prometheus, name) for name in NAMES}
            left = [(name, query) for name, query in left if not _has_values(out, name, query, since)]
        out.empty = [query for _, query in left]
        yield out


def _has_values(answers: Answers, name: str, query: Query, since: float) -> bool:
    try:
        expr = filled(query.expr, answers.values[name])
    except KeyError:
        return False
    return has_values(answers.prometheus, expr, since)


def test_there_are_four_dashboards() -> None:
    assert NAMES == ["end-to-end", "modules", "operator", "resources"]


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_has_values(answers: Answers, name: str) -> None:
    expected = {v["name"] for v in read(name)["templating"]["list"] if v["type"] != "datasource"}
    assert set(answers.values[name]) == expected


@pytest.mark.parametrize("query", [pytest.param(query, id=query.where) for _, query in QUERIES])
def test_every_query_returns_samples(answers: Answers, query: Query) -> None:
    assert query not in answers.empty, query.expr


def test_detects_a_misspelled_series(answers: Answers) -> None:
    values = answers.values["end-to-end"]
    right = filled('tritonmodel:requests_served:rate1m{namespace="$namespace",tritonmodel="$tritonmodel"}', values)
    since = time.time() - 10
    assert has_values(answers.prometheus, right, since)
    assert not has_values(answers.prometheus, right.replace("rate1m", "rate1min"), since)


def test_model_variable_has_the_steps_but_not_the_ensemble(answers: Answers) -> None:
    assert answers.values["modules"]["model"] == "(postprocess|preprocess|yolov5s)"


# Computed by hand from the page of the real server. Both servers have the same counters, so ratios are the page's.
FIGURES = [
    ("end-to-end", "P99", "", 0.18),
    ("end-to-end", "P50", "", 0.02 + 0.005 * 50 / 60),
    ("end-to-end", "Latency of the entrypoint", "", 0.02 + 0.005 * 50 / 60),
    ("end-to-end", "P99 of each server", "", 0.18),
    ("end-to-end", "Slower than the objective", "", 0.4),
    ("modules", "P99 of the execution, over all servers", "yolov5s", 0.0199),
    ("end-to-end", "Success rate, 5 min", "", 36 / 37),
    ("end-to-end", "Scraped servers", "", 2),
    ("end-to-end", "First response in time, over all servers", "", 1),
    ("modules", "Average latency", "preprocess", 791856 / 37 / 1e6),
    ("modules", "Batch size", "yolov5s", 36 / 31),
    ("modules", "Success rate of each model", "preprocess", 1),
    ("modules", "P99 of each model", "postprocess", 0.18),
    ("resources", "CPU throttled", "", 0.1),
    ("resources", "Memory", "", 2e9),
    ("operator", "Leaders", "", 1),
    ("operator", "TritonModels by Ready", "", 1),
    ("operator", "Invalid thresholds", "", 1),
]


@pytest.mark.parametrize(("name", "title", "model", "expected"), FIGURES)
def test_panels_show_the_expected_values(answers: Answers, name: str, title: str, model: str, expected: float) -> None:
    panel = next(p for p in read(name)["panels"] if p["title"] == title)
    expr = filled(panel["targets"][0]["expr"], {**answers.values[name], **({"model": model} if model else {})})

    def value() -> float | None:
        return answers.prometheus.value(f"max({expr})")

    # A slow machine misses scrapes, and then a server is away until the next one.
    eventually(lambda: value() == pytest.approx(expected, rel=0.01), SECONDS, value)


def test_end_to_end_dashboard_counts_only_the_entry_model(answers: Answers) -> None:
    served = answers.prometheus.ask("query", query="tritonmodel:requests_served:rate1m")["result"]
    assert [series["metric"]["model"] for series in served] == [ENTRY]
