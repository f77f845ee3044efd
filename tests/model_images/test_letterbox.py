"""The letterbox of the network's input, and the conversion of boxes back to the image."""

import cv2
import numpy as np
import pytest
from detections import to_image
from letterbox import SIZE, letterbox

SIZES = [(640, 640), (480, 640), (640, 427), (1080, 1920), (333, 77), (1, 1), (1, 5000), (5000, 3), (639, 641)]


def run(image: np.ndarray) -> np.ndarray:
    out = np.full((3, SIZE, SIZE), np.nan, np.float32)
    letterbox(image, out)
    return out


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_writes_every_value_between_0_and_1(height: int, width: int) -> None:
    out = run(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))
    assert np.isfinite(out).all()
    assert out.min() >= 0
    assert out.max() <= 1


def test_writes_the_channels_red_green_blue() -> None:
    image = np.zeros((640, 640, 3), np.uint8)
    image[:] = (51, 102, 204)  # blue, green, red
    assert run(image).mean(axis=(1, 2)) == pytest.approx([0.8, 0.4, 0.2], abs=1e-4)


def test_equals_the_letterbox_of_yolov5() -> None:
    """Compares with the separate steps: resize, border of 114, RGB, planes, 1/255."""
    image = np.random.default_rng(1).integers(0, 256, (300, 500, 3), np.uint8)
    resized = cv2.resize(image, (640, 384), interpolation=cv2.INTER_LINEAR)
    framed = cv2.copyMakeBorder(resized, 128, 128, 0, 0, cv2.BORDER_CONSTANT, value=(114, 114, 114))
    expected = framed[..., ::-1].transpose(2, 0, 1).astype(np.float32) / 255
    np.testing.assert_allclose(run(image), expected, atol=1e-6)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_converts_boxes_back_to_the_image(height: int, width: int) -> None:
    """The outline of a white image in the tensor converts to the whole image."""
    out = run(np.full((height, width, 3), 255, np.uint8))
    rows, columns = np.flatnonzero((out[0] > 0.99).any(axis=1)), np.flatnonzero((out[0] > 0.99).any(axis=0))
    box = np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], np.float32)
    np.testing.assert_allclose(to_image(box, height, width), [[0, 0, width, height]], rtol=1e-5)


def test_converts_boxes_in_a_wide_image() -> None:
    image = np.zeros((500, 1000, 3), np.uint8)
    image[100:200, 600:900] = 255
    white = run(image)[0] > 0.5
    rows, columns = np.flatnonzero(white.any(axis=1)), np.flatnonzero(white.any(axis=0))
    box = np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], np.float32)
    np.testing.assert_allclose(to_image(box, 500, 1000), [[600, 100, 900, 200]], atol=1.6)


def test_clips_boxes_to_the_image() -> None:
    boxes = np.array([[-50, -50, 700, 700], [0, 0, 640, 10]], np.float32)
    np.testing.assert_allclose(to_image(boxes, 480, 640), [[0, 0, 640, 480], [0, 0, 640, 0]])


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_uint8_divided_by_255_equals_fp32_to_the_last_bit(height: int, width: int) -> None:
    image = np.random.default_rng(2).integers(0, 256, (height, width, 3), np.uint8)
    out = np.zeros((3, SIZE, SIZE), np.uint8)
    letterbox(image, out)
    np.testing.assert_array_equal(out * np.float32(1 / 255), run(image))
