"""Servers whose latency isn't measured, because tracing could end them."""

from __future__ import annotations

from latency_sampler.versions import OLDEST, may_trace
from triton_operator.api.status import MONITORING_AVAILABLE, Condition
from triton_operator.api.types import TritonModel
from triton_repository_check import versions

from .conditions import condition


def with_unmeasured_latency(before: Condition | None, model: TritonModel, reported: str) -> Condition | None:
    """Returns MonitoringAvailable: `before`, or False if it isn't a problem itself and latency isn't measured.

    `reported`: the versions of the servers, e.g. "2.51.0, 2.57.0"; "" if none has reported one. Then it is that of the
    image's tag, if the tag has one.
    """
    if before is None or before.status == "False" or not model.measures_latency:
        return before
    of_tag = versions.of_image(model.spec.server.image)
    known = reported.split(", ") if reported else [_text(of_tag)] if of_tag else []
    old = [version for version in known if not may_trace(version)]
    if not old:
        return before
    return condition(
        MONITORING_AVAILABLE, "False", "LatencyNotMeasured",
        f"spec.monitoring.latency measures nothing on Triton {', '.join(old)}: before {_text(OLDEST)} (release "
        f"{versions.release(OLDEST)}) a server under load can end while it traces requests, so the operator lets it "
        "trace none. Use a newer release in spec.server.image, or remove spec.monitoring.latency. All other metrics "
        "and alerts work",
    )  # fmt: skip


def _text(version: versions.Version) -> str:
    return ".".join(map(str, version))
