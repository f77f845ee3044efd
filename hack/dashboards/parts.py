"""The parts of a dashboard, from which Grafana's JSON and the documentation are generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MODEL = 'namespace="$namespace",tritonmodel="$tritonmodel"'
"""Matchers of the chosen TritonModel."""
RATE = "[$__rate_interval]"
SUBQUERY = "[$__rate_interval:10s]"
OF_MODEL = "namespace, tritonmodel, model, version"
OF_POD = "namespace, tritonmodel, pod"


@dataclass(frozen=True)
class Query:
    """One query and the name of its lines. `line` is the style; a limit is a dashed red line."""

    expr: str
    legend: str
    line: Literal["", "limit", "bars"] = ""


@dataclass(frozen=True)
class Panel:
    """One panel.

    `how` describes how the panel is computed. `unit` is Grafana's name of the unit. The panel is repeated for each
    value of the variable `each`. `levels` are the values for orange and red; if the first is larger, the panel is
    orange and red below them.
    """

    title: str
    how: str
    unit: str
    queries: tuple[Query, ...]
    kind: Literal["timeseries", "stat", "state-timeline"] = "timeseries"
    width: int = 12
    stacked: bool = False
    each: str = ""
    levels: tuple[float, float] | None = None
    most: float | None = None


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A variable whose values are those of `label` in `series`."""

    name: str
    title: str
    series: str
    label: str
    several: bool = False


@dataclass(frozen=True)
class Choice:
    """A variable with the suggested `values`; the reader can also type one."""

    name: str
    title: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Mark:
    """An annotation in every panel at the times when `expr` is above 0."""

    name: str
    how: str
    expr: str
    text: str
    color: str


@dataclass(frozen=True)
class Dashboard:
    """One dashboard. `name` is the file name and, after `triton-`, the dashboard's id in Grafana."""

    name: str
    title: str
    about: str
    variables: tuple[Variable | Choice, ...]
    marks: tuple[Mark, ...]
    rows: tuple[Row, ...]


# Every TritonModel has this series, with +Inf for no limit, and also while the operator is down.
NAMESPACE = Variable("namespace", "Namespace", 'triton:threshold{kind="max-qps"}', "namespace")
TRITONMODEL = Variable(
    "tritonmodel", "TritonModel", 'triton:threshold{kind="max-qps",namespace="$namespace"}', "tritonmodel"
)
LIMIT_CHANGED = Mark(
    "Limit changed",
    "Prometheus started to use another `max-qps`, of the model or of a version. This is after the change of the "
    "annotation. The mark may be up to 30 s late. Its tags contain the version.",
    f'changes(triton:threshold{{kind="max-qps",{MODEL}}}{RATE}) > 0',
    "max-qps changed",
    "red",
)
LIMIT_COUNT = Mark(
    "Limit of a version added or removed",
    "The number of `max-qps` limits changed, including the model's own.",
    f'changes(count by (namespace, tritonmodel) (triton:threshold{{kind="max-qps",{MODEL}}}){SUBQUERY}) > 0',
    "max-qps of a version set or removed",
    "purple",
)


def rate(series: str, more: str = "") -> str:
    """Returns the rate of a counter of the chosen TritonModel's servers."""
    return f"rate({series}{{{MODEL}{more}}}{RATE})"


def ratio(over: str, under: str, by: str) -> str:
    """Returns the quotient of two sums over servers, so that each request has the same weight."""
    return f"sum by ({by}) ({over})\n/\nsum by ({by}) ({under})"


def of_entry(expr: str) -> str:
    """Limits `expr` to the entry model, the one with recorded QPS."""
    return f"({expr}\n  and on ({OF_MODEL}) triton:qps:rate1m{{{MODEL}}})"
