"""The transformer: one character in, the scores of the next character out.

`score` reads a whole text at once, and `Cache` reads one more character of several texts at once. Both give the same
scores. Training runs `score` with JAX; the server needs only NumPy.

The shapes below use: layers L, characters (the vocabulary) C, width W, heads H, head size S = W / H, window N.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = Any
"""An array of NumPy, or of JAX in training."""
Attend = Callable[[int, Array, Array, Array], Array]

HEADS = 4
WINDOW = 256
"""The characters that a character can see: itself and those before it."""
BASE = 1000.0
"""The longest wavelength of the positions' rotation, in characters, divided by 2π."""


class Weights(NamedTuple):
    """The trained numbers, as float32. The rows of the embedding are in the order of the vocabulary."""

    embedding: Array
    """[C, W]. Also the last layer."""
    scales: Array
    """[L, 2, W]: of the norms before attention and before the two dense layers."""
    last_scale: Array
    """[W]."""
    attention: Array
    """[L, W, 3 W]: queries, keys and values."""
    mix: Array
    """[L, W, W]."""
    up: Array
    """[L, W, 4 W]."""
    down: Array
    """[L, 4 W, W]."""


def load(path: Path) -> tuple[Weights, str]:
    """Returns the weights of a file, and its vocabulary: the character of each token in a string."""
    with np.load(path) as file:
        return Weights(*(file[name].astype(np.float32) for name in Weights._fields)), bytes(file["vocabulary"]).decode()


def save(path: Path, weights: Weights, vocabulary: str) -> None:
    """Writes the weights with 16 bits each, which halves the file."""
    arrays = {name: np.asarray(array, np.float16) for name, array in weights._asdict().items()}
    np.savez_compressed(path, vocabulary=np.frombuffer(vocabulary.encode(), np.uint8), **arrays)


def tokens_of(text: str, vocabulary: str) -> list[int]:
    """Returns the token of each character. Unknown letters become lower case, everything else unknown a space."""
    table = {character: token for token, character in enumerate(vocabulary)}
    return [table.get(character, table.get(character.lower(), table[" "])) for character in text]


def score(weights: Weights, tokens: Array, xp: ModuleType = np) -> Array:
    """Returns the scores [n, C] of the character after each of the tokens [n]. `xp` is numpy or jax.numpy."""
    rows = xp.arange(len(tokens))
    distance = rows[:, None] - rows[None, :]
    hidden = (distance < 0) | (distance >= WINDOW)

    def attend(_: int, queries: Array, keys: Array, values: Array) -> Array:
        return _look(queries.swapaxes(0, 1), keys.swapaxes(0, 1), values.swapaxes(0, 1), hidden, xp).swapaxes(0, 1)

    return _run(weights, tokens, rows, attend, xp)


class Cache:
    """The keys and values of the last N characters of each of several texts. A text has the number of a slot.

    A position's key and value stay where they are written, and the oldest are overwritten: attention doesn't depend on
    the order of the keys, because each is rotated by its position.
    """

    def __init__(self, weights: Weights, slots: int) -> None:
        """Allocates memory for this number of texts."""
        self._weights = weights
        layers, _, width = weights.scales.shape
        shape = (layers, slots, HEADS, WINDOW, width // HEADS)
        self._keys, self._values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.lengths = np.zeros(slots, np.int64)
        """[slots]: the characters that each text has so far."""

    def read(self, slot: int, tokens: list[int]) -> npt.NDArray[np.float32]:
        """Starts a new text of 1 to N tokens in a slot. Returns the scores [C] of the next character."""
        rows = np.arange(len(tokens))
        hidden = rows[:, None] < rows[None, :]

        def attend(layer: int, queries: Array, keys: Array, values: Array) -> Array:
            queries, keys, values = (part.swapaxes(0, 1) for part in (queries, keys, values))
            self._keys[layer, slot, :, : len(tokens)], self._values[layer, slot, :, : len(tokens)] = keys, values
            return _look(queries, keys, values, hidden, np).swapaxes(0, 1)

        scores = _run(self._weights, np.array(tokens), rows, attend, np)[-1]
        self.lengths[slot] = len(tokens)
        return np.asarray(scores)

    def step(self, slots: list[int], tokens: list[int]) -> npt.NDArray[np.float32]:
        """Adds one token to the text of each of these slots [n]. Returns the scores [n, C] of the next characters."""
        at = np.array(slots)
        positions = self.lengths[at]
        lengths = np.minimum(positions + 1, WINDOW)
        longest = int(lengths.max())
        # [n, 1, 1, longest]: the places of a slot that have no character yet
        hidden = (np.arange(longest) >= lengths[:, None])[:, None, None, :]

        def attend(layer: int, queries: Array, keys: Array, values: Array) -> Array:
            self._keys[layer, at, :, positions % WINDOW] = keys
            self._values[layer, at, :, positions % WINDOW] = values
            seen = self._keys[layer, at, :, :longest], self._values[layer, at, :, :longest]
            return _look(queries[:, :, None], *seen, hidden, np)[:, :, 0]

        scores = _run(self._weights, np.array(tokens), positions, attend, np)
        self.lengths[at] += 1
        return np.asarray(scores)

    def release(self, slot: int) -> None:
        """Forgets the text of a slot."""
        self.lengths[slot] = 0

    def used(self) -> float:
        """Returns the share of the memory that holds characters, 0 to 1."""
        return float(np.minimum(self.lengths, WINDOW).sum() / (len(self.lengths) * WINDOW))


def _run(weights: Weights, tokens: Array, positions: Array, attend: Attend, xp: ModuleType) -> Array:
    """Returns the scores [n, C] for tokens [n] at positions [n] of their texts.

    `attend` gets a layer's number and its queries, keys and values [n, H, S], and returns [n, H, S].
    """
    x = weights.embedding[tokens]
    size = x.shape[-1] // HEADS
    frequencies = BASE ** (-np.arange(0, size, 2) / size)
    angles = positions[:, None] * frequencies
    turn = xp.cos(angles).astype(x.dtype)[:, None], xp.sin(angles).astype(x.dtype)[:, None]
    for layer in range(len(weights.scales)):
        parts = (_normal(x, weights.scales[layer, 0], xp) @ weights.attention[layer]).reshape(-1, 3, HEADS, size)
        queries, keys = _rotate(parts[:, 0], turn, xp), _rotate(parts[:, 1], turn, xp)
        x = x + attend(layer, queries, keys, parts[:, 2]).reshape(-1, HEADS * size) @ weights.mix[layer]
        middle = xp.maximum(_normal(x, weights.scales[layer, 1], xp) @ weights.up[layer], 0)
        x = x + (middle * middle) @ weights.down[layer]
    return _normal(x, weights.last_scale, xp) @ weights.embedding.T


def _normal(x: Array, scale: Array, xp: ModuleType) -> Array:
    """Returns rows of mean square 1, times the scale."""
    return x / xp.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * scale


def _rotate(x: Array, turn: tuple[Array, Array], xp: ModuleType) -> Array:
    """Turns pairs of the numbers of x [n, H, S] by angles, given as their cosine and sine [n, 1, S / 2]."""
    cosine, sine = turn
    half = x.shape[-1] // 2
    left, right = x[..., :half], x[..., half:]
    return xp.concatenate([left * cosine - right * sine, left * sine + right * cosine], axis=-1)


def _look(queries: Array, keys: Array, values: Array, hidden: Array, xp: ModuleType) -> Array:
    """Returns the mean [..., q, S] of the values [..., k, S], weighted by how well their keys fit the queries."""
    fits = queries @ keys.swapaxes(-1, -2) / np.float32(np.sqrt(queries.shape[-1]))
    fits = xp.where(hidden, np.float32(-1e9), fits)
    shares = xp.exp(fits - fits.max(axis=-1, keepdims=True))
    return shares @ values / shares.sum(axis=-1, keepdims=True)
