"""What a dashboard consists of, before it is Grafana's JSON or a page of the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MODEL = 'namespace="$namespace",tritonmodel="$tritonmodel"'
"""The matchers of the one TritonModel that a reader has chosen."""
RATE = "[$__rate_interval]"
SUBQUERY = "[$__rate_interval:10s]"
OF_MODEL = "namespace, tritonmodel, model, version"
OF_POD = "namespace, tritonmodel, pod"


@dataclass(frozen=True)
class Query:
    """One query and the name of its lines. `line`: how it is drawn; a limit is a dashed red line."""

    expr: str
    legend: str
    line: Literal["", "limit", "bars"] = ""


@dataclass(frozen=True)
class Panel:
    """One panel. `how`: how its figures are computed, for whoever must trust them. `unit` is Grafana's name of it.
    `each`: a variable, for each value of which the panel stands once. `levels`: from these values on it is orange and
    red, or below them where the first is above the second."""

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
    """What the reader chooses at the top, out of the values of `label` in `series`."""

    name: str
    title: str
    series: str
    label: str
    several: bool = False


@dataclass(frozen=True)
class Choice:
    """What the reader chooses out of `values`, or writes."""

    name: str
    title: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Mark:
    """Moments that are marked in every panel: where `expr` is above 0."""

    name: str
    how: str
    expr: str
    text: str
    color: str


@dataclass(frozen=True)
class Dashboard:
    """`name` is the file's and, after `triton-`, the dashboard's id in Grafana."""

    name: str
    title: str
    about: str
    variables: tuple[Variable | Choice, ...]
    marks: tuple[Mark, ...]
    rows: tuple[Row, ...]


# Every TritonModel has a limit, be it infinite: `triton:threshold` is there even while the operator isn't.
NAMESPACE = Variable("namespace", "Namespace", 'triton:threshold{kind="max-qps"}', "namespace")
TRITONMODEL = Variable(
    "tritonmodel", "TritonModel", 'triton:threshold{kind="max-qps",namespace="$namespace"}', "tritonmodel"
)
LIMIT_CHANGED = Mark(
    "Limit changed",
    "`max-qps`, of the model or of a version, has changed in Prometheus: not when the annotation was written but when "
    "the rules began to compare with it. A mark may come up to 30 s late. A version is among the mark's tags.",
    f'changes(triton:threshold{{kind="max-qps",{MODEL}}}{RATE}) > 0',
    "max-qps changed",
    "red",
)
LIMIT_COUNT = Mark(
    "A version's limit came or went",
    "The number of limits has changed; the model's own is always one of them.",
    f'changes(count by (namespace, tritonmodel) (triton:threshold{{kind="max-qps",{MODEL}}}){SUBQUERY}) > 0',
    "max-qps of a version set or removed",
    "purple",
)


def rate(series: str, more: str = "") -> str:
    """A counter of the chosen TritonModel's servers, a second."""
    return f"rate({series}{{{MODEL}{more}}}{RATE})"


def ratio(over: str, under: str, by: str) -> str:
    """One sum divided by the other: summed up over servers first, so that each request weighs the same."""
    return f"sum by ({by}) ({over})\n/\nsum by ({by}) ({under})"


def of_entry(expr: str) -> str:
    """Only the model that clients call: the one whose QPS is recorded."""
    return f"({expr}\n  and on ({OF_MODEL}) triton:qps:rate1m{{{MODEL}}})"
