"""The Helm charts, made from the manifests, the roles, the policies and the CRD.

`generate.py` writes them to charts/. NOTES.txt and _helpers.tpl are written by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dashboards
import yaml_text
from dashboards import grafana

from helm_chart import pages, templates, value_files
from helm_chart.sources import MANIFESTS, load, version
from helm_chart.templates import template
from helm_chart.values import CRD_VALUES, VALUES
from triton_operator.api import kubernetes_versions
from triton_operator.manifests import crd, rbac

OPERATOR, CRDS = Path("charts/triton-operator"), Path("charts/triton-operator-crds")
_OPERATOR = 'ne .Values.scope "None"'
_CLUSTER, _NAMESPACED = 'eq .Values.scope "Cluster"', 'eq .Values.scope "Namespace"'
_POLICIES = 'and (ne .Values.scope "Namespace") .Values.policies.enabled'
_USER_ROLES = 'and (ne .Values.scope "Namespace") .Values.userRoles.enabled'
_OLDEST = kubernetes_versions.name(kubernetes_versions.OLDEST)
_HOME = "https://github.com/triton-operator/triton-operator"


def files() -> dict[Path, str]:
    """Returns the text of each generated file of both charts, by path."""
    operator = {
        "Chart.yaml": _chart("triton-operator", "Serves models with NVIDIA Triton: the operator of TritonModels."),
        "values.yaml": value_files.yaml_of(VALUES),
        "values.schema.json": value_files.schema_of(VALUES),
        "README.md": pages.operator(value_files.table_of(VALUES)),
        **{f"templates/{name}": text for name, text in _templates().items()},
        **{f"files/dashboards/{d.name}.json": grafana.text(d) for d in dashboards.ALL},
        "files/adapter-rules.yaml": (MANIFESTS / "monitoring/adapter/config.yaml").read_text(),
    }
    crds = {
        "Chart.yaml": _chart("triton-operator-crds", "The CustomResourceDefinition of TritonModels."),
        "values.yaml": value_files.yaml_of(CRD_VALUES),
        "values.schema.json": value_files.schema_of(CRD_VALUES),
        "README.md": pages.crds(value_files.table_of(CRD_VALUES)),
        "templates/tritonmodels.yaml": templates.custom_resource_definition(crd.definition()),
    }
    return {OPERATOR / name: text for name, text in operator.items()} | {CRDS / n: text for n, text in crds.items()}


def _templates() -> dict[str, str]:
    """Returns the templates of the chart triton-operator, by path."""
    role, binding, *own = rbac.manifests()
    plain = {name: load(f"operator/{name}.yaml") for name in ("service_account", "disruption_budget", "service")}
    return {
        **{f"operator/{name}.yaml": template(objects, _OPERATOR) for name, objects in plain.items()},
        "operator/deployment.yaml": template(load("operator/deployment.yaml"), _OPERATOR, templates.deployment),
        "operator/network_policy.yaml": template(
            load("operator/network_policy.yaml"),
            f"and ({_OPERATOR}) .Values.networkPolicy.enabled",
            templates.network_policy,
        ),
        "rbac/operator.yaml": template([role, *own], _CLUSTER),
        "rbac/bindings.yaml": templates.bindings(binding),
        "rbac/namespaced.yaml": template(rbac.namespaced(), _NAMESPACED),
        "rbac/roles.yaml": template(rbac.roles(), _USER_ROLES),
        **{f"policies/{name}": template(load(f"policies/{name}"), _POLICIES) for name in _policies()},
        "monitoring/service_monitor.yaml": template(
            load("monitoring/service_monitor.yaml"),
            ".Values.monitoring.serviceMonitor.enabled",
            labels=templates.MONITORING_LABELS,
        ),
        "monitoring/rules.yaml": template(
            load("monitoring/rules.yaml"),
            ".Values.monitoring.rules.enabled",
            templates.rules,
            templates.MONITORING_LABELS,
        ),
        "monitoring/dashboards.yaml": templates.DASHBOARDS,
        "monitoring/adapter_rules.yaml": templates.ADAPTER_RULES,
    }


def _policies() -> list[str]:
    names: list[str] = load("policies/kustomization.yaml")[0]["resources"]
    return names


def _chart(name: str, description: str) -> str:
    chart: dict[str, Any] = {
        "apiVersion": "v2", "name": name, "description": description, "type": "application", "version": version(),
        "appVersion": version(), "kubeVersion": f">={_OLDEST}.0-0", "home": _HOME, "sources": [_HOME],
        "keywords": ["triton", "inference", "machine learning", "operator"],
    }  # fmt: skip
    return yaml_text.text(chart)
