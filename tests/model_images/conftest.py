"""Fixtures: the code of detection and language on sys.path, test images, and a real Triton that serves detection."""

import sys
from collections.abc import Callable, Iterator

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from model_images.support import DETECTION, LANGUAGE, Server, serving

for folder in ("repository/preprocess/1", "repository/postprocess/1", "training", "client"):
    sys.path.append(str(DETECTION / folder))
sys.path.append(str(LANGUAGE / "repository/language/1"))


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Starts Triton with the detection repository."""
    with serving(DETECTION / "repository") as running:
        yield running


@pytest.fixture
def picture() -> Callable[..., npt.NDArray[np.uint8]]:
    """Draws an asymmetric BGR image of the given size: red on the left, blue above and green below on the right."""

    def draw(height: int = 48, width: int = 64) -> npt.NDArray[np.uint8]:
        image = np.zeros((height, width, 3), np.uint8)
        image[: height // 2, width // 2 :] = (200, 20, 20)
        image[height // 2 :, width // 2 :] = (20, 200, 20)
        image[:, : width // 2] = (20, 20, 200)
        return image

    return draw


@pytest.fixture
def encoded(picture: Callable[..., npt.NDArray[np.uint8]]) -> Callable[..., bytes]:
    """Encodes the picture as a file: `encoded(".jpg", height, width, *OpenCV's options)`."""

    def encode(kind: str = ".jpg", height: int = 48, width: int = 64, *options: int) -> bytes:
        return cv2.imencode(kind, picture(height, width), options)[1].tobytes()

    return encode


@pytest.fixture(scope="session")
def scene_jpeg() -> Callable[..., bytes]:
    """Draws a JPEG of shapes: `scene_jpeg(seed, height, width)`."""
    from shapes import scene

    def encode(seed: int, height: int, width: int) -> bytes:
        return cv2.imencode(".jpg", scene(np.random.default_rng([99, seed]), height, width).image)[1].tobytes()

    return encode


@pytest.fixture(scope="session")
def png_bomb() -> bytes:
    """Returns a valid PNG of 100 KB with 30000×30000 black pixels (900 megapixels)."""
    import struct
    import zlib

    side = 30_000
    packer = zlib.compressobj(9)
    row = bytes(1 + side // 8)
    rows = b"".join(packer.compress(row * 1000) for _ in range(side // 1000)) + packer.flush()

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
