"""Renders dashboards as Grafana JSON, for Grafana 9 or later."""

from __future__ import annotations

import json
from typing import Any

from dashboards.parts import Choice, Dashboard, Mark, Panel, Query, Row, Variable

Json = dict[str, Any]
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
FOLDER = "Triton"
TAG = "triton-operator"
COLUMNS = 24
STEP = "30s"
"""The step of annotation queries. It is shorter than `$__rate_interval`, so that no change falls between two steps."""
HEIGHTS = {"timeseries": 9, "stat": 4, "state-timeline": 9, "heatmap": 9}
HOURS_OF_A_WEEK = 168


def text(dashboard: Dashboard) -> str:
    """Returns the JSON file that the Grafana sidecar loads."""
    return json.dumps(document(dashboard), indent=1, ensure_ascii=False) + "\n"


def document(dashboard: Dashboard) -> Json:
    return {
        "uid": f"triton-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": [TAG],
        "schemaVersion": 37,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": "Triton",
                "tags": [TAG],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "annotations": {"list": [*map(_mark, dashboard.marks)]},
        "panels": _panels(dashboard.rows),
    }


def kustomization(dashboards: tuple[Dashboard, ...]) -> Json:
    """Returns a kustomization with one ConfigMap for each dashboard, with the label that the sidecar selects."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "triton-operator",
        "configMapGenerator": [{"name": f"triton-dashboard-{d.name}", "files": [f"{d.name}.json"]} for d in dashboards],
        "generatorOptions": {
            "disableNameSuffixHash": True,
            "labels": {"grafana_dashboard": "1"},
            "annotations": {"grafana_folder": FOLDER},
        },
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable | Choice) -> Json:
    out: Json = {"name": variable.name, "label": variable.title}
    if isinstance(variable, Choice):
        first = {"text": variable.values[0], "value": variable.values[0]}
        options = [{"text": v, "value": v, "selected": v == first["value"]} for v in variable.values]
        return {**out, "type": "custom", "query": ",".join(variable.values), "current": first, "options": options}
    query = f"label_values({variable.series}, {variable.label})"
    out |= {
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": "values"},
        # 2: also refresh when the time range changes, because the set of models changes.
        "refresh": 2,
        "sort": 1,
    }
    if variable.several:
        out |= {"multi": True, "includeAll": True, "current": {"text": ["All"], "value": ["$__all"]}}
    return out


def _mark(mark: Mark) -> Json:
    return {
        "name": mark.name,
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": mark.color,
        "expr": mark.expr,
        # Newer Grafana versions read `target`, older ones `expr` and `step`.
        "step": STEP,
        "target": {"refId": "Anno", "expr": mark.expr, "interval": STEP},
        "titleFormat": mark.name,
        "textFormat": mark.text,
        "tagKeys": "version",
    }


def _panels(rows: tuple[Row, ...]) -> list[Json]:
    """Lays the panels out from left to right, and starts a new line if one is full."""
    out: list[Json] = []
    top = 0
    for row in rows:
        out.append(
            {"type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": _place(0, top, COLUMNS, 1)}
        )
        top += 1
        left = deepest = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, deepest = 0, top + deepest, 0
            height = HEIGHTS[panel.kind]
            out.append({**_panel(panel), "gridPos": _place(left, top, panel.width, height)})
            left, deepest = left + panel.width, max(deepest, height)
        top += deepest
    return [{"id": number, **panel} for number, panel in enumerate(out, 1)]


def _place(left: int, top: int, width: int, height: int) -> Json:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(panel: Panel) -> Json:
    repeated = {"repeat": panel.each, "repeatDirection": "h", "maxPerRow": COLUMNS // panel.width}
    return {
        "type": panel.kind,
        # A week has a column for each hour.
        **({"maxDataPoints": HOURS_OF_A_WEEK} if panel.kind == "heatmap" else {}),
        "title": panel.title,
        "description": panel.how,
        "datasource": DATASOURCE,
        **(repeated if panel.each else {}),
        "targets": [_target(panel, query, ref) for query, ref in zip(panel.queries, "ABCDEFGH", strict=False)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
    }


def _target(panel: Panel, query: Query, ref: str) -> Json:
    form = {"format": "heatmap"} if panel.kind == "heatmap" else {}
    of = {"expr": query.expr, "legendFormat": query.legend, "range": True}
    return {"refId": ref, "datasource": DATASOURCE, **of, **form}


def _defaults(panel: Panel) -> Json:
    out: Json = {"unit": panel.unit}
    if panel.kind == "heatmap":
        return out
    if panel.kind == "state-timeline":
        return out | {"color": {"mode": "fixed", "fixedColor": "orange"}}
    out |= {"min": 0} | ({} if panel.maximum is None else {"max": panel.maximum})
    if panel.levels:
        out |= {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": _steps(*panel.levels)}}
    if panel.kind == "timeseries":
        stacking = {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 30} if panel.stacked else {}
        out["custom"] = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 5, "showPoints": "never", **stacking}
    return out


def _steps(first: float, second: float) -> list[Json]:
    """Returns threshold steps: green, orange, red at the two values; descending values reverse the colors."""
    colors = ("green", "orange", "red") if first < second else ("red", "orange", "green")
    return [{"color": c, "value": v} for c, v in zip(colors, (None, *sorted((first, second))), strict=True)]


def _overrides(panel: Panel) -> list[Json]:
    """Returns the drawing style of queries that are limits or bars."""
    looks = {
        "limit": [
            {"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}},
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
            {"id": "custom.fillOpacity", "value": 0},
        ],
        "bars": [
            {"id": "custom.drawStyle", "value": "bars"},
            {"id": "custom.fillOpacity", "value": 80},
        ],
    }
    return [
        {"matcher": {"id": "byFrameRefID", "options": ref}, "properties": looks[query.line]}
        for query, ref in zip(panel.queries, "ABCDEFGH", strict=False)
        if query.line
    ]


def _options(panel: Panel) -> Json:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    if panel.kind == "heatmap":
        colors = {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5}
        axis = {"unit": panel.unit, "axisPlacement": "left"}
        shown = {"legend": {"show": True}, "tooltip": {"mode": "single", "yHistogram": True}}
        return {
            "calculate": False,
            "color": colors,
            "yAxis": axis,
            "cellGap": 1,
            "rowsFrame": {"layout": "le"},
            **shown,
        }
    legend = {"showLegend": True, "displayMode": "list", "placement": "bottom"}
    if panel.kind == "timeseries":
        legend |= {"displayMode": "table", "calcs": ["lastNotNull", "max"]}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    return {"legend": legend, "showValue": "never", "mergeValues": True}
