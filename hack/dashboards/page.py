"""docs/dashboards.md, from the panels' own words."""

from __future__ import annotations

from dashboards.parts import Choice, Dashboard, Panel, Variable

HEAD = """\
<!-- Made by `make generate` from hack/dashboards; change those instead. -->
# Dashboards

Four Grafana dashboards. What follows says of each figure how it is computed; the same words stand in Grafana, behind
the *i* of each panel.

## Have Grafana pick them up

```sh
kubectl apply -k manifests/monitoring/dashboards
```

That makes one ConfigMap a dashboard, in the namespace `triton-operator`, with the label `grafana_dashboard: "1"` and
the annotation `grafana_folder: Triton`. The sidecar of Grafana's Helm chart, and so kube-prometheus-stack's, loads them
where it looks into that namespace and goes by that label:

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

Without `folderAnnotation` they land in the folder General. For another namespace, label or folder write a kustomization
with this folder as its resource, and patch what differs. Without a sidecar import the four JSON files in Grafana
(Dashboards → New → Import). Grafana 9 or newer.

What they need in Prometheus: the operator's metrics, the PodMonitors and PrometheusRules that it makes (they record
`triton:…`), and for the resources cAdvisor's series of the kubelet, with kube-state-metrics for the limits. The
variable *Data source* says which Prometheus.

`$__rate_interval` is Grafana's: four scrape intervals, or the width of a pixel where that is longer. Set the scrape
interval of the data source to that of your servers (`spec.monitoring.scrapeSeconds`). The recorded series have windows
of their own, which are in their names.
"""


def text(dashboards: tuple[Dashboard, ...]) -> str:
    return HEAD + "".join(_dashboard(d) for d in dashboards)


def _dashboard(dashboard: Dashboard) -> str:
    chosen = ", ".join(f"{v.title} ({_from(v)})" for v in dashboard.variables)
    parts = [f"\n## {dashboard.title}\n\n{dashboard.about}\n\nTo choose: {chosen}.\n"]
    for row in dashboard.rows:
        parts.append(f"\n### {row.title}\n\n| Panel | How it is computed |\n|---|---|\n")
        parts += [_panel(p) for p in row.panels]
    parts.append("\n### Marked in every panel\n\n| Mark | Where |\n|---|---|\n")
    parts += [f"| {m.name} | {m.how} |\n" for m in dashboard.marks]
    return "".join(parts)


def _from(variable: Variable | Choice) -> str:
    if isinstance(variable, Choice):
        return f"{variable.values[0]} at first"
    return f"the label `{variable.label}` of `{variable.series.partition('{')[0]}`"


def _panel(panel: Panel) -> str:
    return f"| {panel.title} | {panel.how} |\n"
