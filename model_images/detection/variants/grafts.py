"""Adds nodes to the input and output of a yolov5s in ONNX, so that its tensors are smaller."""

import numpy as np
import onnx
from graph import checked
from onnx import TensorProto, helper, numpy_helper


def bytes_first(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model with `images` as UINT8 0 to 255 instead of FP32 0 to 1; the network divides by 255."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    graph = out.graph
    _rename(graph, "images", "images_scaled")
    images = graph.input[0]
    images.name, images.type.tensor_type.elem_type = "images", TensorProto.UINT8
    # The same product as in letterbox.py, so that the boxes are the same to the last bit.
    graph.initializer.append(numpy_helper.from_array(np.float32(1 / 255), "one_255th"))
    head = [
        helper.make_node("Cast", ["images"], ["images_float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["images_float", "one_255th"], ["images_scaled"]),
    ]
    nodes = [*head, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return checked(graph)


def filter_last(model: onnx.ModelProto, keep: int) -> onnx.ModelProto:
    """Returns the model with `output0` [batch, keep, columns]: only the rows with the highest objectness.

    A score never exceeds the objectness. So no box is lost if at most `keep` rows have an objectness above the score
    threshold.
    """
    out = onnx.ModelProto()
    out.CopyFrom(model)
    graph = out.graph
    _rename(graph, "output0", "rows")
    for name, value in (("objectness_column", 4), ("keep", [keep]), ("last_axis", [-1])):
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    graph.node.extend(
        [
            helper.make_node("Gather", ["rows", "objectness_column"], ["objectness"], axis=2),
            helper.make_node("TopK", ["objectness", "keep"], ["best", "best_at"], axis=1, sorted=1),
            helper.make_node("Unsqueeze", ["best_at", "last_axis"], ["best_rows"]),
            helper.make_node("GatherND", ["rows", "best_rows"], ["output0"], batch_dims=1),
        ]
    )
    graph.output[0].type.tensor_type.shape.dim[1].dim_value = keep
    return checked(graph)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Renames a tensor in the inputs and outputs of all nodes."""
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]
