"""Programs whose auto_complete_config contradicts config.pbtxt, and sides that ONNX Runtime completes."""

from __future__ import annotations

from corpus.faults.fault import NET, ONNX, Fault
from corpus.faults.onnx import FP32
from support import onnx_file
from support.mutations import Change, add, edit, write

SHORT, SHORT_PY = "short/config.pbtxt", "short/1/model.py"
FIRST = """({"name": "IN", "data_type": "TYPE_FP32", "dims": [4]})"""


def declared(more: str) -> Change:
    """Adds text to the configuration that model.py completes."""
    return add(SHORT, more + "\n")


def passes(dictionary: str) -> Change:
    """Makes auto_complete_config pass another dictionary for the input."""
    return edit(SHORT_PY, FIRST, f"({dictionary})")


def calls(statement: str) -> Change:
    """Adds a statement to auto_complete_config."""
    return edit(
        SHORT_PY,
        "        auto_complete_model_config.set_max_batch_size(0)\n",
        f"        auto_complete_model_config.{statement}\n",
    )


def _network(ir_version: int, opset: int, dims: onnx_file.Dims = ("n", 3, 8, 8)) -> Change:
    content = onnx_file.model(
        [onnx_file.value("images", FP32, dims)],
        [onnx_file.value("boxes", FP32, ["n", 32, 6])],
        [onnx_file.node("Reshape", ["images", "shape"], ["boxes"])],
        [onnx_file.shape_constant("shape", [-1, 32, 6])],
        ir_version=ir_version,
        opset=opset,
    )
    return write(ONNX, content)


PROGRAMS = tuple(
    Fault(name, "completed", change, "TR317", "error", f"{SHORT_PY}:{line}")
    for name, line, change in (
        (
            "completed type differs",
            8,
            declared('input { name: "IN" data_type: TYPE_INT32 dims: [ 4 ] }'),
        ),
        ("completed shape differs", 9, declared('output { name: "OUT" data_type: TYPE_FP32 dims: [ 2, 2 ] }')),
        ("completed batch is smaller", 10, declared("max_batch_size: 4")),
        ("completed input without a type", 8, passes('{"name": "IN", "dims": [4]}')),
        (
            "completed input with an unknown property",
            8,
            passes('{"name": "IN", "data_type": "TYPE_FP32", "dims": [4], "ragged": True}'),
        ),
        ("completed scheduler", 10, lambda root: (
            declared("sequence_batching { }")(root), calls("set_dynamic_batching()")(root),
        )),
        ("completed policy has an unknown property", 10, calls('set_model_transaction_policy({"streams": True})')),
        ("completed policy differs", 10, lambda root: (
            declared("model_transaction_policy { decoupled: false }")(root),
            calls("set_model_transaction_policy(dict(decoupled=True))")(root),
        )),
    )
)  # fmt: skip

FAULTS = (
    *PROGRAMS,
    Fault(
        "finalize with an argument",
        "cache",
        add("slow/1/model.py", "\n    def finalize(self, args):\n        pass\n"),
        "TR304",
        "warning",
        "slow/1/model.py:13",
    ),
    Fault(
        "outputs that ONNX Runtime completes without a batch",
        "detection",
        lambda root: (
            write(
                ONNX,
                onnx_file.reshaped(("images", FP32, ["n", 3, 8, 8]), ("boxes", FP32, [1, 32, 6]), [1, 32, 6]),
            )(root),
            edit(NET, 'output [\n  { name: "boxes" data_type: TYPE_FP32 dims: [ 32, 6 ] }\n]\n', "")(root),
        ),
        "TR606",
        "error",
        f"{NET}:3",
    ),
    Fault("IR version of a newer ONNX", "detection", _network(13, 17), "TR610", "error", ONNX, {"server": (2, 51)}),
    Fault("opset of a newer ONNX", "detection", _network(8, 22), "TR610", "warning", ONNX, {"server": (2, 51)}),
    Fault(
        "model files only for GPUs, on a CPU",
        "detection",
        lambda root: (
            (root / ONNX).rename(root / "net/1/gpu.onnx"),
            add(NET, 'cc_model_filenames { key: "8.0" value: "gpu.onnx" }\n')(root),
        ),
        "TR204",
        "error",
        "net/1",
        {"gpus": 0},
    ),
    Fault(
        "missing model file for a GPU",
        "detection",
        lambda root: (
            (root / NET).write_text((root / NET).read_text().replace("KIND_CPU", "KIND_AUTO")),
            add(NET, 'cc_model_filenames { key: "8.0" value: "gone.onnx" }\n')(root),
        ),
        "TR204",
        "warning",
        "net/1",
        {"gpus": 1},
    ),
)
