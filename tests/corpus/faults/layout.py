"""Faults in directories and files."""

from __future__ import annotations

from corpus.faults.core import then
from corpus.faults.fault import ONNX, PRE_PY, TEXT, Fault
from support.mutations import edit, empty, move, remove, write

FAULTS = (
    Fault(
        "directory for a label file",
        "warmup",
        then(remove("words/labels.txt"), write("words/labels.txt/a", "a\n")),
        "TR208",
        "error",
        f"{TEXT}:8",
    ),
    Fault(
        "label file with CRLF",
        "warmup",
        edit("words/labels.txt", "a\nb\nc\n", "a\r\nb\r\nc\r\n"),
        "TR208",
        "warning",
        "words/labels.txt",
    ),
    *(
        Fault(name, "warmup", write("words/labels.txt", content), "TR208", "warning", "words/labels.txt")
        for name, content in {
            "label file in GBK": "猫\n狗\n鸟\n".encode("gbk"),
            "label file in UTF-16": "a\nb\nc\n".encode("utf-16"),
            "label file with a byte order mark": "a\nb\nc\n".encode("utf-8-sig"),
            "label file with fewer lines than classes": b"a\nb",
        }.items()
    ),
    Fault(
        "broken link beside config.pbtxt",
        "cache",
        lambda root: (root / "slow/notes.md").symlink_to("nowhere"),
        "TR006",
        "error",
        "slow/notes.md",
    ),
    Fault(
        "link out of the repository beside config.pbtxt",
        "cache",
        lambda root: (root / "slow/notes.md").symlink_to("/nowhere/notes.md"),
        "TR004",
        "warning",
        "slow/notes.md",
    ),
    Fault("directory that isn't a model", "detection", write("docs/index.md", b""), "TR003", "error", "docs"),
    Fault("no version directory", "detection", remove("net/1"), "TR201", "error", "net"),
    Fault("ensemble without a version directory", "detection", remove("detect/1"), "TR201", "error", "detect"),
    Fault("version with a leading zero", "detection", move("net/1", "net/01"), "TR202", "warning", "net/01"),
    Fault(
        "version directory with a suffix",
        "detection",
        write("net/2.old/model.onnx", b""),
        "TR203",
        "error",
        "net/2.old",
    ),
    Fault("empty version directory", "detection", empty("net/1"), "TR204", "error", "net/1"),
    Fault(
        "empty directory of the newest version",
        "detection",
        lambda root: (root / "pre/2").mkdir(),
        "TR204",
        "error",
        "pre/2",
    ),
    Fault(
        "model.py under another file name", "detection", move(PRE_PY, "pre/1/preprocess.py"), "TR204", "error", "pre/1"
    ),
    Fault("model.onnx under another file name", "detection", move(ONNX, "net/1/net.onnx"), "TR204", "error", "net/1"),
    Fault(
        "version policy with a missing version",
        "versions",
        edit("three/config.pbtxt", "[ 1, 3 ]", "[ 1, 4 ]"),
        "TR206",
        "warning",
        "three/config.pbtxt:10",
    ),
    Fault("missing label file", "warmup", remove("words/labels.txt"), "TR208", "error", f"{TEXT}:8"),
    Fault(
        "directory in place of model.onnx",
        "detection",
        then(move(ONNX, "net/net.onnx"), move("net/net.onnx", f"{ONNX}/net.onnx")),
        "TR204",
        "error",
        "net/1",
    ),
    Fault(
        "hidden directory before the version of a model without a backend",
        "cache",
        then(edit("slow/config.pbtxt", 'backend: "python"\n', ""), write("slow/.git/HEAD", "")),
        "TR214",
        "error",
        "slow/.git",
    ),
)
