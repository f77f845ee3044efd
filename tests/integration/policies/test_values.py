"""Values of thresholds: the policy rejects exactly what the operator's parser rejects."""

from __future__ import annotations

import itertools

import pytest

from support.api import Object
from support.controlplane import ControlPlane
from support.people import Team, dry_run, refusal, tritonmodel
from support.thresholds import MAX_QPS, PREFIX, annotate
from triton_operator.api import thresholds

pytestmark = pytest.mark.integration

NUMBERS = [
    "1", "80", "12.5", "0.5", "0.8", "0.000001", "2.000000", "1000", "1000.000001", "1001", "999999999",
    "999999999.999999", "1000000000", "1000000000.000001", "9999999999", "9" * 15, "9" * 16, "0", "0.0", "0.000000", "",
    " ", " 80", "80 ", "80\n", "\n80", "+5", "-1", "-0", "080", "00", "1.",
    ".5", "1.2345678", "1e3", "1E3", "0x10", "1_000", "1,5", "1,000", "80qps", "80/s", "5k", "inf", "Infinity", "nan",
    "NaN", "none", "true", "1.2.3", "٣", "８０", "²", "8" * 400, "80\x00",
]  # fmt: skip
KEYS = [
    *(PREFIX + k.name for k in thresholds.KINDS), "max_qps",
    *(f"{base}.{v}" for base in (MAX_QPS, "max_qps") for v in
      ("2", "v2", "v12", "999999999", "v0", "0", "02", "v02", "V2", "x", "latest", "vv2", "2v", "2.3", "v2.v3",
       "1234567890", "canary", "vcanary", "canary2", "Canary", "canary.v2")),
    f"{PREFIX}max-tps.canary",
    *(f"{PREFIX}{name}.v2" for name in ("max-qps-per-replica", "max-tps", "ensemble-coefficient", "spike-factor")),
]  # fmt: skip
MONITORING: list[Object] = [
    {}, {"tokenCounter": "tokens_total"}, {"streaming": {}}, {"streaming": {"waiting": "w"}},
    {"streaming": {"running": "r"}}, {"streaming": {"cacheUsage": "c"}}, {"streaming": {"names": "TensorRTLLM"}},
    {"tokenCounter": "tokens_total", "streaming": {"names": "VLLM"}},
]  # fmt: skip
PAIRS = [
    {MAX_QPS: "80", "max_qps": "80"}, {MAX_QPS: "80", "max_qps": "80.0"}, {MAX_QPS: "80", "max_qps": "80.000001"},
    {MAX_QPS: "80", "max_qps": "fast"}, {MAX_QPS: "999999999", "max_qps": "999999998.999999"},
    {f"{MAX_QPS}.v2": "80", f"{MAX_QPS}.2": "80.0"}, {f"{MAX_QPS}.v2": "80", f"{MAX_QPS}.2": "81"},
    {f"{MAX_QPS}.v2": "80", "max_qps.v2": "81"}, {f"{MAX_QPS}.2": "80", "max_qps.v2": "81"},
    {"max_qps.2": "80", "max_qps.v2": "81"}, {"max_qps.2": "80", "max_qps.v2": "80"},
    {MAX_QPS: "80", f"{MAX_QPS}.v2": "20", "max_qps.3": "30"}, {f"{MAX_QPS}.v2": "80", "max_qps.v22": "81"},
    {f"{MAX_QPS}.canary": "8", "max_qps.canary": "9"}, {f"{MAX_QPS}.canary": "8", "max_qps.canary": "8.0"},
    {MAX_QPS: "80", "example.com/max-qps": "fast"}, {"example.com/note": "max_qps=fast"},
]  # fmt: skip


def policy_refusal(plane: ControlPlane, annotations: dict[str, str], monitoring: Object | None = None) -> str:
    """Returns the policy's message, or "" if it accepts. Fails if policy and parser disagree."""
    spec: Object = {} if monitoring is None else {"monitoring": monitoring}
    message = refusal(lambda: dry_run(plane.api, tritonmodel("values", annotations, **spec)))
    invalid = thresholds.parse(annotations, monitoring or {}).invalid
    assert bool(message) == bool(invalid), (annotations, message, invalid)
    # The policy says first what is wrong with the value.
    assert not (message and invalid and "needs a" in invalid[0].message) or invalid[0].message in message
    assert not message or "threshold-values.tritonoperator.io" in message
    return message


@pytest.mark.parametrize("kind", thresholds.KINDS, ids=lambda k: k.name)
def test_policy_rejects_exactly_the_values_that_the_operator_rejects(
    plane: ControlPlane, kind: thresholds.Kind
) -> None:
    refused = [n for n in NUMBERS if policy_refusal(plane, {PREFIX + kind.name: n}, MONITORING[-1])]
    assert len(NUMBERS) - len(refused) >= 4
    assert len(refused) >= 35


@pytest.mark.parametrize("value", ["80", "0.8", "fast", "0"])
def test_policy_rejects_exactly_the_annotations_that_the_operator_rejects(plane: ControlPlane, value: str) -> None:
    for key, monitoring in itertools.product(KEYS, MONITORING):
        policy_refusal(plane, {key: value}, monitoring)


def test_policy_rejects_exactly_the_pairs_whose_values_differ(plane: ControlPlane) -> None:
    assert [bool(policy_refusal(plane, pair)) for pair in PAIRS].count(True) == 8


def test_policy_rejects_more_thresholds_than_the_operator_accepts(plane: ControlPlane) -> None:
    limit = thresholds.MAX_THRESHOLDS
    many = {f"{MAX_QPS}.{n}": "1" for n in range(1, limit)} | {"max_qps": "80"}
    assert not policy_refusal(plane, {**many, "example.com/note": "x"})
    too_many = (
        "65 threshold annotations, but at most 64 are allowed: remove the thresholds of versions that are no longer"
    )
    assert too_many in policy_refusal(plane, {**many, "max_qps.64": "1"})
    assert "at most 128 annotations" in policy_refusal(plane, {f"max_qps.{n}": "1" for n in range(14_500)})


def test_existing_excess_thresholds_do_not_block_other_changes(plane: ControlPlane) -> None:
    api, name = plane.api, "too-many-before"
    api.patch("TritonModel", name, {"metadata": {"labels": {"a": "b"}}})
    annotate(api, name, **{"max-qps.1": "2"})
    assert "71 threshold annotations" in refusal(lambda: annotate(api, name, spike_factor="4"))
    annotate(api, name, **{"max-qps.2": None})


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({MAX_QPS: "80qps"}, "max-qps: '80qps' is not a plain number such as 80 or 12.5 (without a unit)"),
        ({MAX_QPS: "80\n"}, "tritonoperator.io/max-qps: its value is not a plain number"),
        ({MAX_QPS: "10000000000"}, "must be above 0.025 and at most 1000000000"),
        ({MAX_QPS: "0"}, "must be above 0.025 and at most 1000000000; remove the annotation to have no limit"),
        ({MAX_QPS: "0.02"}, "a limit is compared with the rate of a minute, and a single request would be above it"),
        ({f"{PREFIX}max-qps-peak": "1"}, "at most 1000000000, because a single request between two scrapes could be"),
        ({f"{PREFIX}max-qps-peak.v2": "8"}, "max-qps-peak applies to all versions; remove the .v2"),
        ({f"{PREFIX}spike-factor": "1"}, "tritonoperator.io/spike-factor=1: must be above 1 and at most 1000"),
        ({f"{MAX_QPS}.x": "8"}, "max-qps.x: x is not a model version such as 2 or v2, and not canary"),
        ({f"{PREFIX}max-tps.v2": "8"}, "max-tps applies to all versions; remove the .v2"),
        ({f"{PREFIX}max-tps-per-replica": "8"}, "max-tps-per-replica needs a token counter: set spec"),
        ({f"{PREFIX}max-tps-per-replica": "8"}, "of Triton, or use max-qps-per-replica"),
        ({f"{PREFIX}max-streams-per-replica": "8"}, "needs a gauge of open streams: set spec.monitoring.streaming.run"),
        ({f"{PREFIX}max-cache-usage-per-replica": "80"}, "must be above 0 and at most 1"),
        ({f"{PREFIX}max-tps": "8"}, "set spec.monitoring.tokenCounter to the counter in the metrics of Triton"),
        ({MAX_QPS: "8", "max_qps": "9"}, "differ: remove one"),
        # Annotations that would have no effect
        ({f"{PREFIX}max-qsp": "8"}, "max-qsp is not a threshold; the thresholds are tritonoperator.io/max-qps "),
        ({f"{PREFIX}max_qps": "8"}, "tritonoperator.io/max_qps is not a threshold"),
        ({f"{PREFIX}max-tps-per-second": "8"}, "is not a threshold"),
        ({"max-qps": "8"}, "max-qps is not a threshold; the thresholds are tritonoperator.io/max-qps (and "),
        ({"spike_factor": "8"}, "spike_factor is not a threshold"),
        ({f"{PREFIX}enforce": "yes"}, "tritonoperator.io/enforce is neither 'true' nor 'false'"),
        # Several errors at once
        ({MAX_QPS: "x", f"{PREFIX}spike-factor": "y"}, "spike-factor: 'y' is not a plain number"),
    ],
)  # fmt: skip
def test_message_names_the_annotation_and_what_to_do(
    plane: ControlPlane, annotations: dict[str, str], expected: str
) -> None:
    assert expected in refusal(lambda: dry_run(plane.api, tritonmodel("words", annotations)))


def test_existing_invalid_value_does_not_block_other_changes(plane: ControlPlane) -> None:
    api, name = plane.api, "stored-before"
    api.patch("TritonModel", name, {"spec": {"server": {"image": "triton:2"}}, "metadata": {"labels": {"a": "b"}}})
    api.patch("TritonModel", name, {"metadata": {"finalizers": ["example.com/wait"]}})
    api.patch("TritonModel", name, {"metadata": {"finalizers": None}})
    api.patch("TritonModel", name, {"status": {"selector": "a=b"}}, subresource="status")
    annotate(api, name, spike_factor="4")
    assert "'slow' is not a plain number" in refusal(lambda: annotate(api, name, max_qps="slow"))
    assert "'slower' is not a plain number" in refusal(
        lambda: api.patch("TritonModel", name, {"metadata": {"annotations": {MAX_QPS: "slower"}}})
    )
    api.patch("TritonModel", name, {"metadata": {"annotations": {MAX_QPS: "80", f"{PREFIX}depth": None}}})


def test_token_counter_cannot_be_removed_while_max_tps_is_set(team: Team) -> None:
    api = team.api("developer")
    team.api().create(tritonmodel("llm", {f"{PREFIX}max-tps": "100"}, monitoring={"tokenCounter": "tokens_total"}))
    without: Object = {"spec": {"monitoring": {"tokenCounter": None}}}
    assert "remove the annotation first" in refusal(lambda: api.patch("TritonModel", "llm", without))
    annotate(team.api("oncall"), "llm", max_tps=None, token_coefficient="2")
    assert "remove the annotation first" in refusal(lambda: api.patch("TritonModel", "llm", without))
    annotate(team.api("oncall"), "llm", token_coefficient=None)
    api.patch("TritonModel", "llm", without)


def test_the_gauges_cannot_be_removed_while_their_limits_are_set(team: Team) -> None:
    api, limits = team.api("developer"), {"max_streams_per_replica": "8", "max_cache_usage_per_replica": "0.8"}
    both = {"names": "VLLM", "cacheUsage": "used"}
    team.api().create(tritonmodel("chat", monitoring={"streaming": both}))
    annotate(team.api("oncall"), "chat", **limits)
    without_names: Object = {"spec": {"monitoring": {"streaming": {"names": None}}}}
    refused = refusal(lambda: api.patch("TritonModel", "chat", without_names))
    assert "need: max-streams-per-replica; remove the annotation first" in refused
    annotate(team.api("oncall"), "chat", max_streams_per_replica=None)
    api.patch("TritonModel", "chat", without_names)
    without: Object = {"spec": {"monitoring": None}}
    assert "need: max-cache-usage-per-replica; rem" in refusal(lambda: api.patch("TritonModel", "chat", without))
    annotate(team.api("oncall"), "chat", max_cache_usage_per_replica=None)
    api.patch("TritonModel", "chat", without)
