"""Draws the sample images of the demo: a square one, a wide one and a high one."""

from pathlib import Path

import cv2
import numpy as np
from shapes import scene

SAMPLES = Path(__file__).parents[1] / "samples"
SIZES = {"square": (640, 640), "wide": (480, 800), "high": (800, 480)}


def main() -> None:
    """Writes the images to samples/."""
    for k, (name, (height, width)) in enumerate(SIZES.items()):
        image = scene(np.random.default_rng([3_030, k]), height, width).image
        cv2.imwrite(str(SAMPLES / f"{name}.jpg"), image, [cv2.IMWRITE_JPEG_QUALITY, 85])


if __name__ == "__main__":
    main()
