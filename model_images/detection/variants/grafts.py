"""What is added to a yolov5s in ONNX at its two ends, so that fewer bytes cross its boundaries."""

import numpy as np
import onnx
from graph import checked
from onnx import TensorProto, helper, numpy_helper


def bytes_first(model: onnx.ModelProto) -> onnx.ModelProto:
    """`images` becomes UINT8 0..255 instead of FP32 0..1, of the same shape: the network divides."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    graph = out.graph
    _rename(graph, "images", "images_scaled")
    given = graph.input[0]
    given.name, given.type.tensor_type.elem_type = "images", TensorProto.UINT8
    # The very product of letterbox.py, so that the boxes are the same to the last bit.
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
    """`output0` [batch, rows, columns] becomes [batch, keep, columns]: the rows of the highest objectness.

    A score never exceeds the objectness, so no box is lost as long as `keep` rows hold all those whose objectness is
    above the score threshold.
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
    """Give a tensor another name wherever a node reads or writes it."""
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]
