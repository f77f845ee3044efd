"""Builds a network with yolov5s's layers, size and tensors, but random weights, to measure time.

It has 7.2 million parameters and 16.4 GFLOPs. Its boxes are random, but every image gets some boxes and not thousands:
the inputs of the heads are normalised per image, and the heads are scaled with the sample images.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from anchors import COLUMNS, SIZE, STRIDES
from graph import Graph, checked
from onnx import TensorProto, helper

Floats = npt.NDArray[np.float32]
# The fraction of each scale's rows that have an objectness above 1/4.
SHARE_OF_BOXES = 0.0007
# Mean and deviation of the logits of the boxes and of the class scores.
BOX, CLASS = (0.0, 0.5), (-2.0, 1.5)


class Yolov5s(Graph):
    """The layers of ultralytics/yolov5's models/yolov5s.yaml (v6 and v7), batch norms folded."""

    def __init__(self, seed: int) -> None:
        """Starts with an empty graph. The weights are drawn with `seed` in the order of the layers."""
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.channels = {"images": 3}
        self.parameters = self.flops = 0
        self.size = {"images": SIZE}
        self.outermost = [self.constant(np.float32(bound)) for bound in (-3, 3)]

    def conv(self, x: str, channels: int, kernel: int = 1, stride: int = 1, *, pad: int | None = None) -> str:
        """Convolution and SiLU."""
        inputs, pad = self.channels[x], kernel // 2 if pad is None else pad
        # SiLU keeps 0.36 of a unit normal's second moment; this deviation compensates for it.
        deviation = np.sqrt(1 / (0.36 * inputs * kernel**2))
        weights = self.rng.normal(0, deviation, (channels, inputs, kernel, kernel))
        y = self._convolved(x, weights, np.zeros(channels), stride, pad)
        z = self.node("Mul", [y, self.node("Sigmoid", [y])])
        return self._record(z, channels, self.size[y])

    def head(self, x: str) -> str:
        """1×1 convolution to raw predictions [n, 255, h, w]. `scale_heads` sets its weights."""
        inputs = self.channels[x]
        norm = [self.constant(np.ones(inputs)), self.constant(np.zeros(inputs))]
        y = self.node("InstanceNormalization", [x, *norm])
        # Clip outliers, which would give many classes the same high score.
        x = self._record(self.node("Clip", [y, *self.outermost]), inputs, self.size[x])
        weights = self.rng.normal(0, np.sqrt(1 / inputs), (3 * COLUMNS, inputs, 1, 1))
        return self._convolved(x, weights, np.zeros(3 * COLUMNS), 1, 0)

    def c3(self, x: str, channels: int, depth: int, *, shortcut: bool = True) -> str:
        """yolov5's C3: half of the channels pass through `depth` bottlenecks, the other half bypasses them."""
        y = self.conv(x, channels // 2)
        for _ in range(depth):
            z = self.conv(self.conv(y, channels // 2), channels // 2, 3)
            y = self._record(self.add(y, z), channels // 2, self.size[y]) if shortcut else z
        return self.conv(self.concat([y, self.conv(x, channels // 2)]), channels)

    def sppf(self, x: str, channels: int) -> str:
        """yolov5's SPPF: the input and its maxima over 5, 9 and 13 cells."""
        parts = [self.conv(x, self.channels[x] // 2)]
        for _ in range(3):
            y = self.node("MaxPool", [parts[-1]], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1])
            parts.append(self._record(y, self.channels[parts[0]], self.size[x]))
        return self.conv(self.concat(parts), channels)

    def concat(self, parts: Sequence[str]) -> str:
        """Concatenates along the channels."""
        y = self.node("Concat", list(parts), axis=1)
        return self._record(y, sum(self.channels[p] for p in parts), self.size[parts[0]])

    def up(self, x: str) -> str:
        """See Graph."""
        return self._record(super().up(x), self.channels[x], 2 * self.size[x])

    def _record(self, x: str, channels: int, size: int) -> str:
        self.channels[x], self.size[x] = channels, size
        return x

    def _convolved(self, x: str, weights: npt.ArrayLike, bias: npt.ArrayLike, stride: int, pad: int) -> str:
        weights, bias = np.asarray(weights, np.float32), np.asarray(bias, np.float32)
        kernel = weights.shape[2:]
        names = [x, self.constant(weights), self.constant(bias)]
        y = str(self.node("Conv", names, strides=[stride] * 2, pads=[pad] * 4, kernel_shape=list(kernel)))
        self._record(y, len(bias), (self.size[x] + 2 * pad - kernel[0]) // stride + 1)
        self.parameters += weights.size + bias.size
        self.flops += 2 * weights.size * self.size[y] ** 2
        return y


def heads(op: Yolov5s) -> list[str]:
    """Builds the network and returns its raw predictions at strides 8, 16 and 32."""
    x = op.conv(op.conv("images", 32, 6, 2, pad=2), 64, 3, 2)
    c3 = op.c3(op.conv(op.c3(x, 64, 1), 128, 3, 2), 128, 2)
    c4 = op.c3(op.conv(c3, 256, 3, 2), 256, 3)
    c5 = op.sppf(op.c3(op.conv(c4, 512, 3, 2), 512, 1), 512)
    n5 = op.conv(c5, 256)
    n4 = op.conv(op.c3(op.concat([op.up(n5), c4]), 256, 1, shortcut=False), 128)
    p3 = op.c3(op.concat([op.up(n4), c3]), 128, 1, shortcut=False)
    p4 = op.c3(op.concat([op.conv(p3, 128, 3, 2), n4]), 256, 1, shortcut=False)
    p5 = op.c3(op.concat([op.conv(p4, 256, 3, 2), n5]), 512, 1, shortcut=False)
    return [op.head(p) for p in (p3, p4, p5)]


def scale_heads(op: Yolov5s, raws: list[str], images: Floats) -> None:
    """Sets the heads' weights so that the logits for `images` [n, 3, 640, 640] have the wanted distribution."""
    outputs = [
        helper.make_tensor_value_info(raw, TensorProto.FLOAT, ["batch", 3 * COLUMNS, SIZE // s, SIZE // s])
        for raw, s in zip(raws, STRIDES, strict=True)
    ]
    input_info = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])
    model = checked(helper.make_graph(op.nodes, "heads", [input_info], outputs, op.weights))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    # One image at a time, to use little memory.
    predictions = [session.run(None, {"images": image[None]}) for image in images]
    by_name = {weight.name: weight for weight in op.weights}
    for scale, raw in enumerate(raws):
        logits = np.concatenate([f[scale] for f in predictions]).transpose(1, 0, 2, 3).reshape(3, COLUMNS, -1)
        factor, shift = _factor_and_shift(logits)
        conv = next(node for node in op.nodes if raw in node.output)
        weights, bias = (by_name[name] for name in conv.input[1:])
        old = onnx.numpy_helper.to_array(weights)
        weights.CopyFrom(onnx.numpy_helper.from_array(old * factor.reshape(-1, 1, 1, 1), weights.name))
        bias.CopyFrom(onnx.numpy_helper.from_array(shift.reshape(-1), bias.name))


def _factor_and_shift(logits: Floats) -> tuple[Floats, Floats]:
    """Returns the factor and shift, each [3, 85], that give logits [3, 85, n] the wanted distribution."""
    mean, deviation = logits.mean(axis=2), logits.std(axis=2) + 1e-6
    target_mean, target_deviation = np.full_like(mean, CLASS[0]), np.full_like(mean, CLASS[1])
    target_mean[:, :4], target_deviation[:, :4] = BOX
    # Keep the objectness of all but SHARE_OF_BOXES below 1/4, the sigmoid of -1.1.
    highest = np.quantile(logits[:, 4], 1 - SHARE_OF_BOXES, axis=1)
    target_deviation[:, 4] = 1
    target_mean[:, 4] = -1.1 - (highest - mean[:, 4]) / deviation[:, 4]
    factor = target_deviation / deviation
    return factor.astype(np.float32), (target_mean - mean * factor).astype(np.float32)


def large(images: Floats, seed: int = 5) -> onnx.ModelProto:
    """Returns the network with its heads scaled for `images` [n, 3, 640, 640]. The same seed gives the same weights."""
    op = Yolov5s(seed)
    raws = heads(op)
    scale_heads(op, raws, images)
    return op.detector(raws, "large")
