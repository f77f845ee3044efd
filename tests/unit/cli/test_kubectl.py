"""`kubectl triton`: renders the operator's objects, shows the status, and reports errors with their place."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from click.testing import CliRunner, Result

from kubectl_triton import cluster
from kubectl_triton.main import main
from kubectl_triton.samples import Samples
from kubectl_triton.status import progress, show
from kubectl_triton.top import fleet
from support import gen
from triton_operator.api.thresholds import ThresholdKey, effective
from triton_operator.cluster.errors import ApiError
from triton_operator.pods import Pod
from triton_operator.render import Facts, render

SMALL = {"apiVersion": "tritonoperator.io/v1alpha1", "kind": "TritonModel", "metadata": {"name": "detection"},
         "spec": {"modelImage": {"reference": "r:1"}}}  # fmt: skip


def run(text: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["render", "-", *arguments], input=text)


def test_render_prints_the_operators_objects() -> None:
    result = run(json.dumps(SMALL), "-n", "vision", "--tools-image", "t:1", "--delivery", "ImageVolume")
    assert result.exit_code == 0, result.output
    model = gen.model(gen.put("metadata.uid", ""), modelImage={"reference": "r:1"})
    assert list(yaml.safe_load_all(result.stdout)) == render(model, Facts("t:1", "ImageVolume"))


MONITORED = {
    **SMALL,
    "metadata": {"name": "detection", "annotations": {"tritonoperator.io/max-qps": "80", "max_qps.v2": "9"}},
    "spec": {**SMALL["spec"], "entrypoint": "yolo", "autoscaling": {"max": 4}},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["Ensemble", "Model"])
def test_render_prints_the_objects_for_prometheus_and_the_autoscaler(kind: str) -> None:
    result = run(json.dumps(MONITORED), "--entrypoint-type", kind)
    assert result.exit_code == 0, result.output
    objects = {o["kind"]: o for o in yaml.safe_load_all(result.stdout)}
    assert {"PodMonitor", "PrometheusRule", "HorizontalPodAutoscaler"} <= set(objects)
    values = {ThresholdKey("max-qps"): Decimal(80), ThresholdKey("max-qps", "2"): Decimal(9)}
    facts = Facts("t", "Copy", entrypoint="yolo", ensemble=kind == "Ensemble", thresholds=effective(values, 4))
    model = gen.model(gen.put("metadata", {"name": "detection", "namespace": "default"}), **MONITORED["spec"])
    assert objects["PrometheusRule"] == next(o for o in render(model, facts) if o["kind"] == "PrometheusRule")
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "url"),
    [([], "http://prometheus-operated.monitoring.svc:9090"), (["--prometheus-url=https://a/"], "https://a")],
)
def test_render_prints_the_scaled_object(arguments: list[str], url: str) -> None:
    model = {**SMALL, "spec": {**SMALL["spec"], "autoscaling": {"max": 4, "engine": "KEDA"}}}
    result = run(json.dumps(model), *arguments)
    [scaled_object] = [o for o in yaml.safe_load_all(result.stdout) if o["kind"] == "ScaledObject"]
    assert scaled_object["spec"]["triggers"][0]["metadata"]["serverAddress"] == url


def test_render_reports_what_it_leaves_out() -> None:
    wrong = {**MONITORED, "metadata": {"name": "detection", "annotations": {"max_qps": "many"}}}
    for document, arguments in ((wrong, []), ({**SMALL, "metadata": wrong["metadata"]}, ["--entrypoint-type=Model"])):
        result = run(json.dumps(document), *arguments)
        assert result.exit_code == 0, result.output
        kinds = {o["kind"] for o in yaml.safe_load_all(result.stdout)}
        assert "PodMonitor" in kinds
        assert "PrometheusRule" not in kinds
        assert "default/detection: max_qps='many' is not a plain number" in result.stderr
        assert "no PrometheusRule: it needs spec.entrypoint and --entrypoint-type" in result.stderr
    quiet = {**SMALL, "spec": {**SMALL["spec"], "monitoring": {"enabled": False}}}
    assert run(json.dumps(quiet)).stderr == ""


def test_render_names_fields_that_the_api_server_would_refuse() -> None:
    spec = {"modelImage": {"reference": "r:1", "pulPolicy": "Always"}, "entrypiont": "a", "rollout": {"drainSecond": 1}}
    result = run(json.dumps({**SMALL, "spec": {**spec, "podTemplate": {"spec": {"anything": 1}}}}))
    assert result.exit_code == 0
    fields = [line.split()[1] for line in result.stderr.splitlines() if "no such field" in line]
    assert fields == [
        "spec.entrypiont",
        "spec.modelImage.pulPolicy",
        "spec.rollout.drainSecond",
        "spec.podTemplate.spec.anything",
    ]


def test_render_says_that_a_null_in_spec_models_changes_nothing() -> None:
    models = [{"name": "detect", "config": {"max_batch_size": None, "parameters": {"a": {"string_value": None}}}}]
    result = run(json.dumps({**SMALL, "spec": {**SMALL["spec"], "models": models}}))
    assert result.exit_code == 0
    told = [line.partition(": null")[0] for line in result.stderr.splitlines() if "null changes nothing" in line]
    assert told == [
        "detection: spec.models.detect.config.max_batch_size",
        "detection: spec.models.detect.config.parameters.a.string_value",
    ]


def test_render_uses_every_tritonmodel_of_a_file_and_ignores_other_documents() -> None:
    other = {**SMALL, "metadata": {"name": "other", "namespace": "own"}}
    text = yaml.safe_dump_all([SMALL, {"kind": "Secret"}, None, "text", other])
    objects = list(yaml.safe_load_all(run(text).stdout))
    deployments = {(o["metadata"]["namespace"], o["metadata"]["name"]) for o in objects if o["kind"] == "Deployment"}
    assert deployments == {("default", "detection"), ("own", "other")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "contains no TritonModel"),
        ("kind: Pod", "contains no TritonModel"),
        ("kind: [", "<stdin>: "),
        ("kind: TritonModel", "spec: is missing: add it"),
        ("kind: TritonModel\nmetadata:\nspec: {}", "metadata.name: is missing: add it"),
        ("kind: TritonModel\nmetadata: x\nspec: {}", "metadata: is text, but must be a map"),
        (json.dumps({**SMALL, "spec": {}}), "spec.modelImage: is missing: add it"),
        (json.dumps({**SMALL, "spec": {**SMALL["spec"], "replicas": "two"}}), "spec.replicas: is text, but must be"),
        (json.dumps({**SMALL, "spec": {**SMALL["spec"], "server": {"resources": {"limits": {"memory": "8GB"}}}}}),
         "'8GB' is not a Kubernetes quantity"),
        (yaml.safe_dump(SMALL) + "  server: {sharedMemory: 1e999}", "may have at most two digits in its exponent"),
        # As it is written.
        (yaml.safe_dump(SMALL) + "  server: {env: [{name: A, value: 1e3}]}", 'must be text: quote it: "1e3"'),
        (yaml.safe_dump(SMALL) + "  autoscaling: {min: 3, max: 2}", "spec.autoscaling: min is above max"),
    ],
)  # fmt: skip
def test_render_errors_name_the_field(text: str, words: str) -> None:
    result = run(text)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert words in result.output


def test_status_reports_a_missing_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The client has read KUBECONFIG when it was imported, perhaps by another test.
    none = str(tmp_path / "none")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", none)
    result = CliRunner().invoke(main, ["status", "x"], env={"KUBECONFIG": none})
    assert result.exit_code == 1
    assert "no usable kubeconfig" in result.output


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STATUS = {
    "observedGeneration": 1,
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "ModelLoadFailed", "message": "b: no such file " + "x" * 200},
        {"type": "Progressing", "status": "True", "reason": "RollingOut", "message": "m"},
        {"type": "ModelsLoaded", "status": "Unknown", "reason": "NoServerAnswers", "message": "m"},
        {"type": "MonitoringAvailable", "status": "False", "reason": "CRDsMissing", "message": "m"},
    ],
    "thresholds": [
        {"kind": "max-qps", "value": "80", "source": "max_qps", "since": "2026-01-01T00:00:00.250Z"},
        {"kind": "max-qps", "version": "2", "value": "12.5", "source": "max_qps.v2",
         "since": "2026-01-02T00:00:00.000Z"},
    ],
    "models": [{"name": "a", "version": "1", "state": "READY", "pods": "1/1", "loadTime": "1.5s"},
               {"name": "b", "state": "UNAVAILABLE", "reason": "no such file", "pods": "0/1"}],
    "image": {"reference": "r:1", "digest": gen.DIGEST, "delivery": "Copy"},
    "serverVersion": "2.51.0",
    "entrypoint": "b",
    "endpoint": "http://detection.vision.svc:8000",
}  # fmt: skip


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            'tritonmodels.tritonoperator.io "a" not found',
            'tritonmodels.tritonoperator.io "a" not found in the namespace vision: check the name, or use -n for '
            "another namespace",
        ),
        ("the server could not find the requested resource", "the server could not find the requested resource"),
    ],
)
def test_a_missing_tritonmodel_is_reported_with_its_namespace(message: str, expected: str) -> None:
    class Api:
        def get(self, *_: Any) -> Any:
            raise ApiError(404, "NotFound", message)

    with pytest.raises(cluster.UnreachableError) as raised:
        cluster.Cluster(cast(Any, Api()), "vision", cast(Any, None)).model("a")
    assert (str(raised.value), raised.value.code) == (expected, 404)


def test_status_shows_conditions_thresholds_models_and_pods() -> None:
    pods = [gen.pod(), gen.pod(gen.deleting, name="old"), gen.pod(gen.ended("triton", 1), name="bad"),
            gen.pod(gen.failed("Evicted", "low"), name="evicted")]  # fmt: skip
    raw = gen.raw(gen.put("status", STATUS), gen.put("metadata.generation", 2))
    text = show.status(raw, list(map(Pod, pods)), None, NOW)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "the operator hasn't processed the latest change of the spec yet" in lines
    assert f"image r:1 (Copy) {gen.DIGEST}" in lines
    assert "Triton 2.51.0" in lines
    assert "a 1 READY 1/1 1.5s" in lines
    assert "b - UNAVAILABLE 0/1 -" in lines
    assert "THRESHOLD VALUE SINCE SOURCE" in lines
    assert "max-qps 80 2026-01-01T00:00:00Z max_qps" in lines
    assert "max-qps.v2 12.5 2026-01-02T00:00:00Z max_qps.v2" in lines
    assert "b: no such file" in lines
    assert any(line.startswith("✗ Ready ModelLoadFailed: b: no such file") for line in lines)
    assert any(line.startswith("? ModelsLoaded NoServerAnswers") for line in lines)
    assert "detection-abc-1 yes 0 serving" in lines
    assert "old no 0 terminating" in lines
    assert "bad no 1 ServerCrashed" in lines
    assert "evicted no 0 Evicted" in lines
    marked = [line for line in text.splitlines() if line[2:3] in ("✓", "✗", "?", "…")]
    assert {line[23] for line in marked} == {" "}  # the column is as wide as the longest name
    assert all(line[24] != " " for line in marked)
    # Long messages are wrapped. Only the digest, which has no spaces, can be longer.
    assert all(len(line) <= 110 for line in text.splitlines() if "sha256" not in line)


def test_status_marks_a_server_that_answers_nothing_although_ready_is_true() -> None:
    conditions = [{"type": "Ready", "status": "True", "reason": "ServerHangs", "message": "a answers; b hangs"}]
    text = show.status(gen.raw(gen.put("status", {"conditions": conditions})), [], None, NOW)
    assert "  ! Ready ServerHangs: a answers" in text


def test_status_says_where_to_see_the_models_that_it_leaves_out() -> None:
    for loaded, mentioned in (("300/301", True), ("0/1", False)):
        text = show.status(gen.raw(gen.put("status", {**STATUS, "loaded": loaded})), [], None, NOW)
        left = 301 - len(STATUS["models"])
        assert (f"{left} more models: kubectl triton models {gen.NAME}" in text) == mentioned


def test_status_of_a_new_tritonmodel_shows_no_endpoint() -> None:
    text = show.status(gen.raw(), [], None, NOW)
    assert "endpoint  -" in text
    assert not show.is_ready(gen.raw())


DIRECT = {"engine": "Direct", "min": 2, "max": 8, "utilization": 0.75}
DECISION = {"desired": 5, "load": "3.4", "reason": "ScaledUp", "message": "scaled up from 2 to 4",
            "time": "2026-01-01T11:59:18.000Z"}  # fmt: skip
METRIC = {"type": "Object", "object": {"current": {"averageValue": "850m"}}}
LIMITED = {"type": "ScalingLimited", "status": "True", "reason": "TooFewReplicas", "message": "words"}
BROKEN = {"type": "ScalingActive", "status": "False", "reason": "FailedGetObjectMetric", "message": "no metric"}
ABLE = {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "fine"}
NOT_LIMITED = {"type": "ScalingLimited", "status": "False", "reason": "DesiredWithinRange", "message": "fine"}


@pytest.mark.parametrize(
    ("scaling", "decision", "autoscaler", "expected"),
    [(None, None, None, []),
     ({"max": 3}, None, None, ["scaling: engine HPA, 1 to 3 servers, utilization 0.75"]),
     ({"max": 3}, None, {},
      ["scaling: engine HPA, 1 to 3 servers, utilization 0.75",
       "HorizontalPodAutoscaler: hasn't reported a status yet"]),
     ({"max": 3, "engine": "HPA"}, None,
      {"currentReplicas": 2, "desiredReplicas": 3, "lastScaleTime": "2026-01-01T09:00:00Z",
       "currentMetrics": [METRIC], "conditions": [ABLE, NOT_LIMITED]},
      ["scaling: engine HPA, 1 to 3 servers, utilization 0.75",
       "HorizontalPodAutoscaler: wants 3 servers and has 2, at a load of 0.85 per server; last change 3 h ago"]),
     (DIRECT, DECISION, {"currentReplicas": 4, "desiredReplicas": 2, "currentMetrics": None,
                         "conditions": [LIMITED, BROKEN]},
      ["scaling: engine Direct, 2 to 8 servers, utilization 0.75",
       "Direct: ScaledUp 42 s ago, at a load of 3.4, not below 5: scaled up from 2 to 4",
       "HorizontalPodAutoscaler: wants 2 servers and has 4",
       "HorizontalPodAutoscaler: ScalingLimited True, TooFewReplicas: words",
       "HorizontalPodAutoscaler: ScalingActive False, FailedGetObjectMetric: no metric"]),
     ({**DIRECT, "engine": "None"}, None, None, ["scaling: engine None, 2 to 8 servers, utilization 0.75"])],
)  # fmt: skip
def test_status_says_what_scales_the_servers(scaling: Any, decision: Any, autoscaler: Any, expected: list[str]) -> None:
    spec = [gen.put("spec.autoscaling", scaling)] if scaling else []
    status = [gen.put("status", {"autoscaling": decision})] if decision else []
    scaler = None if autoscaler is None else {"status": autoscaler}
    lines = show.status(gen.raw(*spec, *status), [], scaler, NOW).splitlines()
    begin = next((n for n, line in enumerate(lines) if line.startswith("  scaling")), len(lines))
    assert [line.strip() for line in lines[begin:]] == expected


@pytest.mark.parametrize(
    ("more", "words"),
    [({"current": True, "time": "2025-12-30T11:00:00Z", "target": "200 ms"},
      "calibration: current, 2 d ago, for p99 of at most 200 ms: words"),
     ({"current": False, "time": "2025-12-30T11:00:00Z", "target": "200 ms"},
      "calibration: out of date, 2 d ago, for p99 of at most 200 ms: words"),
     ({"current": False}, "calibration: invalid: words")],
)  # fmt: skip
def test_status_has_the_age_of_the_calibration(more: Any, words: str) -> None:
    model = gen.raw(gen.put("status", {"calibration": {"message": "words", **more}}))
    lines = show.status(model, [], None, NOW).splitlines()
    assert [line.strip() for line in lines if "calibration" in line] == [words]


@pytest.mark.parametrize(
    ("time", "words"),
    [("2026-01-01T11:58:20Z", "100 s ago"), ("2026-01-01T11:50:00Z", "10 min ago"), ("2025-12-30T11:00:00Z", "2 d ago"),
     ("2026-01-01T12:00:09Z", "0 s ago"), ("yesterday", "yesterday"), ("2026-01-01T12:00:00", "2026-01-01T12:00:00")],
)  # fmt: skip
def test_status_says_how_old_a_decision_is(time: str, words: str) -> None:
    model = gen.raw(gen.put("spec.autoscaling", DIRECT), gen.put("status", {"autoscaling": {**DECISION, "time": time}}))
    assert f"ScaledUp {words}" in show.status(model, [], None, NOW)


def test_commands_import_only_what_they_need() -> None:
    """The terminal's packages and the Kubernetes client take longer to import than a rendering takes."""
    slow = ("textual", "rich", "aiohttp", "kubernetes", "requests")
    code = f"import sys, kubectl_triton.main; print([m for m in {slow} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_status_that_another_client_has_spoilt_is_an_empty_one() -> None:
    spoilt = gen.raw(gen.put("status", {"conditions": "none", "replicas": "many"}))
    assert "TritonModel" in show.status(spoilt, [], None, NOW)
    assert progress.outcome(spoilt) is None
    assert fleet.rows([spoilt], [], Samples())[0].ready == 0
