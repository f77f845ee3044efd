"""The result of a calibration in the status: what is shown, and what makes it out of date."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_triton.calibrate import result
from kubectl_triton.calibrate.search import LATENCY, Goal, Latency, Point, SearchResult
from support import gen
from support.observing import seen
from triton_operator.api import names
from triton_operator.pods import Pod
from triton_operator.render import Facts, render
from triton_operator.status import calibration
from triton_operator.status.assess import assess

OTHER = "sha256:" + "e" * 64
POINTS = tuple(
    Point("confirmation", 46.9, 46.9, {LATENCY: Latency(0.03, p99)}, 2000, 0, 40.0) for p99 in (0.171, 0.183, 0.198)
)
OUTCOME = SearchResult((Point("doubling", 20, 20, {LATENCY: Latency(0.02, 0.03)}, 500, 0, 25.0), *POINTS), rate=46.9)
RESOURCES = {"requests": {"cpu": 1, "memory": "2Gi"}, "limits": {"nvidia.com/gpu": 1}}


def template(*modifiers: gen.Modifier) -> gen.Object:
    """Returns the pod template of a TritonModel with these changes."""
    return dict(deployment(*modifiers)["spec"]["template"])


def deployment(*modifiers: gen.Modifier) -> gen.Object:
    model = gen.model(gen.put("spec.server.resources", RESOURCES), *modifiers)
    [obj] = [o for o in render(model, Facts("tools:1", "Copy")) if o["kind"] == "Deployment"]
    return obj


def measured() -> str:
    """Returns the annotation of a calibration of the pod `gen.pod()`."""
    return result.annotation(Goal({LATENCY: 0.2}), OUTCOME, "2026-01-01T12:00:00Z", template(), gen.pod())


RUNNING = {
    calibration.MODEL_IMAGE: [gen.DIGEST],
    calibration.SERVER_IMAGE: json.loads(measured())["images"][calibration.SERVER_IMAGE].split(),
}


def test_a_result_is_current_while_nothing_changes() -> None:
    measurement = calibration.status(measured(), template(), RUNNING)
    assert measurement is not None
    assert (measurement.max_qps_per_replica, measurement.target) == ("46.9", "200 ms")
    assert measurement.time == "2026-01-01T12:00:00Z"
    assert measurement.current
    assert measurement.message == "one server handled 46.9 requests/s with p99 of 171 ms to 198 ms"
    assert calibration.status(None, template(), RUNNING) is None


@pytest.mark.parametrize(
    ("modifier", "part"),
    [(gen.put("spec.server.image", "triton:2"), "the server image"),
     (gen.put("spec.server.resources", {"limits": {"nvidia.com/gpu": 2}}), "the resources"),
     (gen.put("spec.server.args", ["--pinned-memory-pool-byte-size=0"]), "the flags or the environment"),
     (gen.put("spec.podTemplate", {"spec": {"nodeSelector": {"gpu": "a100"}}}), "the choice of nodes")],
)  # fmt: skip
def test_a_change_that_changes_the_capacity_makes_it_out_of_date(modifier: gen.Modifier, part: str) -> None:
    measurement = calibration.status(measured(), template(modifier), RUNNING)
    assert measurement is not None
    assert not measurement.current
    assert measurement.message.endswith(f"; since then {part} changed: run kubectl triton calibrate again")


@pytest.mark.parametrize(
    "modifier",
    [gen.put("spec.rollout.drainSeconds", 33), gen.put("metadata.labels", {"team": "a"}),
     gen.put("spec.rollout.restartedAt", "2026-01-01T00:00:00Z")],
)  # fmt: skip
def test_another_change_does_not(modifier: gen.Modifier) -> None:
    changed = template(modifier)
    measurement = calibration.status(measured(), changed, RUNNING)
    assert measurement is not None
    assert measurement.current, measurement.message


@pytest.mark.parametrize("what", [calibration.MODEL_IMAGE, calibration.SERVER_IMAGE])
@pytest.mark.parametrize(("digests", "current"), [([OTHER], False), ([gen.DIGEST, OTHER], False), ([], True)])
def test_another_digest_makes_it_out_of_date(what: str, digests: list[str], current: bool) -> None:
    text = json.dumps(json.loads(measured()) | {"images": {what: gen.DIGEST}})
    measurement = calibration.status(text, template(), {what: digests})
    assert measurement is not None
    assert measurement.current == current
    assert current or f"since then {what} changed" in measurement.message


def test_fits_in_the_annotation() -> None:
    assert len(measured()) < names.CALIBRATION_MAX / 2


def changed(**fields: Any) -> str:
    return json.dumps(json.loads(measured()) | fields)


@pytest.mark.parametrize(
    "text",
    ["", "46.9", "[]", "{}", "{", '"' * 9000, changed(extra=1), changed(maxQpsPerReplica="-1"), changed(p99=[]),
     changed(targetP99=float("nan")), changed(p99=[float("inf")]), changed(time="yesterday"),
     changed(time="2026-01-01T12:00:00"), changed(template={str(n): "" for n in range(9)}),
     changed(images={"a": "x" * 4000})],
)  # fmt: skip
def test_any_other_text_is_reported(text: str) -> None:
    measurement = calibration.status(text, template(), RUNNING)
    assert measurement is not None
    assert (measurement.current, measurement.max_qps_per_replica, measurement.time) == (False, "", None)
    assert "isn't a result of kubectl triton calibrate" in measurement.message


@given(st.text() | st.builds(lambda name: changed(template={name: "0"}), st.text(max_size=300)))
def test_hostile_text_makes_one_printable_line(text: str) -> None:
    measurement = calibration.status(text, template(), RUNNING)
    assert measurement is not None
    assert measurement.message.isprintable()
    assert len(measurement.message) <= 2 * names.CALIBRATION_MAX


def test_the_status_compares_the_live_deployment_and_pods() -> None:
    model = gen.model(gen.put("metadata.annotations", {names.ANNOTATION_CALIBRATION: measured()}))
    for resources, current in ((RESOURCES, True), ({}, False)):
        changed = gen.put("spec.template", template(gen.put("spec.server.resources", resources)))
        live = gen.live(deployment(), changed)
        observed = seen(model, deployment=live, pods=(Pod(gen.pod()),))
        measurement = assess(*observed, "2026-01-02T12:00:00.000Z").calibration
        assert measurement is not None
        assert measurement.current == current, measurement.message
