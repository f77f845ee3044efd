"""Faults in the steps of ensembles."""

from __future__ import annotations

from pathlib import Path

from corpus.faults.fault import DETECT, POST, Fault
from support.mutations import add, edit, write


def _circle(root: Path) -> None:
    edit(DETECT, 'input_map { key: "IMAGE" value: "IMAGE" }', 'input_map { key: "IMAGE" value: "JSON" }')(root)
    edit(DETECT, '\ninput [\n  { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] }\n]', "")(root)


def _ensembles_in_a_ring(root: Path) -> None:
    edit("inside/config.pbtxt", '"flat"', '"outside"')(root)
    edit("inside/config.pbtxt", 'key: "IN"', 'key: "X"')(root)
    edit("inside/config.pbtxt", 'key: "OUT"', 'key: "Y"')(root)


_SIXTEEN = 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 16, 4 ]'
_ONE_ROW = '"IN" data_type: TYPE_FP32 dims: [ 1, 4 ]'
_ROWS = '"OUT" data_type: TYPE_FP32 dims: [ -1, 4 ]'


def _required(root: Path) -> None:
    edit("plain/config.pbtxt", "dims: [ 4 ] } ]\noutput", "dims: [ 4 ] optional: true } ]\noutput")(root)


FAULTS = (
    Fault(
        "step that declares and completes nothing",
        "versions",
        write("two/config.pbtxt", 'backend: "python"\n'),
        "TR402",
        "error",
        "pinned/config.pbtxt:16",
    ),
    Fault("unknown model of a step", "detection", edit(DETECT, '"net"', '"network"'), "TR401", "error", f"{DETECT}:20"),
    Fault(
        "unknown input of a step",
        "detection",
        edit(DETECT, 'key: "images"', 'key: "image"'),
        "TR402",
        "error",
        f"{DETECT}:22",
    ),
    Fault(
        "unknown output of a step",
        "detection",
        edit(DETECT, 'key: "boxes"', 'key: "box"'),
        "TR403",
        "error",
        f"{DETECT}:23",
    ),
    Fault(
        "unmapped input of a step",
        "detection",
        lambda root: (
            edit(DETECT, '      input_map { key: "SIZE" value: "size" }\n', "")(root),
            edit(DETECT, '      output_map { key: "SIZE" value: "size" }\n', "")(root),
        ),
        "TR404",
        "error",
        f"{DETECT}:24",
    ),
    Fault(
        "tensor that no step writes",
        "detection",
        edit(DETECT, 'key: "BOXES" value: "boxes"', 'key: "BOXES" value: "bboxes"'),
        "TR405",
        "error",
        f"{DETECT}:28",
    ),
    Fault(
        "tensor that no step reads",
        "optional",
        edit(
            "plain/config.pbtxt",
            '      input_map { key: "IN"',
            '      output_map { key: "EXTRA" value: "extra" }\n      input_map { key: "IN"',
        ),
        "TR406",
        "error",
        "plain/config.pbtxt:10",
    ),
    Fault(
        "output that no step writes",
        "detection",
        edit(
            DETECT,
            "TYPE_STRING dims: [ 1 ] }\n]\nens",
            'TYPE_STRING dims: [ 1 ] },\n  { name: "MORE" data_type: TYPE_FP32 dims: [ 1 ] }\n]\nens',
        ),
        "TR407",
        "error",
        f"{DETECT}:9",
    ),
    Fault("steps that form a cycle", "detection", _circle, "TR408", "error", f"{DETECT}:9"),
    Fault(
        "ensembles that contain each other", "nested", _ensembles_in_a_ring, "TR409", "error", "inside/config.pbtxt:7"
    ),
    Fault(
        "tensor written twice",
        "detection",
        edit(
            DETECT,
            'key: "SIZE" value: "size" }\n    },\n    {\n      model_name: "net"',
            'key: "SIZE" value: "boxes" }\n    },\n    {\n      model_name: "net"',
        ),
        "TR410",
        "error",
        f"{DETECT}:17",
    ),
    Fault(
        "ensemble without platform",
        "detection",
        edit(DETECT, 'platform: "ensemble"\n', ""),
        "TR411",
        "error",
        f"{DETECT}:9",
    ),
    Fault(
        "instance group of an ensemble",
        "detection",
        add(DETECT, "instance_group [ { count: 2 kind: KIND_CPU } ]\n"),
        "TR412",
        "error",
        f"{DETECT}:34",
    ),
    Fault(
        "unserved version of a step",
        "versions",
        edit("pinned/config.pbtxt", "model_version: 1", "model_version: 2"),
        "TR413",
        "error",
        "pinned/config.pbtxt:9",
    ),
    Fault(
        "different data types between steps",
        "detection",
        edit(POST, "TYPE_INT32", "TYPE_INT64"),
        "TR414",
        "error",
        f"{DETECT}:29",
    ),
    Fault(
        "different shapes between steps",
        "detection",
        edit(POST, "[ -1, 6 ]", "[ -1, 5 ]"),
        "TR415",
        "error",
        f"{DETECT}:28",
    ),
    Fault(
        "different ranks between steps",
        "detection",
        edit(POST, "[ -1, 6 ]", "[ -1 ]"),
        "TR415",
        "error",
        f"{DETECT}:28",
    ),
    Fault(
        "max_batch_size above a step's",
        "detection",
        edit(DETECT, "max_batch_size: 8", "max_batch_size: 16"),
        "TR416",
        "error",
        f"{DETECT}:3",
    ),
    Fault(
        "optional input of an ensemble that a step requires",
        "optional",
        _required,
        "TR419",
        "warning",
        "plain/config.pbtxt:10",
    ),
    Fault(
        "first dim of an ensemble above a step's max_batch_size",
        "optional",
        lambda root: (
            edit("plain/config.pbtxt", "max_batch_size: 8\n", "")(root),
            edit("plain/config.pbtxt", 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ]', _SIXTEEN)(root),
        ),
        "TR416",
        "error",
        "plain/config.pbtxt:9",
    ),
    Fault(
        "fixed batch size of a step",
        "optional",
        lambda root: (
            edit("scale/config.pbtxt", "max_batch_size: 8\n", "")(root),
            edit("scale/config.pbtxt", '"IN" data_type: TYPE_FP32 dims: [ 4 ]', _ONE_ROW)(root),
            edit("scale/config.pbtxt", '"OUT" data_type: TYPE_FP32 dims: [ 4 ]', _ROWS)(root),
            edit("scale/config.pbtxt", "dynamic_batching { }\n", "")(root),
        ),
        "TR416",
        "warning",
        "plain/config.pbtxt:10",
    ),
)
