"""ONNX models that differ from config.pbtxt, or that the server can't read."""

from __future__ import annotations

from pathlib import Path

from corpus.faults.fault import NET, ONNX, Fault
from support import onnx_file
from support.mutations import Change, add, edit, write

FP32 = onnx_file.FP32
IN8 = ["n", 3, 8, 8]
OUT8 = ["n", 32, 6]


def network(
    input_tensor: tuple[str, int, onnx_file.Dims] = ("images", FP32, IN8),
    output_tensor: tuple[str, int, onnx_file.Dims] = ("boxes", FP32, OUT8),
    sizes: tuple[int, ...] = (-1, 32, 6),
) -> Change:
    """Replaces the ONNX model of net."""
    return write(ONNX, onnx_file.reshaped(input_tensor, output_tensor, sizes))


def _two_inputs(root: Path) -> None:
    inputs = [onnx_file.value("images", FP32, IN8), onnx_file.value("scale", FP32, ["n", 1])]
    nodes = [onnx_file.node("Reshape", ["images", "shape"], ["boxes"])]
    weights = [onnx_file.shape_constant("shape", [-1, 32, 6])]
    outputs = [onnx_file.value("boxes", FP32, OUT8)]
    (root / ONNX).write_bytes(onnx_file.model(inputs, outputs, nodes, weights))


def weights(content: bytes | None, location: str = "model.onnx.data", constant: bool = False) -> Change:
    """Writes a model with its weights in another file, with `content`."""

    def change(root: Path) -> None:
        inputs = [onnx_file.value("images", FP32, IN8)]
        outputs = [onnx_file.value("boxes", FP32, OUT8)]
        weight = onnx_file.external_weight("w", location)
        nodes = [
            onnx_file.node("Add", ["images", "w"], ["sum"]),
            onnx_file.node("Reshape", ["sum", "shape"], ["boxes"]),
        ]
        shape = onnx_file.shape_constant("shape", [-1, 32, 6])
        before, weights = ([onnx_file.constant("w", weight)], []) if constant else ([], [weight])
        (root / ONNX).write_bytes(onnx_file.model(inputs, outputs, [*before, *nodes], [shape, *weights]))
        if content is not None:
            (root / ONNX).parent.joinpath(location).write_bytes(content)

    return change


def _versions(ir_version: int, opset: int) -> Change:
    """Replaces the ONNX model of net by one of other versions of the format and its operators."""
    content = onnx_file.model(
        [onnx_file.value("images", FP32, IN8)],
        [onnx_file.value("boxes", FP32, OUT8)],
        [onnx_file.node("Reshape", ["images", "shape"], ["boxes"])],
        [onnx_file.shape_constant("shape", [-1, 32, 6])],
        ir_version=ir_version,
        opset=opset,
    )
    return write(ONNX, content)


FAULTS = (
    Fault(
        "truncated ONNX file",
        "detection",
        lambda root: (root / ONNX).write_bytes((root / ONNX).read_bytes()[:60]),
        "TR601",
        "error",
        ONNX,
    ),
    Fault(
        "Git LFS pointer instead of model.onnx",
        "detection",
        write(ONNX, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 28000000\n"),
        "TR601",
        "error",
        ONNX,
    ),
    Fault(
        "another input name in the ONNX file",
        "detection",
        network(input_tensor=("input", FP32, IN8)),
        "TR602",
        "error",
        f"{NET}:5",
    ),
    Fault(
        "another output name in the ONNX file",
        "detection",
        network(output_tensor=("output", FP32, OUT8)),
        "TR602",
        "error",
        f"{NET}:8",
    ),
    Fault("input of the ONNX file missing in config.pbtxt", "detection", _two_inputs, "TR603", "error", f"{NET}:5"),
    Fault(
        "another input type in the ONNX file",
        "detection",
        network(input_tensor=("images", onnx_file.FP16, IN8), output_tensor=("boxes", onnx_file.FP16, OUT8)),
        "TR604",
        "error",
        f"{NET}:5",
    ),
    Fault(
        "another input shape in the ONNX file",
        "detection",
        network(input_tensor=("images", FP32, ["n", 3, 16, 4])),
        "TR605",
        "error",
        f"{NET}:5",
    ),
    Fault(
        "another output shape in the ONNX file",
        "detection",
        network(output_tensor=("boxes", FP32, ["n", 16, 12]), sizes=(-1, 16, 12)),
        "TR605",
        "error",
        f"{NET}:8",
    ),
    Fault(
        "ONNX file with a fixed batch size",
        "detection",
        network(
            input_tensor=("images", FP32, [1, 3, 8, 8]), output_tensor=("boxes", FP32, [1, 32, 6]), sizes=(1, 32, 6)
        ),
        "TR606",
        "error",
        f"{NET}:3",
    ),
    Fault("missing external weights", "detection", weights(None), "TR607", "error", ONNX),
    Fault("truncated external weights", "detection", weights(bytes(5)), "TR607", "error", ONNX),
    Fault(
        "Git LFS pointer for external weights",
        "detection",
        weights(b"version https://git-lfs.github.com/spec/v1\n"),
        "TR607",
        "error",
        ONNX,
    ),
    Fault("missing external weights of a constant", "detection", weights(None, constant=True), "TR607", "error", ONNX),
    Fault(
        "outputs that ONNX Runtime completes without a batch",
        "detection",
        lambda root: (
            network(output_tensor=("boxes", FP32, [1, 32, 6]), sizes=(1, 32, 6))(root),
            edit(NET, 'output [\n  { name: "boxes" data_type: TYPE_FP32 dims: [ 32, 6 ] }\n]\n', "")(root),
        ),
        "TR606",
        "error",
        f"{NET}:3",
    ),
    Fault("IR version of a newer ONNX", "detection", _versions(13, 17), "TR610", "error", ONNX, {"server": (2, 51)}),
    Fault("opset of a newer ONNX", "detection", _versions(8, 22), "TR610", "warning", ONNX, {"server": (2, 51)}),
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
