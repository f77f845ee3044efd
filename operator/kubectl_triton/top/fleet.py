"""The rows of `kubectl triton top`, from objects of the cluster and samples of Prometheus. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kubectl_triton import autoscaler_load
from kubectl_triton.samples import Alert, Samples
from triton_operator.api import names, quantity
from triton_operator.api.status import AUTOSCALER_ACTIVE, READY, SERVER_FAULTS, Condition, TritonModelStatus, status_of
from triton_repository_check.text import one_line

Object = dict[str, Any]
Tone = Literal["good", "bad", "warn", "plain", "dim"]
CELL_MAX = 44
"""Maximum number of characters of a cell."""
NONE = "-"
_EXPONENT = 1e15
"""From here on, a number is shown with an exponent."""
_NEAR = 0.9
"""From this share of the limit, the demand is marked."""


@dataclass(frozen=True)
class Cell:
    """One cell: a line of printable characters, and how good it is."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Row:
    """One TritonModel. None: the value isn't known.

    - `demand`, `limit`: requests/s
    - `load`: number of servers at full use; `ready`, `desired`: number of servers
    - `p50`, `p99`, `queue`: seconds; `errors`: share of failed requests, 0 to 1
    - `autoscaler`: what it does, in a few words
    """

    key: str
    state: str
    serving: bool
    ready: int
    desired: int
    demand: float | None = None
    limit: float | None = None
    load: float | None = None
    p50: float | None = None
    p99: float | None = None
    queue: float | None = None
    errors: float | None = None
    autoscaler: str = NONE
    scaled: bool = True
    alerts: tuple[Alert, ...] | None = None


def key_of(obj: Object) -> str:
    """Returns namespace/name."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def rows(models: Iterable[Object], autoscalers: Iterable[Object], samples: Samples) -> list[Row]:
    """Returns a row for each TritonModel, by namespace and name."""
    scalers: dict[str, Object] = {}
    for scaler in autoscalers:
        name = scaler["metadata"].get("labels", {}).get(names.LABEL_MODEL, "")
        scalers[f"{scaler['metadata']['namespace']}/{name}"] = scaler
    return sorted((_row(m, scalers.get(key_of(m)), samples) for m in models), key=lambda r: r.key)


def _row(model: Object, scaler: Object | None, samples: Samples) -> Row:
    key, status = key_of(model), status_of(model)
    conditions = {c.type: c for c in status.conditions}
    ready = conditions.get(READY)
    serving = ready is not None and ready.status == "True"
    load = samples.load.get(key)
    active = conditions.get(AUTOSCALER_ACTIVE)
    return Row(
        key,
        _state(ready),
        serving,
        status.ready_replicas,
        _desired(model, status, scaler),
        demand=samples.demand.get(key),
        limit=_number(status.max_qps),
        load=load if load is not None else _load(scaler),
        p50=samples.p50.get(key),
        p99=samples.p99.get(key),
        queue=samples.queue.get(key),
        errors=samples.errors.get(key),
        autoscaler=_autoscaler(status, scaler),
        scaled=active is None or active.status != "False",
        alerts=None if samples.alerts is None else samples.alerts.get(key, ()),
    )


def _state(ready: Condition | None) -> str:
    if ready is None:
        return "Unknown"
    return "Ready" if ready.status == "True" and ready.reason not in SERVER_FAULTS else ready.reason


def _desired(model: Object, status: TritonModelStatus, scaler: Object | None) -> int:
    """Returns the number of servers that should run."""
    desired = status.autoscaling.desired if status.autoscaling else 0
    if scaler and "desiredReplicas" in scaler.get("status", {}):
        return max(desired, int(scaler["status"]["desiredReplicas"]))
    replicas = model.get("spec", {}).get("replicas")
    return int(replicas) if replicas is not None else max(desired, status.replicas)


def _load(scaler: Object | None) -> float | None:
    """Returns the load that the HorizontalPodAutoscaler has read: its metric is the load for each server."""
    status = (scaler or {}).get("status", {})
    load = autoscaler_load.per_server(status)
    return None if load is None else load * int(status.get("currentReplicas", 0))


def _autoscaler(status: TritonModelStatus, scaler: Object | None) -> str:
    active = next((c for c in status.conditions if c.type == AUTOSCALER_ACTIVE), None)
    if active is None:
        return NONE
    if active.status == "False":
        return active.reason
    now = scaler.get("status", {}) if scaler else {}
    current, desired = now.get("currentReplicas"), now.get("desiredReplicas")
    if current is not None and desired is not None and current != desired:
        return f"{current} → {desired}"
    if status.autoscaling and status.autoscaling.reason != "LeftToHPA":
        return f"{status.autoscaling.reason}, at least {status.autoscaling.desired}"
    return "steady" if active.status == "True" else active.reason


def _number(text: str) -> float | None:
    try:
        return float(quantity.parse(text)) if text else None
    except ValueError:
        return None


# The table

Sort = tuple[bool, float | str]


@dataclass(frozen=True)
class Column:
    """A column: its title, its cell, and the order of rows, the most important one first."""

    title: str
    cell: Callable[[Row], Cell]
    order: Callable[[Row], Sort]


def cell(text: str, tone: Tone = "plain", most: int = CELL_MAX) -> Cell:
    """Returns a cell of at most `most` printable characters."""
    line = one_line(text[: most + 1])
    return Cell(line if len(line) <= most else line[: most - 1] + "…", tone)


def _falling(value: float | None) -> Sort:
    return value is None, -(value or 0.0)


def _state_cell(row: Row) -> Cell:
    return cell(row.state, "bad" if not row.serving else "good" if row.state == "Ready" else "warn")


def _demand(row: Row) -> Cell:
    share = (row.demand or 0.0) / row.limit if row.limit else 0.0
    tone: Tone = "bad" if share > 1 else "warn" if share >= _NEAR else "plain"
    return cell(f"{figure(row.demand)} / {figure(row.limit)}", tone)


def _servers_load(row: Row) -> Cell:
    return cell(f"{figure(row.load)} / {row.ready}", "bad" if (row.load or 0.0) > max(row.ready, 0) else "plain")


def _servers(row: Row) -> Cell:
    tone: Tone = "bad" if row.ready == 0 < row.desired else "warn" if row.ready < row.desired else "plain"
    return cell(f"{row.ready}/{row.desired}", tone)


def _alerts(row: Row) -> Cell:
    if not row.alerts:
        return cell(NONE if row.alerts is None else "0")
    more = f" +{len(row.alerts) - 1}" if len(row.alerts) > 1 else ""
    bad = row.alerts[0].severity == "critical"
    return cell(row.alerts[0].name.removeprefix("TritonModel") + more, "bad" if bad else "warn")


def figure(value: float | None) -> str:
    """Returns a number with about three digits, and without an exponent up to a million billions."""
    if value is None:
        return NONE
    return f"{value:.0f}" if 99.95 <= abs(value) < _EXPONENT else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    """Returns seconds as text, such as 1.2 ms."""
    if seconds is None:
        return NONE
    return f"{figure(seconds * 1000)} ms" if seconds < 0.9995 else f"{figure(seconds)} s"


def share(value: float | None) -> str:
    """Returns a part of 1 as percent."""
    return NONE if value is None else f"{figure(value * 100)} %"


def _used(row: Row) -> float | None:
    return row.demand / row.limit if row.demand is not None and row.limit else None


COLUMNS = (
    Column("NAME", lambda r: cell(r.key), lambda r: (False, r.key)),
    Column("STATE", _state_cell, lambda r: (r.serving, r.state)),
    Column("DEMAND/LIMIT", _demand, lambda r: _falling(_used(r))),
    Column("LOAD/SERVERS", _servers_load, lambda r: _falling(r.load)),
    Column("P50", lambda r: cell(duration(r.p50)), lambda r: _falling(r.p50)),
    Column("P99", lambda r: cell(duration(r.p99)), lambda r: _falling(r.p99)),
    Column("QUEUE", lambda r: cell(duration(r.queue)), lambda r: _falling(r.queue)),
    Column("FAILED", lambda r: cell(share(r.errors), "bad" if (r.errors or 0) > 0.01 else "plain"),
           lambda r: _falling(r.errors)),
    Column("READY", _servers, lambda r: _falling(float(r.desired - r.ready))),
    Column("AUTOSCALER", lambda r: cell(r.autoscaler, "plain" if r.scaled else "bad"),
           lambda r: (r.scaled, r.autoscaler)),
    Column("ALERTS", _alerts, lambda r: _falling(float(len(r.alerts)) if r.alerts else None)),
)  # fmt: skip

TITLES = tuple(column.title for column in COLUMNS)


def arranged(all_rows: Sequence[Row], sort: int = 0, words: str = "") -> list[Row]:
    """Returns the rows whose name contains `words`, in the order of the column with this index."""
    matches = [r for r in all_rows if words.lower() in r.key.lower()]
    return sorted(matches, key=lambda r: (COLUMNS[sort].order(r), r.key))


def cells(row: Row) -> list[Cell]:
    """Returns the cells of a row, one for each column."""
    return [column.cell(row) for column in COLUMNS]


def summary(all_rows: Sequence[Row], count: int, notes: Mapping[str, str]) -> str:
    """Returns one line about all rows. `notes`: by their title."""
    serving = sum(r.serving for r in all_rows)
    firing = sum(len(r.alerts or ()) for r in all_rows)
    parts = [f"{len(all_rows)} TritonModels, {serving} ready"]
    parts += [f"{count} shown"] if count != len(all_rows) else []
    parts += [f"{firing} alerts"] if any(r.alerts is not None for r in all_rows) else []
    parts += [f"{title}: {text}" for title, text in notes.items() if text]
    return one_line(" · ".join(parts))
