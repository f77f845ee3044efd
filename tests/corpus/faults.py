"""Faulty repositories: each is a good one with one fault, put there by a named mutation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from corpus.good import BY_NAME, ECHO, MIB, string
from support import onnx_file
from support.mutations import Change, add, edit, empty, move, remove, write
from triton_operator.repository.checks import Expected


@dataclass(frozen=True)
class Fault:
    """One mutation, and where the check must see it."""

    name: str
    """Says what was done; unique."""
    of: str
    """The good repository that it was done to."""
    change: Change
    code: str
    severity: str
    """error, warning or note."""
    place: str
    """file, or file:line."""
    wanted: dict[str, object] = field(default_factory=dict)
    """What the pod has otherwise than for the good one."""

    @property
    def expected(self) -> Expected:
        return replace(BY_NAME[self.of].wanted, **self.wanted)  # type: ignore[arg-type]

    def write(self, root: Path) -> Path:
        """Put the faulty repository under `root`."""
        self.change(BY_NAME[self.of].write(root))
        return root


PRE, NET, POST, DETECT = (f"{name}/config.pbtxt" for name in ("pre", "net", "post", "detect"))
PRE_PY, POST_PY = "pre/1/model.py", "post/1/model.py"
TEXT, TEXT_PY = "words/config.pbtxt", "words/1/model.py"
ONNX = "net/1/model.onnx"
FP32 = onnx_file.FP32
IN8 = ["n", 3, 8, 8]
OUT8 = ["n", 32, 6]


def network(
    given: tuple[str, int, onnx_file.Dims] = ("images", FP32, IN8),
    made: tuple[str, int, onnx_file.Dims] = ("boxes", FP32, OUT8),
    sizes: tuple[int, ...] = (-1, 32, 6),
) -> Change:
    """Another network in the place of net's."""
    return write(ONNX, onnx_file.reshaped(given, made, sizes))


def _two_inputs(root: Path) -> None:
    given = [onnx_file.value("images", FP32, IN8), onnx_file.value("scale", FP32, ["n", 1])]
    nodes = [onnx_file.node("Reshape", ["images", "shape"], ["boxes"])]
    weights = [onnx_file.shape_constant("shape", [-1, 32, 6])]
    made = [onnx_file.value("boxes", FP32, OUT8)]
    (root / ONNX).write_bytes(onnx_file.model(given, made, nodes, weights))


def _weights_elsewhere(root: Path) -> None:
    given = [onnx_file.value("images", FP32, IN8)]
    made = [onnx_file.value("boxes", FP32, OUT8)]
    nodes = [
        onnx_file.node("Add", ["images", "w"], ["sum"]),
        onnx_file.node("Reshape", ["sum", "shape"], ["boxes"]),
    ]
    weights = [onnx_file.shape_constant("shape", [-1, 32, 6]), onnx_file.external_weight("w", "model.onnx.data")]
    (root / ONNX).write_bytes(onnx_file.model(given, made, nodes, weights))


def _circle(root: Path) -> None:
    edit(DETECT, 'input_map { key: "IMAGE" value: "IMAGE" }', 'input_map { key: "IMAGE" value: "JSON" }')(root)
    edit(DETECT, '\ninput [\n  { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] }\n]', "")(root)


def _ensembles_in_a_ring(root: Path) -> None:
    edit("inside/config.pbtxt", '"flat"', '"outside"')(root)
    edit("inside/config.pbtxt", 'key: "IN"', 'key: "X"')(root)
    edit("inside/config.pbtxt", 'key: "OUT"', 'key: "Y"')(root)


def _megabytes(root: Path) -> None:
    config = root / "slow/config.pbtxt"
    config.write_text(config.read_text().replace("dims: [ 4 ]", "dims: [ 1000000 ]"))


FAULTS = (
    # config.pbtxt: text and schema
    Fault("colon missing", "detection", edit(PRE, 'name: "pre"', 'name "pre"'), "TR101", "error", f"{PRE}:1"),
    Fault(
        "bracket never closed",
        "detection",
        edit(NET, "dims: [ 32, 6 ] }\n]", "dims: [ 32, 6 ] }\n"),
        "TR101",
        "error",
        f"{NET}:10",
    ),
    Fault("unknown value", "detection", edit(PRE, "TYPE_INT32", "TYPE_INT"), "TR101", "error", f"{PRE}:9"),
    Fault(
        "text for a number",
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
        "misspelt field",
        "detection",
        edit(NET, "max_batch_size", "max_batchsize"),
        "TR102",
        "error",
        f"{NET}:3",
    ),
    Fault(
        "misspelt field inside",
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
    Fault("not UTF-8", "detection", write(NET, b'# \xe9t\xe9\nname: "\xe9"\n'), "TR002", "error", NET),
    Fault("another name", "detection", edit(PRE, '"pre"', '"preprocess"'), "TR103", "error", f"{PRE}:1"),
    Fault(
        "field of a later server",
        "detection",
        add(NET, "model_metrics { }\n"),
        "TR109",
        "error",
        f"{NET}:13",
    ),
    # backends
    Fault(
        "no config.pbtxt",
        "detection",
        lambda root: (remove(PRE)(root), move(PRE_PY, "pre/1/pre.py")(root)),
        "TR104",
        "error",
        PRE,
    ),
    Fault(
        "no backend",
        "detection",
        lambda root: (edit(PRE, 'backend: "python"\n', "")(root), move(PRE_PY, "pre/1/pre.py")(root)),
        "TR105",
        "error",
        PRE,
    ),
    Fault("misspelt backend", "detection", edit(NET, "onnxruntime", "onnxruntme"), "TR106", "warning", f"{NET}:2"),
    Fault(
        "unknown platform",
        "instances",
        edit(NET, "onnxruntime_onnx", "onnx_runtime"),
        "TR106",
        "warning",
        f"{NET}:1",
    ),
    Fault(
        "config.pbtxt misnamed",
        "cache",
        move("slow/config.pbtxt", "slow/config.pbtext"),
        "TR207",
        "warning",
        "slow/config.pbtext",
    ),
    # batches
    Fault(
        "dynamic batching without batches",
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
        "preferred above the maximum", "detection", edit(NET, "[ 4, 8 ]", "[ 4, 16 ]"), "TR108", "error", f"{NET}:10"
    ),
    Fault(
        "preferred batch of 0",
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
        "preferred sequences above the maximum",
        "sequence",
        edit("sum/config.pbtxt", "[ 2, 4 ]", "[ 2, 8 ]"),
        "TR108",
        "error",
        "sum/config.pbtxt:11",
    ),
    Fault(
        "images as UINT8 of any length",
        "ragged",
        edit("lengths/config.pbtxt", "TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true", "TYPE_UINT8 dims: [ -1 ]"),
        "TR110",
        "warning",
        "lengths/config.pbtxt:4",
    ),
    Fault(
        "variable size without ragged",
        "ragged",
        edit("lengths/config.pbtxt", " allow_ragged_batch: true", ""),
        "TR110",
        "note",
        "lengths/config.pbtxt:4",
    ),
    Fault(
        "ragged without batches",
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
        "no default priority",
        "queues",
        edit("queue/config.pbtxt", "  default_priority_level: 2\n", ""),
        "TR112",
        "error",
        "queue/config.pbtxt:12",
    ),
    Fault(
        "policy of a priority that isn't",
        "queues",
        edit("queue/config.pbtxt", "key: 1", "key: 4"),
        "TR112",
        "error",
        "queue/config.pbtxt:15",
    ),
    Fault(
        "order and priorities",
        "queues",
        edit("queue/config.pbtxt", "  priority_levels: 3", "  preserve_ordering: true priority_levels: 3"),
        "TR112",
        "error",
        "queue/config.pbtxt:12",
    ),
    Fault(
        "two controls of one kind",
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
        "slot utilization above 1",
        "sequence",
        edit("state/config.pbtxt", "minimum_slot_utilization: 0.5", "minimum_slot_utilization: 1.5"),
        "TR113",
        "error",
        "state/config.pbtxt:10",
    ),
    Fault(
        "batch input of nothing",
        "ragged",
        edit("lengths/config.pbtxt", 'source_input: "IN"', 'source_input: "INPUT"'),
        "TR114",
        "error",
        "lengths/config.pbtxt:14",
    ),
    # tensors
    Fault("no type", "detection", edit(POST, "TYPE_FP32 ", "TYPE_INVALID "), "TR115", "error", f"{POST}:5"),
    Fault("no dims", "detection", edit(POST, " dims: [ -1, 6 ]", ""), "TR115", "error", f"{POST}:5"),
    Fault("dimension of 0", "detection", edit(POST, "[ -1, 6 ]", "[ 0, 6 ]"), "TR116", "error", f"{POST}:5"),
    Fault("dimension of -2", "detection", edit(POST, "[ -1, 6 ]", "[ -2, 6 ]"), "TR116", "error", f"{POST}:5"),
    Fault(
        "format without three dims",
        "queues",
        lambda root: (edit("queue/config.pbtxt", "FORMAT_NCHW dims: [ 3, 2, 2 ]", "FORMAT_NCHW dims: [ 12 ]")(root),),
        "TR116",
        "error",
        "queue/config.pbtxt:4",
    ),
    Fault("input twice", "detection", edit(POST, '"SIZE"', '"BOXES"'), "TR117", "error", f"{POST}:6"),
    Fault(
        "reshape to more",
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
        "GPUs of a CPU",
        "detection",
        edit(PRE, "count: 2 kind: KIND_CPU", "count: 2 kind: KIND_CPU gpus: [ 0 ]"),
        "TR119",
        "error",
        f"{PRE}:12",
    ),
    Fault(
        "GPU that isn't there",
        "detection",
        edit(NET, "count: 1 kind: KIND_CPU", "count: 1 kind: KIND_GPU"),
        "TR119",
        "warning",
        f"{NET}:11",
    ),
    # directories and files
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
    # model.py
    Fault(
        "syntax of Python", "detection", edit(PRE_PY, "(self, args):", "(self, args:"), "TR301", "error", f"{PRE_PY}:6"
    ),
    Fault(
        "another class", "detection", edit(PRE_PY, "class TritonPythonModel", "class Model"), "TR302", "error", PRE_PY
    ),
    Fault("no execute", "detection", edit(PRE_PY, "def execute", "def run"), "TR303", "error", f"{PRE_PY}:5"),
    Fault(
        "initialize without args",
        "detection",
        edit(PRE_PY, "(self, args):", "(self):"),
        "TR304",
        "error",
        f"{PRE_PY}:6",
    ),
    Fault(
        "execute for one request",
        "detection",
        edit(PRE_PY, "def execute(self, requests):", "def execute(self, request, requests):"),
        "TR304",
        "error",
        f"{PRE_PY}:9",
    ),
    Fault(
        "input misspelt in model.py", "detection", edit(PRE_PY, '"IMAGE"', '"IMAGES"'), "TR305", "error", f"{PRE_PY}:12"
    ),
    Fault(
        "output misspelt in model.py", "detection", edit(PRE_PY, '"SIZE"', '"SHAPE"'), "TR306", "error", f"{PRE_PY}:15"
    ),
    Fault(
        "output never made",
        "detection",
        edit(PRE_PY, ', pb_utils.Tensor("SIZE", size)]', "]"),
        "TR307",
        "warning",
        f"{PRE}:9",
    ),
    Fault(
        "auto_complete_config with self",
        "completed",
        edit(
            "short/1/model.py",
            "    @staticmethod\n    def auto_complete_config(",
            "    def auto_complete_config(self, ",
        ),
        "TR308",
        "error",
        "short/1/model.py:6",
    ),
    Fault(
        "auto_complete_config without return",
        "completed",
        edit("short/1/model.py", "        return auto_complete_model_config\n", ""),
        "TR308",
        "error",
        "short/1/model.py:7",
    ),
    Fault(
        "responses not returned",
        "detection",
        edit(PRE_PY, "        return responses\n", ""),
        "TR309",
        "error",
        f"{PRE_PY}:9",
    ),
    Fault(
        "responses returned and sent",
        "decoupled",
        edit("repeat/1/model.py", "return None", "return [None for _ in requests]"),
        "TR309",
        "warning",
        "repeat/1/model.py:13",
    ),
    Fault(
        "responses returned where they are sent",
        "decoupled",
        write("repeat/1/model.py", ECHO.encode()),
        "TR309",
        "error",
        "repeat/1/model.py:11",
    ),
    Fault(
        "pb_utils not imported",
        "detection",
        edit(PRE_PY, "import triton_python_backend_utils as pb_utils\n", ""),
        "TR310",
        "error",
        f"{PRE_PY}:11",
    ),
    # ensembles
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
    # what the TritonModel says
    Fault(
        "entrypoint misspelt",
        "detection",
        lambda root: None,
        "TR501",
        "error",
        ".",
        {"entrypoint": "detection"},
    ),
    Fault(
        "model to load that isn't there",
        "detection",
        lambda root: None,
        "TR503",
        "error",
        ".",
        {"load_models": ("detect", "postprocess")},
    ),
    Fault(
        "too little shared memory",
        "cache",
        _megabytes,
        "TR504",
        "warning",
        ".",
        {"shared_memory": 16 * MIB},
    ),
    Fault(
        "more threads than cores",
        "detection",
        edit(NET, 'string_value: "1"', 'string_value: "4"'),
        "TR505",
        "warning",
        f"{NET}:12",
    ),
    Fault(
        "two instances with threads for the node",
        "instances",
        edit(NET, 'parameters { key: "intra_op_thread_count" value: { string_value: "1" } }\n', ""),
        "TR505",
        "warning",
        f"{NET}:5",
    ),
    Fault(
        "no cache in the server",
        "cache",
        lambda root: None,
        "TR506",
        "warning",
        "slow/config.pbtxt:10",
        {"response_cache": False},
    ),
    Fault(
        "cache of a decoupled model",
        "decoupled",
        add("repeat/config.pbtxt", "response_cache { enable: true }\n"),
        "TR507",
        "error",
        "repeat/config.pbtxt:11",
        {"response_cache": True},
    ),
    # ONNX
    Fault(
        "ONNX cut off",
        "detection",
        lambda root: (root / ONNX).write_bytes((root / ONNX).read_bytes()[:60]),
        "TR601",
        "error",
        ONNX,
    ),
    Fault(
        "pointer of git LFS",
        "detection",
        write(ONNX, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 28000000\n"),
        "TR601",
        "error",
        ONNX,
    ),
    Fault(
        "input of the network renamed", "detection", network(given=("input", FP32, IN8)), "TR602", "error", f"{NET}:5"
    ),
    Fault(
        "output of the network renamed", "detection", network(made=("output", FP32, OUT8)), "TR602", "error", f"{NET}:8"
    ),
    Fault("input of the network left out", "detection", _two_inputs, "TR603", "error", f"{NET}:5"),
    Fault(
        "type of the network's input",
        "detection",
        network(given=("images", onnx_file.FP16, IN8), made=("boxes", onnx_file.FP16, OUT8)),
        "TR604",
        "error",
        f"{NET}:5",
    ),
    Fault(
        "shape of the network's input",
        "detection",
        network(given=("images", FP32, ["n", 3, 16, 4])),
        "TR605",
        "error",
        f"{NET}:5",
    ),
    Fault(
        "shape of the network's output",
        "detection",
        network(made=("boxes", FP32, ["n", 16, 12]), sizes=(-1, 16, 12)),
        "TR605",
        "error",
        f"{NET}:8",
    ),
    Fault(
        "network of a fixed batch",
        "detection",
        network(given=("images", FP32, [1, 3, 8, 8]), made=("boxes", FP32, [1, 32, 6]), sizes=(1, 32, 6)),
        "TR606",
        "error",
        f"{NET}:3",
    ),
    Fault("weights left behind", "detection", _weights_elsewhere, "TR607", "error", ONNX),
    # warm-up
    Fault("warm-up file missing", "warmup", remove("words/warmup/words"), "TR701", "error", f"{TEXT}:15"),
    Fault("first state missing", "sequence", remove("state/initial_state"), "TR701", "error", "state/config.pbtxt:20"),
    Fault(
        "warm-up strings without lengths",
        "warmup",
        write("words/warmup/words", b"first second"),
        "TR702",
        "error",
        "words/warmup/words",
    ),
    Fault(
        "warm-up file too short",
        "warmup",
        write("words/warmup/weights", bytes(16)),
        "TR702",
        "error",
        "words/warmup/weights",
    ),
    Fault(
        "one string too few",
        "warmup",
        write("words/warmup/words", string(b"first")),
        "TR702",
        "error",
        "words/warmup/words",
    ),
    Fault(
        "warm-up batch too large",
        "warmup",
        edit(TEXT, "batch_size: 4\n    count", "batch_size: 8\n    count"),
        "TR703",
        "error",
        f"{TEXT}:20",
    ),
    Fault(
        "warm-up input misspelt",
        "warmup",
        edit(
            TEXT,
            'key: "WEIGHT" value: { data_type: TYPE_FP32 dims: [ 5 ] random',
            'key: "WEIGHTS" value: { data_type: TYPE_FP32 dims: [ 5 ] random',
        ),
        "TR704",
        "error",
        f"{TEXT}:23",
    ),
    Fault(
        "warm-up of another type",
        "warmup",
        edit(TEXT, "TYPE_FP32 dims: [ 5 ] random", "TYPE_INT32 dims: [ 5 ] random"),
        "TR704",
        "error",
        f"{TEXT}:23",
    ),
)
