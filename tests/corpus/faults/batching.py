"""Faults in the batching, sequences and queues of config.pbtxt."""

from __future__ import annotations

from corpus.faults.fault import NET, Fault
from support.mutations import edit

_STATE = """data_type: TYPE_FP32
      dims: [ 2 ]
      initial_state: {
        data_type: TYPE_FP32
        dims: [ 2 ]
        data_file: "first"
        name: "first state"
      }
"""

FAULTS = (
    Fault(
        "dynamic batching with max_batch_size 0",
        "optional",
        lambda root: (
            edit("scale/config.pbtxt", "max_batch_size: 8", "max_batch_size: 0")(root),
            edit("plain/config.pbtxt", "max_batch_size: 8", "max_batch_size: 0")(root),
        ),
        "TR107",
        "warning",
        "scale/config.pbtxt:10",
    ),
    Fault(
        "preferred batch size above max_batch_size",
        "detection",
        edit(NET, "[ 4, 8 ]", "[ 4, 16 ]"),
        "TR108",
        "error",
        f"{NET}:10",
    ),
    Fault(
        "preferred batch size of 0",
        "queues",
        edit("queue/config.pbtxt", "[ 4, 8 ]", "[ 0, 8 ]"),
        "TR108",
        "error",
        "queue/config.pbtxt:10",
    ),
    Fault(
        "negative max_batch_size",
        "cache",
        edit("slow/config.pbtxt", "max_batch_size: 8", "max_batch_size: -1"),
        "TR108",
        "error",
        "slow/config.pbtxt:2",
    ),
    Fault(
        "preferred sequence batch size above max_batch_size",
        "sequence",
        edit("sum/config.pbtxt", "[ 2, 4 ]", "[ 2, 8 ]"),
        "TR108",
        "error",
        "sum/config.pbtxt:11",
    ),
    Fault(
        "encoded images as UINT8 of variable length",
        "ragged",
        edit("lengths/config.pbtxt", "TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true", "TYPE_UINT8 dims: [ -1 ]"),
        "TR110",
        "warning",
        "lengths/config.pbtxt:4",
    ),
    Fault(
        "variable dimension without ragged batching",
        "ragged",
        edit("lengths/config.pbtxt", " allow_ragged_batch: true", ""),
        "TR110",
        "note",
        "lengths/config.pbtxt:4",
    ),
    Fault(
        "ragged batching with max_batch_size 0",
        "ragged",
        lambda root: (
            edit("lengths/config.pbtxt", "max_batch_size: 16", "max_batch_size: 0")(root),
            edit("lengths/config.pbtxt", "dynamic_batching { max_queue_delay_microseconds: 100 }\n", "")(root),
            edit("lengths/1/model.py", "(given.shape[0], 1), given.shape[1]", "(1,), given.shape[0]")(root),
        ),
        "TR111",
        "warning",
        "lengths/config.pbtxt:4",
    ),
    Fault(
        "missing default priority level",
        "queues",
        edit("queue/config.pbtxt", "  default_priority_level: 2\n", ""),
        "TR112",
        "error",
        "queue/config.pbtxt:12",
    ),
    Fault(
        "queue policy of an undefined priority level",
        "queues",
        edit("queue/config.pbtxt", "key: 1", "key: 4"),
        "TR112",
        "error",
        "queue/config.pbtxt:15",
    ),
    Fault(
        "preserve_ordering with priority levels",
        "queues",
        edit("queue/config.pbtxt", "  priority_levels: 3", "  preserve_ordering: true priority_levels: 3"),
        "TR112",
        "error",
        "queue/config.pbtxt:12",
    ),
    Fault(
        "two sequence controls of one kind",
        "sequence",
        edit(
            "sum/config.pbtxt",
            "  control_input [\n",
            '  control_input [\n    { name: "BEGIN"'
            " control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },\n",
        ),
        "TR113",
        "error",
        "sum/config.pbtxt:13",
    ),
    Fault(
        "pauses of Triton's default",
        "sequence",
        edit("sum/config.pbtxt", "  max_sequence_idle_microseconds: 5000000\n", ""),
        "TR128",
        "note",
        "sum/config.pbtxt:9",
    ),
    Fault(
        "slot utilization above 1",
        "sequence",
        edit("state/config.pbtxt", "minimum_slot_utilization: 0.5", "minimum_slot_utilization: 1.5"),
        "TR113",
        "error",
        "state/config.pbtxt:10",
    ),
    Fault(
        "batch input without a source",
        "ragged",
        edit("lengths/config.pbtxt", 'source_input: "IN"', 'source_input: "INPUT"'),
        "TR114",
        "error",
        "lengths/config.pbtxt:14",
    ),
    Fault(
        "state of a sequence without a data_type",
        "sequence",
        edit("state/config.pbtxt", _STATE, "dims: [ 2 ]\n"),
        "TR113",
        "error",
        "state/config.pbtxt:12",
    ),
)
