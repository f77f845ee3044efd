"""Decodes images, and refuses those that can't be decoded or take too much memory or time."""

from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from headers import Header, ImageError, read_header, still_png

__all__ = ["ImageError", "Stored", "decode", "read", "read_header", "upright"]

Image = npt.NDArray[np.uint8]

# A progressive JPEG has about ten scans. Each one processes all pixels, even if it has few bytes.
MAX_SCANS = 100
_NO_MEMORY = -4
# The transformation that turns stored pixels upright, by EXIF orientation.
_TURNS: dict[int, Callable[[Image], object]] = {
    2: lambda image: cv2.flip(image, 1),
    3: lambda image: cv2.rotate(image, cv2.ROTATE_180),
    4: lambda image: cv2.flip(image, 0),
    5: lambda image: cv2.transpose(image),
    6: lambda image: cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE),
    7: lambda image: cv2.flip(cv2.transpose(image), -1),
    8: lambda image: cv2.rotate(image, cv2.ROTATE_90_COUNTERCLOCKWISE),
}


class Stored(NamedTuple):
    """The stored pixels, BGR [height, width, 3], and the EXIF orientation (1 to 8)."""

    pixels: Image
    orientation: int

    @property
    def shape(self) -> tuple[int, int]:
        """Returns the height and width of the upright image."""
        height, width = self.pixels.shape[:2]
        return (width, height) if self.orientation >= 5 else (height, width)


def read(data: bytes, max_pixels: int) -> Stored:
    """Decodes a JPEG, PNG or WebP.

    Grey becomes three equal channels, alpha is dropped, 16 bits are reduced to 8. An animated WebP gives its first
    frame, an animated PNG its still picture.
    Raises ImageError if the image is invalid, truncated, or has more than `max_pixels`; MemoryError if there is no
    memory for the pixels.
    """
    header = read_header(data)
    _check(header, max_pixels)
    if header.kind == "PNG":
        data = still_png(data)
    try:
        # We apply the orientation, because OpenCV's versions read it from different formats.
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        if error.code == _NO_MEMORY:
            raise MemoryError(f"no memory for {header.width}×{header.height} pixels") from error
        raise ImageError(f"the {header.kind} can't be decoded: {error.err}") from error
    if image is None or image.shape != (header.height, header.width, 3):
        raise ImageError(f"the {header.kind} can't be decoded: its data is damaged or of an unsupported variant")
    return Stored(np.asarray(image, np.uint8), header.orientation)


def upright(pixels: Image, orientation: int) -> Image:
    """Returns the stored pixels, turned and mirrored by the EXIF orientation."""
    turn = _TURNS.get(orientation)
    return np.asarray(turn(pixels), np.uint8) if turn else pixels


def decode(data: bytes, max_pixels: int) -> Image:
    """Decodes an image to upright pixels at full size. See `read`."""
    return upright(*read(data, max_pixels))


def _check(header: Header, max_pixels: int) -> None:
    """Raises ImageError if the image takes too much memory or time."""
    pixels = header.height * header.width
    if pixels > max_pixels:
        raise ImageError(
            f"the image is too large: {header.width}×{header.height} pixels are {pixels / 1e6:.1f} megapixels, "
            f"the limit is {max_pixels / 1e6:.1f}"
        )
    if header.scans > MAX_SCANS:
        raise ImageError(f"the JPEG has {header.scans} scans, the limit is {MAX_SCANS}")
