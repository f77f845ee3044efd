"""The PodMonitor, and what of the PrometheusRule isn't for Prometheus to say (that is in tests/rules)."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import pytest
import yaml

from support import gen
from support.controlplane import ROOT
from triton_operator.api import names
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.render.choices import Choices
from triton_operator.render.pod_monitor import pod_monitor
from triton_operator.render.prometheus_rule import prometheus_rule
from triton_operator.render.rules.promql import duration, escape_template, number, quote, tag, window
from triton_operator.render.rules.slo import budget, error_ratio

CHOICES = Choices("operator:1", "Copy", entrypoint="net", thresholds={ThresholdKey("max-qps"): 12345678.5})


def endpoint(**monitoring: Any) -> dict[str, Any]:
    (found,) = pod_monitor(gen.model(monitoring=monitoring), CHOICES)["spec"]["podMetricsEndpoints"]
    assert isinstance(found, dict)
    return found


def groups(choices: Choices = CHOICES, **spec: Any) -> list[dict[str, Any]]:
    return list(prometheus_rule(gen.model(**spec), choices)["spec"]["groups"])


def rules(choices: Choices = CHOICES, **spec: Any) -> list[dict[str, Any]]:
    return [r for g in groups(choices, **spec) for r in g["rules"]]


def alerts(choices: Choices = CHOICES, **spec: Any) -> list[dict[str, Any]]:
    return [r for r in rules(choices, **spec) if "alert" in r]


# PodMonitor


def test_the_pods_of_the_model_are_scraped_under_its_name() -> None:
    monitor = pod_monitor(gen.model(), CHOICES)
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert (monitor["metadata"]["name"], monitor["metadata"]["namespace"]) == (gen.NAME, gen.NAMESPACE)
    assert monitor["spec"]["selector"] == {"matchLabels": names.selector(gen.NAME)}
    assert {"targetLabel": "tritonmodel", "replacement": gen.NAME, "action": "replace"} in endpoint()["relabelings"]


def test_no_label_of_a_pod_takes_the_place_of_tritons_own() -> None:
    assert "podTargetLabels" not in pod_monitor(gen.model(), CHOICES)["spec"]
    assert endpoint()["honorLabels"] is False


def test_a_scrape_is_limited_by_the_administrators_choice() -> None:
    spec = pod_monitor(gen.model(), Choices("operator:1", "Copy", sample_limit=700))["spec"]
    assert (spec["sampleLimit"], spec["bodySizeLimit"]) == (700, "358400B")
    assert min(spec["labelLimit"], spec["labelNameLengthLimit"], spec["labelValueLengthLimit"]) > 0
    assert pod_monitor(gen.model(), CHOICES)["spec"]["sampleLimit"] == 5000


def test_no_query_of_an_alerts_text_has_a_label_in_it() -> None:
    """A server chooses the values of its labels."""
    for alert in alerts(autoscaling={"max": 4}, monitoring={"tokenCounter": "tokens_total"}):
        for text in alert["annotations"].values():
            for query in re.findall(r"{{[^}]*\bquery\b[^}]*}}", text):
                assert re.fullmatch(r'{{ range query "([^"\\]|\\.)*" }}', query), query
                assert "printf" not in text


def test_pods_that_still_fetch_their_models_are_no_targets() -> None:
    phase = {"sourceLabels": ["__meta_kubernetes_pod_phase"], "regex": "Running", "action": "keep"}
    assert phase in endpoint()["relabelings"]


@pytest.mark.parametrize(("seconds", "timeout"), [(1, "1s"), (10, "10s"), (300, "10s")])
def test_the_timeout_is_never_above_the_interval(seconds: int, timeout: str) -> None:
    found = endpoint(scrapeSeconds=seconds)
    assert (found["interval"], found["scrapeTimeout"]) == (f"{seconds}s", timeout)


# Both


def test_both_carry_the_labels_that_prometheus_selects_by() -> None:
    wanted = {"release": "kube-prometheus-stack", names.LABEL_MANAGED_BY: "somebody-else"}
    model = gen.model(monitoring={"labels": wanted})
    for manifest in (pod_monitor(model, CHOICES), prometheus_rule(model, CHOICES)):
        labels = manifest["metadata"]["labels"]
        assert labels == {"release": "kube-prometheus-stack", **names.labels(gen.NAME)}
        assert manifest["metadata"]["ownerReferences"][0]["uid"] == gen.UID


# PrometheusRule


def test_the_interval_is_the_models_but_three_days_are_not_read_every_second() -> None:
    assert [g["interval"] for g in groups(monitoring={"evaluationSeconds": 5})] == ["5s", "30s"]
    assert [g["interval"] for g in groups(monitoring={"evaluationSeconds": 60})] == ["60s", "60s"]


def test_without_alerts_the_same_is_recorded() -> None:
    quiet = rules(monitoring={"alerts": False})
    assert quiet == [r for r in rules() if "record" in r]


def test_a_threshold_is_in_no_label_of_an_alert() -> None:
    values = {ThresholdKey("max-qps"): 76543.25, ThresholdKey("max-qps", "2"): 76543.25}
    for alert in alerts(Choices("operator:1", "Copy", entrypoint="net", thresholds=values), autoscaling={"max": 4}):
        assert "76543" not in str(alert["labels"])
        assert "$value" not in str(alert["labels"])


def test_a_threshold_is_nowhere_but_in_its_literal() -> None:
    """Else a change that Prometheus has scraped would be contradicted by the rule's text."""
    found = [r for r in rules() if "12345678.5" in str(r)]
    assert [r["record"] for r in found] == ["triton:threshold:literal"]


def test_every_alert_says_what_happens_and_what_to_do() -> None:
    found = alerts(autoscaling={"max": 4}, monitoring={"tokenCounter": "tokens_total"})
    for alert in found:
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
        assert "$labels.tritonmodel" in alert["annotations"]["summary"]
    assert {a["alert"].removeprefix("TritonModel") for a in found} == {
        "QpsOverflow", "TpsOverflow", "QpsSpike", "QpsLimitMissing", "MetricsAbsent", "ThresholdDisagreement",
        "AtMaxReplicas", "QueueDuration", "RequestFailures", "ErrorBudgetBurn", "NotServing", "ServersMissing",
        "ServerRestarts",
    }  # fmt: skip


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    rendered = alerts(autoscaling={"max": 4}, monitoring={"tokenCounter": "tokens_total"})
    spec = yaml.safe_load((ROOT / "manifests/monitoring/rules.yaml").read_text())["spec"]
    installed = [rule for group in spec["groups"] for rule in group["rules"]]
    found = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rendered + installed}
    assert found == {name: f"{names.RUNBOOKS}/{name}.md" for name in found}
    assert {path.stem for path in (ROOT / "docs/runbooks").glob("*.md")} == set(found)


def test_an_administrator_says_where_the_runbooks_are() -> None:
    choices = Choices("operator:1", "Copy", entrypoint="net", runbooks="https://wiki.example.com/{{triton}}/")
    for alert in alerts(choices):
        url = alert["annotations"]["runbook_url"]
        assert url == f'https://wiki.example.com/{{{{"{{{{"}}}}triton}}}}/{alert["alert"]}.md'


def test_only_what_scales_can_be_at_its_most() -> None:
    def at_max(**spec: Any) -> bool:
        return any(a["alert"] == "TritonModelAtMaxReplicas" for a in alerts(**spec))

    assert at_max(autoscaling={"max": 4})
    assert not at_max()
    assert not at_max(autoscaling={"max": 4, "engine": "None"})


def test_labels_for_the_receiver_are_on_every_alert_and_take_none_of_ours() -> None:
    wanted = {"team": "vision", "severity": "none", "tritonmodel": "x", "version": "9", "not-a-label": "x"}
    for alert in alerts(monitoring={"alertLabels": wanted}):
        assert alert["labels"].keys() == {"team", "severity"}
        assert alert["labels"]["severity"] != "none"


def test_no_name_of_a_model_is_taken_for_a_template() -> None:
    choices = Choices("operator:1", "Copy", entrypoint="{{ $value }}", ensemble=True)
    for alert in alerts(choices):
        assert "{{ $value }}" not in str(alert["annotations"]).replace("{{ $value | ", "")


def test_without_thresholds_the_defaults_are_the_last_resort() -> None:
    literals = {
        r["labels"]["kind"]: r["expr"]
        for r in rules(Choices("operator:1", "Copy"))
        if r.get("record") == "triton:threshold:literal"
    }
    assert literals["max-qps"] == "vector(Inf)"
    assert literals["ensemble-coefficient"] == "vector(1.0)"


def test_while_the_entry_model_is_unknown_every_model_counts() -> None:
    served = next(r for r in rules(Choices("operator:1", "Copy")) if r.get("record") == "triton:my_qps_threshold:1m")
    assert "model=" not in served["expr"].replace("tritonmodel=", "")


# The parts


def test_strings_are_quoted() -> None:
    assert quote('a"b\\c\nd') == '"a\\"b\\\\c\\u000ad"'
    assert tag("up", "of", "$1") == 'label_replace(up, "of", "$$1", "", "")'
    assert escape_template("{{ x }}") == '{{"{{"}} x }}'


def test_numbers_are_exact() -> None:
    assert float(number(100 / 3)) == 100 / 3
    assert number(math.inf) == "Inf"


def test_ranges_hold_samples_enough() -> None:
    assert (window(60, 10), window(60, 15), window(60, 30), window(300, 10)) == ("1m", "1m", "2m", "5m")
    assert [duration(s) for s in (90, 120, 7200, 259200)] == ["90s", "2m", "2h", "3d"]


def test_budgets() -> None:
    assert error_ratio(budget("99.9"), Decimal("14.4")) == "0.0144"
    assert error_ratio(budget("99.95"), Decimal("1")) == "0.0005"
    assert error_ratio(budget("50"), Decimal("14.4")) == "0.9"
