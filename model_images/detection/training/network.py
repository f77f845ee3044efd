"""The network, defined once: `network` runs with JAX operations for training and with ONNX operations for export."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from anchors import ANCHORS, STRIDES

Params = dict[str, dict[str, Any]]


class Operations(Protocol):
    """The operations of the network."""

    def conv(self, name: str, x: Any, channels: int, kernel: int = 3, stride: int = 1) -> Any:
        """Convolution, batch norm, ReLU."""

    def head(self, name: str, x: Any) -> Any:
        """1×1 convolution to raw predictions."""

    def up(self, x: Any) -> Any:
        """Doubles the height and width, nearest neighbour."""

    def add(self, a: Any, b: Any) -> Any:
        """Adds two tensors of the same shape."""


def network(op: Operations, image: Any) -> list[Any]:
    """Returns the raw predictions at strides 8, 16 and 32 for an RGB image with values 0 to 1."""
    x = op.conv("stem", image, 24, kernel=4, stride=4)
    x = op.conv("down8", x, 32, stride=2)
    c3 = op.add(x, op.conv("body8", x, 32))
    x = op.conv("down16", c3, 48, stride=2)
    c4 = op.add(x, op.conv("body16", x, 48))
    x = op.conv("down32", c4, 64, stride=2)
    for k in range(3):
        x = op.add(x, op.conv(f"body32.{k}", x, 64))
    p5 = op.conv("lateral32", x, 48, kernel=1)
    x = op.add(op.conv("lateral16", c4, 48, kernel=1), op.up(p5))
    p4 = op.conv("merge16", x, 48)
    x = op.add(c3, op.up(op.conv("narrow16", p4, 32, kernel=1)))
    p3 = op.conv("merge8", x, 32)
    return [op.head(f"head{stride}", p) for stride, p in zip(STRIDES, (p3, p4, p5), strict=True)]


class JaxOperations:
    """Runs the network on NHWC tensors. With an `rng` it initializes the parameters."""

    def __init__(self, params: Params, outputs: int, *, training: bool, rng: np.random.Generator | None = None) -> None:
        """`outputs` is the number of values per anchor: 5 + classes. In training `seen` collects batch statistics."""
        self.params, self.outputs, self.training, self.rng = params, outputs, training, rng
        self.seen: dict[str, tuple[jax.Array, jax.Array]] = {}

    def conv(self, name: str, x: jax.Array, channels: int, kernel: int = 3, stride: int = 1) -> jax.Array:
        """See Operations."""
        if self.rng is not None:
            self.params[name] = {
                "w": _he(self.rng, kernel, x.shape[-1], channels),
                "scale": np.ones(channels, np.float32),
                "bias": np.zeros(channels, np.float32),
            }
        p = self.params[name]
        pad = kernel // 2 if kernel % 2 else 0
        x = _conv(x, p["w"], stride, pad)
        if self.training:
            mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
            self.seen[name] = (mean, var)
        else:
            mean, var = p["mean"], p["var"]
        x = (x - mean) * (p["scale"] * jax.lax.rsqrt(var + 1e-5)) + p["bias"]
        return jax.nn.relu(x)

    def head(self, name: str, x: jax.Array) -> jax.Array:
        """See Operations. Returns [n, h, w, 3, 5 + classes]."""
        if self.rng is not None:
            bias = np.zeros((3, self.outputs), np.float32)
            # Start with a low objectness, because few cells contain a shape.
            cells = (640 / int(name.removeprefix("head"))) ** 2
            bias[:, 4] = np.log(8 / cells)
            self.params[name] = {
                "w": _he(self.rng, 1, x.shape[-1], 3 * self.outputs) * 0.1,
                "bias": bias.reshape(-1),
            }
        p = self.params[name]
        y = _conv(x, p["w"], 1, 0) + p["bias"]
        return y.reshape(*y.shape[:3], 3, self.outputs)

    def up(self, x: jax.Array) -> jax.Array:
        """See Operations."""
        return x.repeat(2, axis=1).repeat(2, axis=2)

    def add(self, a: jax.Array, b: jax.Array) -> jax.Array:
        """See Operations."""
        return a + b


def decode(raw: jax.Array, scale: int) -> jax.Array:
    """Converts raw predictions [n, h, w, 3, 5 + classes] of a scale to x, y, w, h in pixels, objectness, classes."""
    height, width = raw.shape[1:3]
    y = jax.nn.sigmoid(raw)
    grid = jnp.stack(jnp.meshgrid(jnp.arange(width), jnp.arange(height)), -1)[:, :, None, :]
    centres = (y[..., :2] * 2 - 0.5 + grid) * STRIDES[scale]
    sides = (y[..., 2:4] * 2) ** 2 * ANCHORS[scale]
    return jnp.concatenate([centres, sides, y[..., 4:]], -1)


def _he(rng: np.random.Generator, kernel: int, inputs: int, outputs: int) -> npt.NDArray[np.float32]:
    deviation = np.sqrt(2 / (kernel * kernel * inputs))
    return rng.normal(0, deviation, (kernel, kernel, inputs, outputs)).astype(np.float32)


def _conv(x: jax.Array, w: jax.Array, stride: int, pad: int) -> jax.Array:
    kernel, _, inputs, outputs = w.shape
    if kernel == stride and not pad:
        # Patches without overlap: a matrix product is twice as fast to differentiate on a CPU.
        n, height, width = x.shape[0], x.shape[1] // stride, x.shape[2] // stride
        patches = x.reshape(n, height, stride, width, stride, inputs).transpose(0, 1, 3, 2, 4, 5)
        return patches.reshape(n, height, width, -1) @ w.reshape(-1, outputs)
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
