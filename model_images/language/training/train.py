#!/usr/bin/env python3
"""Trains the language model on generated stories and writes its weights.

    python train.py --seed 1

Takes some minutes on two CPU cores. The same seed and versions give the same stories and the same start; sums over
threads may round differently, so the weights are the same only within a tolerance.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from stories import text

FOLDER = Path(__file__).parents[1] / "repository" / "language" / "1"
sys.path.append(str(FOLDER))
from transformer import WINDOW, Cache, Weights, load, save, score, tokens_of  # noqa: E402  the server's code

CHARACTERS = 3_000_000
TEST_SEED = 10_000
"""The seed of the stories for the test, which no training uses."""


def random_start(rng: np.random.Generator, characters: int, layers: int, width: int) -> Weights:
    """Returns random weights. The last dense layers start at 0, so that each layer starts as the identity."""

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(0, shape[-2] ** -0.5, shape), jnp.float32)

    return Weights(
        embedding=normal(characters, width) * 0.2,
        scales=jnp.ones((layers, 2, width)),
        last_scale=jnp.ones(width),
        attention=normal(layers, width, 3 * width),
        mix=jnp.zeros((layers, width, width)),
        up=normal(layers, width, 4 * width),
        down=jnp.zeros((layers, 4 * width, width)),
    )


def loss(weights: Weights, batch: jax.Array) -> jax.Array:
    """Returns the mean loss in nats per character of texts [n, WINDOW + 1]."""
    scores = jax.vmap(lambda tokens: score(weights, tokens, jnp))(batch[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(scores, batch[:, 1:]).mean()


def parts(rng: np.random.Generator, tokens: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.int32]:
    """Returns random parts [count, WINDOW + 1] of a text."""
    starts = rng.integers(0, len(tokens) - WINDOW, count)
    return tokens[starts[:, None] + np.arange(WINDOW + 1)].astype(np.int32)


def train(weights: Weights, tokens: npt.NDArray[np.uint8], rng: np.random.Generator, options: Any) -> Weights:
    """Returns the trained weights."""
    warmup, steps, rate = options.steps // 20 + 1, options.steps, options.rate
    schedule = optax.warmup_cosine_decay_schedule(0, rate, warmup, steps, rate / 50)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.98, weight_decay=0.01))

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(weights: Weights, state: Any, batch: jax.Array) -> Any:
        value, gradient = jax.value_and_grad(loss)(weights, batch)
        changes, state = optimiser.update(gradient, state, weights)
        return optax.apply_updates(weights, changes), state, value

    state, started, smooth = optimiser.init(weights), time.monotonic(), None
    for step in range(options.steps):
        weights, state, value = update(weights, state, parts(rng, tokens, options.batch))
        smooth = float(value) if smooth is None else 0.95 * smooth + 0.05 * float(value)
        if step % 50 == 0 or step == options.steps - 1:
            print(f"step {step:5d}  loss {smooth:.4f}  {time.monotonic() - started:6.0f} s", flush=True)
    return weights


def check(weights: Weights, vocabulary: str, path: Path) -> None:
    """Compares the file with the network in JAX, and the cache with both. Raises ValueError if they differ."""
    stored, characters = load(path)
    tokens = tokens_of(text(TEST_SEED, WINDOW)[:WINDOW], vocabulary)
    expected = np.asarray(score(weights, jnp.array(tokens), jnp))
    cache = Cache(stored, 1)
    stepped = [cache.read(0, tokens[:1]), *(cache.step([0], [token])[0] for token in tokens[1:])]
    if characters != vocabulary or not np.allclose(np.stack(stepped), expected, atol=0.2):
        raise ValueError(f"the file and JAX differ by {np.abs(np.stack(stepped) - expected).max()}")


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--rate", type=float, default=4e-3, help="maximum learning rate")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--output", type=Path, default=FOLDER / "weights.npz")
    options = parser.parse_args()
    learned = text(options.seed, CHARACTERS)
    vocabulary = "".join(sorted(set(learned)))
    rng = np.random.default_rng(options.seed)
    weights = random_start(rng, len(vocabulary), options.layers, options.width)
    weights = train(weights, np.array(tokens_of(learned, vocabulary), np.uint8), rng, options)
    test = np.array(tokens_of(text(TEST_SEED, 60_000), vocabulary), np.uint8)
    print(f"test loss {float(loss(weights, jnp.asarray(parts(rng, test, 64)))):.4f} nats per character")
    save(options.output, weights, vocabulary)
    check(weights, vocabulary, options.output)
    print(f"{options.output}: {options.output.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
