"""Faults in directories and files."""

from __future__ import annotations

from corpus.faults.fault import ONNX, PRE_PY, TEXT, Fault
from support.mutations import edit, empty, move, remove, write

FAULTS = (
    Fault("directory that is no model", "detection", write("docs/index.md", b""), "TR003", "error", "docs"),
    Fault("no version", "detection", remove("net/1"), "TR201", "error", "net"),
    Fault("no version of an ensemble", "detection", remove("detect/1"), "TR201", "error", "detect"),
    Fault("version with a zero in front", "detection", move("net/1", "net/01"), "TR202", "warning", "net/01"),
    Fault(
        "old version beside",
        "detection",
        write("net/2.old/model.onnx", b""),
        "TR203",
        "error",
        "net/2.old",
    ),
    Fault("empty version", "detection", empty("net/1"), "TR204", "error", "net/1"),
    Fault("empty newer version", "detection", lambda root: (root / "pre/2").mkdir(), "TR204", "error", "pre/2"),
    Fault("model.py misnamed", "detection", move(PRE_PY, "pre/1/preprocess.py"), "TR204", "error", "pre/1"),
    Fault("model.onnx misnamed", "detection", move(ONNX, "net/1/net.onnx"), "TR204", "error", "net/1"),
    Fault(
        "policy for a version that isn't",
        "versions",
        edit("three/config.pbtxt", "[ 1, 3 ]", "[ 1, 4 ]"),
        "TR206",
        "warning",
        "three/config.pbtxt:10",
    ),
    Fault("labels missing", "warmup", remove("words/labels.txt"), "TR208", "error", f"{TEXT}:8"),
)
