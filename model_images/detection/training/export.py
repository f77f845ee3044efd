"""Write the trained network as ONNX with the inputs and outputs of ultralytics/yolov5's export."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from network import ANCHORS, STRIDES, JaxOperations, Params, decode, network
from onnx import TensorProto, helper, numpy_helper

SIZE = 640
COLUMNS = 85
# What the sigmoid of a class that was never trained starts from: 6e-6.
NEVER = -12.0


class OnnxOperations:
    """Writes the network down on NCHW tensors, each batch norm folded into its convolution."""

    def __init__(self, params: Params, classes: int) -> None:
        """Start with an empty graph."""
        self.params, self.classes = params, classes
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, kind: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> Any:
        """Append a node; returns its output's name, or the list of them when there are several."""
        names = [f"{kind.lower()}{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: npt.ArrayLike, kind: Any = np.float32) -> str:
        """Store an array; returns its name."""
        name = f"constant{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value, kind), name))
        return name

    def conv(self, name: str, x: str, channels: int, kernel: int = 3, stride: int = 1) -> str:
        """See network.Operations."""
        p = self.params[name]
        factor = p["scale"] / np.sqrt(p["var"] + 1e-5)
        weights = self.constant((p["w"] * factor).transpose(3, 2, 0, 1))
        bias = self.constant(p["bias"] - p["mean"] * factor)
        if p["w"].shape[::3] != (kernel, channels):
            raise ValueError(f"{name} has weights of shape {p['w'].shape}")
        pad = kernel // 2 if kernel % 2 else 0
        y = self.node("Conv", [x, weights, bias], strides=[stride] * 2, pads=[pad] * 4, kernel_shape=[kernel] * 2)
        return str(self.node("Relu", [y]))

    def head(self, name: str, x: str) -> str:
        """See network.Operations; widened from the trained classes to 80. [n, 255, h, w]."""
        p, trained = self.params[name], 5 + self.classes
        inputs = p["w"].shape[2]
        weights = np.zeros((3, COLUMNS, inputs), np.float32)
        weights[:, :trained] = p["w"].reshape(inputs, 3, trained).transpose(1, 2, 0)
        bias = np.full((3, COLUMNS), NEVER, np.float32)
        bias[:, :trained] = p["bias"].reshape(3, trained)
        return str(
            self.node(
                "Conv",
                [x, self.constant(weights.reshape(3 * COLUMNS, inputs, 1, 1)), self.constant(bias.reshape(-1))],
                kernel_shape=[1, 1],
            )
        )

    def up(self, x: str) -> str:
        """See network.Operations."""
        scales = self.constant([1, 1, 2, 2])
        return str(
            self.node(
                "Resize",
                [x, "", scales],
                mode="nearest",
                nearest_mode="floor",
                coordinate_transformation_mode="asymmetric",
            )
        )

    def add(self, a: str, b: str) -> str:
        """See network.Operations."""
        return str(self.node("Add", [a, b]))

    def decode(self, raw: str, scale: int) -> str:
        """As network.decode, to rows [n, 3·h·w, 85] in yolov5's order: anchor, then row, then column."""
        stride, cells = STRIDES[scale], SIZE // STRIDES[scale]
        y = self.node("Sigmoid", [raw])
        y = self.node("Reshape", [y, self.constant([-1, 3, COLUMNS, cells * cells], np.int64)])
        xy, wh, rest = self.node("Split", [y, self.constant([2, 2, COLUMNS - 4], np.int64)], outputs=3, axis=2)
        # (2 s - 0.5 + cell) · stride and (2 s)² · anchor, with the factors multiplied out.
        corner = np.stack(np.meshgrid(np.arange(cells), np.arange(cells))).reshape(1, 1, 2, -1)
        xy = self.node("Mul", [xy, self.constant(2 * stride)])
        xy = self.node("Add", [xy, self.constant((corner - 0.5) * stride)])
        wh = self.node("Mul", [wh, wh])
        wh = self.node("Mul", [wh, self.constant(4 * ANCHORS[scale].reshape(1, 3, 2, 1))])
        y = self.node("Concat", [xy, wh, rest], axis=2)
        y = self.node("Transpose", [y], perm=[0, 1, 3, 2])
        return str(self.node("Reshape", [y, self.constant([-1, 3 * cells * cells, COLUMNS], np.int64)]))


def export(params: Params, classes: int, path: Path) -> None:
    """Write `path` and check it against the network in JAX. Raises ValueError where they differ."""
    ops = OnnxOperations(params, classes)
    rows = [ops.decode(raw, scale) for scale, raw in enumerate(network(ops, "images"))]
    ops.nodes.append(helper.make_node("Concat", rows, ["output0"], axis=1))
    count = sum(3 * (SIZE // stride) ** 2 for stride in STRIDES)
    graph = helper.make_graph(
        ops.nodes,
        "shapes",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["batch", count, COLUMNS])],
        ops.weights,
    )
    # An opset and a format that the ONNX Runtime of older servers reads, too.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="", ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())

    image = np.random.default_rng(0).random((2, SIZE, SIZE, 3), np.float32)
    raws = network(JaxOperations(params, 5 + classes, training=False), jnp.asarray(image))
    wanted = np.concatenate(
        [np.asarray(decode(r, s)).transpose(0, 3, 1, 2, 4).reshape(2, -1, 5 + classes) for s, r in enumerate(raws)], 1
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"images": image.transpose(0, 3, 1, 2)})
    if not np.allclose(found[..., : 5 + classes], wanted, rtol=1e-3, atol=1e-2):
        raise ValueError(f"ONNX and JAX differ by {np.abs(found[..., : 5 + classes] - wanted).max()}")
