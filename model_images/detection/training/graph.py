"""Builds an ONNX graph node by node, with the inputs and outputs of ultralytics/yolov5's export."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from anchors import ANCHORS, COLUMNS, ROWS, SIZE, STRIDES
from onnx import TensorProto, helper, numpy_helper

# An opset and a format that the ONNX Runtime of older servers supports.
OPSET, FORMAT = 17, 8


class Graph:
    """The nodes of a graph on NCHW tensors, and their weights."""

    def __init__(self) -> None:
        """Starts with an empty graph."""
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, kind: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> Any:
        """Appends a node. Returns its output's name, or a list if there are several."""
        names = [f"{kind.lower()}{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: npt.ArrayLike, kind: Any = np.float32) -> str:
        """Adds an array as a constant and returns its name."""
        name = f"constant{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value, kind), name))
        return name

    def up(self, x: str) -> str:
        """Doubles the height and width, nearest neighbour."""
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
        """Adds two tensors of the same shape."""
        return str(self.node("Add", [a, b]))

    def decode(self, raw: str, scale: int) -> str:
        """Converts raw predictions [n, 255, h, w] to rows [n, 3·h·w, 85], ordered by anchor, row and column."""
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

    def detector(self, raws: list[str], name: str) -> onnx.ModelProto:
        """Returns the model: `images` [batch, 3, 640, 640] to `output0` [batch, 25200, 85], the rows of all scales."""
        rows = [self.decode(raw, scale) for scale, raw in enumerate(raws)]
        self.nodes.append(helper.make_node("Concat", rows, ["output0"], axis=1))
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])],
            [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["batch", ROWS, COLUMNS])],
            self.weights,
        )
        return checked(graph)


def checked(graph: onnx.GraphProto) -> onnx.ModelProto:
    """Returns the graph as a model. Raises onnx's errors if it is invalid."""
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="", ir_version=FORMAT)
    onnx.checker.check_model(model, full_check=True)
    return model
