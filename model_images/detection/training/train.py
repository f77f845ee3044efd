"""Trains the detector on synthetic shapes and writes it as ONNX, with yolov5s's inputs and outputs."""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from export import export
from hard import hard_parts, part, size
from network import ANCHORS, STRIDES, JaxOperations, Params, decode, network
from photos import cut, load
from shapes import CLASSES, scene
from start import parameters

REPOSITORY = Path(__file__).parents[1] / "repository"
sys.path.append(str(REPOSITORY / "preprocess" / "1"))
from letterbox import SIZE, letterbox  # noqa: E402  the server's code

Batch = tuple[npt.NDArray[np.float32], list[dict[str, npt.NDArray[Any]]]]


class Backgrounds(NamedTuple):
    """The photographs, the share of scenes that have one, and the share of these that have no shapes.

    `hard` are the hard parts of the photographs, and `hard_share` is the share of scenes that show only one of them.
    """

    photos: list[npt.NDArray[np.uint8]]
    share: float
    empty: float = 0.5
    hard: tuple[tuple[int, int], ...] = ()
    hard_share: float = 0.2


BALANCE = (4.0, 1.0, 0.4)  # yolov5's weights of the scales' objectness


def sample(
    seed: int, index: int, backgrounds: Backgrounds
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Returns an image [3, 640, 640] as preprocessed by the server, its boxes [n, 4] (x, y, w, h) and classes [n]."""
    rng = np.random.default_rng([seed, index])
    height, width = size(rng)
    if backgrounds.hard and rng.random() < backgrounds.hard_share:
        crop = part(backgrounds.photos, *backgrounds.hard[int(rng.integers(len(backgrounds.hard)))])
        if rng.random() < 0.5:
            crop = np.ascontiguousarray(crop[:, ::-1])
        height, width = crop.shape[:2]
        image, boxes, classes = scene(rng, height, width, 0, crop)
    elif backgrounds.share and rng.random() < backgrounds.share:
        photo = backgrounds.photos[int(rng.integers(len(backgrounds.photos)))]
        most = 0 if rng.random() < backgrounds.empty else 10
        image, boxes, classes = scene(rng, height, width, most, cut(rng, photo, height, width))
    else:
        image, boxes, classes = scene(rng, height, width)
    if rng.random() < 0.3:
        quality = int(rng.integers(40, 96))
        image = cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)
    out = np.empty((3, SIZE, SIZE), np.float32)
    letterbox(image, out)
    scale = SIZE / max(height, width)
    offset = np.array([(SIZE - round(side * scale)) // 2 for side in (width, height)] * 2)
    corners = boxes * scale + offset
    return out, np.concatenate([corners[:, :2] + corners[:, 2:], 2 * (corners[:, 2:] - corners[:, :2])], 1) / 2, classes


def targets(boxes: npt.NDArray[np.float32], classes: npt.NDArray[np.int64]) -> list[dict[str, npt.NDArray[Any]]]:
    """Returns the targets of each scale's cells and anchors: `is` [h, w, 3], `box` [h, w, 3, 4], `class` [h, w, 3].

    As in yolov5, an anchor is responsible for a box if their sides differ by a factor of at most four. The cells are
    the one with the box's centre and the two nearest ones.
    """
    out = []
    largest_first = np.argsort(-boxes[:, 2] * boxes[:, 3])
    for stride, anchors in zip(STRIDES, ANCHORS, strict=True):
        cells = SIZE // stride
        there = np.zeros((cells, cells, 3), np.float32)
        box = np.zeros((cells, cells, 3, 4), np.float32)
        box[...] = [0, 0, 1, 1]
        kind = np.zeros((cells, cells, 3), np.int64)
        for k in largest_first:
            ratio = boxes[k, 2:] / anchors
            fits = np.maximum(ratio, 1 / ratio).max(axis=1) < 4
            x, y = boxes[k, :2] / stride
            across = int(x) + (1 if x % 1 > 0.5 else -1)
            down = int(y) + (1 if y % 1 > 0.5 else -1)
            for i, j in ((int(y), int(x)), (int(y), across), (down, int(x))):
                if 0 <= i < cells and 0 <= j < cells:
                    there[i, j, fits], box[i, j, fits], kind[i, j, fits] = 1, boxes[k], classes[k]
        out.append({"is": there, "box": box, "class": kind})
    return out


def batch(seed: int, step: int, size: int, backgrounds: Backgrounds) -> Batch:
    """Returns the images [n, 640, 640, 3] of one step and their targets."""
    samples = [sample(seed, step * size + k, backgrounds) for k in range(size)]
    aims = [targets(boxes, classes) for _, boxes, classes in samples]
    stacked = [{key: np.stack([aim[s][key] for aim in aims]) for key in aims[0][s]} for s in range(3)]
    return np.stack([image for image, _, _ in samples]).transpose(0, 2, 3, 1), stacked


def ciou(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the IoU and the complete IoU of boxes [..., 4] (x, y, w, h)."""
    a1, a2, b1, b2 = (
        a[..., :2] - a[..., 2:] / 2,
        a[..., :2] + a[..., 2:] / 2,
        b[..., :2] - b[..., 2:] / 2,
        b[..., :2] + b[..., 2:] / 2,
    )
    common = jnp.clip(jnp.minimum(a2, b2) - jnp.maximum(a1, b1), 0).prod(-1)
    iou = common / (a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - common + 1e-6)
    hull = jnp.square(jnp.maximum(a2, b2) - jnp.minimum(a1, b1)).sum(-1) + 1e-6
    apart = jnp.square(a[..., :2] - b[..., :2]).sum(-1) / hull
    shape = jnp.arctan(b[..., 2] / b[..., 3]) - jnp.arctan(a[..., 2] / (a[..., 3] + 1e-6))
    aspect = 4 / jnp.pi**2 * jnp.square(shape)
    alpha = jax.lax.stop_gradient(aspect / (1 - iou + aspect + 1e-6))
    return iou, iou - apart - alpha * aspect


def loss(params: Params, images: jax.Array, aims: list[dict[str, jax.Array]]) -> tuple[jax.Array, Any]:
    """Returns the sum of yolov5's losses (CIoU of boxes, objectness, class), and the batch norms' statistics."""
    ops = JaxOperations(params, 5 + len(CLASSES), training=True)
    total = jnp.zeros(())
    for s, (raw, aim) in enumerate(zip(network(ops, images), aims, strict=True)):
        there, count = aim["is"], jnp.maximum(aim["is"].sum(), 1)
        iou, complete = ciou(decode(raw, s)[..., :4], aim["box"])
        box = ((1 - complete) * there).sum() / count
        # Half of the objectness is for presence, half for the IoU, so that NMS keeps the most precise box.
        aimed = there * (0.5 + 0.5 * jax.lax.stop_gradient(jnp.clip(iou, 0)))
        objectness = optax.sigmoid_binary_cross_entropy(raw[..., 4], aimed).mean()
        named = jax.nn.one_hot(aim["class"], len(CLASSES))
        kind = (optax.sigmoid_binary_cross_entropy(raw[..., 5:], named).mean(-1) * there).sum() / count
        total += 0.1 * box + BALANCE[s] * objectness + 0.2 * kind
    return total, ops.seen


def random_start(seed: int) -> tuple[Params, Any]:
    """Returns random parameters, and the statistics of the batch norms: mean 0, variance 1."""
    params: Params = {}
    starting = JaxOperations(params, 5 + len(CLASSES), training=True, rng=np.random.default_rng(seed))
    network(starting, jnp.zeros((1, 64, 64, 3)))
    params = jax.tree.map(jnp.asarray, params)
    return params, {name: (jnp.zeros_like(mean), jnp.ones_like(var)) for name, (mean, var) in starting.seen.items()}


def train(
    params: Params, statistics: Any, backgrounds: Backgrounds, *, seed: int, steps: int, size: int, rate: float
) -> Params:
    """Trains these parameters. Returns their moving average, with the batch norms' statistics."""
    schedule = optax.warmup_cosine_decay_schedule(0, rate, min(100, steps // 10 + 1), steps, rate / 100)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-3))

    @partial(jax.jit, donate_argnums=(0, 1, 2, 3))
    def update(params: Any, state: Any, average: Any, statistics: Any, images: Any, aims: Any) -> Any:
        (value, seen), gradient = jax.value_and_grad(loss, has_aux=True)(params, images, aims)
        changes, state = optimiser.update(gradient, state, params)
        params = optax.apply_updates(params, changes)
        average = optax.incremental_update(params, average, max(0.01, 10 / steps))
        statistics = optax.incremental_update(seen, statistics, 0.02)
        return params, state, average, statistics, value

    state, average = optimiser.init(params), jax.tree.map(jnp.copy, params)
    started, smooth = time.monotonic(), None
    with ThreadPoolExecutor(1) as ahead:
        following = ahead.submit(batch, seed, 0, size, backgrounds)
        for step in range(steps):
            images, aims = following.result()
            following = ahead.submit(batch, seed, step + 1, size, backgrounds)
            params, state, average, statistics, value = update(params, state, average, statistics, images, aims)
            smooth = float(value) if smooth is None else 0.95 * smooth + 0.05 * float(value)
            if step % 25 == 0 or step == steps - 1:
                print(f"step {step:5d}  loss {smooth:.4f}  {time.monotonic() - started:6.0f} s", flush=True)
    for name, (mean, var) in statistics.items():
        average[name] |= {"mean": mean, "var": var}
    return jax.tree.map(np.asarray, average)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rate", type=float, default=4e-3, help="maximum learning rate")
    parser.add_argument("--photos", type=float, default=0.6, help="share of the scenes on a photograph, 0 to 1")
    parser.add_argument(
        "--hard", type=int, default=0, help="number of parts of photographs in which to look for hard ones"
    )
    parser.add_argument("--start", type=Path, help="ONNX file of this program to start from, else random weights")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "yolov5s" / "1" / "model.onnx")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    backgrounds = Backgrounds(load(), arguments.photos)
    if arguments.start:
        if arguments.hard:
            hard = hard_parts(arguments.start, backgrounds.photos, arguments.seed, arguments.hard)
            print(f"{len(hard)} of {arguments.hard} parts of photographs are hard", flush=True)
            backgrounds = backgrounds._replace(hard=hard)
        images, _ = batch(arguments.seed, arguments.steps, 32, backgrounds)
        params, statistics = parameters(arguments.start, len(CLASSES), images)
    else:
        params, statistics = random_start(arguments.seed)
    params = train(
        params,
        statistics,
        backgrounds,
        seed=arguments.seed,
        steps=arguments.steps,
        size=arguments.batch,
        rate=arguments.rate,
    )
    export(params, len(CLASSES), arguments.output)
    print(f"{arguments.output}: {arguments.output.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
