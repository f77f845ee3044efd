"""Good repositories with documented features of Triton. Each returns complete responses to requests with zeros."""

from __future__ import annotations

from corpus.good import ensembles, programs, scheduling, settings
from corpus.good.repository import Good, expected
from triton_repository_check.server_flags import ServerFlags

GOOD = (
    Good(
        "detection", "ensemble of Python and ONNX, dynamic batching, instances", ensembles.detection, expected("detect")
    ),
    Good("ragged", "ragged batches with a batch input", scheduling.ragged, expected("lengths")),
    Good(
        "sequence", "sequence batching with controls, implicit state from a file", scheduling.sequence, expected("sum")
    ),
    Good("decoupled", "decoupled: several responses to a request", programs.decoupled, expected("repeat")),
    Good("bls", "a Python model that calls another (BLS)", programs.bls, expected("outer")),
    Good("optional", "optional inputs, left out by an ensemble", ensembles.optional, expected("plain")),
    Good("cache", "response cache", settings.cache, expected("slow", flags=ServerFlags(response_cache=True))),
    Good("versions", "version policies, a pinned version", settings.versions, expected("pinned")),
    Good(
        "instances",
        "explicit instance groups, rate limiter",
        settings.instances,
        expected("many", flags=ServerFlags(rate_limiter=True)),
    ),
    Good("warmup", "warm-up from files, zeros and noise; labels", settings.warmup, expected("words")),
    Good("completed", "configuration completed by model.py", programs.completed, expected("short")),
    Good("queues", "priorities, queue policy, reshape, format", scheduling.queues, expected("queue")),
    Good("nested", "ensemble in an ensemble, a step without batches", ensembles.nested, expected("outside")),
)
BY_NAME = {good.name: good for good in GOOD}
