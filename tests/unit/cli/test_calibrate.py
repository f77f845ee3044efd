"""`kubectl triton calibrate`: the pod, the load generator's answers, the result and its charts."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kubectl_triton import cluster
from kubectl_triton.calibrate import chart, load, result
from kubectl_triton.calibrate.pod import CONTAINER, LABEL, pod
from kubectl_triton.calibrate.search import LATENCY, TPOT, TTFT, Goal, Latency, Point, SearchResult, Step, proposal
from kubectl_triton.charts import svg, terminal
from kubectl_triton.main import main
from support import gen
from triton_operator.render import Facts, render

MODEL: dict[str, Any] = {
    "apiVersion": "tritonoperator.io/v1alpha1", "kind": "TritonModel",
    "metadata": {"name": "detection", "namespace": "vision", "uid": "u-1", "generation": 3}, "spec": {},
}  # fmt: skip
LIMITS = {"cpu": "1", "memory": "1Gi"}
TEMPLATE = {
    "metadata": {
        "labels": {"app": "shop", "sidecar": "no"},
        "annotations": {"prometheus.io/scrape": "true", "k8s.v1.cni.cncf.io/networks": "fast"},
    },
    "spec": {
        "nodeSelector": {"gpu": "l4"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ],
        "containers": [{"name": "sidecar", "image": "s:1", "lifecycle": {"preStop": {"sleep": {"seconds": 9}}}}],
    },
}


def objects(**spec: Any) -> list[dict[str, Any]]:
    """Returns the operator's objects of a TritonModel with autoscaling, monitoring and a network policy."""
    model = gen.model(
        gen.put("metadata.name", "detection"), gen.put("metadata.namespace", "vision"), modelImage={"reference": "r:1"},
        entrypoint="yolo", autoscaling={"min": 2, "max": 4}, podTemplate=TEMPLATE, networkPolicy={}, **spec,
    )  # fmt: skip
    return render(model, Facts("t:1", "Copy", entrypoint="yolo", replicas=2))


def deployment(**spec: Any) -> dict[str, Any]:
    return next(o for o in objects(**spec) if o["kind"] == "Deployment")


def test_the_pod_has_the_servers_images_resources_and_nodes() -> None:
    template = deployment(server={"image": "s:2", "resources": {"limits": {"nvidia.com/gpu": "1"}}})["spec"]["template"]
    spec = pod(MODEL, {"spec": {"template": template}}, "load:1", LIMITS, 900)["spec"]
    for field in ("nodeSelector", "tolerations", "serviceAccountName", "securityContext", "initContainers"):
        assert spec[field] == template["spec"][field]
    *servers, generator = spec["containers"]
    assert servers == [{k: v for k, v in c.items() if k != "lifecycle"} for c in template["spec"]["containers"]]
    assert any("lifecycle" in c for c in template["spec"]["containers"]), "the live template isn't changed"
    assert generator["name"] == CONTAINER
    assert generator["resources"] == {"limits": LIMITS, "requests": LIMITS}


def test_the_pod_ends_by_itself_and_with_its_tritonmodel() -> None:
    obj = pod(MODEL, deployment(), "load:1", LIMITS, 900)
    assert obj["spec"]["activeDeadlineSeconds"] == 900
    assert obj["spec"]["restartPolicy"] == "Never"
    assert [(o["kind"], o["name"], o["uid"]) for o in obj["metadata"]["ownerReferences"]] == [
        ("TritonModel", "detection", "u-1")
    ]


def selectors(value: Any) -> list[dict[str, str]]:
    """Returns every selector of pods by labels in an object, without the peers of a NetworkPolicy."""
    if isinstance(value, list):
        return [selector for item in value for selector in selectors(item)]
    if not isinstance(value, dict):
        return []
    labels = [
        selector for key, item in value.items() if key not in ("ingress", "egress") for selector in selectors(item)
    ]
    for key in ("selector", "podSelector"):
        if isinstance(value.get(key), dict):
            labels.append(value[key].get("matchLabels", value[key]))
    return labels


def test_nothing_that_the_operator_creates_selects_the_pod() -> None:
    labels = pod(MODEL, deployment(), "load:1", LIMITS, 900)["metadata"]["labels"]
    chosen = [
        (o["kind"], s)
        for o in objects()
        for s in selectors({k: v for k, v in o["spec"].items() if k != "template"} if "spec" in o else {})
    ]
    kinds = {kind for kind, _ in chosen}
    assert {"Deployment", "Service", "PodMonitor", "PodDisruptionBudget", "NetworkPolicy"} <= kinds
    for kind, selector in chosen:
        assert selector, f"{kind} selects every pod"
        assert not selector.items() <= labels.items(), kind


def test_the_pod_has_no_labels_of_the_user_and_no_annotation_that_asks_for_scrapes() -> None:
    metadata = pod(MODEL, deployment(), "load:1", LIMITS, 900)["metadata"]
    assert metadata["labels"] == {LABEL: "detection"}
    assert metadata["annotations"]["k8s.v1.cni.cncf.io/networks"] == "fast"
    assert "prometheus.io/scrape" not in metadata["annotations"]


DECOUPLED = {"model_transaction_policy": {"decoupled": True}}


def config(**changes: Any) -> str:
    inputs = [{"name": "IMAGE", "data_type": "TYPE_FP32", "dims": ["3", "640", "640"]}]
    return json.dumps({"name": "yolo", "input": inputs, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"input": [{"name": "JPEG", "data_type": "TYPE_STRING", "dims": ["1"]}]}, "the input JPEG is a string"),
        ({"input": [{"name": "X", "data_type": "TYPE_INT8", "dims": ["-1", "4"]}]}, "X has no fixed shape (-1, 4)"),
        (DECOUPLED, "the model is decoupled: it streams responses, so give --ttft, --tpot or both instead of --p99"),
        ({"sequence_batching": {}}, "sequences"),
    ],
)
def test_inputs_that_cant_be_generated_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(load.LoadError) as caught:
        load.check_inputs(config(**changes), has_file=False)
    assert words in str(caught.value)
    if "input" in changes:
        assert "--input-data FILE" in str(caught.value)
        load.check_inputs(config(**changes), has_file=True)


def test_targets_of_tokens_need_a_model_that_streams() -> None:
    load.check_inputs(config(**DECOUPLED), has_file=False, streams=True)
    with pytest.raises(load.LoadError, match="isn't decoupled: it sends one response, so give --p99"):
        load.check_inputs(config(), has_file=False, streams=True)


def test_inputs_of_a_fixed_shape_can_be_generated() -> None:
    load.check_inputs(config(), has_file=False)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"input": [1]}', '{"input": [{"name": "x"}]}', "null"])
def test_a_configuration_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(load.LoadError, match="can't be read"):
        load.check_inputs(text, has_file=False)


STEP = Step("bisection", 50.0, 20.0, 4)
ANSWER = {
    "requests": 1000, "failures": 0, "sent": 49.7, "latencies": {"latency": {"p50": 0.02, "p99": 0.19}}, "took": 20.4,
}  # fmt: skip


def answering(text: str) -> load.Run:
    return lambda command, seconds: text


def test_a_measurement_sends_the_rate_of_the_step() -> None:
    commands: list[list[str]] = []

    def run(command: Any, seconds: float) -> str:
        commands.append(list(command))
        return f"words\n{json.dumps(ANSWER)}\n"

    point = load.measure(load.Load("yolo", "grpc"), run, STEP)
    assert point == Point("bisection", 50.0, 49.7, {LATENCY: Latency(0.02, 0.19)}, 1000, 0, 20.4)
    assert {"--model=yolo", "--url=127.0.0.1:8001", "--rate=50.0", "--seconds=20.0", "--seed=4"} <= set(commands[0])


def test_requests_without_an_answer_have_an_infinite_latency() -> None:
    answer = {**ANSWER, "sent": None, "latencies": {}}
    commands: list[list[str]] = []

    def run(command: Any, seconds: float) -> str:
        commands.append(list(command))
        return json.dumps(answer)

    point = load.measure(load.Load("yolo"), run, STEP)
    assert (point.latency(LATENCY).p99, point.sent) == (math.inf, 50.0)
    assert "--requests=1" in commands[1], "waits until the server has answered the others"
    assert point.took == 2 * ANSWER["took"]


def test_a_failure_has_the_words_of_the_server_on_one_line() -> None:
    answer = {**ANSWER, "failures": 1, "error": "bad\x1b[31m\nimage" + "x" * 9000}
    point = load.measure(load.Load("yolo"), answering(json.dumps(answer)), STEP)
    assert point.failures == 1
    assert point.error.startswith("bad?[31m image")
    assert len(point.error) <= 500


@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), lambda c: st.dictionaries(st.sampled_from(
    ["requests", "failures", "sent", "latencies", "latency", "p50", "p99", "took"]), c)).map(json.dumps))  # fmt: skip
def test_any_answer_gives_a_point_or_an_error_for_the_user(text: str) -> None:
    with contextlib.suppress(load.LoadError):
        assert load.measure(load.Load("yolo"), answering(text), STEP).rate == STEP.rate


STREAMED = {
    **ANSWER, "requests": 50, "responses": 1000,
    "latencies": {kind: {"p50": p99 / 2, "p99": p99} for kind, p99 in ((LATENCY, 0.9), (TTFT, 0.2), (TPOT, 0.03))},
}  # fmt: skip


def test_a_measurement_of_streams_has_their_latencies_and_responses() -> None:
    commands: list[list[str]] = []

    def run(command: Any, seconds: float) -> str:
        commands.append(list(command))
        return json.dumps(STREAMED)

    measured = load.measure(load.Load("chat", "grpc", streams=True), run, STEP)
    assert measured.responses == 1000
    assert measured.latencies == {
        LATENCY: Latency(0.45, 0.9), TTFT: Latency(0.1, 0.2), TPOT: Latency(0.015, 0.03)
    }  # fmt: skip
    assert {"--streaming", "--protocol=grpc", "--url=127.0.0.1:8001"} <= set(commands[0])


def single(**changes: Any) -> load.Measurement:
    """Returns the measurement of single requests to a server that streams: 20 tokens, TTFT 0.1 s, TPOT 0.015 s."""
    return load.idle(load.Load("chat", "grpc", streams=True), answering(json.dumps(STREAMED | changes)))


@pytest.mark.parametrize(
    ("targets", "words"),
    [({TTFT: 0.11, TPOT: 0.016}, ""), ({TTFT: 0.09, TPOT: 1}, "a TTFT of 100 ms, longer than the target"),
     ({TTFT: 1, TPOT: 0.01}, "a TPOT of 15 ms, longer than the target")],
)  # fmt: skip
def test_targets_that_an_idle_server_misses_are_impossible(targets: dict[str, float], words: str) -> None:
    why = load.impossible(Goal(targets), single())
    assert words in why
    assert bool(words) == bool(why)


def test_one_response_has_no_time_per_token() -> None:
    latencies = {kind: value for kind, value in STREAMED["latencies"].items() if kind != TPOT}
    why = load.impossible(Goal({TPOT: 1}), single(latencies=latencies, responses=50))
    assert why == "there is no TPOT, as each request had one response: do the inputs ask for a stream?"


def test_an_answer_at_the_targets_has_the_responses_of_an_idle_server() -> None:
    assert load.answer_seconds(Goal({TTFT: 0.3, TPOT: 0.04}), single()) == pytest.approx(0.3 + 19 * 0.04)
    assert load.answer_seconds(Goal({TTFT: 0.3}), single()) == pytest.approx(0.3 + 19 * 0.015)
    assert load.answer_seconds(Goal({LATENCY: 1}), single(responses=0)) == 0


def point(rate: float, p99: float, phase: Any = "doubling") -> Point:
    return Point(phase, rate, rate, {LATENCY: Latency(p99 / 2, p99)}, 1000, 0, 20)


POINTS = (
    point(25, 0.03), point(50, 0.19), point(100, math.inf), point(75, 1.4, "bisection"), point(51.2, 0.22, "bisection"),
    *(point(50, p99, "confirmation") for p99 in (0.18, 0.21, 0.17)),
)  # fmt: skip
OUTCOME = SearchResult(POINTS, 50.0)
LIVE = {
    "spec": {"nodeName": "n1", "containers": [{"name": "triton", "resources": {"limits": {"cpu": "2"}}}]},
    "status": {
        "qosClass": "Burstable",
        "initContainerStatuses": [{"name": "fetch", "imageID": "r@sha256:aa"}],
        "containerStatuses": [{"name": "triton", "imageID": "s@sha256:bb"}, {"name": "load", "imageID": "l@sha256:cc"}],
    },
}


def answer(outcome: SearchResult = OUTCOME) -> dict[str, Any]:
    return result.document(MODEL, Goal({LATENCY: 0.2}), outcome, {}, "2026-01-01T00:00:00Z", result.evidence(LIVE))


def test_the_result_has_its_evidence() -> None:
    document = json.loads(json.dumps(answer(), allow_nan=False))
    assert document["maxQpsPerReplica"] == 50
    assert document["confirmations"] == {"count": 3, "p99": {"latency": {"min": 0.17, "max": 0.21}}}
    assert document["images"] == {"fetch": "r@sha256:aa", "triton": "s@sha256:bb", "load": "l@sha256:cc"}
    assert document["resources"] == {"triton": {"limits": {"cpu": "2"}}}
    assert (document["node"], document["targets"], document["generation"]) == ("n1", {"latency": 0.2}, 3)
    assert [row["rate"] for row in document["curve"]] == [p.rate for p in POINTS]
    assert document["curve"][2]["latencies"]["latency"]["p99"] is None


def test_the_text_has_the_value_the_evidence_and_the_command() -> None:
    text = result.text(answer(), MODEL, Goal({LATENCY: 0.2}), OUTCOME, "prod")
    assert "One server handles 50.0 requests/s with p99 of at most 200 ms." in text
    assert "by 3 measurements, p99 170 ms, 180 ms, 210 ms" in text
    assert "s@sha256:bb" in text
    assert (
        "kubectl --context=prod annotate tritonmodel/detection -n vision --overwrite "
        "tritonoperator.io/max-qps-per-replica=50.0"
    ) in text


LATENCIES = ({TTFT: Latency(0.1, ttft), TPOT: Latency(0.012, 0.013)} for ttft in (0.25, 0.31, 0.28))
STREAMS = SearchResult(
    tuple(Point("confirmation", 9.31, 9.31, each, 100, 0, 20, responses=2000) for each in LATENCIES), 9.31
)
TOKENS = Goal({TTFT: 0.3, TPOT: 0.04})
COUNTED = {**MODEL, "spec": {"monitoring": {"tokenCounter": "vllm:generation_tokens_total"}}}


def test_the_result_of_a_model_that_streams_has_requests_and_tokens() -> None:
    document = result.document(COUNTED, TOKENS, STREAMS, {}, "2026-01-01T00:00:00Z", result.evidence(LIVE))
    assert (document["maxQpsPerReplica"], document["maxTpsPerReplica"]) == (9.31, 186)
    assert document["confirmations"]["p99"]["ttft"] == {"min": 0.25, "max": 0.31}
    assert document["confirmations"]["p99"]["tpot"] == {"min": 0.013, "max": 0.013}
    assert document["curve"][0]["responses"] == 2000
    text = result.text(document, COUNTED, TOKENS, STREAMS, None)
    assert (
        "One server handles 9.31 requests/s and 186 tokens/s with p99 of TTFT of at most 300 ms and p99 of TPOT of at "
        "most 40 ms."
    ) in text
    assert "by 3 measurements, p99 of TTFT 250 ms, 280 ms, 310 ms; p99 of TPOT 13 ms, 13 ms, 13 ms" in text
    assert "tritonoperator.io/max-qps-per-replica=9.31 tritonoperator.io/max-tps-per-replica=186" in text


def test_tokens_are_proposed_only_if_they_are_counted() -> None:
    assert result.proposals(COUNTED, STREAMS) == {result.ANNOTATION: "9.31", result.ANNOTATION_TOKENS: "186"}
    assert result.proposals(MODEL, STREAMS) == {result.ANNOTATION: "9.31"}
    assert result.proposals(COUNTED, OUTCOME) == {result.ANNOTATION: "50.0"}
    document = result.document(MODEL, TOKENS, STREAMS, {}, "2026-01-01T00:00:00Z", result.evidence(LIVE))
    assert "set spec.monitoring.tokenCounter" in result.text(document, MODEL, TOKENS, STREAMS, None)


def test_without_a_result_the_text_gives_the_reason_and_no_command() -> None:
    failed = SearchResult(POINTS[:2], reason="the time limit of 60 s is reached")
    text = result.text(answer(failed), MODEL, Goal({LATENCY: 0.2}), failed, None)
    assert "No result: the time limit of 60 s is reached" in text
    assert "annotate" not in text


def test_a_lower_bound_says_so() -> None:
    bound = SearchResult(POINTS, 50.0, at_least=True)
    text = result.text(answer(bound), MODEL, Goal({LATENCY: 0.2}), bound, None)
    assert "at least 50.0 requests/s" in text
    assert "--load-cpu" in text


def test_the_chart_shows_each_latency_at_its_place() -> None:
    lines = terminal(chart.charts("", [point(50, 0.2), point(100, 0.4)], {LATENCY: 0.2}, 50)[0])
    rows = {line.partition("|")[0].strip(): line.partition("| ")[2] for line in lines}
    assert rows["400 ms"].index("o") == 60, "400 ms at 100 requests/s: the upper right corner"
    assert rows["200 ms"].index("o") == 30, "200 ms at 50 requests/s: the middle"
    assert rows["200 ms"].count("⣀") == 59, "the target is a line"
    assert all(rows[label][30] in "⡇⡀o." for label in rows if label.endswith(" ms")), "the result is a column"
    assert lines[-1].strip() == "⠤ target 200 ms   ⡇ result 50   . P50   o p99"


NUMBERS = st.floats(0, allow_nan=False)


@given(st.lists(st.builds(
    Point, st.just("doubling"), st.floats(0.01, 1e6), NUMBERS,
    st.dictionaries(st.sampled_from([LATENCY, TTFT]), st.builds(Latency, NUMBERS, NUMBERS)),
    st.integers(0), st.integers(0), NUMBERS
), max_size=20), st.floats(0.001, 1000))  # fmt: skip
def test_every_result_has_charts(points: list[Point], target: float) -> None:
    rate = points[0].rate if points else None
    charts = chart.charts("<&>", points, {TTFT: target, TPOT: target / 10}, rate)
    assert len(charts) == (2 if points else 0)
    assert all(len(line) <= 110 for drawing in charts for line in terminal(drawing))
    if charts:
        root = ElementTree.fromstring(svg(charts))
        assert len(root.findall(".//{*}circle")) == 2 * 2 * len(points)
        assert "nan" not in ElementTree.tostring(root, encoding="unicode").replace("nano", "")


def test_the_proposal_passes_the_check_of_thresholds() -> None:
    from triton_operator.api import thresholds

    parsed = thresholds.parse({result.ANNOTATION: proposal(0.0456)})
    assert not parsed.invalid
    assert len(parsed.requested) == 1


@pytest.mark.parametrize("p99", ["200", "0s", "-1s", "2x", "", "nan"])
def test_a_wrong_duration_is_refused(p99: str) -> None:
    invocation = CliRunner().invoke(main, ["calibrate", "m", f"--p99={p99}"])
    assert invocation.exit_code == 2
    assert "is not a duration such as 200ms" in invocation.output


@pytest.mark.parametrize(
    ("options", "words"),
    [((), "give a target: --p99, or for a model that streams --ttft, --tpot or both"),
     (("--p99=1s", "--ttft=1s"), "--p99 is for a model with one response"),
     (("--tpot=40ms", "--protocol=http"), "measured over gRPC: leave out --protocol=http")],
)  # fmt: skip
def test_targets_that_no_model_can_have_are_refused(options: tuple[str, ...], words: str) -> None:
    invocation = CliRunner().invoke(main, ["calibrate", "m", *options])
    assert invocation.exit_code == 2
    assert words in invocation.output


def test_a_file_in_another_format_is_refused_before_anything_is_created(tmp_path: Any) -> None:
    file = tmp_path / "picture.jpg"
    for content in (b"\xff\xd8", b"[]", b'{"x": 1}', b"3"):
        file.write_bytes(content)
        invocation = CliRunner().invoke(main, ["calibrate", "m", "--p99=1s", f"--input-data={file}"])
        assert invocation.exit_code == 1
        assert "not perf_analyzer's JSON format" in invocation.output


def test_in_a_pod_the_service_account_connects(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "namespace").write_text("vision\n")
    monkeypatch.setattr(cluster, "_POD_NAMESPACE", tmp_path / "namespace")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    monkeypatch.setattr(
        "kubernetes.config.load_incluster_config", lambda configuration: setattr(configuration, "host", "https://in")
    )
    connection = cluster.connect(None, None)
    assert (connection.namespace, connection.configuration.host) == ("vision", "https://in")
    assert cluster.connect("sound", None).namespace == "sound"
    # A kubeconfig is the user's choice.
    config = tmp_path / "none"
    config.write_text(json.dumps({"contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                                  "current-context": "c", "users": [{"name": "u", "user": {}}],
                                  "clusters": [{"name": "k", "cluster": {"server": "https://out"}}]}))  # fmt: skip
    assert cluster.connect(None, None).configuration.host == "https://out"


USER: dict[str, Any] = {"name": "u", "user": {}}


def test_of_several_kubeconfigs_the_first_with_a_current_context_wins_as_for_kubectl(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / name for name in ("none", "first", "second", "absent")]
    for file in files[:3]:
        server = {"name": file.name, "cluster": {"server": f"https://{file.name}"}}
        context = {"name": file.name, "context": {"cluster": file.name, "user": "u", "namespace": f"in-{file.name}"}}
        current = {} if file.name == "none" else {"current-context": file.name}
        file.write_text(json.dumps({"clusters": [server], "contexts": [context], "users": [USER], **current}))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", ":".join(map(str, files)))
    connection = cluster.connect(None, None)
    assert (connection.configuration.host, connection.namespace) == ("https://first", "in-first")
    assert cluster.connect(None, "second").configuration.host == "https://second"
