"""Faults in warm-up and initial states."""

from __future__ import annotations

from corpus.faults.fault import TEXT, Fault
from corpus.good.repository import string
from support.mutations import edit, remove, write

FAULTS = (
    Fault("missing warm-up file", "warmup", remove("words/warmup/words"), "TR701", "error", f"{TEXT}:15"),
    Fault(
        "missing file of the initial state",
        "sequence",
        remove("state/initial_state"),
        "TR701",
        "error",
        "state/config.pbtxt:20",
    ),
    Fault(
        "warm-up strings without length prefixes",
        "warmup",
        write("words/warmup/words", b"first second"),
        "TR702",
        "error",
        "words/warmup/words",
    ),
    Fault(
        "truncated warm-up file",
        "warmup",
        write("words/warmup/weights", bytes(16)),
        "TR702",
        "error",
        "words/warmup/weights",
    ),
    Fault(
        "warm-up file with a string too few",
        "warmup",
        write("words/warmup/words", string(b"first")),
        "TR702",
        "error",
        "words/warmup/words",
    ),
    Fault(
        "warm-up batch size above max_batch_size",
        "warmup",
        edit(TEXT, "batch_size: 4\n    count", "batch_size: 8\n    count"),
        "TR703",
        "error",
        f"{TEXT}:20",
    ),
    Fault(
        "warm-up without a batch size",
        "warmup",
        edit(TEXT, "batch_size: 4\n    count", "count"),
        "TR705",
        "warning",
        f"{TEXT}:18",
    ),
    Fault(
        "misspelled warm-up input",
        "warmup",
        edit(
            TEXT,
            'key: "WEIGHT" value: { data_type: TYPE_FP32 dims: [ 5 ] random',
            'key: "WEIGHTS" value: { data_type: TYPE_FP32 dims: [ 5 ] random',
        ),
        "TR704",
        "error",
        f"{TEXT}:18",
    ),
    Fault(
        "warm-up input of another data type",
        "warmup",
        edit(TEXT, "TYPE_FP32 dims: [ 5 ] random", "TYPE_INT32 dims: [ 5 ] random"),
        "TR704",
        "error",
        f"{TEXT}:23",
    ),
)
