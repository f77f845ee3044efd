"""The checked-in network has yolov5s's inputs, outputs and order of rows, so that it can be replaced by yolov5s."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from evaluate import MODEL, REPOSITORY, SERVED, Detector, evaluate, on_photos, unseen
from google.protobuf import text_format
from hard import hard_parts, part
from metrics import hits
from photos import cut, load
from shapes import CLASSES, scene
from tritonclient.grpc.model_config_pb2 import ModelConfig

from model_images.support import DETECTION

PHOTOS = Path(__file__).parent / "data" / "photos"
STRIDES_AND_ANCHORS = [
    (8, [(10, 13), (16, 30), (33, 23)]),
    (16, [(30, 61), (62, 45), (59, 119)]),
    (32, [(116, 90), (156, 198), (373, 326)]),
]


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector()


@pytest.fixture(scope="module")
def rows(detector: Detector) -> np.ndarray:
    """Returns the rows of four unseen images, [4, 25200, 85]."""
    return np.stack([detector.rows(jpeg)[0] for _, jpeg in unseen(4)])


def test_tensors_have_yolov5s_names_and_shapes(detector: Detector) -> None:
    (images,), (output,) = detector.session.get_inputs(), detector.session.get_outputs()
    assert (images.name, images.type, images.shape) == ("images", "tensor(float)", ["batch", 3, 640, 640])
    assert (output.name, output.type, output.shape) == ("output0", "tensor(float)", ["batch", 25200, 85])


def test_the_file_is_small_and_older_runtimes_can_read_it() -> None:
    assert MODEL.stat().st_size < 2_000_000
    # The file's first field is the format version; ONNX Runtime 1.19 supports up to 10.
    tag, version = MODEL.read_bytes()[:2]
    assert tag == 0x08
    assert version <= 10


def test_a_batch_gives_the_same_rows_as_single_images(detector: Detector) -> None:
    batch = np.random.default_rng(2).random((3, 3, 640, 640), np.float32)
    (together,) = detector.session.run(None, {"images": batch})
    assert together.shape == (3, 25200, 85)
    for k in range(3):
        (alone,) = detector.session.run(None, {"images": batch[k : k + 1]})
        np.testing.assert_allclose(together[k], alone[0], rtol=1e-3, atol=1e-3)


def test_scores_are_probabilities_and_untrained_classes_score_near_0(rows: np.ndarray) -> None:
    assert rows[..., 4:].min() >= 0
    assert rows[..., 4:].max() <= 1
    assert rows[..., 4].max() > 0.5
    assert rows[..., 5 + len(CLASSES) :].max() < 1e-4


def test_rows_have_yolov5s_order(rows: np.ndarray) -> None:
    """Rows are ordered by scale, anchor, row and column.

    So a centre is at most half a cell outside of its cell, and a side at most four times the anchor's.
    """
    at = 0
    for stride, anchors in STRIDES_AND_ANCHORS:
        cells = 640 // stride
        for width, height in anchors:
            part = rows[:, at : at + cells * cells].reshape(-1, cells, cells, 85)
            at += cells * cells
            column, row = np.meshgrid(np.arange(cells), np.arange(cells))
            for value, cell in ((part[..., 0], column), (part[..., 1], row)):
                offset = value / stride - cell
                assert offset.min() >= -0.5 - 1e-3
                assert offset.max() <= 1.5 + 1e-3
            assert (part[..., 2:4] <= 4 * np.array([width, height]) * 1.0001).all()
            assert (part[..., 2:4] >= 0).all()
    assert at == 25200


def test_labels_are_the_trained_classes() -> None:
    labels = MODEL.parents[2] / "postprocess" / "1" / "labels.txt"
    assert tuple(labels.read_text(encoding="utf-8").splitlines()) == CLASSES


def test_has_the_required_accuracy_on_unseen_images(detector: Detector) -> None:
    scores = evaluate(detector, 64)
    assert set(scores) == set(CLASSES)
    for name, figures in scores.items():
        assert figures.truths > 20, name
        assert figures.average_precision > 0.85, name
    assert np.mean([s.average_precision for s in scores.values()]) >= 0.95
    assert np.mean([s.precision for s in scores.values()]) >= 0.875
    assert np.mean([s.recall for s in scores.values()]) >= 0.9


def test_the_same_seed_draws_the_same_scene_and_boxes_are_inside() -> None:
    for seed in range(20):
        first, second = (scene(np.random.default_rng(seed), 300, 400) for _ in range(2))
        np.testing.assert_array_equal(first.image, second.image)
        np.testing.assert_array_equal(first.boxes, second.boxes)
        assert len(first.boxes) == len(first.classes)
        assert (first.boxes[:, :2] >= 0).all()
        assert (first.boxes[:, 2:] <= [400, 300]).all()
        assert (first.boxes[:, 2:] > first.boxes[:, :2]).all()


def test_finds_nothing_on_photographs_that_were_not_in_training(detector: Detector) -> None:
    scores = on_photos(detector, PHOTOS)
    assert len(scores) == 8
    # The network of drawn backgrounds only had 329.
    assert not any(scores.values()), scores


@pytest.mark.parametrize("config", [REPOSITORY / "postprocess", DETECTION / "variants" / "fused"], ids=lambda p: p.name)
def test_the_accuracy_is_measured_with_the_served_thresholds(config: Path) -> None:
    parameters = text_format.Parse((config / "config.pbtxt").read_text(), ModelConfig()).parameters
    names = ("score_threshold", "iou_threshold", "max_detections")
    assert tuple(float(parameters[name].string_value) for name in names) == SERVED


def test_finds_the_shapes_on_photographs_that_were_not_in_training(detector: Detector) -> None:
    rng = np.random.default_rng(11)
    right = total = 0
    for photo in load(PHOTOS) * 4:
        drawn = scene(rng, 640, 640, 6, cut(rng, photo, 640, 640))
        jpeg = cv2.imencode(".jpg", drawn.image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()
        detections = detector.detect(jpeg)
        for k in range(len(CLASSES)):
            mine, theirs = detections.classes == k, drawn.classes == k
            right += int(hits(detections.boxes[mine], detections.scores[mine], drawn.boxes[theirs]).sum())
        total += len(drawn.boxes)
    assert total > 60
    assert right >= 0.8 * total, (right, total)


def test_a_background_has_the_wanted_size_and_is_the_same_for_the_same_seed() -> None:
    photo = load(PHOTOS)[0]
    for seed, size in enumerate([(300, 400), (900, 640), (64, 1200)] * 5):
        first, second = (cut(np.random.default_rng(seed), photo, *size) for _ in range(2))
        assert first.shape == (*size, 3)
        np.testing.assert_array_equal(first, second)


def test_a_scene_on_a_photograph_can_have_no_shapes() -> None:
    rng = np.random.default_rng(1)
    drawn = scene(rng, 300, 400, 0, cut(rng, load(PHOTOS)[0], 300, 400))
    assert drawn.boxes.shape == (0, 4)
    assert len(drawn.classes) == 0


def test_hard_parts_are_those_with_a_high_score() -> None:
    photos = load(PHOTOS)
    assert hard_parts(MODEL, photos, 7, 4, least=0) == ((7, 0), (7, 1), (7, 2), (7, 3))
    assert hard_parts(MODEL, photos, 7, 4, least=1) == ()
    np.testing.assert_array_equal(part(photos, 7, 2), part(photos, 7, 2))
