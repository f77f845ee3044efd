"""Formats the results as Markdown tables and as one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from support.live import percentile

from . import probe
from .measure import CHURN_PER_SECOND, SINGLE_CHANGES, SPEC_CHANGES, Figures
from .probe import Requests

Row = tuple[str, ...]


def tables(by_size: Sequence[Figures]) -> str:
    """Returns the tables in Markdown."""
    return "\n\n".join((_sizes(by_size), _requests(by_size[-1]), _of_all(by_size[-1])))


def figures(largest: Figures) -> dict[str, Any]:
    """Returns the figures by the names that the goals use."""
    return {
        "converge_vs_floor": round(largest.settled_vs_floor(), 2),
        "children_vs_floor": round(largest.children_vs_floor(), 2),
        "converge_vs_floor_with_pods": round(largest.settled_vs_pods(), 2),
        "writes_per_model": round(_writes(largest.creation + largest.rules, children=True) / largest.size, 2),
        "status_writes_per_model": round(_status(largest.creation) / largest.size, 2),
        "status_writes_per_model_with_rules": round(_status(largest.creation + largest.rules) / largest.size, 2),
        "writes_at_rest": probe.writes(largest.rest),
        "change_p50_s": round(median(largest.change_s), 3),
        "change_p99_s": round(percentile(largest.change_s, 0.99), 3),
        "churn_p99_s": round(percentile(largest.churn_s, 0.99), 3),
        "unreachable_p99_s": round(percentile(largest.unreachable_s, 0.99), 3),
        "rss_mib": round(max(largest.rss_mib.values()), 1),
        "failover_s": round(largest.failover_s, 1),
        "missed": largest.missed,
        "objects_per_s": round(largest.objects / median(largest.converge_s), 1),
        "floor_objects_per_s": round(largest.objects / median(largest.floor_s), 1),
    }


def _sizes(by_size: Sequence[Figures]) -> str:
    lines: list[tuple[str, list[str]]] = [
        ("children", [str(f.objects) for f in by_size]),
        ("operator: s until all children exist and all status is settled", [_each_run(f.converge_s) for f in by_size]),
        ("operator: s until all children exist, at most", [_each_run(f.children_s) for f in by_size]),
        ("floor: s until all children exist, before and after each round", [_each_run(f.floor_s) for f in by_size]),
        ("floor: s until all pods exist", [_each_run(f.floor_pods_s) for f in by_size]),
        ("settled ÷ floor, median", [f"{f.settled_vs_floor():.2f}" for f in by_size]),
        ("children ÷ floor, median", [f"{f.children_vs_floor():.2f}" for f in by_size]),
        ("settled ÷ floor with pods, median", [f"{f.settled_vs_pods():.2f}" for f in by_size]),
        ("operator: children per second, median", [f"{f.objects / median(f.converge_s):.0f}" for f in by_size]),
        ("floor: children per second, median", [f"{f.objects / median(f.floor_s):.0f}" for f in by_size]),
        ("s until all rules exist, after all repository checks", [f"{f.rules_s:.1f}" for f in by_size]),
        ("writes of children per TritonModel",
         [_each(f, _writes(f.creation + f.rules, children=True)) for f in by_size]),
        ("writes of status per TritonModel, at creation", [_each(f, _status(f.creation)) for f in by_size]),
        ("writes of status per TritonModel, after the repository check", [_each(f, _status(f.rules)) for f in by_size]),
        ("writes when idle", [f"{probe.writes(f.rest)} in {f.rest_s:.0f} s" for f in by_size]),
        ("reconciles when idle", [f"{f.rest_passes:.0f}" for f in by_size]),
        ("change until child is written, idle, P50", [f"{1000 * median(f.change_s):.0f} ms" for f in by_size]),
        ("… P99", [f"{1000 * percentile(f.change_s, 0.99):.0f} ms" for f in by_size]),
        (f"… at {CHURN_PER_SECOND} changes per second, P50", [f"{1000 * median(f.churn_s):.0f} ms" for f in by_size]),
        ("… P99", [f"{1000 * percentile(f.churn_s, 0.99):.0f} ms" for f in by_size]),
        ("… with every second server unreachable, P50",
         [f"{1000 * median(f.unreachable_s):.0f} ms" for f in by_size]),
        ("… P99", [f"{1000 * percentile(f.unreachable_s, 0.99):.0f} ms" for f in by_size]),
        (f"reconciles per change at {CHURN_PER_SECOND} changes per second",
         [_number(f.churn_passes / len(f.churn_s)) for f in by_size]),
        *(
            (f"MiB resident, {when}", [f"{f.rss_mib[when]:.0f}" for f in by_size])
            for when in by_size[0].rss_mib
        ),
        ("CPU s at creation, and ms per TritonModel",
         [f"{f.creation_cpu_s:.1f}, {1000 * f.creation_cpu_s / f.size:.0f}" for f in by_size]),
        ("cores when idle", [f"{f.rest_cpu:.3f}" for f in by_size]),
        (f"cores at {CHURN_PER_SECOND} changes per second", [f"{f.churn_cpu:.2f}" for f in by_size]),
        ("ms per scrape of /metrics, median", [f"{1000 * median(f.scrape_s):.0f}" for f in by_size]),
        ("s of a restart until all TritonModels are reconciled", [f"{f.start_s:.1f}" for f in by_size]),
        ("writes of a restart", [str(f.start_writes) for f in by_size]),
        ("s of a fail-over until all changes are in the children", [f"{f.failover_s:.1f}" for f in by_size]),
        ("changes missed in a fail-over", [str(f.missed) for f in by_size]),
    ]  # fmt: skip
    return _table(("TritonModels", *(str(f.size) for f in by_size)), [(words, *values) for words, values in lines])


def _requests(largest: Figures) -> str:
    """Returns a table of the operator's requests, divided by the number of TritonModels or changes."""
    columns: list[tuple[Requests, int]] = [
        (largest.creation, largest.size), (largest.rules, largest.size),
        (largest.annotation, SINGLE_CHANGES), (largest.spec, SPEC_CHANGES), (largest.rest, 1),
    ]  # fmt: skip
    head = (
        f"Requests of the operator, {largest.size} TritonModels", "per creation", "per repository check",
        "per annotation change", "per spec change", f"idle, total in {largest.rest_s:.0f} s",
    )  # fmt: skip
    places = sorted({place for requests, _ in columns for place in requests}, key=lambda p: (p[1], p[0]))
    rows = [
        (f"{verb} {resource}", *(_number(requests[verb, resource] / count) for requests, count in columns))
        for verb, resource in places
    ]
    return _table(head, rows)


def _of_all(largest: Figures) -> str:
    """Returns a table of the requests of all clients at creation, from the API server's metrics."""
    rows = [
        (f"{verb} {resource}", str(count))
        for (verb, resource), count in sorted(largest.creation_of_all.items(), key=lambda item: -item[1])
        if count >= largest.size / 2
    ]
    return _table((f"Requests of all clients at the creation of {largest.size} TritonModels", "number"), rows)


def _writes(requests: Requests, *, children: bool) -> int:
    """Returns the writes of children, or else of TritonModels and Events."""
    return sum(
        n
        for (verb, resource), n in requests.items()
        if verb not in probe.READS and children != (resource.split("/")[0] in ("tritonmodels", "events"))
    )


def _status(requests: Requests) -> int:
    return requests["PATCH", "tritonmodels/status"]


def _each_run(seconds: Sequence[float]) -> str:
    return ", ".join(f"{s:.1f}" for s in seconds)


def _each(measured: Figures, count: int) -> str:
    return _number(count / measured.size)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _table(head: Row, rows: list[Row]) -> str:
    rule = ("---",) * len(head)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))
