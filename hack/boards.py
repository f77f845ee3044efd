"""Draws the Grafana dashboards as static pages from the data of a Prometheus, without Grafana.

    python hack/boards.py --prometheus http://localhost:9090 --out /tmp/boards

The queries, legends, units and places of the panels come from the generated JSON in manifests/monitoring/dashboards. A
query that returns nothing shows as an empty panel. Each variable of a dashboard gets its first value; --set chooses
another one.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import shutil
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BOARDS = ROOT / "manifests" / "monitoring" / "dashboards"
PLOTLY = "lib/python*/site-packages/plotly/package_data/plotly.min.js"
MAX_BYTES, SECONDS = 16 << 20, 30
"""Limits of one answer of Prometheus."""
MAX_SERIES = 60
"""Maximum number of series of one panel."""
Json = dict[str, Any]
Ask = Callable[..., Any]
"""Calls Prometheus' API: path and parameters → the `data` of the answer."""
_VALUES = re.compile(r"label_values\((.*), (\w+)\)", re.DOTALL)
_FORMATS = {
    "percentunit": {"tickformat": ".3~%"},
    "s": {"tickformat": "~s", "ticksuffix": "s"},
    "bytes": {"tickformat": "~s", "ticksuffix": "B"},
}


def asker(url: str) -> Ask:
    """Returns a function that calls the API of the Prometheus at this URL."""

    def ask(path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{url.rstrip('/')}/api/v1/{path}?{query}", timeout=SECONDS) as answer:
            return json.loads(answer.read(MAX_BYTES))["data"]

    return ask


def variables(board: Json, ask: Ask, chosen: Mapping[str, str]) -> dict[str, str]:
    """Returns the value of each variable: the chosen one, else the first that exists; with `All`, a pattern of all."""
    values = {"__rate_interval": "1m", "__range": "30m"}
    for variable in board["templating"]["list"]:
        name = variable["name"]
        offered: list[str] = []
        if variable["type"] == "custom":
            offered = variable["query"].split(",")
        elif match := _VALUES.fullmatch(str(variable["query"]["query"]) if variable["type"] == "query" else ""):
            offered = ask(f"label/{match[2]}/values", **{"match[]": filled(match[1], values)})
        if variable.get("includeAll"):
            offered = [f"({'|'.join(map(re.escape, offered))})"]
        values[name] = chosen.get(name) or (offered[0] if offered else "")
    return values


def filled(query: str, values: Mapping[str, str]) -> str:
    """Returns the query with the values of its variables, as Grafana sends it."""
    return re.sub(r"\$(\w+)", lambda name: values.get(name[1], ""), query)


def drawn(board: Json, ask: Ask, chosen: Mapping[str, str], start: float, end: float, step: float) -> list[Json]:
    """Returns each row and panel with its place and its series. Times are in milliseconds."""
    values = variables(board, ask, chosen)
    return [_panel(panel, ask, values, {"start": start, "end": end, "step": step}) for panel in board["panels"]]


def _panel(panel: Json, ask: Ask, values: Mapping[str, str], span: Mapping[str, float]) -> Json:
    series: list[Json] = []
    for target in panel.get("targets", []):
        query = filled(target["expr"], values)
        result = ask("query_range", query=query, **{key: str(value) for key, value in span.items()})["result"]
        series += [_series(curve, target["legendFormat"]) for curve in result]
    defaults = panel.get("fieldConfig", {}).get("defaults", {})
    return {
        "kind": panel["type"],
        "title": filled(panel["title"], values),
        "about": panel.get("description", ""),
        "place": panel["gridPos"],
        "axis": _FORMATS.get(defaults.get("unit", ""), {}),
        "stacked": defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal",
        "series": [line for line in series if any(v is not None for v in line["y"])][: _most(panel)],
    }


def _most(panel: Json) -> int:
    """Returns the maximum number of series. Each bucket of a heat map is one."""
    return 2 * MAX_SERIES if panel["type"] == "heatmap" else MAX_SERIES


def _series(curve: Json, legend: str) -> Json:
    labels = {key: value for key, value in curve["metric"].items() if key != "__name__"}
    name = re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda label: str(labels.get(label[1], "")), legend)
    numbers = [float(value) for _, value in curve["values"]]
    return {
        "name": name or ", ".join(f"{key}={value}" for key, value in labels.items()),
        "x": [round(float(at) * 1000) for at, _ in curve["values"]],
        "y": [value if abs(value) < float("inf") else None for value in numbers],
    }


def page(title: str, panels: list[Json]) -> str:
    """Returns the page of a dashboard. It loads plotly.min.js from its own folder."""
    # A closing tag in a label must not end the script.
    data = json.dumps(panels).replace("<", "\\u003c")
    return _PAGE.replace("TITLE", html.escape(title)).replace("DATA", data)


def write(out: Path, url: str, plotly: Path, chosen: Mapping[str, str], minutes: float) -> Iterator[Path]:
    """Writes a page for each dashboard and returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(plotly, out / "plotly.min.js")
    ask, now = asker(url), time.time()
    for file in sorted(BOARDS.glob("*.json")):
        board = json.loads(file.read_text())
        span = minutes * 60
        panels = drawn(board, ask, chosen, now - span, now, max(1.0, round(span / 240)))
        target = out / f"{file.stem}.html"
        target.write_text(page(board["title"], panels), encoding="utf-8")
        yield target


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>TITLE</title><script src="plotly.min.js"></script>
<style>
body { font: 14px sans-serif; margin: 12px; background: #f4f5f5; color: #222 }
#board { display: grid; grid-template-columns: repeat(24, 1fr); gap: 8px }
.row { grid-column: 1 / -1; font-weight: bold; padding: 6px 0 0 }
.panel { background: #fff; border: 1px solid #ddd; padding: 6px; min-width: 0; overflow: hidden }
.panel h3 { font-size: 13px; margin: 0 }
.stat .value { font-size: 28px; padding-top: 20px; text-align: center }
.empty .value { color: #999; font-size: 16px; padding-top: 20px; text-align: center }
</style></head><body><h2>TITLE</h2><div id="board"></div>
<script>
window.addEventListener("error", event => { document.body.dataset.error = event.message });
const panels = DATA, board = document.getElementById("board");
const add = (parent, kind, name, text) => {
  const made = parent.appendChild(document.createElement(kind));
  made.className = name; made.textContent = text; return made;
};
const short = (value, axis) => axis.tickformat?.endsWith("%") ? (100 * value).toPrecision(3) + " %"
  : Number(value.toPrecision(3)).toString() + (axis.ticksuffix ? " " + axis.ticksuffix : "");
const last = one => one.y.filter(value => value !== null).at(-1);
const heat = panel => {
  // The buckets of a histogram are cumulative. Those below the first request and above the last one are left out.
  const bound = one => one.name === "+Inf" ? Infinity : Number(one.name);
  const rows = [...panel.series].sort((a, b) => bound(a) - bound(b));
  const own = rows.map((row, k) => row.y.map((value, at) => value - (k ? rows[k - 1].y[at] : 0)));
  const used = own.map(row => row.some(value => value > 0));
  const from = used.indexOf(true), to = used.lastIndexOf(true) + 1;
  return [[{
    type: "heatmap", x: rows[0].x.map(at => new Date(at)), z: own.slice(from, to), showscale: false,
    y: rows.slice(from, to).map(row => "≤ " + row.name + (panel.axis.ticksuffix ?? "")), colorscale: "YlOrRd",
    reversescale: true,
  }], {margin: {l: 70, r: 10, t: 8, b: 24}, font: {size: 10}, yaxis: {type: "category"}},
  {displayModeBar: false, responsive: true}];
};
for (const panel of panels) {
  if (panel.kind === "row") { add(board, "div", "row", panel.title); continue }
  const box = add(board, "div", "panel " + (panel.kind === "stat" ? "stat" : "graph"), "");
  box.style.gridColumn = `span ${panel.place.w}`;
  box.style.height = `${panel.place.h * 30}px`;
  add(box, "h3", "", panel.title).title = panel.about;
  if (!panel.series.length) { box.classList.add("empty"); add(box, "div", "value", "no data"); continue }
  if (panel.kind === "stat") {
    add(box, "div", "value", panel.series.map(one => short(last(one), panel.axis)).slice(0, 3).join("  ")); continue
  }
  const plot = add(box, "div", "plot", ""), timeline = panel.kind === "state-timeline";
  plot.style.height = `${panel.place.h * 30 - 26}px`;
  if (panel.kind === "heatmap") { Plotly.newPlot(plot, ...heat(panel)); continue }
  Plotly.newPlot(plot, panel.series.map(one => ({
    name: one.name, x: one.x.map(at => new Date(at)), type: "scatter", mode: "lines",
    // A timeline of states has a bar for each series.
    ...(timeline ? {y: one.y.map(value => value && one.name), line: {width: 8}, showlegend: false}
      : {y: one.y, line: {width: 1.5}}),
    ...(panel.stacked ? {stackgroup: "all"} : {}),
  })), {
    margin: {l: timeline ? 230 : 60, r: 10, t: 8, b: 24}, showlegend: !timeline, hovermode: "x unified",
    legend: {orientation: "h", font: {size: 10}, y: -0.15}, font: {size: 10},
    yaxis: {rangemode: "tozero", ...panel.axis},
  }, {displayModeBar: false, responsive: true});
}
document.body.dataset.panels = panels.filter(panel => panel.kind !== "row").length;
</script></body></html>
"""


def main() -> int:
    """Runs the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", required=True, metavar="URL")
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "boards")
    parser.add_argument("--minutes", type=float, default=30, help="the time span of the graphs")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="value of a variable")
    parser.add_argument("--plotly", type=Path, help="plotly.min.js; by default from the venv of `make docs`")
    arguments = parser.parse_args()
    plotly = arguments.plotly or next(iter((ROOT / ".cache" / "docs").glob(PLOTLY)), None)
    if plotly is None:
        parser.error("there is no plotly.min.js: run make docs, or pass --plotly")
    chosen = dict(assignment.split("=", 1) for assignment in arguments.set)
    for path in write(arguments.out, arguments.prometheus, plotly, chosen, arguments.minutes):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
