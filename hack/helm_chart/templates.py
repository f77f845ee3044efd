"""The templates of the chart triton-operator, made from the manifests."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from helm_chart.slots import Slots
from helm_chart.sources import Object
from helm_chart.values import SETTINGS

_NAMESPACE = ".Release.Namespace"
_KUSTOMIZE_NAMESPACE = "triton-operator"
MONITORING_LABELS = "merge dict .Values.monitoring.labels .Values.commonLabels"
HEADER = "{{- /* Made by `make generate`; change the code that it is made from instead. */}}\n"
Change = Callable[[Object, Slots], None]


def template(
    objects: list[Object], condition: str, change: Change | None = None, labels: str = ".Values.commonLabels"
) -> str:
    """Returns the template of the objects, in the release's namespace.

    - `condition`: when to render it
    - `change`: puts values into each object
    - `labels`: the value with the labels of each object
    """
    slots, changed = Slots(), copy.deepcopy(objects)
    for obj in changed:
        if change is not None:
            change(obj, slots)
        _in_namespace(obj, slots)
        _with_labels(obj, slots, labels)
    return f"{HEADER}{{{{- if {condition} }}}}\n{slots.render(*changed)}{{{{- end }}}}\n"


def _in_namespace(obj: Object, slots: Slots) -> None:
    for holder in (obj["metadata"], *obj.get("subjects", [])):
        if holder.get("namespace") == _KUSTOMIZE_NAMESPACE:
            holder["namespace"] = slots.value(_NAMESPACE)


def _with_labels(obj: Object, slots: Slots, value: str) -> None:
    """Adds the labels in the value to the object's."""
    metadata = obj["metadata"]
    if "labels" in metadata:
        lines = f"{{{{- with {value} }}}}\n{{{{- toYaml . | nindent +0 }}}}\n{{{{- end }}}}"
        metadata["labels"][slots.lines(lines)] = None
    else:
        metadata[slots.lines(_optional("labels", value))] = None


def _optional(key: str, value: str) -> str:
    """Returns the lines of a key that is left out if the value is empty."""
    return f"{{{{- with {value} }}}}\n{key}:\n  {{{{- toYaml . | nindent +2 }}}}\n{{{{- end }}}}"


def deployment(obj: Object, slots: Slots) -> None:
    spec = obj["spec"]
    spec["replicas"] = slots.value(".Values.replicas")
    metadata, pod = spec["template"]["metadata"], spec["template"]["spec"]
    _with_labels(spec["template"], slots, ".Values.podLabels")
    more = "{{- with .Values.podAnnotations }}\n{{- toYaml . | nindent +0 }}\n{{- end }}"
    metadata["annotations"][slots.lines(more)] = None
    pod["securityContext"] = slots.value("toYaml .Values.podSecurityContext | nindent 8", trim=True)
    for key in ("topologySpreadConstraints", "imagePullSecrets", "nodeSelector", "tolerations", "affinity"):
        pod.pop(key, None)
        pod[slots.lines(_optional(key, f".Values.{key}"))] = None
    pod[slots.lines(_optional("volumes", ".Values.extraVolumes"))] = None
    name = "{{- with .Values.priorityClassName }}\npriorityClassName: {{ . | quote }}\n{{- end }}"
    pod[slots.lines(name)] = None
    [container] = pod["containers"]
    _container(container, slots)


def _container(container: Object, slots: Slots) -> None:
    image = 'include "triton-operator.image" . | quote'
    container["image"] = slots.value(image)
    container["resources"] = slots.value("toYaml .Values.resources | nindent 10", trim=True)
    container["env"] = [_variable(entry, slots, image) for entry in container["env"]]
    own_names = {entry["name"] for entry in container["env"] if isinstance(entry, dict)}
    container["env"] += [slots.lines(_setting(name)) for name in SETTINGS if name not in own_names]
    container["env"].append(slots.lines("{{- with .Values.extraEnv }}\n{{- toYaml . | nindent +0 }}\n{{- end }}"))
    policy = "{{- with .Values.image.pullPolicy }}\nimagePullPolicy: {{ . }}\n{{- end }}"
    container[slots.lines(policy)] = None
    container[slots.lines(_optional("volumeMounts", ".Values.extraVolumeMounts"))] = None


def _variable(entry: Object, slots: Slots, image: str) -> Object | str:
    """Returns a variable of the Deployment with its value."""
    name = entry["name"]
    if name == "TOOLS_IMAGE":
        return {"name": name, "value": slots.value(image)}
    if name == "WATCH_NAMESPACES":
        return slots.lines(_WATCHED)
    if name in SETTINGS:
        return {"name": name, "value": slots.value(f'include "triton-operator.text" .Values.settings.{name} | quote')}
    assert "valueFrom" in entry, f"no value sets {name}"
    return entry


def _setting(name: str) -> str:
    """Returns the lines of a setting for which the Deployment has no variable."""
    value = f'include "triton-operator.text" .Values.settings.{name}'
    return f"{{{{- with {value} }}}}\n- name: {name}\n  value: {{{{ . | quote }}}}\n{{{{- end }}}}"


_WATCHED = """\
- name: WATCH_NAMESPACES
  {{- if eq .Values.scope "Namespace" }}
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
  {{- else }}
  value: {{ join "," .Values.watchNamespaces | quote }}
  {{- end }}"""


def network_policy(obj: Object, slots: Slots) -> None:
    more = "{{- with .Values.networkPolicy.extraEgress }}\n{{- toYaml . | nindent +0 }}\n{{- end }}"
    obj["spec"]["egress"].append(slots.lines(more))
    default = '(.Values.settings.PROMETHEUS_NAMESPACES | default "monitoring")'
    namespaces = f'{{{{- toYaml (regexSplit " *, *" {default} -1) | nindent +0 }}}}'
    [expression] = obj["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchExpressions"]
    expression["values"] = [slots.lines(namespaces)]


def rules(obj: Object, slots: Slots) -> None:
    """Puts the release's namespace into the expressions and the texts of alerts."""
    own = slots.value(_NAMESPACE)
    for text in ("kubectl -n {} ", 'namespace="{}"'):
        obj["spec"] = _everywhere(obj["spec"], text.format(_KUSTOMIZE_NAMESPACE), text.format(own))


def _everywhere(part: Any, old: str, new: str) -> Any:
    if isinstance(part, dict):
        return {key: _everywhere(value, old, new) for key, value in part.items()}
    if isinstance(part, list):
        return [_everywhere(value, old, new) for value in part]
    return part.replace(old, new) if isinstance(part, str) else part


_CHECK = """\
{{- if and .Values.watchNamespaces (ne .Values.scope "Cluster") }}
{{- fail (printf "watchNamespaces needs the scope Cluster, but the scope is %s" .Values.scope) }}
{{- end }}
"""


def bindings(binding: Object) -> str:
    """Returns the template of the ClusterRoleBinding, or of a RoleBinding in each watched namespace."""
    whole = template([binding], 'and (eq .Values.scope "Cluster") (not .Values.watchNamespaces)')
    slots, role_binding = Slots(), copy.deepcopy(binding)
    role_binding["kind"] = "RoleBinding"
    # The operator's namespace has a RoleBinding for the Lease too, and may be watched.
    role_binding["metadata"]["name"] += "-watch"
    role_binding["metadata"]["namespace"] = slots.value(".")
    role_binding["subjects"][0]["namespace"] = slots.value(f"${_NAMESPACE}")
    _with_labels(role_binding, slots, "$.Values.commonLabels")
    each = f"{{{{- range .Values.watchNamespaces }}}}\n---\n{slots.render(role_binding)}{{{{- end }}}}\n"
    return f'{whole}{_CHECK}{{{{- if eq .Values.scope "Cluster" }}}}\n{each}{{{{- end }}}}\n'


_KEEP = """\
{{- if or .Values.keep .Values.annotations }}
annotations:
  {{- if .Values.keep }}
  helm.sh/resource-policy: keep
  {{- end }}
  {{- with .Values.annotations }}
  {{- toYaml . | nindent +2 }}
  {{- end }}
{{- end }}"""


def custom_resource_definition(crd: Object) -> str:
    """Returns the template of the CRD in its own chart."""
    slots, changed = Slots(), copy.deepcopy(crd)
    metadata = changed["metadata"]
    assert "annotations" not in metadata, "merge them with those of the values"
    metadata[slots.lines(_KEEP)] = None
    _with_labels(changed, slots, ".Values.labels")
    return HEADER + slots.render(changed)


DASHBOARDS = (
    HEADER
    + """\
{{- if .Values.dashboards.enabled }}
{{- range $path, $_ := .Files.Glob "files/dashboards/*.json" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: triton-dashboard-{{ base $path | trimSuffix ".json" }}
  namespace: {{ $.Release.Namespace }}
  {{- with merge dict $.Values.dashboards.labels $.Values.commonLabels }}
  labels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $.Values.dashboards.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
data:
  {{ base $path }}: |
    {{- $.Files.Get $path | nindent 4 }}
{{- end }}
{{- end }}
"""
)

ADAPTER_RULES = (
    HEADER
    + """\
{{- if .Values.adapterRules.enabled }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: triton-operator-adapter-rules
  namespace: {{ .Values.adapterRules.namespace }}
  {{- with .Values.commonLabels }}
  labels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
data:
  config.yaml: |
    {{- .Files.Get "files/adapter-rules.yaml" | nindent 4 }}
{{- end }}
"""
)
