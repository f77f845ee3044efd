"""Draws synthetic scenes: shapes on busy backgrounds, with their boxes. The same seed draws the same scene."""

from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

CLASSES = ("circle", "rectangle", "triangle", "star")
LUMA = np.array([0.114, 0.587, 0.299])  # of blue, green, red


class Scene(NamedTuple):
    """A BGR image [height, width, 3], boxes [n, 4] (x1, y1, x2, y2) in its pixels, class ids [n]."""

    image: npt.NDArray[np.uint8]
    boxes: npt.NDArray[np.float32]
    classes: npt.NDArray[np.int64]


def scene(
    rng: np.random.Generator,
    height: int,
    width: int,
    max_shapes: int = 10,
    background: npt.NDArray[np.uint8] | None = None,
) -> Scene:
    """Draws 1 to `max_shapes` shapes, each 4 to 50 % of the longer side, that overlap only a little.

    Draws them on a copy of `background` [height, width, 3], or on a drawn one. With `max_shapes` 0 it draws none.
    """
    image = _background(rng, height, width) if background is None else background.copy()
    boxes: list[tuple[int, int, int, int]] = []
    classes: list[int] = []
    longer = max(height, width)
    for _ in range(int(rng.integers(1, max_shapes + 1)) if max_shapes else 0):
        for _attempt in range(8):
            radius = longer * float(np.exp(rng.uniform(np.log(0.02), np.log(0.25))))
            class_id = int(rng.integers(len(CLASSES)))
            points = _outline(rng, class_id) * radius
            low, high = points.min(axis=0), points.max(axis=0)
            room = np.array([width, height]) - (high - low) - 2
            if (room <= 0).any():
                continue
            corners = np.rint(points - low + rng.uniform(0, room)).astype(np.int32)
            (x1, y1), (x2, y2) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
            box = (x1, y1, x2 + 1, y2 + 1)  # the box includes the last pixel
            if any(_hidden(box, other) > 0.15 for other in boxes):
                continue
            _paint(rng, image, corners)
            boxes.append(box)
            classes.append(class_id)
            break
    _weather(rng, image)
    return Scene(image, np.array(boxes, np.float32).reshape(-1, 4), np.array(classes, np.int64))


def _outline(rng: np.random.Generator, class_id: int) -> npt.NDArray[np.float64]:
    """Returns the corners [n, 2] of a shape with radius 1 around 0."""
    turn = rng.uniform(0, 2 * np.pi)
    radii: npt.NDArray[np.float64] | float = 1.0
    match CLASSES[class_id]:
        case "circle":
            angles = np.linspace(0, 2 * np.pi, 96, endpoint=False)
        case "rectangle":
            half = np.arctan(rng.uniform(0.45, 1.0))
            angles = np.array([half, np.pi - half, np.pi + half, 2 * np.pi - half])
        case "triangle":
            angles = np.arange(3) * 2 * np.pi / 3 + rng.uniform(-0.35, 0.35, 3)
        case _:
            angles = np.arange(10) * np.pi / 5
            radii = np.where(np.arange(10) % 2 == 0, 1.0, rng.uniform(0.35, 0.5))
    return np.stack([np.cos(angles + turn) * radii, np.sin(angles + turn) * radii], axis=1)


def _background(rng: np.random.Generator, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Returns a background of soft colours with lines."""
    cells = rng.integers(2, 9, 2)
    base = rng.uniform(20, 235, 3)
    blotches = np.clip(base + rng.normal(0, rng.uniform(5, 40), (*cells, 3)), 0, 255).astype(np.uint8)
    image = cv2.resize(blotches, (width, height), interpolation=cv2.INTER_CUBIC)
    thickness = max(1, max(height, width) // 300)
    for _ in range(int(rng.integers(0, 9))):
        ends = (rng.uniform(0, 1, (2, 2)) * (width, height)).astype(int).tolist()
        cv2.line(image, ends[0], ends[1], rng.integers(0, 256, 3).tolist(), thickness, cv2.LINE_AA)
    return np.ascontiguousarray(image, np.uint8)


def _paint(rng: np.random.Generator, image: npt.NDArray[np.uint8], corners: npt.NDArray[np.int32]) -> None:
    """Fills the shape with a colour that differs from the background; sometimes as a rim around another colour."""
    x, y = corners.mean(axis=0).astype(int)
    below = image[y, x].astype(int)
    colour = rng.integers(0, 256, 3)
    # Different in brightness too, because some images become grey afterwards.
    while np.abs(colour - below).max() < 60 or abs((colour - below) @ LUMA) < 20:
        colour = rng.integers(0, 256, 3)
    cv2.fillPoly(image, [corners], colour.tolist(), cv2.LINE_AA)
    if rng.random() < 0.3:
        centre = corners.mean(axis=0)
        core = np.rint(centre + (corners - centre) * rng.uniform(0.8, 0.9)).astype(np.int32)
        cv2.fillPoly(image, [core], rng.integers(0, 256, 3).tolist(), cv2.LINE_AA)


def _weather(rng: np.random.Generator, image: npt.NDArray[np.uint8]) -> None:
    """Sometimes adds noise or blur, or removes the colour, in place."""
    if rng.random() < 0.5:
        noise = np.empty(image.shape, np.int16)
        cv2.setRNGSeed(int(rng.integers(2**31)))
        cv2.randn(noise, np.zeros(3), np.full(3, rng.uniform(1, 12)))
        cv2.add(image, noise, dst=image, dtype=cv2.CV_8U)
    if rng.random() < 0.2:
        cv2.GaussianBlur(image, (3, 3), 0, dst=image)
    if rng.random() < 0.1:
        image[:] = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)[..., None]


def _hidden(box: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> float:
    """Returns the intersection of two boxes as a fraction of the smaller one."""
    across = min(box[2], other[2]) - max(box[0], other[0])
    down = min(box[3], other[3]) - max(box[1], other[1])
    if across <= 0 or down <= 0:
        return 0.0
    smaller = min((b[2] - b[0]) * (b[3] - b[1]) for b in (box, other))
    return across * down / smaller
