"""For any state of the cluster, Triton and Prometheus, `assess` returns a status that the API server accepts."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from support import gen, specs
from support.observing import seen
from support.profiles import examples
from triton_operator.api import thresholds
from triton_operator.api.monitoring import Installed, PrometheusAnswer, ServerFault
from triton_operator.api.servers import IndexEntry
from triton_operator.api.status import TritonModelStatus
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.pods import Pod, Problem
from triton_operator.pods.served import served
from triton_operator.status.assess import assess
from triton_operator.status.conditions import transitions
from triton_repository_check import report

Json = dict[str, Any]
NOW = "2026-01-01T00:00:00.000Z"
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REQUIRED = {"name", "image", "type", "status", "exitCode", "restartCount"}
"""Fields that Go writes even if they are empty."""
_TIMES = ("2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z", "0001-01-01T00:00:00Z", None)
# Text that components can write into a status: any reason, and the termination message of any program.
STATUS_TEXTS = st.one_of(
    specs.TEXT,
    st.sampled_from(["Evicted", "OOMKilled", "ImagePullBackOff", "ErrImagePull", "CrashLoopBackOff", "Unschedulable",
                     "True",
                     "CreateContainerError", "Failed", "Succeeded", "False", "w" * 40_000]),
    st.builds(lambda r: json.dumps(r), specs.JSON),
    st.builds(lambda models, entry: json.dumps(gen.report(*models, entrypoint=entry)), st.lists(specs.TEXT, max_size=3),
              st.one_of(st.none(), specs.TEXT)),
)  # fmt: skip
PODS = (
    gen.pod(), gen.pod(gen.ended("check", 1, json.dumps(gen.report("a")))),
    gen.pod(gen.waiting("triton", "ErrImagePull")),
    gen.pod(gen.failed("Evicted", "gone")), gen.pod(gen.unschedulable("no node")), gen.pod(gen.ended("triton", 137)),
    gen.pod(gen.ended("triton", 1, startedAt=_TIMES[0], finishedAt=_TIMES[1])), gen.pod(gen.deleting),
    gen.pod(gen.checked(gen.report("a", "b", entrypoint="a"))),
)  # fmt: skip


@st.composite
def altered(draw: DrawFn, obj: Json, part: str) -> Json:
    """Generates copies of `obj` in which `part` lacks some fields and has other texts and numbers."""
    out = copy.deepcopy(obj)

    def alter(value: Any) -> Any:
        if isinstance(value, dict):
            gone = draw(st.sets(st.sampled_from(sorted(value)), max_size=2)) if value else set()
            return {k: alter(v) for k, v in value.items() if k in _REQUIRED or k not in gone or len(gone) == 2}
        if isinstance(value, list):
            return [alter(v) for v in value][draw(st.integers(0, 1)) :]
        if isinstance(value, str) and value.startswith("20") and value.endswith("Z"):
            return draw(st.sampled_from(_TIMES))
        if isinstance(value, bool):
            return draw(st.booleans())
        if isinstance(value, int):
            return draw(st.sampled_from([value, 0, -1, 2**31 - 1]))
        return draw(st.one_of(st.just(value), st.just(value), STATUS_TEXTS)) if isinstance(value, str) else value

    if part in out:
        out[part] = alter(out[part])
    return out


def some_pods() -> SearchStrategy[list[Json]]:
    return st.lists(st.sampled_from(PODS).flatmap(lambda pod: altered(pod, "status")), max_size=3)


DEPLOYMENT = {
    "kind": "Deployment",
    "metadata": {"name": gen.NAME, "generation": 2},
    "spec": {"replicas": 1},
    "status": {
        "observedGeneration": 2,
        "replicas": 1,
        "conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}],
    },
}
AUTOSCALER = {
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": gen.NAME},
    "status": {
        "conditions": [
            {"type": t, "status": s, "reason": "FailedGetObjectMetric", "message": "no metric"}
            for t, s in (("AbleToScale", "True"), ("ScalingActive", "False"), ("ScalingLimited", "True"))
        ]
    },
}
ENTRIES = st.builds(
    IndexEntry,
    specs.TEXT,
    st.sampled_from(["", "1", "2"]),
    st.sampled_from(["READY", "", "UNAVAILABLE", "?"]),
    STATUS_TEXTS,
)
THRESHOLD_KEYS = st.builds(
    ThresholdKey, st.sampled_from([k.name for k in thresholds.KINDS]), st.sampled_from(["", "1", "2"])
)
POD_NAMES = st.sampled_from(["detection-abc-1", "detection-abc-2", "gone"])
ANSWERS = st.builds(
    PrometheusAnswer,
    values=st.dictionaries(THRESHOLD_KEYS, st.floats(allow_nan=True, allow_infinity=True), max_size=3),
    metrics=st.frozensets(specs.TEXT, max_size=2),
    uncounted=st.lists(specs.TEXT, max_size=2).map(tuple),
    at_limit=st.booleans(),
    faults=st.lists(st.builds(ServerFault, POD_NAMES, specs.TEXT, st.booleans()), max_size=2).map(tuple),
    error=st.one_of(st.just(""), specs.TEXT),
)
REFUSALS = st.dictionaries(
    st.sampled_from(["Deployment", "Service", "PodMonitor", "PrometheusRule", "HorizontalPodAutoscaler"]),
    st.builds(Problem, STATUS_TEXTS, STATUS_TEXTS),
    max_size=2,
)


@examples(50)
@given(
    specs.specs().map(specs.lawful), specs.ANNOTATIONS, specs.ANNOTATIONS, some_pods(),
    st.lists(st.lists(ENTRIES, max_size=3), max_size=3),
    st.one_of(st.none(), altered(DEPLOYMENT, "status")), st.one_of(st.none(), altered(AUTOSCALER, "status")), REFUSALS,
    st.one_of(st.none(), st.just(Installed()), st.just(Installed(()))), st.one_of(st.none(), ANSWERS), st.booleans(),
)  # fmt: skip
def test_assess_returns_a_valid_and_stable_status(
    spec: Json, before: dict[str, str], annotations: dict[str, str], pods: list[Json], indexes: list[list[IndexEntry]],
    deployment: Json | None, autoscaler: Json | None, refused: dict[str, Problem], installed: Installed | None,
    answer: PrometheusAnswer | None, has_rules: bool,
) -> None:  # fmt: skip
    status = TritonModelStatus()
    for now, written in ((NOW, before), ("2026-01-01T00:00:09.000Z", annotations)):
        raw = gen.raw(gen.put("metadata.annotations", written), **spec)
        raw["status"] = json.loads(status.model_dump_json(by_alias=True))
        model = gen.TritonModel.model_validate(raw)
        requested = thresholds.of(raw)
        observed = seen(
            model, status, deployment=deployment, pods=tuple(map(Pod, pods)), autoscaler=autoscaler, refused=refused,
            facts={"thresholds": thresholds.effective_of(raw, requested), "entrypoint": "m" if has_rules else ""},
            requested=requested, installed=installed, answer=answer,
            indexes={p["metadata"]["name"]: tuple(i) for p, i in zip(pods, indexes, strict=False)},
        )  # fmt: skip
        snapshot, decision, outcome = observed
        for pod in snapshot.pods:
            assert pod.server is None or pod.server.pod == pod.name
        served(model, snapshot.pods, gen.TEMPLATE, status)
        after = assess(snapshot, decision, outcome, now)
        assert_valid(after)
        # The same observation changes nothing the second time. What an evicted pod explains does so for ten minutes.
        again = replace(snapshot, before=after)
        assert assess(again, decision, outcome, "2026-01-01T00:00:59.000Z") == after
        for transition in transitions(status.conditions, after.conditions):
            assert _REASON.fullmatch(transition.reason)
            transition.message.encode()
        status = after


def assert_valid(status: TritonModelStatus) -> None:
    """Asserts the limits of the API server and of the status's readers."""
    text = status.model_dump_json(by_alias=True, exclude_none=True)
    assert len(text) < 600_000
    assert TritonModelStatus.model_validate_json(text) == status
    for condition in status.conditions:
        assert _REASON.fullmatch(condition.reason), condition
        assert len(condition.reason) <= 128
        assert len(condition.message) <= 32768
    assert len({c.type for c in status.conditions}) == len(status.conditions)


@examples(100)
@given(specs.ANNOTATIONS, specs.ANNOTATIONS, st.sampled_from(["", "tokens_total"]), st.integers(0, 2**63))
def test_parses_any_annotations_to_valid_thresholds(
    written: dict[str, str], older: dict[str, str], counter: str, replicas: int
) -> None:
    monitoring = {"tokenCounter": counter}
    parsed = thresholds.parse(written, monitoring)
    for threshold, requested in parsed.requested.items():
        assert threshold not in {w.threshold for w in parsed.invalid}
        kind = next(k for k in thresholds.KINDS if k.name == threshold.kind)
        assert kind.lower < requested.value <= kind.upper
        assert Decimal(thresholds.text(requested.value)) == requested.value  # the status shows the exact value
    sources = {w.source for w in parsed.invalid} | {a.source for a in parsed.requested.values()}
    assert sources <= written.keys()
    for invalid in parsed.invalid:
        assert invalid.source in invalid.message
        assert len(invalid.message) < 600
    before = {
        threshold: requested.value for threshold, requested in thresholds.parse(older, monitoring).requested.items()
    }
    effective = thresholds.effective(thresholds.accepted(parsed, before), replicas)
    assert all(value > 0 for value in effective.values())
    assert {s.kind for s in effective} >= {k.name for k in thresholds.KINDS}


@examples(100)
@given(st.one_of(STATUS_TEXTS, st.text()))
def test_parses_any_termination_message(text: str) -> None:
    parsed = report.parse(text)
    if parsed is not None:
        for model in parsed.models:
            model.name.encode()
        (parsed.entrypoint or "").encode()


def test_replaces_unpaired_surrogates_in_a_report() -> None:
    parsed = report.parse(json.dumps(gen.report("\ud800", entrypoint="\udfff")))
    assert parsed is not None
    assert (parsed.entrypoint, [m.name for m in parsed.models]) == ("?", ["?"])
