"""Finds the parts of photographs in which a network finds shapes, so that training shows them more often."""

from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from evaluate import Detector
from photos import cut

Photos = list[npt.NDArray[np.uint8]]


def size(rng: np.random.Generator) -> tuple[int, int]:
    """Returns the height and width of a scene."""
    longer = int(rng.choice([320, 480, 640, 640, 800, 1120]))
    shorter = int(longer * rng.uniform(0.5, 1))
    return (longer, shorter) if rng.random() < 0.5 else (shorter, longer)


def part(photos: Photos, seed: int, index: int) -> npt.NDArray[np.uint8]:
    """Returns a random part of a photograph: the same for the same seed and index."""
    # The third number keeps these apart from the scenes of the same seed.
    rng = np.random.default_rng([seed, index, 1])
    height, width = size(rng)
    return cut(rng, photos[int(rng.integers(len(photos)))], height, width)


def hard_parts(model: Path, photos: Photos, seed: int, count: int, least: float = 0.1) -> tuple[tuple[int, int], ...]:
    """Returns the seed and index of each of `count` parts in which the network's best box has a score above `least`."""
    detector, parts = Detector(model), []
    for index in range(count):
        # PNG keeps every pixel.
        rows, *_ = detector.rows(cv2.imencode(".png", part(photos, seed, index))[1].tobytes())
        if (rows[:, 4] * rows[:, 5:].max(axis=1)).max() > least:
            parts.append((seed, index))
    return tuple(parts)
