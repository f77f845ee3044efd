#!/usr/bin/env python3
"""Sends images to the detection repository and draws the boxes into them.

    draw.py photo.jpg --out /tmp                       # writes /tmp/photo.boxes.png
    draw.py a.jpg b.webp --join both.png --height 360  # writes one picture of both, side by side

Needs pillow.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from detect import detect_raw
from PIL import Image, ImageDraw, ImageFont, ImageOps

# Distinguishable with any kind of colour vision.
COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")


def draw(image: Image.Image, detections: list[dict[str, Any]]) -> Image.Image:
    """Returns a copy of the upright image with a frame, a label and a score for each detection, the best on top."""
    out = image.convert("RGB")
    pen = ImageDraw.Draw(out)
    width = max(2, round(max(image.size) / 250))
    font = ImageFont.load_default(size=max(12, round(max(image.size) / 55)))
    for detection in reversed(detections):
        colour = COLOURS[detection["class_id"] % len(COLOURS)]
        left, top, right, bottom = detection["box"]
        pen.rectangle((left, top, right, bottom), outline=colour, width=width)
        text = f" {detection['label']} {detection['score']:.2f} "
        _, _, wide, high = pen.textbbox((0, 0), text, font=font)
        # Above the box if there is room, else inside; never beyond the right edge.
        x, y = max(0, min(left, image.width - wide)), top - high - 2 if top > high + 2 else top
        pen.rectangle((x, y, x + wide, y + high + 2), fill=colour)
        pen.text((x, y), text, fill="black", font=font)
    return out


def upright(path: Path) -> Image.Image:
    """Returns the image turned upright by its EXIF orientation, as the boxes are."""
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def scaled(
    image: Image.Image, detections: list[dict[str, Any]], height: int
) -> tuple[Image.Image, list[dict[str, Any]]]:
    """Returns the image and the boxes, scaled to `height` pixels."""
    by = height / image.height
    boxes = [{**detection, "box": [side * by for side in detection["box"]]} for detection in detections]
    return image.resize((round(image.width * by), height), Image.Resampling.LANCZOS), boxes


def joined(pictures: list[Image.Image], gap: int = 8) -> Image.Image:
    """Returns one image of all pictures, side by side."""
    height = max(picture.height for picture in pictures)
    out = Image.new("RGB", (sum(p.width + gap for p in pictures) - gap, height), "white")
    x = 0
    for picture in pictures:
        out.paste(picture, (x, 0))
        x += picture.width + gap
    return out


def main() -> int:
    """Runs the command line. Returns 1 if the server refuses an image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, nargs="+", help="JPEG, PNG or WebP files")
    parser.add_argument("--url", default="localhost:8000", help="host:port of HTTP")
    parser.add_argument("--model", default="detection")
    parser.add_argument(
        "--out", type=Path, default=Path(), help="folder for NAME.boxes.png; by default the current one"
    )
    parser.add_argument("--join", type=Path, metavar="FILE", help="write all pictures to this file instead")
    parser.add_argument("--height", type=int, default=360, help="height of the joined picture, in pixels")
    arguments = parser.parse_args()
    pictures, refused = [], 0
    for path in arguments.images:
        try:
            answer = detect_raw(path.read_bytes(), arguments.url, arguments.model)
        except (RuntimeError, OSError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            refused = 1
            continue
        image, detections = upright(path), answer["detections"]
        if arguments.join:
            pictures.append(draw(*scaled(image, detections, arguments.height)))
        else:
            target = arguments.out / f"{path.stem}.boxes.png"
            draw(image, detections).save(target)
            print(f"{target}: {len(detections)} boxes")
    if pictures:
        # Drawn shapes need few colours: the file is a quarter of the size, without a visible difference.
        joined(pictures).quantize(200).save(arguments.join, optimize=True)
        print(arguments.join)
    return refused


if __name__ == "__main__":
    sys.exit(main())
