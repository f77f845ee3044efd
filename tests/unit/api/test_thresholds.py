"""Thresholds from annotations: which are accepted, how invalid ones are reported, and which values are effective."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from support import gen
from triton_operator.api import thresholds
from triton_operator.api.series import NAMES, series_by_threshold
from triton_operator.api.thresholds import ThresholdKey, accepted, effective, effective_of, is_threshold, parse, text
from triton_operator.api.types import Monitoring

P = thresholds.PREFIX
QPS, PER_REPLICA, TPS = ThresholdKey("max-qps"), ThresholdKey("max-qps-per-replica"), ThresholdKey("max-tps")


def requested(annotations: dict[str, str]) -> dict[str, str]:
    parsed = parse(annotations, {"tokenCounter": "tokens_total", "streaming": {"names": "VLLM"}})
    assert parsed.invalid == ()
    return {str(threshold): str(a.value) for threshold, a in parsed.requested.items()}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, {}),
        ({f"{P}max-qps": "80"}, {"max-qps": "80"}),
        ({"max_qps": "80"}, {"max-qps": "80"}),
        ({f"{P}max-qps": "12.5"}, {"max-qps": "12.5"}),
        ({f"{P}max-qps": "0.025001"}, {"max-qps": "0.025001"}),
        ({f"{P}max-qps": "1000000000"}, {"max-qps": "1000000000"}),
        ({f"{P}max-qps.2": "40"}, {"max-qps.v2": "40"}),
        ({f"{P}max-qps.v2": "40", "max_qps.3": "1"}, {"max-qps.v2": "40", "max-qps.v3": "1"}),
        ({f"{P}max-qps.canary": "5", f"{P}max-qps": "80"}, {"max-qps.canary": "5", "max-qps": "80"}),
        ({f"{P}max-qps-per-replica": "20", f"{P}max-tps": "500"}, {"max-qps-per-replica": "20", "max-tps": "500"}),
        ({f"{P}max-streams-per-replica": "32"}, {"max-streams-per-replica": "32"}),
        ({f"{P}max-cache-usage-per-replica": "0.8"}, {"max-cache-usage-per-replica": "0.8"}),
        ({f"{P}ensemble-coefficient": "3", f"{P}spike-factor": "1.5"},
         {"ensemble-coefficient": "3", "spike-factor": "1.5"}),
        # The same value under two names is valid, also if it is written differently.
        ({f"{P}max-qps": "80", "max_qps": "80.0"}, {"max-qps": "80.0"}),
        # Other annotations are ignored.
        ({"kubectl.kubernetes.io/x": "y", "max-qps": "80", "other.io/max-qps": "80", f"{P}max-qpsx": "1"}, {}),
    ],
)  # fmt: skip
def test_parses_threshold_annotations(annotations: dict[str, str], expected: dict[str, str]) -> None:
    assert requested(annotations) == expected


@pytest.mark.parametrize(
    "value",
    ["", " ", "80 ", " 80", "80\n", "-1", "+1", "1e3", "0x10", "08", ".5", "5.", "1_000", "1,000", "80qps", "NaN",
     "inf", "Infinity", "none", "80/s", "１２", "1" * 16, "0.0000001", "x" * 300_000],
)  # fmt: skip
def test_rejects_values_that_are_not_plain_numbers(value: str) -> None:
    parsed = parse({f"{P}max-qps": value})
    (invalid,) = parsed.invalid
    assert parsed.requested == {}
    assert (invalid.source, invalid.threshold) == (f"{P}max-qps", QPS)
    assert "is not a plain number such as 80 or 12.5" in invalid.message
    assert len(invalid.message) < 200


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        ("max-qps", "0", "must be above 0.025 and at most 1000000000; remove the annotation to have no limit"),
        ("max-qps", "0.0", "must be above 0.025"),
        ("max-qps", "1000000000.000001", "=1000000000.000001: must be above 0.025 and at most 1000000000"),
        ("max-qps", "9" * 15, "must be above 0.025 and at most 1000000000"),
        (
            "max-qps",
            "0.025",
            "must be above 0.025 and at most 1000000000, because a limit is compared with the rate of",
        ),
        ("max-qps.2", "0.01", "a single request would be above it"),
        ("max-tps", "0.001", "a single request would be above it"),
        ("max-qps-per-replica", "0", "must be above 0 and at most 1000000000; remove the annotation"),
        ("max-qps-peak", "1", "must be above 1 and at most 1000000000, because a single request between two scrapes"),
        ("max-qps-peak.2", "8", "max-qps-peak applies to all versions"),
        ("spike-factor", "1", "must be above 1 and at most 1000"),
        ("spike-factor", "1000.1", "must be above 1 and at most 1000"),
        ("ensemble-coefficient", "1001", "must be above 0 and at most 1000"),
        ("max-qps.", "1", "'' is not a model version such as 2 or v2"),
        ("max-qps.0", "1", "'0' is not a model version"),
        ("max-qps.v02", "1", "'v02' is not a model version"),
        ("max-qps.vcanary", "1", "'vcanary' is not a model version such as 2 or v2, and not canary"),
        ("max-qps.canary", "0.01", "a single request would be above it"),
        ("max-qps-per-replica.canary", "1", "applies to all versions; remove the .canary"),
        ("max-qps.2.3", "1", "'2.3' is not a model version"),
        ("max-qps-per-replica.2", "1", "applies to all versions; remove the .2"),
        ("max-tps.v1", "1", "applies to all versions; remove the .v1"),
        ("max-tps", "5", "spec.monitoring.tokenCounter to the counter in the metrics of Triton, or use max-qps"),
        ("max-tps-per-replica", "5", "max-tps-per-replica needs a token counter: set spec.monitoring.tokenCounter to"),
        ("max-tps-per-replica", "5", "in the metrics of Triton, or use max-qps-per-replica"),
        ("max-streams-per-replica", "5", "needs a gauge of open streams: set spec.monitoring.streaming.running, or"),
        ("max-cache-usage-per-replica", "0.5", "needs a gauge of the KV cache: set spec.monitoring.streaming.cacheUs"),
        ("max-cache-usage-per-replica", "80", "=80: must be above 0 and at most 1"),
    ],
)
def test_error_message_says_what_is_wrong_and_what_to_do(annotation: str, value: str, words: str) -> None:
    parsed = parse({P + annotation: value})
    (invalid,) = parsed.invalid
    assert parsed.requested == {}
    assert invalid.message.startswith(P + annotation)
    assert words in invalid.message


@pytest.mark.parametrize(
    "annotations",
    [
        {f"{P}max-qps": "80", "max_qps": "90"},
        {f"{P}max-qps.2": "80", f"{P}max-qps.v2": "90"},
        {f"{P}max-qps.2": "80", f"{P}max-qps.v2": "90", "max_qps.2": "80"},
        {f"{P}max-qps": "80", "max_qps": "many"},
        {f"{P}max-qps": "many", "max_qps": "80"},
    ],
)
def test_rejects_both_annotations_if_their_values_differ(annotations: dict[str, str]) -> None:
    parsed = parse(annotations)
    assert parsed.requested == {}
    assert {w.threshold for w in parsed.invalid} == {QPS if "max_qps" in annotations and len(annotations) == 2 else V2}


V2 = ThresholdKey("max-qps", "2")


def test_accepts_valid_thresholds_beside_invalid_ones() -> None:
    parsed = parse({f"{P}max-qps": "80", f"{P}max-qps.2": "x", f"{P}spike-factor": "0.5"})
    assert set(parsed.requested) == {QPS}
    assert {str(w.threshold) for w in parsed.invalid} == {"max-qps.v2", "spike-factor"}


def test_accepts_the_first_64_thresholds_and_reports_the_rest() -> None:
    """Annotations can have 256 KiB, which is 14500 thresholds: too many series, and a status too large for etcd."""
    many = {f"{P}max-qps.{n}": "1" for n in range(14_500, 0, -1)} | {"max_qps": "80", f"{P}spike-factor": "x"}
    parsed = parse(many)
    # Thresholds without a version come first, then the lowest versions. So a new version never displaces an old one.
    assert set(parsed.requested) == {
        QPS,
        *(ThresholdKey("max-qps", str(n)) for n in range(1, thresholds.MAX_THRESHOLDS - 1)),
    }
    spike, more = parsed.invalid
    assert spike.threshold == ThresholdKey("spike-factor")
    assert (more.source, more.threshold) == (f"{P}max-qps.63", None)
    assert more.message == (
        "14502 threshold annotations, but at most 64 are allowed: "
        "tritonoperator.io/max-qps.63 and the 14437 after it are "
        "ignored; remove the thresholds of versions that are no longer served"
    )
    # The limit also applies to a status that an earlier operator wrote.
    status = {"thresholds": [{"kind": "max-qps", "version": str(n), "value": "1"} for n in range(1, 14_501)]}
    model = gen.raw(gen.put("metadata.annotations", many), gen.put("status", status))
    assert len(effective_of(model)) == 62 + len(thresholds.KINDS)


@pytest.mark.parametrize("key", ["max-qps.x{}", "max_qps.0{}", "spike-factor.{}"])
def test_limits_the_number_of_reported_errors(key: str) -> None:
    parsed = parse({(key if key[3] == "_" else P + key).format(n): "fast" for n in range(1, 1001)})
    assert parsed.requested == {}
    assert len(parsed.invalid) == thresholds.MAX_THRESHOLDS + 1


def test_accepts_the_maximum_number_of_thresholds() -> None:
    assert (
        len(requested({f"{P}max-qps.{n}": "1" for n in range(1, thresholds.MAX_THRESHOLDS + 1)}))
        == thresholds.MAX_THRESHOLDS
    )


def test_recognizes_threshold_annotations() -> None:
    assert all(map(is_threshold, (f"{P}max-qps", "max_qps", "max_qps.v1", f"{P}max-qps.nonsense", f"{P}spike-factor")))
    assert not any(map(is_threshold, ("max-qps", f"{P}max_qps", f"{P}template-hash", f"{P}max-tps-per-second")))


# Effective values


def effective_values(replicas: int = 1, **values: str) -> dict[str, float]:
    slots = {ThresholdKey(*k.replace("_", "-").partition(".")[::2]): Decimal(v) for k, v in values.items()}
    return {str(s): v for s, v in effective(slots, replicas).items()}


@pytest.mark.parametrize(
    ("streaming", "kinds"),
    [
        (None, []),
        ({}, []),
        ({"waiting": "w", "failed": "f"}, []),
        ({"running": "r"}, ["max-streams-per-replica"]),
        ({"cacheUsage": "c"}, ["max-cache-usage-per-replica"]),
        *(({"names": names}, ["max-streams-per-replica", "max-cache-usage-per-replica"]) for names in NAMES),
    ],
)
def test_limits_of_gauges_need_their_series(streaming: dict[str, str] | None, kinds: list[str]) -> None:
    annotations = {f"{P}max-streams-per-replica": "8", f"{P}max-cache-usage-per-replica": "0.9"}
    monitoring = {} if streaming is None else {"streaming": streaming}
    parsed = parse(annotations, monitoring)
    assert sorted(threshold.kind for threshold in parsed.requested) == sorted(kinds)
    assert len(parsed.invalid) == 2 - len(kinds)
    named = series_by_threshold(Monitoring.model_validate(monitoring))
    assert all(named[kind] for kind in thresholds.KINDS if kind.name in kinds)


def test_default_limits_are_infinite() -> None:
    assert effective_values() == {
        "max-qps": math.inf, "max-qps-peak": math.inf, "max-qps-per-replica": math.inf,
        "max-tps": math.inf, "max-tps-per-replica": math.inf,
        "max-streams-per-replica": math.inf, "max-cache-usage-per-replica": math.inf,
        "ensemble-coefficient": 1, "token-coefficient": math.inf, "spike-factor": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("replicas", "values", "per_replica", "tokens"),
    [
        (4, {"max_qps": "80"}, 20, math.inf),
        (4, {"max_qps": "80", "max_qps_per_replica": "50"}, 50, math.inf),
        (1, {"max_qps": "80"}, 80, math.inf),
        (0, {"max_qps": "80"}, 80, math.inf),  # scaled to zero: not divided
        (4, {"max_tps": "1000"}, math.inf, 250),
        (4, {"max_tps": "1000", "max_tps_per_replica": "400"}, math.inf, 400),
        (4, {"max_tps_per_replica": "400"}, math.inf, 400),
        (3, {"max_qps_per_replica": "10"}, 10, math.inf),
    ],
)
def test_derives_the_limits_per_replica(
    replicas: int, values: dict[str, str], per_replica: float, tokens: float
) -> None:
    limits = effective_values(replicas, **values)
    assert (limits["max-qps-per-replica"], limits["max-tps-per-replica"]) == (per_replica, tokens)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 80),
        ({"replicas": 2}, 40),
        ({"autoscaling": {"max": 4}}, 20),
        ({"autoscaling": {"max": 4, "engine": "None"}, "replicas": 2}, 40),
        ({"autoscaling": {"max": 4, "engine": "None"}}, 80),
    ],
)
def test_derives_the_limit_per_replica_from_the_maximum_replicas_of_the_spec(
    spec: dict[str, Any], expected: float
) -> None:
    model = gen.raw(gen.put("metadata.annotations", {f"{P}max-qps": "80"}), **spec)
    assert effective_of(model)[PER_REPLICA] == expected


def test_keeps_the_accepted_value_while_the_annotation_is_invalid() -> None:
    before = {QPS: Decimal(80), TPS: Decimal(5)}
    assert accepted(parse({f"{P}max-qps": "x"}), before) == {QPS: Decimal(80)}
    assert accepted(parse({f"{P}max-qps": "90"}), before) == {QPS: Decimal(90)}
    # Removing the annotation removes the value.
    assert accepted(parse({}), before) == {}
    assert accepted(parse({f"{P}max-qps": "x"}), {}) == {}
    assert accepted(parse({f"{P}max-qps": "80", "max_qps": "90"}), {QPS: Decimal(70)}) == {QPS: Decimal(70)}
    # An annotation with an invalid version doesn't affect the value without a version.
    assert accepted(parse({f"{P}max-qps": "90", f"{P}max-qps.x": "1"}), before) == {QPS: Decimal(90)}


def test_ignores_invalid_values_in_the_status() -> None:
    model = gen.raw(
        gen.put("metadata.annotations", {f"{P}max-qps": "x", f"{P}spike-factor": "y"}),
        gen.put("status.thresholds", [{"kind": "max-qps", "value": "many"}, {"kind": "spike-factor", "value": "5"}]),
    )
    assert effective_of(model)[QPS] == math.inf
    assert effective_of(model)[ThresholdKey("spike-factor")] == 5


@pytest.mark.parametrize(
    ("value", "expected"),
    [(80, "80"), (80.0, "80"), (12.5, "12.5"), (Decimal("0.000001"), "0.000001"), (math.inf, "none"), (1000, "1000"),
     (999999999, "999999999"), (Decimal("80.0"), "80"), (1 / 3, "0.333333"), (100, "100")],
)  # fmt: skip
def test_formats_values_for_the_status(value: float, expected: str) -> None:
    assert text(value) == expected


def test_status_text_can_be_parsed_again() -> None:
    for value in ("80", "12.5", "0.000001", "999999999.999999", "100", "80.0"):
        (parsed,) = thresholds.last_accepted(
            {"thresholds": [{"kind": "max-qps", "value": text(Decimal(value))}]}
        ).values()
        assert parsed == Decimal(value)
