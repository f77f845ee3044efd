"""The parts of a dashboard. `grafana` renders them as JSON and `page` as documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from triton_operator.render.rules.streaming import DECOUPLED

MODEL = 'namespace="$namespace",tritonmodel="$tritonmodel"'
"""The label matchers of the TritonModel that the reader selected."""
RATE = "[$__rate_interval]"
SUBQUERY = "[$__rate_interval:10s]"
OF_MODEL = "namespace, tritonmodel, model, version"
OF_POD = "namespace, tritonmodel, pod"

NOT_STREAMS = (
    "Models that stream are left out, because Triton's time of a request may end long before its last response: see "
    "Streams in the dashboard End to end."
)
UTILIZATION = (
    "The largest of demand ÷ `max-qps`, each version's demand ÷ its own limit, and tokens ÷ `max-tps`, from "
    "`tritonmodel:demand:rate1m`, `tritonmodel:tokens:rate1m` and `tritonmodel:threshold:effective`."
)


def utilization(matchers: str = "") -> str:
    """Returns the utilization of the TritonModels that `matchers` select."""

    def limit(kind: str) -> str:
        own = f'kind="{kind}"'
        return f"tritonmodel:threshold:effective{{{','.join(filter(None, (own, matchers)))}}}"

    tokens = f"sum by (namespace, tritonmodel) (tritonmodel:tokens:rate1m{{{matchers}}})"
    return (
        "max by (namespace, tritonmodel) (\n"
        f"  tritonmodel:demand:rate1m{{{matchers}}}\n"
        f"  / on (namespace, tritonmodel, version) {limit('max-qps')}\n"
        f'  or label_replace({tokens}\n  / on (namespace, tritonmodel) {limit("max-tps")}, "of", "tokens", "", "")\n)'
    )


@dataclass(frozen=True)
class Query:
    """A query and the legend of its series. `line` is the drawing style; "limit" is a dashed red line."""

    expr: str
    legend: str
    line: Literal["", "limit", "bars"] = ""


@dataclass(frozen=True)
class Panel:
    """A panel.

    - `how`: the description: how the values are computed
    - `unit`: Grafana's name of the unit
    - `each`: a variable; Grafana repeats the panel for each of its values
    - `levels`: the panel is orange and red above these values, or below them if the first is the larger
    - `maximum`: the maximum of the axis
    - `kind`: for a heat map, each series of the query is a bucket, and its legend the bucket's upper bound
    """

    title: str
    how: str
    unit: str
    queries: tuple[Query, ...]
    kind: Literal["timeseries", "stat", "state-timeline", "heatmap"] = "timeseries"
    width: int = 12
    stacked: bool = False
    each: str = ""
    levels: tuple[float, float] | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A dashboard variable whose options are the values of `label` in `series`."""

    name: str
    title: str
    series: str
    label: str
    several: bool = False


@dataclass(frozen=True)
class Choice:
    """A dashboard variable whose options are `values`; the reader may type another value."""

    name: str
    title: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Mark:
    """An annotation in every panel, at the times when `expr` returns a value."""

    name: str
    how: str
    expr: str
    text: str
    color: str


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. `name` is the file's name; `triton-` and `name` make the dashboard's uid in Grafana."""

    name: str
    title: str
    about: str
    variables: tuple[Variable | Choice, ...]
    marks: tuple[Mark, ...]
    rows: tuple[Row, ...]


# Every TritonModel with rules has this series, even while the operator doesn't run.
EVERY = 'tritonmodel:threshold:effective{kind="ensemble-coefficient"'
NAMESPACE = Variable("namespace", "Namespace", f"{EVERY}}}", "namespace")
TRITONMODEL = Variable("tritonmodel", "TritonModel", f'{EVERY},namespace="$namespace"}}', "tritonmodel")
LIMIT_CHANGED = Mark(
    "Limit changed",
    "`max-qps` of the model or of a version changed in Prometheus. The time is when the rules started to use the "
    "value, not when the annotation of the TritonModel was written. It may be up to 30 s late. A version is a tag of "
    "the annotation.",
    f'changes(tritonmodel:threshold:effective{{kind="max-qps",{MODEL}}}{RATE}) > 0',
    "max-qps changed",
    "red",
)
LIMIT_COUNT = Mark(
    "A limit was set or removed",
    "The number of limits of the model and its versions changed.",
    "changes(count by (namespace, tritonmodel) ("
    f'tritonmodel:threshold:effective{{kind=~"max-qps|ensemble-coefficient",{MODEL}}}){SUBQUERY}) > 0',
    "max-qps set or removed",
    "purple",
)


def rate(series: str, more: str = "") -> str:
    """Returns the per-second rate of a counter of the selected TritonModel's servers."""
    return f"rate({series}{{{MODEL}{more}}}{RATE})"


def ratio(over: str, under: str, by: str) -> str:
    """Returns `over` divided by `under`, each summed over servers first, so that each request has the same weight."""
    return f"sum by ({by}) ({over})\n/\nsum by ({by}) ({under})"


def measured(expr: str) -> str:
    """Leaves out the models whose latency Triton doesn't measure, because they may send several responses."""
    return f"({expr}\n  unless on (namespace, tritonmodel, model) {DECOUPLED}{{{MODEL}}})"


def of_entry(expr: str) -> str:
    """Restricts a query to the entrypoint: the model that `tritonmodel:requests_served:rate1m` records."""
    return f"({expr}\n  and on ({OF_MODEL}) tritonmodel:requests_served:rate1m{{{MODEL}}})"
