"""Generates docs/dashboards.md from the panels' descriptions."""

from __future__ import annotations

from dashboards.parts import Choice, Dashboard, Panel, Variable

HEAD = """\
<!-- Made by `make generate` from hack/dashboards; change those instead. -->
# Dashboards

For operators of TritonModels: how to install the four Grafana dashboards, and how each panel is computed. Grafana shows
the same descriptions behind the *i* of each panel.

## Install the dashboards

```sh
kubectl apply -k manifests/monitoring/dashboards
```

Or set the Helm value `dashboards.enabled` to `true`.

This creates one ConfigMap for each dashboard in the namespace `triton-operator`, with the label
`grafana_dashboard: "1"` and the annotation `grafana_folder: Triton`. The sidecar of Grafana's Helm chart (also part of
kube-prometheus-stack) loads the ConfigMaps if it watches that namespace and selects that label:

```yaml
grafana:
  sidecar:
    dashboards:
      enabled: true
      searchNamespace: ALL          # or triton-operator among others
      folderAnnotation: grafana_folder
      provider:
        foldersFromFilesStructure: true
```

Without `folderAnnotation` the dashboards are in the folder General. For another label or folder set the Helm
values `dashboards.labels` and `dashboards.annotations`, or write a kustomization that has this folder as a resource and
patches it. Without a sidecar import the four JSON files in Grafana (Dashboards → New → Import). The dashboards need
Grafana 9 or later.

The dashboards need these series in Prometheus:

- the operator's metrics
- the servers' metrics, which the operator's PodMonitors scrape
- `tritonmodel:…`, which the operator's PrometheusRules record
- for Triton / Resources: the kubelet's cAdvisor series and, for the limits, kube-state-metrics

Choose the Prometheus with the variable *Data source*.

`$__rate_interval` is a variable of Grafana: four scrape intervals, or the time of one pixel if that is longer. Set the
scrape interval of the data source to that of your servers (`spec.monitoring.scrapeSeconds`). The recorded series
contain their window in their names.

## Look at them without Grafana

```sh
make docs                                                          # installs the library that draws the graphs
python hack/boards.py --prometheus http://localhost:9090 --out /tmp/boards --set tritonmodel=detector
```

This writes a static page for each dashboard, with the queries, legends and units of the generated JSON and the data of
the last 30 minutes (`--minutes`). A query without data shows as an empty panel. It isn't Grafana: annotations, links
and Grafana's own colors are missing, and several models share a panel.

The pictures below are made like this, in a headless Chromium, from recorded pages of Triton (`make docs-pictures`).
They contain times, so `make generate` doesn't draw them. `make docs-test` tests that each panel has data.
"""


def text(dashboards: tuple[Dashboard, ...]) -> str:
    return HEAD + "".join(_dashboard(d) for d in dashboards)


def _dashboard(dashboard: Dashboard) -> str:
    chosen = ", ".join(f"{v.title} ({_from(v)})" for v in dashboard.variables)
    picture = f"![The dashboard {dashboard.title}](images/board-{dashboard.name}.png)"
    parts = [f"\n## {dashboard.title}\n\n{dashboard.about}\n\nVariables: {chosen}.\n\n{picture}\n"]
    for row in dashboard.rows:
        parts.append(f"\n### {row.title}\n\n| Panel | How it is computed |\n|---|---|\n")
        parts += [_panel(p) for p in row.panels]
    parts.append("\n### Annotations in every panel\n\n| Annotation | Meaning |\n|---|---|\n")
    parts += [f"| {m.name} | {m.how} |\n" for m in dashboard.marks]
    return "".join(parts)


def _from(variable: Variable | Choice) -> str:
    if isinstance(variable, Choice):
        return f"default {variable.values[0]}"
    return f"the label `{variable.label}` of `{variable.series.partition('{')[0]}`"


def _panel(panel: Panel) -> str:
    return f"| {panel.title} | {panel.how} |\n"
