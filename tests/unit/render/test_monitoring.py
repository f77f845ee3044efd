"""The PodMonitor, and the parts of the PrometheusRule that tests/rules don't evaluate."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import yaml

from support import gen
from support.controlplane import ROOT
from triton_operator.api import names
from triton_operator.api.series import series_by_threshold
from triton_operator.api.thresholds import MAX_STREAMS_PER_REPLICA, ThresholdKey
from triton_operator.promql import duration, escape_template, number, quote, tag, window
from triton_operator.render.facts import Enforced, Facts, RenderSettings
from triton_operator.render.pod_monitor import pod_monitor
from triton_operator.render.prometheus_rule import prometheus_rule
from triton_operator.render.rules import latency
from triton_operator.render.rules.recording import FALLBACK
from triton_operator.render.rules.slo import budget, error_ratio

FACTS = Facts("operator:1", "Copy", entrypoint="net", thresholds={ThresholdKey("max-qps"): 12345678.5})
ENFORCED = replace(FACTS, enforced=Enforced(80, is_live=True))
EVERY_LIMIT = replace(ENFORCED, thresholds={**FACTS.thresholds, ThresholdKey("max-qps-peak"): 200.0})


def endpoint(**monitoring: Any) -> dict[str, Any]:
    (monitored,) = pod_monitor(gen.model(monitoring=monitoring), FACTS)["spec"]["podMetricsEndpoints"]
    assert isinstance(monitored, dict)
    return monitored


def groups(facts: Facts = FACTS, **spec: Any) -> list[dict[str, Any]]:
    return list(prometheus_rule(gen.model(**spec), facts)["spec"]["groups"])


def rules(facts: Facts = FACTS, **spec: Any) -> list[dict[str, Any]]:
    return [r for g in groups(facts, **spec) for r in g["rules"]]


def alerts(facts: Facts = FACTS, **spec: Any) -> list[dict[str, Any]]:
    return [r for r in rules(facts, **spec) if "alert" in r]


# PodMonitor


def test_scrapes_the_pods_and_sets_the_label_tritonmodel() -> None:
    monitor = pod_monitor(gen.model(), FACTS)
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert (monitor["metadata"]["name"], monitor["metadata"]["namespace"]) == (gen.NAME, gen.NAMESPACE)
    assert monitor["spec"]["selector"] == {"matchLabels": names.selector(gen.NAME)}
    assert {"targetLabel": "tritonmodel", "replacement": gen.NAME, "action": "replace"} in endpoint()["relabelings"]


def test_pod_labels_do_not_replace_tritons_labels() -> None:
    assert "podTargetLabels" not in pod_monitor(gen.model(), FACTS)["spec"]
    assert endpoint()["honorLabels"] is False


def test_drops_the_summaries_that_nothing_reads_by_the_names_that_triton_gives_them() -> None:
    (drop,) = [r["regex"] for r in endpoint()["metricRelabelings"] if "summary" in r["regex"]]
    for name in ("nv_inference_queue_summary_us", "nv_cache_miss_summary_per_model"):
        assert all(re.fullmatch(drop, f"{name}{end}") for end in ("", "_sum", "_count"))
    for name in ("nv_inference_request_summary_us", "nv_inference_request_summary_us_count",
                 "nv_cache_miss_duration_per_model", "nv_cache_num_hits_per_model"):  # fmt: skip
        assert not re.fullmatch(drop, name)


def test_administrator_sets_the_limits_of_a_scrape() -> None:
    spec = pod_monitor(gen.model(), Facts("operator:1", "Copy", settings=RenderSettings(sample_limit=700)))["spec"]
    assert (spec["sampleLimit"], spec["bodySizeLimit"]) == (700, "179200B")
    assert min(spec["labelLimit"], spec["labelNameLengthLimit"], spec["labelValueLengthLimit"]) > 0


def test_queries_in_alert_texts_contain_no_labels() -> None:
    """A server chooses the values of its labels."""
    for alert in alerts(autoscaling={"max": 4}, monitoring={"tokenCounter": "tokens_total"}):
        for text in alert["annotations"].values():
            for query in re.findall(r"{{[^}]*\bquery\b[^}]*}}", text):
                assert re.fullmatch(r'{{ range query "([^"\\]|\\.)*" }}', query), query
                assert "printf" not in text


def test_does_not_scrape_pods_during_init_containers() -> None:
    phase = {"sourceLabels": ["__meta_kubernetes_pod_phase"], "regex": "Running", "action": "keep"}
    assert phase in endpoint()["relabelings"]


@pytest.mark.parametrize(("seconds", "timeout"), [(1, "1s"), (10, "10s"), (300, "10s")])
def test_timeout_is_at_most_the_interval(seconds: int, timeout: str) -> None:
    scrape = endpoint(scrapeSeconds=seconds)
    assert (scrape["interval"], scrape["scrapeTimeout"]) == (f"{seconds}s", timeout)


# Both


def test_both_objects_have_the_labels_that_prometheus_selects_by() -> None:
    selected_labels = {"release": "kube-prometheus-stack", names.LABEL_MANAGED_BY: "somebody-else"}
    model = gen.model(monitoring={"labels": selected_labels})
    for manifest in (pod_monitor(model, FACTS), prometheus_rule(model, FACTS)):
        labels = manifest["metadata"]["labels"]
        assert labels == {"release": "kube-prometheus-stack", **names.labels(gen.NAME)}
        assert manifest["metadata"]["ownerReferences"][0]["uid"] == gen.UID


# PrometheusRule


def test_intervals_come_from_the_spec() -> None:
    assert [g["interval"] for g in groups(monitoring={"evaluationSeconds": 5})] == ["2s", "5s", "60s"]
    assert [g["interval"] for g in groups(monitoring={"evaluationSeconds": 60})] == ["30s", "60s", "60s"]


def test_recording_rules_do_not_depend_on_alerts() -> None:
    quiet = rules(monitoring={"alerts": False})
    assert quiet == [r for r in rules() if "record" in r]


def test_alert_labels_contain_no_threshold() -> None:
    values = {ThresholdKey("max-qps"): 76543.25, ThresholdKey("max-qps", "2"): 76543.25}
    for alert in alerts(Facts("operator:1", "Copy", entrypoint="net", thresholds=values), autoscaling={"max": 4}):
        assert "76543" not in str(alert["labels"])
        assert "$value" not in str(alert["labels"])


def test_only_fallback_rules_contain_thresholds() -> None:
    """Otherwise a rule could contain another value than the scraped one."""
    with_values = [r for r in rules() if "12345678.5" in str(r)]
    assert [r["record"] for r in with_values] == [FALLBACK]


EVERYTHING = {"tokenCounter": "tokens_total", "latency": {"p50": "20ms", "p99": "200ms"}, "processes": True}


def test_latency_without_an_objective_has_no_alert_about_one() -> None:
    assert "TritonModelLatencyBudgetBurn" not in {a["alert"] for a in alerts(monitoring={"latency": {}})}


def test_the_latency_of_a_model_that_streams_has_no_alert() -> None:
    streams = replace(FACTS, decoupled=("net",))
    about = {a["alert"] for a in alerts(streams, monitoring={"latency": {"p99": "200ms"}})}
    assert "TritonModelLatencyBudgetBurn" not in about
    assert "TritonModelLatencyNotMeasured" in about


def test_an_objective_above_all_bounds_is_the_last_bound() -> None:
    slow = next(r for r in rules(monitoring={"latency": {"p99": "100s"}}) if r.get("record") == latency.SLOW)
    assert 'le="100.0"' in slow["expr"]
    assert 'le="80.0"' not in slow["expr"]


def test_every_alert_has_a_summary_and_a_description() -> None:
    rendered = alerts(EVERY_LIMIT, autoscaling={"max": 4}, monitoring=EVERYTHING)
    for alert in rendered:
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
        assert "$labels.tritonmodel" in alert["annotations"]["summary"]
    assert {a["alert"].removeprefix("TritonModel") for a in rendered} == {
        "QpsOverflow", "QpsPeak", "TpsOverflow", "QpsSpike", "QpsLimitMissing", "MetricsAbsent",
        "ThresholdDisagreement", "AtMaxReplicas", "QueueDuration", "RequestFailures", "ErrorBudgetBurn", "NotServing",
        "ServersMissing",
        "ServerRestarts", "RequestsNotCounted", "ServerFails", "ServerHangs", "AtMaxQps", "LatencyBudgetBurn",
        "LatencyNotMeasured", "MemoryGrows",
    }  # fmt: skip


def test_alerts_and_runbooks_match() -> None:
    rendered = alerts(EVERY_LIMIT, autoscaling={"max": 4}, monitoring=EVERYTHING)
    spec = yaml.safe_load((ROOT / "manifests/monitoring/rules.yaml").read_text())["spec"]
    installed = [rule for group in spec["groups"] for rule in group["rules"]]
    runbooks = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rendered + installed}
    assert runbooks == {name: f"{names.RUNBOOKS}/{name}.md" for name in runbooks}
    assert {path.stem for path in (ROOT / "docs/runbooks").glob("*.md")} == set(runbooks)


def test_administrator_sets_the_url_of_the_runbooks() -> None:
    settings = RenderSettings(runbooks="https://wiki.example.com/{{triton}}/")
    facts = Facts("operator:1", "Copy", entrypoint="net", settings=settings)
    for alert in alerts(facts):
        url = alert["annotations"]["runbook_url"]
        assert url == f'https://wiki.example.com/{{{{"{{{{"}}}}triton}}}}/{alert["alert"]}.md'


def test_only_models_whose_limit_is_enforced_have_the_alert_about_it() -> None:
    def at_max_qps(enforced: Enforced | None) -> bool:
        return any(a["alert"] == "TritonModelAtMaxQps" for a in alerts(replace(FACTS, enforced=enforced)))

    assert at_max_qps(Enforced(80, is_live=True))
    assert not at_max_qps(Enforced(80))
    assert not at_max_qps(None)


def test_only_autoscaled_models_have_the_alert_about_max_replicas() -> None:
    def at_max(**spec: Any) -> bool:
        return any(a["alert"] == "TritonModelAtMaxReplicas" for a in alerts(**spec))

    assert at_max(autoscaling={"max": 4})
    assert not at_max()
    assert not at_max(autoscaling={"max": 4, "engine": "None"})


def test_alert_labels_are_on_every_alert_and_replace_none() -> None:
    labels = {"team": "vision", "severity": "none", "tritonmodel": "x", "version": "9", "not-a-label": "x"}
    for alert in alerts(monitoring={"alertLabels": labels}):
        assert alert["labels"].keys() == {"team", "severity"}
        assert alert["labels"]["severity"] != "none"


def test_model_names_are_not_evaluated_as_templates() -> None:
    facts = Facts("operator:1", "Copy", entrypoint="{{ $value }}", ensemble=True)
    for alert in alerts(facts):
        assert "{{ $value }}" not in str(alert["annotations"]).replace("{{ $value | ", "")


def test_uses_the_defaults_without_thresholds() -> None:
    (expr,) = (r["expr"] for r in rules(Facts("operator:1", "Copy")) if r.get("record") == FALLBACK)
    assert 'label_replace(vector(1.0), "kind", "ensemble-coefficient", "", "")' in expr
    assert "max-qps" not in expr


def test_counts_all_models_while_the_entry_model_is_unknown() -> None:
    served = next(r for r in rules(Facts("operator:1", "Copy")) if r.get("record") == "triton:my_qps_threshold:1m")
    assert "model=" not in served["expr"].replace("tritonmodel=", "")


# The parts


def test_quotes_strings() -> None:
    assert quote('a"b\\c\nd') == '"a\\"b\\\\c\\u000ad"'
    assert tag("up", "of", "$1") == 'label_replace(up, "of", "$$1", "", "")'
    assert escape_template("{{ x }}") == '{{"{{"}} x }}'


def test_number_literals_are_exact() -> None:
    assert float(number(100 / 3)) == 100 / 3
    assert number(math.inf) == "Inf"


@pytest.mark.parametrize(
    ("streaming", "metrics"),
    [
        ({"running": "open", "waiting": "queued"}, ["open", "queued"]),
        ({"running": "open"}, ["open"]),
        # Without the open streams the load would be 0 as long as nothing waits.
        ({"waiting": "queued"}, []),
    ],
)
def test_limit_of_streams_needs_the_gauge_of_open_ones(streaming: dict[str, str], metrics: list[str]) -> None:
    named = series_by_threshold(gen.model(monitoring={"streaming": streaming}).spec.monitoring)
    assert [series.metric for series in named[MAX_STREAMS_PER_REPLICA]] == metrics


def test_ranges_have_enough_samples() -> None:
    assert (window(60, 10), window(60, 15), window(60, 30), window(300, 10)) == ("1m", "1m", "2m", "5m")
    assert [duration(s) for s in (90, 120, 7200, 259200)] == ["90s", "2m", "2h", "3d"]


def test_converts_the_objective_to_an_error_budget() -> None:
    assert error_ratio(budget("99.9"), Decimal("14.4")) == "0.0144"
    assert error_ratio(budget("99.95"), Decimal("1")) == "0.0005"
    assert error_ratio(budget("50"), Decimal("14.4")) == "0.9"
