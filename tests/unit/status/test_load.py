"""The conditions MonitoringAvailable, ThresholdLive and AutoscalerActive in each state."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from support import gen
from support.observing import seen
from triton_operator.api import names, thresholds
from triton_operator.api.monitoring import Installed, Origins, Prometheus, PrometheusAnswer, Selection, ServerFault
from triton_operator.api.servers import UNLOADED, IndexEntry
from triton_operator.api.status import Condition, TritonModelStatus
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.pods import Pod, Problem
from triton_operator.render.facts import RenderSettings
from triton_operator.scaling import ScaleDecision
from triton_operator.status.assess import assess
from triton_operator.status.conditions import transitions

SET, NOW, LATER = "2026-01-01T00:00:00.250Z", "2026-01-01T00:00:06.750Z", "2026-01-01T09:00:00.000Z"
ASKED = "2026-01-02T00:00:00.000Z"
MAX_QPS, PER_REPLICA = f"{thresholds.PREFIX}max-qps", f"{thresholds.PREFIX}max-qps-per-replica"
QPS = ThresholdKey("max-qps")
RELEASE = {"matchLabels": {"release": "prometheus"}}


def prometheus(name: str = "k8s", rules: Any = None, namespaces: Any = None, pods: Any = None) -> Prometheus:
    rules = {} if rules is None else rules
    pods = rules if pods is None else pods
    everywhere = {} if namespaces is None else namespaces
    return Prometheus("monitoring", name, "http://p", Selection(rules, everywhere), Selection(pods, everywhere))


def judge(
    annotations: dict[str, str] | None = None,
    before: TritonModelStatus | None = None,
    now: str = NOW,
    spec: dict[str, Any] | None = None,
    has_rules: bool = True,
    sample_limit: int = names.SAMPLE_LIMIT,
    decoupled: tuple[str, ...] = (),
    **fields: Any,
) -> TritonModelStatus:
    """Computes the conditions as the reconciler does, with a Prometheus that selects the rules."""
    raw = gen.raw(gen.put("metadata.annotations", annotations or {}), **(spec or {}))
    before = before or TritonModelStatus()
    raw["status"] = before.model_dump(mode="json", by_alias=True, exclude_none=True)
    model = gen.model(gen.put("metadata", raw["metadata"]), **(spec or {}))
    facts = {
        "thresholds": thresholds.effective_of(raw),
        "entrypoint": "m" if has_rules else "",
        "decoupled": decoupled,
        "settings": RenderSettings(sample_limit=sample_limit),
    }
    fields = {"installed": Installed((prometheus(),)), "requested": thresholds.of(raw), **fields}
    return assess(*seen(model, before, facts=facts, **fields), now)


def status_and_reason(status: TritonModelStatus, kind: str) -> tuple[str, str]:
    return next(((c.status, c.reason) for c in status.conditions if c.type == kind), ("", ""))


def words(status: TritonModelStatus, kind: str) -> str:
    return next(c.message for c in status.conditions if c.type == kind)


def answers(*metrics: str, **values: float) -> PrometheusAnswer:
    limits = {ThresholdKey(k.replace("_", "-").partition(".")[0], k.partition(".")[2]): v for k, v in values.items()}
    return PrometheusAnswer({QPS: math.inf, **limits}, frozenset(metrics), at=ASKED)


TRACES = {"server": {"image": "nvcr.io/nvidia/tritonserver:25.04-py3"}}


# MonitoringAvailable


def available(**more: Any) -> TritonModelStatus:
    return judge(**more)


@pytest.mark.parametrize(
    ("fields", "expected", "part"),
    [
        ({"installed": None}, ("False", "CRDsMissing"), "install prometheus-operator"),
        ({"installed": Installed(None)}, ("Unknown", "NotPermitted"), "isn't allowed to list"),
        ({"installed": Installed(())}, ("False", "NoPrometheus"), "no Prometheus resource in the namespaces"),
        ({}, ("True", "Selected"), "selected by Prometheus monitoring/k8s"),
        ({"installed": Installed((prometheus("a"), prometheus("b")))}, ("True", "Selected"),
         "monitoring/a, monitoring/b"),
        ({"installed": Installed((replace(prometheus("a"), paused=True), prometheus("b")))}, ("True", "Selected"),
         "monitoring/a (spec.paused is true, so new and changed rules don't reach it), monitoring/b"),
        ({"installed": Installed((prometheus(rules=RELEASE),))}, ("False", "NotSelected"),
         "monitoring/k8s selects rules with release=prometheus and pod monitors with release=prometheus, in namespaces "
         "with everything"),
        ({"installed": Installed((prometheus(pods=RELEASE),))}, ("False", "NotSelected"),
         "selects rules with everything and pod monitors with release=prometheus"),
        ({"installed": Installed((prometheus(namespaces={"matchLabels": {"a": "b"}}),))}, ("False", "NotSelected"),
         "in namespaces with a=b"),
        ({"refused": {"PrometheusRule": Problem("ApplyRefused", "it says no")}}, ("False", "ApplyRefused"), "says no"),
        ({"refused": {"PodMonitor": Problem("NameTaken", "is another's")}}, ("False", "NameTaken"), "another's"),
    ],
)  # fmt: skip
def test_reports_whether_a_prometheus_selects_the_rules(
    fields: dict[str, Any], expected: tuple[str, str], part: str
) -> None:
    status = judge(**fields)
    assert status_and_reason(status, "MonitoringAvailable") == expected
    assert part in words(status, "MonitoringAvailable")


def test_uses_the_prometheus_that_selects_only_its_own_namespace() -> None:
    own = Prometheus("monitoring", "k8s", "http://p", Selection({}, None), Selection({}, None))
    status = judge(installed=Installed((own,)))
    assert status_and_reason(status, "MonitoringAvailable") == ("False", "NotSelected")
    assert "in namespaces with its own namespace" in words(status, "MonitoringAvailable")


@pytest.mark.parametrize("selector", [RELEASE, {"matchLabels": {"app.kubernetes.io/managed-by": "triton-operator"}}])
def test_prometheus_can_select_by_labels_of_the_spec_or_of_the_operator(selector: Any) -> None:
    spec = {"monitoring": {"labels": {"release": "prometheus"}}}
    status = judge(spec=spec, installed=Installed((prometheus(rules=selector),)))
    assert status_and_reason(status, "MonitoringAvailable") == ("True", "Selected")


@pytest.mark.parametrize(
    ("latency", "decoupled", "said"),
    [({"p99": "1s"}, ("m",), True), ({"p99": "1s"}, ("other",), False), ({}, ("m",), False), (None, ("m",), False)],
)
def test_says_that_no_alert_watches_the_latency_of_a_model_that_streams(
    latency: dict[str, str] | None, decoupled: tuple[str, ...], said: bool
) -> None:
    status = judge(spec={**TRACES, "monitoring": {"latency": latency}}, decoupled=decoupled)
    assert ("no alert watches, because m streams its answers" in words(status, "MonitoringAvailable")) is said


NVIDIA, OWN = "nvcr.io/nvidia/tritonserver", "registry.example.com/server:1"


@pytest.mark.parametrize(
    ("image", "versions", "expected", "part"),
    [
        (
            f"{NVIDIA}:24.10-py3",
            {"a": "2.51.0"},
            "LatencyNotMeasured",
            "measures nothing on Triton 2.51.0: before 2.57",
        ),
        (
            f"{NVIDIA}:25.03-py3",
            {},
            "LatencyNotMeasured",
            "measures nothing on Triton 2.56: before 2.57 (release 25.04)",
        ),
        (f"{NVIDIA}:25.04-py3", {}, "Selected", "selected by Prometheus"),
        (OWN, {}, "Selected", "selected by Prometheus"),
        (OWN, {"a": "2.57.0"}, "Selected", "selected by Prometheus"),
        # What the servers report is true, also during a rollout.
        (
            f"{NVIDIA}:25.04-py3",
            {"a": "2.51.0", "b": "2.57.0"},
            "LatencyNotMeasured",
            "measures nothing on Triton 2.51.0:",
        ),
        (f"{NVIDIA}:24.10-py3", {"a": "2.71.0"}, "Selected", "selected by Prometheus"),
    ],
)
def test_says_that_tracing_could_end_the_servers(
    image: str, versions: dict[str, str], expected: str, part: str
) -> None:
    pods = tuple(Pod(gen.pod(name=name)) for name in versions)
    spec = {"server": {"image": image}, "monitoring": {"latency": {}}}
    status = judge(spec=spec, pods=pods, versions=versions)
    assert status_and_reason(status, "MonitoringAvailable")[1] == expected
    assert part in words(status, "MonitoringAvailable")
    plain = judge(spec={"server": {"image": image}}, pods=pods, versions=versions)
    assert status_and_reason(plain, "MonitoringAvailable") == ("True", "Selected")
    assert words(judge(spec=spec, installed=None), "MonitoringAvailable").startswith("the cluster has no CRDs")


def with_models(count: int, name: str = "branch", **more: Any) -> TritonModelStatus:
    """The status of a server with these models, of which each second one is still loading."""
    index = tuple(IndexEntry(f"{name}_{n}", "1", "LOADING" if n % 2 else "READY", "") for n in range(count))
    gone = (IndexEntry("gone", "1", "UNAVAILABLE", UNLOADED),)
    server = gen.pod()
    return judge(pods=(Pod(server),), indexes={server["metadata"]["name"]: (*index, *gone)}, **more)


@pytest.mark.parametrize(
    ("count", "limit", "said"), [(7, 1000, False), (8, 1000, True), (79, 10_000, True), (60, 10_000, False)]
)
def test_says_when_the_measured_latency_is_near_the_limit_of_a_scrape(count: int, limit: int, said: bool) -> None:
    status = with_models(count, sample_limit=limit, spec={**TRACES, "monitoring": {"latency": {}}})
    assert (f"; but the latency of {count} versions of models has" in words(status, "MonitoringAvailable")) is said
    plain = with_models(count, sample_limit=limit)
    assert "latency" not in words(plain, "MonitoringAvailable")


def arguments(*args: str) -> dict[str, Any]:
    return {"server": {"args": list(args)}}


ALL, FEW = "--metrics-config=summary_latencies=true", "--metrics-config=summary_latencies=false"
CACHE = "--cache-config=local,size=1048576"


@pytest.mark.parametrize(
    ("count", "more", "part"),
    [
        (380, {}, ""),
        (381, {}, "; but 381 versions of models have about 8001 samples and 1.6 MB of metrics in each scrape, and"),
        (500, {}, "a server with more than 10000 or 2.6 MB: ask an administrator to raise SAMPLE_LIMIT of the"),
        (500, {}, f"load fewer models, or set {FEW} in spec.server.args"),
        (500, {"sample_limit": 20_000}, ""),
        (38, {"sample_limit": 1_000}, ""),
        (39, {"sample_limit": 1_000}, "about 819 samples"),
        (500, {"spec": arguments(FEW)}, ""),
        (600, {"spec": arguments(FEW)}, "SAMPLE_LIMIT of the operator, load fewer models"),
        (170, {"spec": arguments(ALL)}, "170 versions of models have about 8330 samples"),
        (170, {"spec": arguments(ALL)}, f"or remove {ALL} in spec.server.args"),
        (140, {"spec": arguments(ALL, CACHE)}, "about 8400 samples"),
        (280, {"name": "n" * 60}, ""),
        (300, {"name": "n" * 90}, "about 6300 samples and 2.5 MB"),
    ],
)
def test_says_that_so_many_models_are_near_the_limit_of_a_scrape(count: int, more: dict[str, Any], part: str) -> None:
    status = with_models(count, **more)
    assert status_and_reason(status, "MonitoringAvailable") == ("True", "Selected")
    message = words(status, "MonitoringAvailable")
    assert part in message
    assert ("SAMPLE_LIMIT" in message) == bool(part)


def test_no_prometheus_drops_what_none_selects() -> None:
    assert "SAMPLE_LIMIT" not in words(with_models(500, installed=Installed(())), "MonitoringAvailable")


def test_has_no_monitoring_conditions_when_monitoring_is_disabled() -> None:
    status = judge({MAX_QPS: "80"}, spec={"monitoring": {"enabled": False}}, installed=None)
    assert {c.type for c in status.for_people} == {"Ready", "Progressing", "ModelsLoaded"}
    assert status.max_qps == "80"


# Before the first answer of Prometheus

FAILS = ServerFault("detection-abc-1", "m", hangs=False)


@pytest.mark.parametrize(
    "answer",
    [
        answers(max_qps=80),
        answers(max_qps=60),
        PrometheusAnswer(error="Prometheus doesn't answer: no"),
        replace(answers(max_qps=80), origins=Origins(copies=2)),
        replace(answers(max_qps=80), uncounted=("m", "net")),
        replace(answers(max_qps=80), faults=(FAILS,)),
        replace(answers(max_qps=80), faults=(replace(FAILS, hangs=True),)),
    ],
)
def test_a_restarted_operator_keeps_what_prometheus_told(answer: PrometheusAnswer) -> None:
    fields = {"annotations": {MAX_QPS: "80"}, "pods": (Pod(gen.pod()),)}
    told = judge(**fields, answer=answer)
    without = judge(**fields, answer=PrometheusAnswer())
    assert told.conditions != without.conditions
    assert judge(**fields, before=told, now=LATER, answer=PrometheusAnswer()) == told


def test_what_prometheus_told_is_kept_only_of_the_same_thresholds() -> None:
    live = judge({MAX_QPS: "80"}, answer=answers(max_qps=80))
    changed = judge({MAX_QPS: "90"}, before=live, now=LATER, answer=PrometheusAnswer())
    assert status_and_reason(changed, "ThresholdLive") == ("Unknown", "Starting")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"has_rules": False}, ("Unknown", "Starting")),
        ({"installed": None}, ("Unknown", "NotMonitored")),
        ({"answer": None}, ("Unknown", "NoPrometheus")),
        ({"answer": PrometheusAnswer(error="no")}, ("Unknown", "PrometheusUnreachable")),
        ({"answer": answers(max_qps=70)}, ("False", "Propagating")),
    ],
)
def test_what_prometheus_told_ends_with_other_news(fields: dict[str, Any], expected: tuple[str, str]) -> None:
    live = judge({MAX_QPS: "80"}, answer=answers(max_qps=80))
    fields = {"answer": PrometheusAnswer(), **fields}
    status = judge({MAX_QPS: "80"}, before=live, now=LATER, **fields)
    assert status_and_reason(status, "ThresholdLive") == expected


def test_a_fault_ends_with_its_server() -> None:
    fails = judge(answer=replace(answers(), faults=(FAILS,)), pods=(Pod(gen.pod()),))
    replaced = judge(before=fails, now=LATER, answer=PrometheusAnswer(), pods=(Pod(gen.pod(name="detection-abc-2")),))
    assert status_and_reason(replaced, "Ready") == ("True", "EntrypointAnswers")


def test_a_server_that_is_not_ready_is_reported_without_prometheus() -> None:
    fails = judge(answer=replace(answers(), faults=(FAILS,)), pods=(Pod(gen.pod()),))
    assert status_and_reason(fails, "Ready") == ("True", "ServerFails")
    gone = judge(before=fails, now=LATER, answer=PrometheusAnswer(), pods=(Pod(gen.pod(gen.not_ready)),))
    assert status_and_reason(gone, "Ready")[0] == "False"


# ThresholdLive


@pytest.mark.parametrize(
    ("annotations", "fields", "expected", "part"),
    [
        ({}, {"installed": None}, ("Unknown", "NotMonitored"), "see MonitoringAvailable"),
        ({}, {"has_rules": False}, ("Unknown", "Starting"), "when it has read the repository"),
        ({}, {"answer": None}, ("Unknown", "NoPrometheus"), "see MonitoringAvailable"),
        ({}, {"answer": PrometheusAnswer(error="Prometheus doesn't answer: no")}, ("Unknown", "PrometheusUnreachable"),
         "doesn't answer"),
        ({}, {"answer": PrometheusAnswer()}, ("Unknown", "Starting"), "the operator hasn't queried Prometheus yet"),
        ({}, {"answer": PrometheusAnswer(at=ASKED)}, ("False", "Propagating"),
         "max-qps is none; Prometheus doesn't have it yet"),
        ({MAX_QPS: "80"}, {"answer": PrometheusAnswer({QPS: 80}, at=SET)}, ("False", "Propagating"),
         "the operator hasn't queried Prometheus since the threshold changed"),
        ({}, {"answer": answers()}, ("True", "Live"), "Prometheus uses no limit"),
        ({}, {"answer": answers(max_qps=60)}, ("False", "Propagating"),
         "max-qps is none; Prometheus still uses 60"),
        ({MAX_QPS: "80"}, {"answer": answers()}, ("False", "Propagating"),
         "max-qps is 80; Prometheus still uses none"),
        ({MAX_QPS: "80"}, {"answer": answers(max_qps=80)}, ("True", "Live"), "Prometheus uses max-qps 80"),
        ({MAX_QPS: "12.5"}, {"answer": answers(max_qps=12.5)}, ("True", "Live"), "max-qps 12.5"),
        ({MAX_QPS: "80", f"{MAX_QPS}.2": "9"}, {"answer": answers(max_qps=80)}, ("False", "Propagating"),
         "max-qps.v2 is 9; Prometheus doesn't have it yet"),
        ({f"{MAX_QPS}.2": "9"},
         {"answer": PrometheusAnswer({QPS: math.inf, ThresholdKey("max-qps", "2"): 9}, at=ASKED)},
         ("True", "Live"),
         "Prometheus uses max-qps.v2 9"),
        ({PER_REPLICA: "20"}, {"answer": answers(max_qps_per_replica=20)}, ("True", "Live"), "max-qps-per-replica 20"),
        ({}, {"answer": replace(answers(), origins=Origins(clusters=2, copies=3))}, ("False", "AddedUp"),
         "has the series of 2 TritonModels of this namespace and name, of different clusters"),
        ({}, {"answer": replace(answers(), origins=Origins(copies=2))}, ("False", "AddedUp"),
         "has each series 2 times, so the rules see 2 times the load"),
        ({MAX_QPS: "many"}, {"answer": answers(), "installed": None}, ("False", "ThresholdInvalid"), "is not a plain"),
        ({MAX_QPS: "80", "max_qps": "90"}, {"answer": answers()}, ("False", "ThresholdInvalid"), "differ: remove one"),
        ({f"{thresholds.PREFIX}max-tps": "5"}, {"answer": answers()}, ("False", "ThresholdInvalid"), "tokenCounter"),
    ],
)  # fmt: skip
def test_reports_whether_prometheus_uses_the_thresholds(
    annotations: dict[str, str], fields: dict[str, Any], expected: tuple[str, str], part: str
) -> None:
    status = judge(annotations, **fields)
    assert status_and_reason(status, "ThresholdLive") == expected
    assert part in words(status, "ThresholdLive")


@pytest.mark.parametrize(("tokens", "expected"), [(True, ("True", "Live")), (False, ("False", "TokenCounterMissing"))])
def test_max_tps_needs_an_existing_token_counter(tokens: bool, expected: tuple[str, str]) -> None:
    status = judge(
        {f"{thresholds.PREFIX}max-tps": "5"},
        spec={"monitoring": {"tokenCounter": "llm_tokens_total"}},
        answer=answers(*["llm_tokens_total"] * tokens, max_tps=5),
        pods=(Pod(gen.pod()),),
    )
    assert status_and_reason(status, "ThresholdLive") == expected
    assert tokens or "llm_tokens_total" in words(status, "ThresholdLive")


@pytest.mark.parametrize(
    ("metrics", "expected", "part"),
    [
        (("llm_running", "llm_waiting"), ("True", "Live"), "max-streams-per-replica 8"),
        (("llm_running", "vllm:gpu_cache_usage_perc"), ("False", "GaugeMissing"), "no gauge llm_waiting of these"),
        (
            (),
            ("False", "GaugeMissing"),
            "no gauge llm_running and no gauge llm_waiting of these servers (spec.mon",
        ),
    ],
)
def test_limits_of_streams_need_existing_gauges(metrics: tuple[str, ...], expected: tuple[str, str], part: str) -> None:
    status = judge(
        {f"{thresholds.PREFIX}max-streams-per-replica": "8"},
        spec={"monitoring": {"streaming": {"names": "VLLM", "running": "llm_running", "waiting": "llm_waiting"}}},
        answer=answers(*metrics, max_streams_per_replica=8),
        pods=(Pod(gen.pod()),),
    )
    assert status_and_reason(status, "ThresholdLive") == expected
    assert part in words(status, "ThresholdLive")


@pytest.mark.parametrize("metric", ["vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"])
def test_a_limit_of_the_cache_takes_either_name_of_vllms_gauge(metric: str) -> None:
    status = judge(
        {f"{thresholds.PREFIX}max-cache-usage-per-replica": "0.5"},
        spec={"monitoring": {"streaming": {"names": "VLLM"}}},
        answer=answers(metric, max_cache_usage_per_replica=0.5),
        pods=(Pod(gen.pod()),),
    )
    assert status_and_reason(status, "ThresholdLive") == ("True", "Live")


@pytest.mark.parametrize("pods", [(), (Pod(gen.pod(gen.put("status.conditions", []))),)], ids=["zero", "starting"])
def test_no_gauge_is_missing_without_a_ready_server(pods: tuple[Pod, ...]) -> None:
    status = judge(
        {f"{thresholds.PREFIX}max-streams-per-replica": "8"},
        spec={"monitoring": {"streaming": {"names": "VLLM"}}},
        answer=answers(max_streams_per_replica=8),
        pods=pods,
    )
    assert status_and_reason(status, "ThresholdLive") == ("True", "Live")


def test_mentions_the_last_accepted_value_only_if_there_is_one() -> None:
    assert "stays so" not in words(judge({MAX_QPS: "x"}), "ThresholdLive")
    good = judge({MAX_QPS: "80"}, answer=answers(max_qps=80))
    status = judge({MAX_QPS: "x"}, before=good, answer=answers(max_qps=80))
    assert words(status, "ThresholdLive").endswith("; the last accepted value stays in effect")
    assert (status.max_qps, status.thresholds) == ("80", good.thresholds)


def test_names_every_invalid_annotation() -> None:
    message = words(judge({MAX_QPS: "x", PER_REPLICA: "y"}), "ThresholdLive")
    assert f"{MAX_QPS}='x'" in message
    assert f"{PER_REPLICA}='y'" in message


def test_reports_several_models_without_an_entrypoint() -> None:
    pods = (Pod(gen.pod(gen.checked(gen.report("a", "b")))),)
    status = judge(pods=pods, has_rules=False)
    assert status_and_reason(status, "ThresholdLive") == ("False", "NoEntrypoint")
    assert "set spec.entrypoint" in words(status, "ThresholdLive")
    named = judge(pods=pods, has_rules=False, spec={"entrypoint": "a"})
    assert status_and_reason(named, "ThresholdLive") == ("Unknown", "Starting")


# The measured delay


def change(value: str, before: TritonModelStatus | None = None, since: str = SET, **annotations: str) -> Any:
    """Returns the status just after a threshold was set, when Prometheus doesn't have it yet."""
    return judge({MAX_QPS: value, **annotations}, before=before, now=since, answer=answers(max_qps=1))


def test_reports_the_seconds_from_the_annotation_to_prometheus() -> None:
    first = change("80")
    assert status_and_reason(first, "ThresholdLive") == ("False", "Propagating")
    live = judge({MAX_QPS: "80"}, before=first, answer=answers(max_qps=80))
    assert words(live, "ThresholdLive") == "Prometheus uses max-qps 80; 6.5 s after it was set"
    # The message doesn't change: the delay is measured only once.
    again = judge({MAX_QPS: "80"}, before=live, now=LATER, answer=answers(max_qps=80))
    assert again == live


def test_reports_no_seconds_if_something_else_caused_the_delay() -> None:
    # Prometheus had the value before this operator queried it.
    assert words(judge({MAX_QPS: "80"}, answer=answers(max_qps=80)), "ThresholdLive").endswith("max-qps 80")
    # Prometheus was unreachable for hours.
    late = judge({MAX_QPS: "80"}, before=change("80"), now=LATER, answer=answers(max_qps=80))
    assert words(late, "ThresholdLive") == "Prometheus uses max-qps 80"
    # The rules were created long after the annotation.
    starting = judge({MAX_QPS: "80"}, now=SET, has_rules=False)
    behind = judge({MAX_QPS: "80"}, before=starting, now=NOW, answer=PrometheusAnswer(at=ASKED))
    live = judge({MAX_QPS: "80"}, before=behind, now="2026-01-01T00:00:09.000Z", answer=answers(max_qps=80))
    assert words(live, "ThresholdLive") == "Prometheus uses max-qps 80"


def test_reports_no_seconds_for_a_removed_threshold() -> None:
    factor = {f"{thresholds.PREFIX}spike-factor": "5"}
    both = judge({MAX_QPS: "80", **factor}, now=SET, answer=answers(max_qps=80, spike_factor=5))
    removed = judge(factor, before=both, now="2026-01-01T00:01:00.000Z", answer=answers(max_qps=80, spike_factor=5))
    assert status_and_reason(removed, "ThresholdLive") == ("False", "Propagating")
    live = judge(factor, before=removed, now="2026-01-01T00:01:04.000Z", answer=answers(spike_factor=5))
    assert words(live, "ThresholdLive") == "Prometheus uses spike-factor 5"


# AutoscalerActive


def autoscaler(*conditions: tuple[str, str, str]) -> dict[str, Any]:
    entries = [{"type": t, "status": s, "reason": r, "message": f"words of {r}"} for t, s, r in conditions]
    return {"kind": "HorizontalPodAutoscaler", "status": {"conditions": entries}}


ABLE = ("AbleToScale", "True", "ReadyForNewScale")
ACTIVE = ("ScalingActive", "True", "ValidMetricFound")
SCALING: dict[str, Any] = {"autoscaling": {"max": 4}}


@pytest.mark.parametrize(
    ("scaler", "expected", "part"),
    [
        (None, ("Unknown", "Starting"), "hasn't reported a status yet"),
        ({"kind": "HorizontalPodAutoscaler"}, ("Unknown", "Starting"), "hasn't reported a status yet"),
        (autoscaler(ABLE), ("Unknown", "Starting"), "hasn't reported a status yet"),
        (autoscaler(("AbleToScale", "False", "FailedGetScale")), ("False", "FailedGetScale"),
         "words of FailedGetScale"),
        (autoscaler(ABLE, ("ScalingActive", "False", "FailedGetObjectMetric")), ("False", "FailedGetObjectMetric"),
         "check that prometheus-adapter is installed"),
        (autoscaler(ABLE, ("ScalingActive", "False", "ScalingDisabled")), ("False", "ScalingDisabled"),
         "words of ScalingDisabled"),
        (autoscaler(ABLE, ACTIVE), ("True", "Scaling"), "gets the load metric"),
        (autoscaler(ABLE, ACTIVE, ("ScalingLimited", "True", "TooManyReplicas")), ("True", "AtMaximum"),
         "spec.autoscaling.max (4)"),
        (autoscaler(ABLE, ACTIVE, ("ScalingLimited", "True", "TooFewReplicas")), ("True", "Scaling"),
         "gets the load metric"),
        (autoscaler(ABLE, ACTIVE, ("ScalingLimited", "False", "DesiredWithinRange")), ("True", "Scaling"), "the load"),
    ],
)  # fmt: skip
def test_reports_whether_the_autoscaler_gets_the_load(scaler: Any, expected: tuple[str, str], part: str) -> None:
    status = judge({MAX_QPS: "80"}, spec=SCALING, autoscaler=scaler, pods=(Pod(gen.pod()),))
    assert status_and_reason(status, "AutoscalerActive") == expected
    assert part in words(status, "AutoscalerActive")


def test_missing_load_is_a_problem_only_if_a_server_is_ready() -> None:
    missing = autoscaler(ABLE, ("ScalingActive", "False", "FailedGetObjectMetric"))
    for pods in ((), (Pod(gen.pod(gen.not_ready)),)):
        status = judge({MAX_QPS: "80"}, spec=SCALING, autoscaler=missing, pods=pods)
        assert status_and_reason(status, "AutoscalerActive") == ("Unknown", "Starting")


def test_mentions_the_adapter_only_for_a_missing_metric() -> None:
    status = judge({MAX_QPS: "80"}, spec=SCALING, autoscaler=autoscaler(("AbleToScale", "False", "FailedGetScale")))
    assert "prometheus-adapter" not in words(status, "AutoscalerActive")


@pytest.mark.parametrize(
    ("annotations", "has_threshold"),
    [({}, False), ({f"{MAX_QPS}.2": "5"}, False), ({MAX_QPS: "x"}, False), ({MAX_QPS: "5"}, True),
     ({PER_REPLICA: "5"}, True)],
)  # fmt: skip
def test_reports_an_autoscaler_without_a_threshold(annotations: dict[str, str], has_threshold: bool) -> None:
    status = judge(annotations, spec=SCALING, autoscaler=autoscaler(ABLE, ACTIVE))
    expected = ("True", "Scaling") if has_threshold else ("False", "NoThreshold")
    assert status_and_reason(status, "AutoscalerActive") == expected
    assert has_threshold or "tritonoperator.io/max-qps-per-replica" in words(status, "AutoscalerActive")


def test_says_that_the_engine_direct_works_without_the_metric() -> None:
    missing = autoscaler(ABLE, ("ScalingActive", "False", "FailedGetObjectMetric"))
    decided = ScaleDecision(target=1, floor=1, load=None, reason="LeftToHPA", message="")
    pods = (Pod(gen.pod()),)
    spec = {"autoscaling": {"max": 4, "engine": "Direct"}}
    messages = [words(judge({MAX_QPS: "5"}, spec=spec, autoscaler=missing, pods=pods, scale=scale),
                  "AutoscalerActive") for scale in (None, decided)]  # fmt: skip
    assert messages[1] == messages[0] + "; the engine Direct still adds servers"


@pytest.mark.parametrize("limit", ["max-tps-per-replica", "max-tps", "max-streams-per-replica"])
def test_says_that_the_engine_direct_adds_servers_for_tokens_and_streams(limit: str) -> None:
    monitoring = {"tokenCounter": "llm_tokens_total", "streaming": {"running": "llm_running"}}
    spec = {"autoscaling": {"max": 4, "engine": "Direct"}, "monitoring": monitoring}
    decided = ScaleDecision(target=1, floor=1, load=None, reason="LeftToHPA", message="")
    missing = autoscaler(ABLE, ("ScalingActive", "False", "FailedGetObjectMetric"))
    limits = {f"{thresholds.PREFIX}{limit}": "5"}
    broken = judge(limits, spec=spec, autoscaler=missing, scale=decided, pods=(Pod(gen.pod()),))
    assert status_and_reason(broken, "AutoscalerActive") == ("False", "FailedGetObjectMetric")
    assert words(broken, "AutoscalerActive").endswith("; the engine Direct still adds servers")


def test_reports_a_refused_autoscaler() -> None:
    status = judge(spec=SCALING, refused={"HorizontalPodAutoscaler": Problem("ApplyRefused", "quota")})
    assert status_and_reason(status, "AutoscalerActive") == ("False", "ApplyRefused")


@pytest.mark.parametrize("spec", [{}, {"autoscaling": {"max": 4, "engine": "None"}}])
def test_has_no_autoscaler_condition_without_autoscaling(spec: dict[str, Any]) -> None:
    assert status_and_reason(judge(spec=spec), "AutoscalerActive") == ("", "")


# Models whose requests Triton doesn't count


@pytest.mark.parametrize(
    ("fields", "expected", "part"),
    [
        ({"uncounted": (("net", "its warm-up isn't counted"),)}, ("False", "RequestsNotCounted"),
         "net (its warm-up isn't counted). So the demand, the thresholds, the alerts about requests"),
        ({"uncounted": (("net", "its warm-up isn't counted"),)}, ("False", "RequestsNotCounted"),
         "must call TRITONBACKEND_ModelInstanceReportStatistics"),
        ({"answer": PrometheusAnswer({QPS: math.inf}, uncounted=("net",), at=ASKED)}, ("False", "RequestsNotCounted"),
         "net (its queue gets shorter, but its counters are 0)"),
        ({"uncounted": (("step", "requests of the ensemble net are counted"),)}, ("False", "RequestsNotCounted"),
         "The requests of the entrypoint are counted"),
        ({"uncounted": (("net", "x"),), "installed": Installed(None)}, ("False", "RequestsNotCounted"), "net (x)"),
        ({"uncounted": (("net", "x"),), "installed": None}, ("False", "CRDsMissing"), "install"),
        ({"uncounted": ()}, ("True", "Selected"), "selected by"),
    ],
)  # fmt: skip
def test_reports_models_that_are_not_counted(fields: dict[str, Any], expected: tuple[str, str], part: str) -> None:
    status = judge(spec={"entrypoint": "net"}, **fields)
    assert status_and_reason(status, "MonitoringAvailable") == expected
    assert part in words(status, "MonitoringAvailable")


@pytest.mark.parametrize(("model", "blind"), [("net", True), ("step", False)])
def test_autoscaler_is_blind_if_the_entry_model_is_not_counted(model: str, blind: bool) -> None:
    spec = {**SCALING, "entrypoint": "net"}
    fields = {"autoscaler": autoscaler(ABLE, ACTIVE), "uncounted": ((model, "x"),)}
    status = judge({MAX_QPS: "80"}, spec=spec, **fields)
    expected = ("False", "RequestsNotCounted") if blind else ("True", "Scaling")
    assert status_and_reason(status, "AutoscalerActive") == expected


@pytest.mark.parametrize("limit", ["max-tps-per-replica", "max-streams-per-replica", "max-cache-usage-per-replica"])
def test_autoscaler_is_not_blind_if_something_else_than_requests_counts(limit: str) -> None:
    monitoring = {"tokenCounter": "llm_tokens_total", "streaming": {"names": "VLLM"}}
    spec = {**SCALING, "entrypoint": "net", "monitoring": monitoring}
    fields = {"autoscaler": autoscaler(ABLE, ACTIVE), "uncounted": (("net", "x"),)}
    status = judge({MAX_QPS: "80", f"{thresholds.PREFIX}{limit}": "1"}, spec=spec, **fields)
    assert status_and_reason(status, "AutoscalerActive") == ("True", "Scaling")


# Over time


@pytest.mark.parametrize(
    ("annotations", "fields"),
    [
        ({}, {"installed": None}),
        ({}, {"installed": Installed((prometheus(rules=RELEASE),))}),
        ({MAX_QPS: "80"}, {"answer": answers(max_qps=80)}),
        ({MAX_QPS: "80"}, {"answer": answers(max_qps=60)}),
        ({MAX_QPS: "x"}, {"answer": answers()}),
        ({MAX_QPS: "80"}, {"answer": PrometheusAnswer(error="no")}),
        (
            {MAX_QPS: "80"},
            {"answer": answers(max_qps=80), "autoscaler": autoscaler(ABLE, ACTIVE), "spec": SCALING},
        ),
    ],
)
def test_same_observation_gives_the_same_status_at_any_time(annotations: dict[str, str], fields: Any) -> None:
    first = judge(annotations, now=SET, **fields)
    assert judge(annotations, before=first, now=LATER, **fields) == first


def cond(kind: str, status: str, reason: str) -> Condition:
    return Condition.model_validate({"type": kind, "status": status, "reason": reason, "message": "words"})


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ([], cond("MonitoringAvailable", "False", "CRDsMissing"), []),
        ([], cond("MonitoringAvailable", "False", "NotSelected"), ["Warning"]),
        ([], cond("MonitoringAvailable", "Unknown", "NotPermitted"), []),
        ([], cond("MonitoringAvailable", "True", "Selected"), ["Normal"]),
        ([cond("MonitoringAvailable", "True", "Selected")], cond("MonitoringAvailable", "False", "CRDsMissing"),
         ["Warning"]),
        ([], cond("ThresholdLive", "False", "ThresholdInvalid"), ["Warning"]),
        ([cond("ThresholdLive", "True", "Live")], cond("ThresholdLive", "False", "Propagating"), []),
        ([cond("ThresholdLive", "False", "Propagating")], cond("ThresholdLive", "True", "Live"), []),
        ([cond("ThresholdLive", "True", "Live")], cond("ThresholdLive", "Unknown", "PrometheusUnreachable"), []),
        ([cond("AutoscalerActive", "Unknown", "Starting")], cond("AutoscalerActive", "False", "FailedGetObjectMetric"),
         ["Warning"]),
        ([cond("AutoscalerActive", "True", "Scaling")], cond("AutoscalerActive", "True", "AtMaximum"), ["Normal"]),
        ([cond("AutoscalerActive", "True", "AtMaximum")], cond("AutoscalerActive", "True", "Scaling"), []),
    ],
)  # fmt: skip
def test_posts_events_for_transitions_of_load_conditions(
    before: list[Condition], now: Condition, expected: list[str]
) -> None:
    assert [t.kind for t in transitions(before, [now])] == expected
