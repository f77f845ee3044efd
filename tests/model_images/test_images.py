"""Decoding of images, their orientation, and the refusal of bad ones."""

import io
import struct
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from headers import still_png
from images import ImageError, decode, read, read_header
from images import upright as turn
from letterbox import SIZE, fit, letterbox
from PIL import Image, ImageCms
from shapes import scene

from model_images.fuzz import chunk
from model_images.pictures import forms, turned, viewed

LIMIT = 64_000_000
Encoded = Callable[..., bytes]


def with_orientation(jpeg: bytes, orientation: int, thumbnail: bytes = b"") -> bytes:
    """Inserts an EXIF segment with the orientation and the thumbnail after the start marker."""
    tiff = b"MM\x00\x2a" + struct.pack(">I", 8) + struct.pack(">HHHIHHI", 1, 0x0112, 3, 1, orientation, 0, 0)
    body = b"Exif\x00\x00" + tiff + thumbnail
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + jpeg[2:]


def corner_colours(image: np.ndarray) -> list[str]:
    """Returns the strongest channel near each corner, clockwise from the upper left."""
    height, width = image.shape[:2]
    places = [(4, 4), (4, width - 5), (height - 5, width - 5), (height - 5, 4)]
    return ["bgr"[int(image[place].argmax())] for place in places]


@pytest.mark.parametrize("kind", [".jpg", ".png"])
def test_decodes_to_bgr_pixels(encoded: Encoded, kind: str) -> None:
    image = decode(encoded(kind), LIMIT)
    assert image.shape == (48, 64, 3)
    assert image.dtype == np.uint8
    assert corner_colours(image) == ["r", "b", "g", "r"]


@pytest.mark.parametrize(("height", "width"), [(1, 1), (7, 300), (640, 481)])
@pytest.mark.parametrize(("kind", "options"), [(".jpg", ()), (".jpg", (cv2.IMWRITE_JPEG_PROGRESSIVE, 1)), (".png", ())])
def test_reads_the_size_from_the_header(
    encoded: Encoded, kind: str, options: tuple[int, ...], height: int, width: int
) -> None:
    header = read_header(encoded(kind, height, width, *options))
    assert (header.height, header.width) == (height, width)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_ignores_a_colour_profile(form: str) -> None:
    """Red and blue are exchanged in the profile."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    exchanged = profile.replace(b"rXYZ", b"aXYZ", 1).replace(b"bXYZ", b"rXYZ", 1).replace(b"aXYZ", b"bXYZ", 1)
    picture, files = Image.fromarray(scene(np.random.default_rng(4), 40, 60).image), [io.BytesIO() for _ in range(2)]
    for file, options in zip(files, ({}, {"icc_profile": exchanged}), strict=True):
        picture.save(file, form, **options)
    plain, tagged = (file.getvalue() for file in files)
    assert len(tagged) > len(plain)
    assert np.array_equal(decode(plain, LIMIT), decode(tagged, LIMIT))


@pytest.fixture(scope="module")
def upright() -> np.ndarray:
    """Returns the RGB pixels of an asymmetric scene."""
    return np.ascontiguousarray(scene(np.random.default_rng(4), 90, 140).image[..., ::-1])


def difference(data: bytes, pixels: np.ndarray) -> float:
    """Returns the mean difference between the decoded and the shown pixels, in grey levels."""
    image = decode(data, LIMIT)[..., ::-1]
    assert image.shape == pixels.shape
    return float(np.abs(image.astype(int) - pixels).mean())


@pytest.mark.parametrize("name", sorted(forms(np.zeros((8, 8, 3), np.uint8))))
def test_decodes_every_form_as_a_viewer_shows_it(upright: np.ndarray, name: str) -> None:
    data, pixels = forms(upright)[name]
    assert difference(data, pixels) < (6 if "JPEG" in name or name == "WebP" else 0.6)
    if "alpha" not in name and "16" not in name:
        assert difference(data, viewed(data)) < (3 if "CMYK" in name else 1)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turns_images_upright_before_and_after_scaling(upright: np.ndarray, kind: str, orientation: int) -> None:
    data = turned(upright, kind, orientation, quality=95)
    assert difference(data, upright) < 6
    stored = read(data, LIMIT)
    assert stored.shape == upright.shape[:2]
    whole, small = (np.empty((3, SIZE, SIZE), np.float32) for _ in range(2))
    letterbox(decode(data, LIMIT), whole)
    letterbox(turn(fit(stored.pixels), stored.orientation), small)
    np.testing.assert_allclose(small, whole, atol=1.01 / 255)


@pytest.mark.parametrize(
    "exif",
    [
        b"",
        b"MM\x00\x2a",
        b"XX\x00\x2a" + bytes(20),
        b"MM\x00\x2a\xff\xff\xff\xff" + bytes(20),
        b"II\x2a\x00\x08\x00\x00\x00\xff\xff" + bytes(40),
        b"MM\x00\x2a\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x09\x00\x00",
    ],
)
def test_ignores_invalid_exif_data(encoded: Encoded, exif: bytes) -> None:
    body = b"Exif\x00\x00" + exif
    jpeg = encoded()
    data = jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + jpeg[2:]
    np.testing.assert_array_equal(decode(data, LIMIT), decode(jpeg, LIMIT))


@pytest.mark.parametrize(
    ("width", "height", "x", "y"),
    [(64, 48, 0, 0), (20_000, 20_000, 0, 0), (64, 48, 2**31 - 1, 2**31 - 1), (0, 0, 0, 0)],
)
def test_ignores_the_frames_of_an_animated_png(encoded: Encoded, width: int, height: int, x: int, y: int) -> None:
    """OpenCV 4.11 writes out of bounds if a frame is larger than the picture."""
    png = encoded(".png")
    frame = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, width, height, x, y, 1, 10, 0, 0))
    animated = png[:33] + chunk(b"acTL", struct.pack(">II", 2, 0)) + frame + png[33:]
    np.testing.assert_array_equal(decode(animated, LIMIT), decode(png, LIMIT))
    assert b"fcTL" not in still_png(animated)


def test_refuses_small_files_that_take_much_time(encoded: Encoded) -> None:
    jpeg, png = encoded(".jpg", 48, 64, cv2.IMWRITE_JPEG_PROGRESSIVE, 1), encoded(".png")
    scan = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    with pytest.raises(ImageError, match=r"the JPEG has 1\d{3} scans, the limit is 100"):
        decode(jpeg[:-2] + scan * 1000 + jpeg[-2:], LIMIT)
    with pytest.raises(ImageError, match="no size in its first 10000 segments"):
        decode(jpeg[:2] + b"\xff\xe0\x00\x02" * 20_000 + jpeg[2:], LIMIT)
    with pytest.raises(ImageError, match="more than 100000 chunks"):
        decode(png[:33] + chunk(b"tEXt", b"") * 110_000 + png[33:], LIMIT)


def test_ignores_the_thumbnail(encoded: Encoded) -> None:
    jpeg = with_orientation(encoded(".jpg", 200, 300), 1, thumbnail=encoded(".jpg", 16, 16))
    header = read_header(jpeg)
    assert (header.height, header.width) == (200, 300)
    # The thumbnail's end marker must not count as the image's.
    with pytest.raises(ImageError, match="truncated"):
        decode(jpeg[:-400], LIMIT)


def test_converts_grey_alpha_and_16_bits_to_three_bytes(picture: Callable[..., np.ndarray]) -> None:
    bgr = picture()
    grey = cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY)
    for name, image in {
        "grey": grey,
        "alpha": np.dstack([bgr, np.full(bgr.shape[:2], 9, np.uint8)]),
        "sixteen": bgr.astype(np.uint16) * 257,
    }.items():
        out = decode(cv2.imencode(".png", image)[1].tobytes(), LIMIT)
        assert out.dtype == np.uint8, name
        expected = np.dstack([grey] * 3) if name == "grey" else bgr
        assert np.abs(out.astype(int) - expected).max() <= 1, name


def test_converts_cmyk_to_the_right_colour() -> None:
    image = decode((Path(__file__).parent / "data" / "cmyk_red_24x16.jpg").read_bytes(), LIMIT)
    assert image.shape == (16, 24, 3)
    blue, green, red = image.reshape(-1, 3).mean(axis=0)
    assert red > 200
    assert max(blue, green) < 60


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the image is empty: 0 bytes"),
        (b"hello, world", r"not a JPEG, PNG or WebP image: it starts with b'hello, w'"),
        (b"GIF89a\x10\x00\x10\x00", "not a JPEG, PNG or WebP image"),
        (b"\xff\xd8\xff", "the JPEG is truncated: its header ends after 3 bytes"),
        (b"\x89PNG\r\n\x1a\n", "the PNG is truncated: its header ends after 8 bytes"),
        (b"\xff\xd8\xff\xda\x00\x08" + b"\x00" * 20, "the JPEG is damaged: no size before its pixels"),
        (b"\xff\xd8\xff\xc0\x00\x11\x08\x00\x00\x00\x40" + b"\x00" * 20, "the JPEG has no size: 64×0 pixels"),
    ],
)
def test_refuses_invalid_images_with_the_reason(data: bytes, words: str) -> None:
    with pytest.raises(ImageError, match=words):
        decode(data, LIMIT)


@pytest.mark.parametrize("kind", [".jpg", ".png"])
def test_refuses_every_truncated_image(encoded: Encoded, kind: str) -> None:
    data = encoded(kind, 40, 40)
    start = 8  # shorter data isn't recognised as an image
    for length in range(start, len(data) - (8 if kind == ".png" else 0)):
        with pytest.raises(ImageError, match="is truncated"):
            decode(data[:length], LIMIT)


def test_refuses_images_above_the_pixel_limit(encoded: Encoded) -> None:
    assert decode(encoded(".png", 48, 64), 48 * 64).shape == (48, 64, 3)
    with pytest.raises(ImageError, match=r"too large: 64×48 pixels are 0\.0 megapixels"):
        decode(encoded(".png", 48, 64), 48 * 64 - 1)


def test_refuses_a_decompression_bomb_without_decoding_it(png_bomb: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(png_bomb) < 200_000
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("it was decoded"))
    with pytest.raises(ImageError, match=r"30000×30000 pixels are 900\.0 megapixels, the limit is 64\.0"):
        decode(png_bomb, LIMIT)


@pytest.mark.parametrize("kind", [".jpg", ".png"])
def test_a_damaged_file_gives_an_image_or_an_image_error(encoded: Encoded, kind: str) -> None:
    rng = np.random.default_rng(5)
    whole = encoded(kind, 40, 40)
    for _ in range(400):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 4):
            data[at] = int(rng.integers(256))
        try:
            image = decode(bytes(data), 1_000_000)
        except ImageError:
            continue
        assert image.shape[2] == 3
