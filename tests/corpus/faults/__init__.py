"""Faulty repositories: each is a good one with one fault from a named mutation."""

from __future__ import annotations

from corpus.faults import (
    answers,
    batching,
    calls,
    config,
    core,
    ensemble,
    layout,
    onnx,
    pod,
    programs,
    source,
    tensors,
    text,
    warmup,
)
from corpus.faults.fault import Fault

FAULTS: tuple[Fault, ...] = (
    *config.FAULTS,
    *batching.FAULTS,
    *tensors.FAULTS,
    *layout.FAULTS,
    *source.FAULTS,
    *ensemble.FAULTS,
    *pod.FAULTS,
    *onnx.FAULTS,
    *warmup.FAULTS,
    *text.FAULTS,
    *core.FAULTS,
    *programs.FAULTS,
    *answers.FAULTS,
    *calls.FAULTS,
)
