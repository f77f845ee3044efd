"""Faults in the types, shapes and instances of config.pbtxt."""

from __future__ import annotations

from corpus.faults.fault import NET, POST, PRE, Fault
from support.mutations import edit

FAULTS = (
    Fault("missing data type", "detection", edit(POST, "TYPE_FP32 ", "TYPE_INVALID "), "TR115", "error", f"{POST}:5"),
    Fault("missing dims", "detection", edit(POST, " dims: [ -1, 6 ]", ""), "TR115", "error", f"{POST}:5"),
    Fault("dimension of 0", "detection", edit(POST, "[ -1, 6 ]", "[ 0, 6 ]"), "TR116", "error", f"{POST}:5"),
    Fault("dimension of -2", "detection", edit(POST, "[ -1, 6 ]", "[ -2, 6 ]"), "TR116", "error", f"{POST}:5"),
    Fault(
        "image format without three dims",
        "queues",
        lambda root: (edit("queue/config.pbtxt", "FORMAT_NCHW dims: [ 3, 2, 2 ]", "FORMAT_NCHW dims: [ 12 ]")(root),),
        "TR116",
        "error",
        "queue/config.pbtxt:4",
    ),
    Fault("duplicate input", "detection", edit(POST, '"SIZE"', '"BOXES"'), "TR117", "error", f"{POST}:6"),
    Fault(
        "reshape to more elements",
        "queues",
        edit(
            "queue/config.pbtxt",
            "dims: [ 3, 2, 2 ] reshape: { shape: [ 12 ] } }\n]\nout",
            "dims: [ 3, 2, 2 ] reshape: { shape: [ 13 ] } }\n]\nout",
        ),
        "TR118",
        "error",
        "queue/config.pbtxt:4",
    ),
    Fault(
        "GPUs of a KIND_CPU instance",
        "detection",
        edit(PRE, "count: 2 kind: KIND_CPU", "count: 2 kind: KIND_CPU gpus: [ 0 ]"),
        "TR119",
        "error",
        f"{PRE}:12",
    ),
    Fault(
        "GPU index above the number of GPUs",
        "detection",
        edit(NET, "count: 1 kind: KIND_CPU", "count: 1 kind: KIND_GPU"),
        "TR119",
        "warning",
        f"{NET}:11",
    ),
)
