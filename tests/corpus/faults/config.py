"""Faults in the text and the backends of config.pbtxt."""

from __future__ import annotations

from corpus.faults.fault import NET, PRE, PRE_PY, Fault
from support.mutations import add, edit, move, recoded, remove

SLOW = "slow/config.pbtxt"

FAULTS = (
    Fault(
        "runtime that doesn't exist",
        "cache",
        add(SLOW, 'runtime: "libtriton_fast.so"\n'),
        "TR131",
        "error",
        f"{SLOW}:11",
    ),
    Fault(
        "backend's name for its platform",
        "detection",
        add(NET, 'platform: "onnxruntime"\n'),
        "TR120",
        "error",
        f"{NET}:13",
    ),
    # text and schema
    Fault("missing colon", "detection", edit(PRE, 'name: "pre"', 'name "pre"'), "TR101", "error", f"{PRE}:1"),
    Fault(
        "unclosed bracket",
        "detection",
        edit(NET, "dims: [ 32, 6 ] }\n]", "dims: [ 32, 6 ] }\n"),
        "TR101",
        "error",
        f"{NET}:10",
    ),
    Fault("unknown enum value", "detection", edit(PRE, "TYPE_INT32", "TYPE_INT"), "TR101", "error", f"{PRE}:9"),
    Fault(
        "string instead of a number",
        "detection",
        edit(PRE, "max_batch_size: 8", 'max_batch_size: "8"'),
        "TR101",
        "error",
        f"{PRE}:3",
    ),
    Fault(
        "two schedulers",
        "detection",
        add(PRE, "sequence_batching { }\n"),
        "TR101",
        "error",
        f"{PRE}:13",
    ),
    Fault(
        "misspelled field",
        "detection",
        edit(NET, "max_batch_size", "max_batchsize"),
        "TR102",
        "error",
        f"{NET}:3",
    ),
    Fault(
        "misspelled nested field",
        "detection",
        edit(PRE, "{ count:", "{ counts:"),
        "TR102",
        "error",
        f"{PRE}:12",
    ),
    Fault(
        "byte order mark",
        "detection",
        lambda root: (root / NET).write_text("\ufeff" + (root / NET).read_text()),
        "TR101",
        "error",
        f"{NET}:1",
    ),
    Fault(
        "value not in UTF-8",
        "cache",
        recoded(SLOW, "latin-1", 'parameters { key: "\xe9" value { } }\n'),
        "TR130",
        "warning",
        f"{SLOW}:1",
    ),
    Fault("config.pbtxt in UTF-16", "cache", recoded(SLOW, "utf-16", ""), "TR101", "error", f"{SLOW}:1"),
    Fault("placeholder for a number", "cache", edit(SLOW, "size: 8", "size: ${size}"), "TR129", "error", f"{SLOW}:2"),
    Fault(
        "placeholder for the backend", "cache", edit(SLOW, '"python"', '"${backend}"'), "TR129", "error", f"{SLOW}:1"
    ),
    Fault(
        "placeholder in a parameter",
        "cache",
        add(SLOW, 'parameters { key: "folder" value { string_value: "${folder}" } }\n'),
        "TR129",
        "warning",
        f"{SLOW}:11",
    ),
    Fault(
        "name differs from the directory's",
        "detection",
        edit(PRE, '"pre"', '"preprocess"'),
        "TR103",
        "error",
        f"{PRE}:1",
    ),
    Fault(
        "field of a newer Triton version",
        "detection",
        add(NET, "model_metrics { }\n"),
        "TR109",
        "error",
        f"{NET}:13",
    ),
    # backends
    Fault(
        "missing config.pbtxt",
        "detection",
        lambda root: (remove(PRE)(root), move(PRE_PY, "pre/1/pre.py")(root)),
        "TR104",
        "error",
        PRE,
    ),
    Fault(
        "missing backend",
        "detection",
        lambda root: (edit(PRE, 'backend: "python"\n', "")(root), move(PRE_PY, "pre/1/pre.py")(root)),
        "TR105",
        "error",
        PRE,
    ),
    Fault("misspelled backend", "detection", edit(NET, "onnxruntime", "onnxruntme"), "TR106", "warning", f"{NET}:2"),
    Fault(
        "unknown platform",
        "instances",
        edit(NET, "onnxruntime_onnx", "onnx_runtime"),
        "TR106",
        "warning",
        f"{NET}:1",
    ),
    Fault(
        "config.pbtxt under another file name",
        "cache",
        move("slow/config.pbtxt", "slow/config.pbtext"),
        "TR207",
        "warning",
        "slow/config.pbtext",
    ),
)
