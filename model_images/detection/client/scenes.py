#!/usr/bin/env python3
"""Writes test images: drawn shapes in several sizes, as JPEG, PNG and WebP, upright and turned by EXIF.

    scenes.py /tmp/scenes --count 6

Writes a .json file for each image with the true boxes, in pixels of the upright picture. The same seed gives the same
images. Needs numpy, opencv-python and pillow.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.append(str(Path(__file__).resolve().parents[1] / "training"))

from shapes import CLASSES, scene

SIZES = ((480, 640), (800, 480), (720, 1280), (360, 800), (1080, 1080))
# The file's suffix, the EXIF orientation, and the inverse transformation for the stored pixels.
FORMS = (
    (".jpg", 1, None),
    (".png", 1, None),
    (".jpg", 6, Image.Transpose.ROTATE_90),
    (".webp", 1, None),
    (".jpg", 3, Image.Transpose.ROTATE_180),
)


def write(folder: Path, number: int, seed: int) -> Path:
    """Draws a scene, writes it and its boxes, and returns the image's path."""
    size = SIZES[number % len(SIZES)]
    # Shifted in each round, so that every form gets every size.
    suffix, orientation, transpose = FORMS[(number + number // len(SIZES)) % len(FORMS)]
    drawn = scene(np.random.default_rng([seed, number]), *size)
    image = Image.fromarray(np.ascontiguousarray(drawn.image[..., ::-1]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = folder / f"scene-{number:03}{suffix}"
    (image.transpose(transpose) if transpose is not None else image).save(path, exif=exif)
    boxes = zip(drawn.boxes.tolist(), drawn.classes.tolist(), strict=True)
    truth = [{"box": box, "class_id": class_id, "label": CLASSES[class_id]} for box, class_id in boxes]
    path.with_suffix(".json").write_text(json.dumps({"detections": truth}, indent=1) + "\n")
    return path


def main() -> int:
    """Runs the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for number in range(arguments.count):
        print(write(arguments.folder, number, arguments.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
