"""Writes the trained network as ONNX with the inputs and outputs of ultralytics/yolov5's export."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import onnxruntime
from anchors import COLUMNS, SIZE
from graph import Graph
from network import JaxOperations, Params, decode, network

# The logit of classes without training data; its sigmoid is 6e-6.
NEVER = -12.0


class OnnxOperations(Graph):
    """Builds the network as an ONNX graph, with each batch norm folded into its convolution."""

    def __init__(self, params: Params, classes: int) -> None:
        """Starts with an empty graph."""
        super().__init__()
        self.params, self.classes = params, classes

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
        """See network.Operations. Extends the trained classes to 80 and returns [n, 255, h, w]."""
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


def export(params: Params, classes: int, path: Path) -> None:
    """Writes `path` and compares it with the network in JAX. Raises ValueError if they differ."""
    ops = OnnxOperations(params, classes)
    model = ops.detector(network(ops, "images"), "shapes")
    path.write_bytes(model.SerializeToString())

    image = np.random.default_rng(0).random((2, SIZE, SIZE, 3), np.float32)
    raws = network(JaxOperations(params, 5 + classes, training=False), jnp.asarray(image))
    expected = np.concatenate(
        [np.asarray(decode(r, s)).transpose(0, 3, 1, 2, 4).reshape(2, -1, 5 + classes) for s, r in enumerate(raws)], 1
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {"images": image.transpose(0, 3, 1, 2)})
    if not np.allclose(output[..., : 5 + classes], expected, rtol=1e-3, atol=1e-2):
        raise ValueError(f"ONNX and JAX differ by {np.abs(output[..., : 5 + classes] - expected).max()}")
