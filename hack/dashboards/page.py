"""Generates docs/dashboards.md from the panels' descriptions."""

from __future__ import annotations

from dashboards.parts import Choice, Dashboard, Panel, Variable

HEAD = """\
<!-- Made by `make generate` from hack/dashboards; change those instead. -->
# Dashboards

For everyone who looks at a panel: how it is computed. For cluster operators: how to install the four Grafana
dashboards. Grafana shows the same descriptions behind the *i* of each panel.

## Install them

```sh
kubectl apply -k manifests/monitoring/dashboards
```

This creates one ConfigMap per dashboard in the namespace `triton-operator`, with the label `grafana_dashboard: "1"` and
the annotation `grafana_folder: Triton`. The sidecar of Grafana's Helm chart (also in kube-prometheus-stack) loads them
with these values:

```yaml
grafana:
  sidecar:
    dashboards:
      enabled: true
      searchNamespace: ALL          # or a list that contains triton-operator
      folderAnnotation: grafana_folder
      provider:
        foldersFromFilesStructure: true
```

- Without `folderAnnotation` the dashboards are in the folder General.
- For another namespace, label or folder, write a kustomization with this directory as its resource and patch the
  values.
- Without a sidecar, import the four JSON files in Grafana (Dashboards → New → Import).
- They need Grafana 9 or newer.

Prometheus must have the operator's metrics and the recorded series `triton:…`, which the operator's PodMonitors and
PrometheusRules create. The dashboard *Resources* also needs the kubelet's cAdvisor series, and kube-state-metrics for
the limits. Choose the Prometheus with the variable *Data source*.

Queries use Grafana's `$__rate_interval`: four scrape intervals, or the width of a pixel if that is longer. Set the
scrape interval of the data source to that of your servers (`spec.monitoring.scrapeSeconds`). The windows of recorded
series are in their names.
"""


def text(dashboards: tuple[Dashboard, ...]) -> str:
    return HEAD + "".join(_dashboard(d) for d in dashboards)


def _dashboard(dashboard: Dashboard) -> str:
    chosen = ", ".join(f"{v.title} ({_from(v)})" for v in dashboard.variables)
    parts = [f"\n## {dashboard.title}\n\n{dashboard.about}\n\nVariables: {chosen}.\n"]
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
