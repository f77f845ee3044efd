"""Whether the servers have so many models that Prometheus is about to drop their metrics."""

from __future__ import annotations

from collections.abc import Sequence

from latency_sampler.series import MAX_SERIES, SAMPLES_OF_A_VERSION
from triton_operator.api.status import ModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.render.pod_monitor import BYTES_OF_A_SAMPLE
from triton_operator.render.server import asks_for_summaries
from triton_repository_check import server_flags

_NEAR = 0.8
"""Share of a limit from which on it is near."""
_COUNTERS, _WITH_SUMMARIES, _WITH_CACHE = 14, 49, 60
"""Lines for each version of a model: without summaries, with all, and with those of a response cache.

Measured on servers 2.51 and 2.71. The newer one has one line more.
"""
_KEPT = 21
"""Those that remain if the PodMonitor drops the summaries that nothing reads."""
_BYTES_OF_A_LINE = 75
"""Size of a line without the names of the model and the version. Measured: 70, and more with larger numbers."""
_SUMMARIES = "--metrics-config=summary_latencies="


def note(model: TritonModel, models: Sequence[ModelStatus], sample_limit: int) -> str:
    """Returns how near the limits of a scrape are, and what to do; "" if they aren't.

    `models`: what the servers report. It counts models that are still loading, so that a start doesn't change the note.
    """
    loaded = [m for m in models if m.state in ("READY", "LOADING")]
    samples, lines = _for_each(model)
    total = samples * len(loaded)
    size = lines * sum(_BYTES_OF_A_LINE + len(m.name) + len(m.version) for m in loaded)
    room = sample_limit * BYTES_OF_A_SAMPLE
    if total < _NEAR * sample_limit and size < _NEAR * room:
        return ""
    fewer = f"remove {_SUMMARIES}true" if samples > _KEPT else f"set {_SUMMARIES}false"
    others = "" if samples == _COUNTERS else f", or {fewer} in spec.server.args"
    return (
        f"{len(loaded)} versions of models have about {total} samples and {size / 1e6:.1f} MB of metrics in each "
        f"scrape, and Prometheus drops all metrics of a server with more than {sample_limit} or {room / 1e6:.1f} MB: "
        f"ask an administrator to raise SAMPLE_LIMIT of the operator, load fewer models{others}"
    )


def latency_note(model: TritonModel, models: Sequence[ModelStatus], sample_limit: int) -> str:
    """Returns how near the limit the page with the measured latency is; "" if it isn't near or there is none."""
    measured = min(sum(m.state in ("READY", "LOADING") for m in models), MAX_SERIES)
    total = measured * SAMPLES_OF_A_VERSION
    if not model.measures_latency or total < _NEAR * sample_limit:
        return ""
    return (
        f"the latency of {measured} versions of models has about {total} samples in each scrape, and Prometheus drops "
        f"all of a page with more than {sample_limit}: ask an administrator to raise SAMPLE_LIMIT of the operator, or "
        "load fewer models"
    )


def _for_each(model: TritonModel) -> tuple[int, int]:
    """Returns the samples that Prometheus keeps for each version of a model, and the lines on the server's page."""
    args = model.spec.server.args
    all_lines = _WITH_CACHE if server_flags.parse(args).response_cache else _WITH_SUMMARIES
    if not asks_for_summaries(model):
        return _KEPT, all_lines
    lines = _COUNTERS if any("summary_latencies=false" in argument for argument in args) else all_lines
    return lines, lines
