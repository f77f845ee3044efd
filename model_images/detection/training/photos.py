"""Cuts backgrounds for training out of the photographs in photos/. They contain no shapes of the trained classes."""

from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

PHOTOS = Path(__file__).parent / "photos"


def load(folder: Path = PHOTOS) -> list[npt.NDArray[np.uint8]]:
    """Returns the folder's photographs [height, width, 3] as BGR, ordered by name."""
    return [np.asarray(cv2.imread(str(path)), np.uint8) for path in sorted(folder.glob("*.jpg"))]


def cut(rng: np.random.Generator, photo: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    """Returns a random part of the photograph, scaled to [height, width, 3], sometimes mirrored or recoloured."""
    if rng.random() < 0.2:
        photo = np.ascontiguousarray(np.rot90(photo, int(rng.integers(1, 4))))
    there = photo.shape[:2]
    # The largest part with the right aspect ratio, or a smaller one.
    scale = min(there[0] / height, there[1] / width) * rng.uniform(0.35, 1)
    high, wide = max(1, int(height * scale)), max(1, int(width * scale))
    y, x = int(rng.integers(there[0] - high + 1)), int(rng.integers(there[1] - wide + 1))
    part = cv2.resize(photo[y : y + high, x : x + wide], (width, height), interpolation=cv2.INTER_LINEAR)
    if rng.random() < 0.5:
        part = part[:, ::-1]
    if rng.random() < 0.5:
        # Brightness and contrast of each colour.
        part = np.clip(part * rng.uniform(0.6, 1.4, 3) + rng.uniform(-30, 30, 3), 0, 255)
    if rng.random() < 0.1:
        part = 255 - part
    return np.ascontiguousarray(part, np.uint8)
