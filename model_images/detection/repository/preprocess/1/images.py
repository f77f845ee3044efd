"""From encoded bytes to pixels, refusing what can't or shouldn't be decoded."""

from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

JPEG_START = b"\xff\xd8\xff"
JPEG_END = b"\xff\xd9"
PNG_START = b"\x89PNG\r\n\x1a\n"
PNG_END = b"IEND"


class ImageError(ValueError):
    """The bytes are not an image that is served; the text says why, for the client."""


class Header(NamedTuple):
    """What the first bytes promise: the size in pixels as stored, where the data starts, how it must end."""

    kind: str
    height: int
    width: int
    offset: int
    end: bytes


def read_header(data: bytes) -> Header:
    """Read the size of a JPEG or PNG without decoding it.

    Raises ImageError when `data` is empty, of another kind, or ends before the size.
    """
    if not data:
        raise ImageError("the image is empty: 0 bytes")
    if data.startswith(JPEG_START):
        header = _jpeg_header(data)
    elif data.startswith(PNG_START):
        if len(data) < 24:
            raise ImageError(f"the PNG is truncated: its header ends after {len(data)} bytes")
        width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
        header = Header("PNG", height, width, 24, PNG_END)
    else:
        raise ImageError(f"not a JPEG or PNG image: it starts with {data[:8]!r}")
    if header.height == 0 or header.width == 0:
        raise ImageError(f"the {header.kind} has no size: {header.width}×{header.height} pixels")
    return header


def _jpeg_header(data: bytes) -> Header:
    """Walk the segments to the start-of-frame, as libjpeg does, so that both see the same size."""
    at = 2
    while True:
        at = data.find(b"\xff", at)
        if at < 0 or at + 9 > len(data):
            raise ImageError(f"the JPEG is truncated: its header ends after {len(data)} bytes")
        marker = data[at + 1]
        if marker in (0x00, 0xFF):  # stuffing and fill bytes
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # these carry no length
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = (int.from_bytes(data[i : i + 2], "big") for i in (at + 5, at + 7))
            return Header("JPEG", height, width, at + 9, JPEG_END)
        elif marker in (0xD9, 0xDA):
            raise ImageError("the JPEG is damaged: no size before its pixels")
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def decode(data: bytes, max_pixels: int) -> npt.NDArray[np.uint8]:
    """Decode a JPEG or PNG to BGR [height, width, 3], turned upright as its EXIF orientation says.

    Grey becomes three equal channels, alpha is dropped, 16 bits are cut to 8.
    Raises ImageError when the bytes are no such image, truncated, or of more than `max_pixels`.
    """
    header = read_header(data)
    pixels = header.height * header.width
    if pixels > max_pixels:
        raise ImageError(
            f"the image is too large: {header.width}×{header.height} pixels are {pixels / 1e6:.1f} megapixels, "
            f"the limit is {max_pixels / 1e6:.1f}"
        )
    # OpenCV decodes a truncated file without complaint and leaves the rest grey.
    if data.rfind(header.end, header.offset) < 0:
        raise ImageError(f"the {header.kind} is truncated: no end marker in its {len(data)} bytes")
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error as error:
        raise ImageError(f"the {header.kind} can't be decoded: {error.err}") from error
    if image is None:
        raise ImageError(f"the {header.kind} can't be decoded: its data is damaged or of an unsupported variant")
    return np.asarray(image, np.uint8)
