"""Limits in tokens per second and in open streams, with a language model that streams."""

from __future__ import annotations

import pytest

from kubectl_triton import samples
from model_images.support import MODEL_IMAGES
from support.api import Object, condition, eventually
from support.cluster import ROOT, Cluster, Namespace
from support.live import restarts
from support.load import client
from support.prometheus import Monitoring

pytestmark = pytest.mark.e2e

COUNTER = "vllm:generation_tokens_total"
ANNOTATION = "tritonoperator.io/max-tps"
ALERT = "TritonModelTpsOverflow"
SCRIPTS = (ROOT / "tests/e2e/client/streams.py", MODEL_IMAGES / "language/client/chat.py")


def lives(namespace: Namespace) -> dict[str, int]:
    pods = namespace.pods("language")
    return {pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}


def test_a_limit_of_tokens_is_changed_while_streams_run(
    cluster: Cluster, monitoring: Monitoring, namespace: Namespace
) -> None:
    model = namespace.model(
        "language", cluster.sample_image("language"), entrypoint="language",
        monitoring={"tokenCounter": COUNTER, "streaming": {"names": "VLLM"}},
    )  # fmt: skip
    model["metadata"]["annotations"] = {ANNOTATION: "5"}
    namespace.api.apply(model)
    namespace.wait_until_complete("language")
    labels = {"namespace": namespace.name, "tritonmodel": "language"}
    before = lives(namespace)

    def live(limit: str) -> bool:
        entry = condition(namespace.api.get("TritonModel", "language"), "ThresholdLive")
        return entry.get("status") == "True" and f"max-tps {limit}" in entry["message"]

    with client(namespace, "streams", SCRIPTS, ["python", "/client/streams.py", "language", "--http", "1"]) as result:
        eventually(lambda: monitoring.fires(ALERT, **labels), 300, lambda: monitoring.alerts(ALERT, **labels), 1)
        eventually(lambda: live("5"), 60, lambda: namespace.conditions_text("language"))
        (alert,) = monitoring.alerts(ALERT, **labels)
        assert "more than its max-tps of 5" in alert["annotations"]["summary"]
        shows_the_time_of_streams(namespace, monitoring)
        namespace.kubectl("annotate", "tm/language", "--overwrite", f"{ANNOTATION}=1000000")
        eventually(lambda: live("1e+06") or live("1000000"), 60, lambda: namespace.conditions_text("language"))
        eventually(lambda: not monitoring.alerts(ALERT, **labels), 60, lambda: monitoring.alerts(ALERT, **labels), 1)
    assert result["failures"] == []
    assert result["streams"] > 1
    assert restarts(before, lives(namespace)) == 0
    # What the client has counted is what the limit is compared with.
    selector = f'sum({{__name__="{COUNTER}",namespace="{namespace.name}",tritonmodel="language"}})'
    eventually(
        lambda: monitoring.value(selector) == result["tokens"], 120,
        lambda: f"{result['tokens']} tokens, Prometheus has {monitoring.value(selector)}", 1,
    )  # fmt: skip


def shows_the_time_of_streams(namespace: Namespace, monitoring: Monitoring) -> None:
    """Checks that `kubectl triton top` shows the duration of streams, which is above the time to the first token."""
    assert namespace.api.get("TritonModel", "language")["status"]["decoupled"] == ["language"]
    of = f'namespace="{namespace.name}",tritonmodel="language",quantile="0.5"'
    first, whole = (
        f"tritonmodel:{name}_seconds:quantile1m{{{of}}}" for name in ("time_to_first_token", "stream_duration")
    )
    top = samples.queries(namespace.name)["p50"]

    def agrees() -> bool:
        return (monitoring.value(first) or 0) < monitoring.value(whole) == monitoring.value(top)

    eventually(agrees, 120, lambda: {query: monitoring.value(query) for query in (first, whole, top)}, 1)
    assert monitoring.value(f"nv_inference_request_summary_us{{{of}}} / 1e6") != monitoring.value(top)


def test_the_engine_direct_adds_a_server_for_tokens(cluster: Cluster, namespace: Namespace) -> None:
    """A stream is one request, so the requests alone would need no second server."""
    create(cluster, namespace, {"tokenCounter": COUNTER}, {f"{ANNOTATION}-per-replica": "5"})
    assert desired(namespace) == 1
    with client(namespace, "streams", SCRIPTS, ["python", "/client/streams.py", "language", "--http", "1"]) as result:
        eventually(lambda: desired(namespace) == 2, 120, lambda: namespace.conditions_text("language"))
        # The status may be that of a later look already, at which the busy server didn't answer.
        eventually(lambda: "ScaledUp" in reasons(namespace), 30, lambda: reasons(namespace), 1)
    assert result["failures"] == []


def test_the_engine_direct_adds_a_server_for_open_streams(
    cluster: Cluster, monitoring: Monitoring, namespace: Namespace
) -> None:
    """The server runs all eight streams, and generates less than its limit of tokens."""
    limits = {"tritonoperator.io/max-streams-per-replica": "4", f"{ANNOTATION}-per-replica": "1000000"}
    create(cluster, namespace, {"tokenCounter": COUNTER, "streaming": {"names": "VLLM"}}, limits)
    assert desired(namespace) == 1
    command = ["python", "/client/streams.py", "language", "--http", "8", "--tokens", "300", "400", "--pause", "0.1"]
    load = f'tritonmodel:load_replicas:max{{namespace="{namespace.name}",tritonmodel="language"}}'
    with client(namespace, "streams", SCRIPTS, command) as result:
        eventually(lambda: desired(namespace) == 2, 120, lambda: namespace.conditions_text("language"))
        eventually(lambda: "ScaledUp" in reasons(namespace), 30, lambda: reasons(namespace), 1)
        # The HorizontalPodAutoscaler gets the same load.
        eventually(lambda: (monitoring.value(load) or 0) > 1, 120, lambda: monitoring.value(load), 1)
        live = "max-streams-per-replica 4"
        eventually(lambda: live in namespace.conditions_text("language"), 60, "ThresholdLive", 1)
    assert result["failures"] == []


def create(cluster: Cluster, namespace: Namespace, monitoring: Object, limits: dict[str, str]) -> None:
    """Creates the sample `language` with one server and the engine Direct, which may add a second one."""
    model = namespace.model(
        "language",
        cluster.sample_image("language"),
        entrypoint="language",
        monitoring=monitoring,
        autoscaling={"engine": "Direct", "min": 1, "max": 2},
        rollout={"drainSeconds": 1, "exitSeconds": 5},
    )
    model["metadata"]["annotations"] = limits
    namespace.api.apply(model)
    namespace.wait_until_complete("language")


def desired(namespace: Namespace) -> int:
    return int(namespace.api.get("Deployment", "language")["spec"]["replicas"])


def reasons(namespace: Namespace) -> list[str]:
    """Returns the reasons of all Events of the TritonModel."""
    return [e["reason"] for e in namespace.api.list("Event") if e["involvedObject"]["kind"] == "TritonModel"]
