"""Reads the parameters of a trained network back from the ONNX file that export.py wrote."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import onnx
from anchors import COLUMNS
from network import JaxOperations, Params, network
from onnx import numpy_helper

EPSILON = 1e-5


class _Reading(JaxOperations):
    """Takes the weights of each convolution from the file, and gives each batch norm the statistics of its input.

    The file has the batch norms folded into the convolutions. With `scale` as the deviation and `bias` moved by the
    mean, the batch norm has no effect on these images.
    """

    def __init__(self, weights: list[npt.NDArray[np.float32]], classes: int) -> None:
        super().__init__({}, 5 + classes, training=False)
        self.weights, self.classes = weights, classes

    def _next(self) -> tuple[jax.Array, jax.Array]:
        kernel, bias = self.weights.pop(0), self.weights.pop(0)
        return jnp.asarray(kernel.transpose(2, 3, 1, 0)), jnp.asarray(bias)

    def conv(self, name: str, x: jax.Array, channels: int, kernel: int = 3, stride: int = 1) -> jax.Array:
        w, bias = self._next()
        ones = {"scale": jnp.ones(channels), "bias": jnp.zeros(channels)}
        plain = JaxOperations({name: {"w": w, **ones}}, self.outputs, training=True)
        plain.conv(name, x, channels, kernel, stride)
        mean, var = plain.seen[name]
        scale = jnp.sqrt(var + EPSILON)
        self.params[name] = {"w": w, "scale": scale, "bias": bias + mean, "mean": mean, "var": var}
        return super().conv(name, x, channels, kernel, stride)

    def head(self, name: str, x: jax.Array) -> jax.Array:
        w, bias = self._next()
        inputs, trained = w.shape[2], 5 + self.classes
        w = w.reshape(1, 1, inputs, 3, COLUMNS)[..., :trained].reshape(1, 1, inputs, 3 * trained)
        self.params[name] = {"w": w, "bias": bias.reshape(3, COLUMNS)[:, :trained].reshape(-1)}
        return super().head(name, x)


def parameters(path: Path, classes: int, images: npt.NDArray[np.float32]) -> tuple[Params, Any]:
    """Returns the file's parameters and the batch norms' statistics on `images` [n, 640, 640, 3]."""
    graph = onnx.load(path).graph
    constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    weights = [constants[name] for node in graph.node if node.op_type == "Conv" for name in node.input[1:]]
    reading = _Reading(weights, classes)
    network(reading, jnp.asarray(images))
    statistics = {name: (p.pop("mean"), p.pop("var")) for name, p in reading.params.items() if "mean" in p}
    return reading.params, statistics
