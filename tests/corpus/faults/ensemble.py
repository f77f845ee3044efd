"""Faults in the steps of ensembles."""

from __future__ import annotations

from pathlib import Path

from corpus.faults.fault import DETECT, POST, Fault
from support.mutations import add, edit


def _circle(root: Path) -> None:
    edit(DETECT, 'input_map { key: "IMAGE" value: "IMAGE" }', 'input_map { key: "IMAGE" value: "JSON" }')(root)
    edit(DETECT, '\ninput [\n  { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] }\n]', "")(root)


def _ensembles_in_a_ring(root: Path) -> None:
    edit("inside/config.pbtxt", '"flat"', '"outside"')(root)
    edit("inside/config.pbtxt", 'key: "IN"', 'key: "X"')(root)
    edit("inside/config.pbtxt", 'key: "OUT"', 'key: "Y"')(root)


FAULTS = (
    Fault("model of a step", "detection", edit(DETECT, '"net"', '"network"'), "TR401", "error", f"{DETECT}:20"),
    Fault(
        "input of a step", "detection", edit(DETECT, 'key: "images"', 'key: "image"'), "TR402", "error", f"{DETECT}:22"
    ),
    Fault(
        "output of a step", "detection", edit(DETECT, 'key: "boxes"', 'key: "box"'), "TR403", "error", f"{DETECT}:23"
    ),
    Fault(
        "input of a step left out",
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
        "tensor that nobody writes",
        "detection",
        edit(DETECT, 'key: "BOXES" value: "boxes"', 'key: "BOXES" value: "bboxes"'),
        "TR405",
        "error",
        f"{DETECT}:28",
    ),
    Fault(
        "tensor that nobody reads",
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
        "output that nobody writes",
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
    Fault("steps in a circle", "detection", _circle, "TR408", "error", f"{DETECT}:9"),
    Fault("ensembles in a ring", "nested", _ensembles_in_a_ring, "TR409", "error", "inside/config.pbtxt:7"),
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
        "ensemble without its platform",
        "detection",
        edit(DETECT, 'platform: "ensemble"\n', ""),
        "TR411",
        "error",
        f"{DETECT}:9",
    ),
    Fault(
        "instances of an ensemble",
        "detection",
        add(DETECT, "instance_group [ { count: 2 kind: KIND_CPU } ]\n"),
        "TR412",
        "error",
        f"{DETECT}:34",
    ),
    Fault(
        "version of a step that isn't served",
        "versions",
        edit("pinned/config.pbtxt", "model_version: 1", "model_version: 2"),
        "TR413",
        "error",
        "pinned/config.pbtxt:9",
    ),
    Fault(
        "type from step to step", "detection", edit(POST, "TYPE_INT32", "TYPE_INT64"), "TR414", "error", f"{DETECT}:29"
    ),
    Fault(
        "shape from step to step", "detection", edit(POST, "[ -1, 6 ]", "[ -1, 5 ]"), "TR415", "error", f"{DETECT}:28"
    ),
    Fault("rank from step to step", "detection", edit(POST, "[ -1, 6 ]", "[ -1 ]"), "TR415", "error", f"{DETECT}:28"),
    Fault(
        "larger batches than a step",
        "detection",
        edit(DETECT, "max_batch_size: 8", "max_batch_size: 16"),
        "TR416",
        "error",
        f"{DETECT}:3",
    ),
)
