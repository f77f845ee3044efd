"""Reads the cases of tests/rules/cases and converts them to tests of promtool. The format of a case:

model: …          the spec of the TritonModel
entrypoint: …     the entry model; with `ensemble: true` if it is an ensemble
decoupled: […]    the models that may send several responses
enforced: true    if the Gateway rejects requests above max-qps
thresholds: …     the fallback values of the rules, such as {max-qps: 80, max-qps.v2: 10}
every: 10s        the scrape and evaluation interval
tests:
  - series: …     in promtool's notation; $S is replaced by the labels of the TritonModel. Each replica of the operator
                  also has a resource version, which is always 100 if the case has none
    firing: …     all alerts that fire at a time: {2m: [TritonModelQpsOverflow]}
    values: …     the sum of an expression at each time: a number, `none` for no series, or two bounds:
                  {'tritonmodel:threshold:effective{kind="max-qps"}': {1m: 80, 2m: none, 3m: [1, 2]}}
    alert_rule_test: …  in promtool's format
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from support import gen
from triton_operator.api import names, thresholds
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.render.facts import Enforced, Facts

Object = dict[str, Any]

LABELS = f'namespace="{gen.NAMESPACE}",tritonmodel="{gen.NAME}"'


@dataclass(frozen=True)
class Case:
    spec: Object
    facts: Facts
    every: str
    tests: list[Object]


def load(path: Path) -> Case:
    content = yaml.safe_load(path.read_text().replace("$S", LABELS))
    unknown = content.keys() - {
        "model",
        "entrypoint",
        "ensemble",
        "decoupled",
        "enforced",
        "thresholds",
        "every",
        "tests",
    }
    assert not unknown, unknown
    spec = content.get("model", {})
    values = {threshold_key(k): Decimal(str(v)) for k, v in content.get("thresholds", {}).items()}
    replicas = spec.get("autoscaling", {}).get("max", 1)
    facts = Facts(
        "operator:1",
        "Copy",
        entrypoint=content.get("entrypoint", "net"),
        ensemble=content.get("ensemble", False),
        decoupled=tuple(content.get("decoupled", ())),
        thresholds=thresholds.effective(values, replicas),
        enforced=Enforced(float(values[threshold_key("max-qps")]), is_live=True) if "enforced" in content else None,
    )
    return Case(spec, facts, content.get("every", "10s"), content["tests"])


def threshold_key(text: str) -> ThresholdKey:
    kind, _, version = text.partition(".")
    return ThresholdKey(kind, version.removeprefix("v"))


def document(case: Case, rules: str) -> Object:
    """Returns the file for `promtool test rules`."""
    return {
        "rule_files": [rules],
        "evaluation_interval": case.every,
        # Prometheus evaluates groups in any order.
        "group_eval_order": [f"{gen.NAME}-limits", gen.NAME, f"{gen.NAME}-slow"],
        "tests": [_test(test, case.every) for test in case.tests],
    }


def expected_alerts(case: Case) -> list[Object]:
    """Returns the alerts whose texts a case expects, as Prometheus sends them."""
    tests = [alert for test in document(case, "rules")["tests"] for alert in test["alert_rule_test"]]
    return [
        {"labels": {"alertname": test["alertname"], **one["exp_labels"]}, "annotations": one["exp_annotations"]}
        for test in tests
        for one in test["exp_alerts"]
    ]


def _test(test: Object, every: str) -> Object:
    unknown = test.keys() - {"name", "series", "firing", "values", "alert_rule_test"}
    assert not unknown, unknown
    series = _with_resource_versions(test["series"])
    return {
        "name": test["name"],
        "interval": every,
        "input_series": [{"series": s, "values": _samples(str(v))} for s, v in series.items()],
        "promql_expr_test": [
            *(_firing(at, alerts) for at, alerts in test.get("firing", {}).items()),
            *(_value(expr, at, want) for expr, times in test.get("values", {}).items() for at, want in times.items()),
        ],
        "alert_rule_test": [_with_runbooks(alert) for alert in test.get("alert_rule_test", [])],
    }


def _with_runbooks(test: Object) -> Object:
    """Adds the URL of the runbook to the expected annotations of each alert."""
    page = {"runbook_url": f"{names.RUNBOOKS}/{test['alertname']}.md"}
    expected = [{**alert, "exp_annotations": {**alert["exp_annotations"], **page}} for alert in test["exp_alerts"]]
    return {**test, "exp_alerts": expected}


def _with_resource_versions(series: Object) -> Object:
    """Adds a resource version, always 100, to each replica of the operator with metrics, if the case has none."""
    if any(s.startswith("triton_operator_resource_version") for s in series):
        return series
    versions: Object = {}
    for name, values in series.items():
        if re.match("triton_operator_(threshold|replicas){", name):
            labels = re.sub(r',(kind|state|version)="[^"]*"', "", name.partition("{")[2])
            constant = re.sub(r"(?<![\w.])(\+Inf|[\d.]+)([-+][\d.]+)?(?=x| |$)", "100", str(values))
            versions.setdefault(f'triton_operator_resource_version{{uid="0a1b2c3d",{labels}', constant)
    return {**series, **versions}


def _samples(text: str) -> str:
    """Expands repeated samples that aren't finite, because promtool's `x` notation doesn't support them."""
    return re.sub(r"\+?(Inf|NaN)x(\d+)", lambda m: " ".join([m[1]] * (int(m[2]) + 1)), text)


def _firing(at: str, alerts: list[str]) -> Object:
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(set(alerts))]
    return {
        "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": at,
        "exp_samples": samples,
    }


def _value(expr: str, at: str, want: float | str | list[float]) -> Object:
    if isinstance(want, list):
        low, high = want
        expr, want = f"count(sum({expr}) >= {low} <= {high})", 1
    samples = [] if want == "none" else [{"labels": "{}", "value": float(want)}]
    return {"expr": f"round(sum({expr}), 0.001)", "eval_time": at, "exp_samples": samples}
