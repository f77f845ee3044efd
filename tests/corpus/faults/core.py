"""Faults that the server's core rejects."""

from __future__ import annotations

from pathlib import Path

from corpus.faults.fault import DETECT, NET, TEXT, Fault
from corpus.good.repository import ECHO
from support.mutations import Change, add, edit, move, remove, write

SLOW, SLOW_PY, SUM, STATE = "slow/config.pbtxt", "slow/1/model.py", "sum/config.pbtxt", "state/config.pbtxt"
RAGGED, QUEUE, PINNED = "lengths/config.pbtxt", "queue/config.pbtxt", "pinned/config.pbtxt"


def link(path: str, target: str) -> Change:
    """Makes a symbolic link."""
    return lambda root: (root / path).symlink_to(target)


def shape(more: str) -> Change:
    """Adds to the input of `slow`."""
    return edit(SLOW, '"IN" data_type: TYPE_FP32 dims: [ 4 ]', f'"IN" data_type: TYPE_FP32 {more}')


def environment(path: str) -> str:
    """Returns the parameter with the environment of Python."""
    return f'parameters {{ key: "EXECUTION_ENV_PATH" value: {{ string_value: "{path}" }} }}\n'


def then(*changes: Change) -> Change:
    """Makes the changes in order."""

    def change(root: Path) -> None:
        for step in changes:
            step(root)

    return change


START = "control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ]"
CORRID = "control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ]"
GROUP = "instance_group [ { kind: KIND_CPU } ]"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 100\n"

VERSIONS = (
    Fault(
        "version policy with zero latest versions",
        "cache",
        add(SLOW, "version_policy { latest { } }\n"),
        "TR123",
        "error",
        "slow/config.pbtxt:11",
    ),
    Fault(
        "version policy with an empty list of versions",
        "cache",
        add(SLOW, "version_policy { specific { } }\n"),
        "TR123",
        "error",
        "slow/config.pbtxt:11",
    ),
    Fault("version with a plus sign", "cache", write("slow/+2/model.py", ECHO), "TR203", "error", "slow/+2"),
    Fault("version after a space", "cache", write("slow/ 2/model.py", ECHO), "TR203", "error", "slow/ 2"),
    Fault(
        "version above the maximum",
        "cache",
        write(f"slow/{10**20}/model.py", ECHO),
        "TR203",
        "error",
        "slow/100000000000000000000",
    ),
    Fault(
        "step without a version",
        "versions",
        edit(PINNED, "      model_version: -1\n", ""),
        "TR413",
        "error",
        "pinned/config.pbtxt:13",
    ),
    Fault(
        "step of version 0",
        "versions",
        edit(PINNED, "model_version: -1", "model_version: 0"),
        "TR413",
        "error",
        "pinned/config.pbtxt:15",
    ),
    Fault(
        "step of version -2",
        "versions",
        edit(PINNED, "model_version: -1", "model_version: -2"),
        "TR413",
        "error",
        "pinned/config.pbtxt:15",
    ),
)
BACKENDS = (
    Fault(
        "platform of another backend",
        "detection",
        add(NET, 'platform: "tensorrt_plan"\n'),
        "TR120",
        "error",
        "net/config.pbtxt:13",
    ),
    Fault(
        "ensemble with a backend",
        "detection",
        add(DETECT, 'backend: "python"\n'),
        "TR411",
        "error",
        "detect/config.pbtxt:34",
    ),
    Fault(
        "optimization profile without TensorRT",
        "cache",
        edit(SLOW, GROUP, GROUP.replace("}", 'profile: "1" }')),
        "TR125",
        "error",
        "slow/config.pbtxt:9",
    ),
    Fault(
        "shape tensor without TensorRT",
        "cache",
        shape("dims: [ 4 ] is_shape_tensor: true"),
        "TR125",
        "error",
        "slow/config.pbtxt:4",
    ),
    Fault(
        "negative GPU index",
        "cache",
        edit(SLOW, GROUP, "instance_group [ { kind: KIND_GPU gpus: [ -1 ] } ]"),
        "TR119",
        "error",
        "slow/config.pbtxt:9",
    ),
    Fault(
        "instance group with a GPU on a server without GPUs",
        "cache",
        edit(SLOW, GROUP, "instance_group [ { gpus: [ 0 ] } ]"),
        "TR119",
        "warning",
        "slow/config.pbtxt:9",
    ),
)
TENSORS = (
    Fault(
        "reshape across a variable dimension",
        "cache",
        shape("dims: [ 2, -1, 3 ] reshape: { shape: [ 3, -1, 2 ] }"),
        "TR118",
        "error",
        "slow/config.pbtxt:4",
    ),
    Fault(
        "reshape with a zero",
        "cache",
        shape("dims: [ 4 ] reshape: { shape: [ 4, 0 ] }"),
        "TR118",
        "error",
        "slow/config.pbtxt:4",
    ),
    Fault(
        "reshape of several elements to one",
        "cache",
        shape("dims: [ 4 ] reshape: { shape: [ ] }"),
        "TR118",
        "error",
        "slow/config.pbtxt:4",
    ),
    Fault(
        "batch input of two tensors",
        "ragged",
        edit(RAGGED, 'source_input: "IN"', 'source_input: [ "IN", "IN" ]'),
        "TR124",
        "error",
        "lengths/config.pbtxt:14",
    ),
    Fault(
        "batch input of strings",
        "ragged",
        edit(
            RAGGED, 'target_name: "ENDS"\n    data_type: TYPE_FP32', 'target_name: "ENDS"\n    data_type: TYPE_STRING'
        ),
        "TR124",
        "error",
        "lengths/config.pbtxt:13",
    ),
)
QUEUES = (
    Fault(
        "queue policy of priority level 0",
        "queues",
        edit(QUEUE, "key: 1", "key: 0"),
        "TR112",
        "error",
        "queue/config.pbtxt:15",
    ),
    Fault(
        "preserve_ordering with a DELAY queue policy of a priority level",
        "queues",
        then(
            edit(QUEUE, "priority_levels: 3", "preserve_ordering: true priority_levels: 1"),
            edit(QUEUE, "default_priority_level: 2", "default_priority_level: 1"),
            edit(
                QUEUE,
                "value: { max_queue_size: 10 }",
                "value: { timeout_action: DELAY default_timeout_microseconds: 5 }",
            ),
        ),
        "TR112",
        "error",
        "queue/config.pbtxt:15",
    ),
)
SEQUENCES = (
    Fault(
        "state without names",
        "sequence",
        edit(STATE, 'input_name: "BEFORE"\n      output_name: "AFTER"\n', ""),
        "TR113",
        "error",
        f"{STATE}:12",
    ),
    Fault(
        "sequence control without values",
        "sequence",
        edit(SUM, START, START.replace(" int32_false_true: [ 0, 1 ]", "")),
        "TR113",
        "error",
        "sum/config.pbtxt:15",
    ),
    Fault(
        "sequence control with one value",
        "sequence",
        edit(SUM, "[ 0, 1 ]", "[ 0 ]"),
        "TR113",
        "error",
        "sum/config.pbtxt:15",
    ),
    Fault(
        "sequence control with values of two types",
        "sequence",
        edit(SUM, "[ 0, 1 ]", "[ 0, 1 ] fp32_false_true: [ 0, 1 ]"),
        "TR113",
        "error",
        "sum/config.pbtxt:15",
    ),
    Fault(
        "sequence ID of type FP32",
        "sequence",
        edit(SUM, "TYPE_UINT64", "TYPE_FP32"),
        "TR113",
        "error",
        "sum/config.pbtxt:19",
    ),
    Fault(
        "sequence ID with values",
        "sequence",
        edit(
            SUM, CORRID, CORRID.replace("data_type: TYPE_UINT64", "int32_false_true: [ 0, 1 ] data_type: TYPE_UINT64")
        ),
        "TR113",
        "error",
        "sum/config.pbtxt:19",
    ),
    Fault(
        "two sequence controls with one name",
        "sequence",
        edit(SUM, '"CORRID"', '"START"'),
        "TR113",
        "error",
        "sum/config.pbtxt:14",
    ),
    Fault(
        "sequence control without a name",
        "sequence",
        edit(SUM, 'name: "CORRID"', ""),
        "TR113",
        "error",
        "sum/config.pbtxt:17",
    ),
    Fault(
        "initial state of another data type",
        "sequence",
        edit(
            STATE, "initial_state: {\n        data_type: TYPE_FP32", "initial_state: {\n        data_type: TYPE_INT32"
        ),
        "TR113",
        "error",
        "state/config.pbtxt:12",
    ),
    Fault(
        "initial state of another shape",
        "sequence",
        edit(STATE, "        dims: [ 2 ]\n        data_file", "        dims: [ 1, 2 ]\n        data_file"),
        "TR113",
        "error",
        "state/config.pbtxt:12",
    ),
    Fault(
        "initial state without a name",
        "sequence",
        edit(STATE, 'name: "first state"', ""),
        "TR113",
        "error",
        "state/config.pbtxt:12",
    ),
    Fault(
        "initial state without data",
        "sequence",
        edit(STATE, 'data_file: "first"', ""),
        "TR113",
        "error",
        "state/config.pbtxt:12",
    ),
)
FILES = (
    Fault(
        "missing execution environment",
        "cache",
        add(SLOW, environment("$$TRITON_MODEL_DIRECTORY/env.tar.gz")),
        "TR209",
        "error",
        "slow/config.pbtxt:11",
    ),
    *(
        Fault(
            f"execution environment {name}",
            "cache",
            then(write("slow/env/lib/x", ""), add(SLOW, environment(path))),
            "TR209",
            "error",
            "slow/config.pbtxt:11",
        )
        for name, path in {
            "with a relative path": "env",
            "with a path of Windows": "C:\\\\envs\\\\env.tar.gz",
            "with one dollar sign": "$TRITON_MODEL_DIRECTORY/env",
            "without a slash": "$$TRITON_MODEL_DIRECTORYenv",
            "after a scheme": "file://$$TRITON_MODEL_DIRECTORY/env",
            "without bin/activate": "$$TRITON_MODEL_DIRECTORY/env",
        }.items()
    ),
    Fault(
        "execution environment in a ZIP file",
        "cache",
        then(
            write("slow/env.zip", b"PK\x03\x04" + bytes(600)),
            add(SLOW, environment("$$TRITON_MODEL_DIRECTORY/env.zip")),
        ),
        "TR801",
        "error",
        "slow/env.zip",
    ),
    Fault(
        "missing label file in a directory",
        "warmup",
        edit(TEXT, '"labels.txt"', '"names/labels.txt"'),
        "TR208",
        "error",
        "words/config.pbtxt:8",
    ),
    Fault("broken symbolic link in a model", "cache", link("slow/gone", "nowhere"), "TR006", "error", "slow/gone"),
    Fault("symbolic link to itself in a model", "cache", link("slow/self", "self"), "TR006", "error", "slow/self"),
    Fault("broken symbolic link in the repository", "cache", link("gone", "nowhere"), "TR006", "error", "gone"),
    Fault(
        "broken symbolic link to model.py",
        "cache",
        then(remove(SLOW_PY), link(SLOW_PY, "../0/model.py")),
        "TR204",
        "error",
        "slow/1",
    ),
    Fault(
        "config.pbtxt in the version directory",
        "cache",
        move(SLOW, "slow/1/config.pbtxt"),
        "TR210",
        "warning",
        "slow/1/config.pbtxt",
    ),
    Fault("Git LFS pointer instead of model.py", "cache", write(SLOW_PY, POINTER), "TR211", "error", "slow/1/model.py"),
    Fault(
        "program for model.py that may not be executed",
        "cache",
        write("slow/triton_python_backend_stub", b"\x7fELF"),
        "TR213",
        "error",
        "slow/triton_python_backend_stub",
    ),
    Fault(
        "space in a model's name",
        "cache",
        move("slow", "slow model"),
        "TR212",
        "error",
        "slow model",
        {"entrypoint": "slow model"},
    ),
    Fault(
        "warm-up input without data",
        "warmup",
        edit(TEXT, " random_data: true", ""),
        "TR704",
        "error",
        "words/config.pbtxt:23",
    ),
    Fault(
        "missing warm-up file in a directory",
        "warmup",
        edit(TEXT, 'input_data_file: "weights"', 'input_data_file: "first/weights"'),
        "TR701",
        "error",
        "words/config.pbtxt:16",
    ),
)
DECOUPLED = """\
platform: "ensemble"
max_batch_size: 0
input [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "repeat"
      model_version: -1
      input_map { key: "IN" value: "X" }
      output_map { key: "OUT" value: "many" }
    },
    {
      model_name: "join"
      model_version: -1
      input_map { key: "A" value: "X" }
      input_map { key: "B" value: "many" }
      output_map { key: "OUT" value: "Y" }
    }
  ]
}
"""
JOIN = """\
backend: "python"
max_batch_size: 0
input [
  { name: "A" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "B" data_type: TYPE_INT32 dims: [ 1 ] }
]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
ENSEMBLES = (
    Fault(
        "decoupled step joined with another branch",
        "decoupled",
        then(
            write("both/config.pbtxt", DECOUPLED),
            write("both/1/.keep", ""),
            write("join/config.pbtxt", JOIN),
            write("join/1/model.py", ECHO.replace('"IN"', '"A"')),
        ),
        "TR418",
        "error",
        "both/config.pbtxt:13",
        {"entrypoint": "both"},
    ),
    Fault(
        "step without inputs",
        "versions",
        edit(PINNED, '      input_map { key: "IN" value: "Y" }\n', ""),
        "TR417",
        "error",
        "pinned/config.pbtxt:13",
    ),
)

FAULTS = (*VERSIONS, *BACKENDS, *TENSORS, *QUEUES, *SEQUENCES, *FILES, *ENSEMBLES)
