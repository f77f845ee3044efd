"""Conversion of rows to JSON: the score threshold, NMS and the output."""

import json

import numpy as np
import pytest
from detections import Thresholds, detect, select

THRESHOLDS = Thresholds(score=0.25, iou=0.45, max_boxes=300)
LABELS = ["circle", "rectangle"]


def rows(*detections: tuple[float, float, float, float, float, int, float], total: int = 25200) -> np.ndarray:
    """Returns rows [total, 85] with the given (x, y, w, h, objectness, class, score); the others are empty."""
    out = np.zeros((total, 85), np.float32)
    for k, (*box, objectness, class_id, score) in enumerate(detections):
        out[k * 7, :5] = *box, objectness
        out[k * 7, 5 + class_id] = score
    return out


def test_returns_one_box_of_a_wide_image_as_json() -> None:
    answer = detect(rows((320, 320, 64, 32, 0.9, 1, 0.8)), 500, 1000, LABELS, THRESHOLDS)
    assert json.loads(answer) == {
        "image": {"width": 1000, "height": 500},
        "detections": [{"box": [450.0, 225.0, 550.0, 275.0], "score": 0.72, "class_id": 1, "label": "rectangle"}],
    }


def test_returns_an_empty_list_without_detections() -> None:
    answer = json.loads(detect(rows(), 480, 640, LABELS, THRESHOLDS))
    assert answer == {"image": {"width": 640, "height": 480}, "detections": []}


@pytest.mark.parametrize(("objectness", "score", "count"), [(0.5, 0.51, 1), (0.5, 0.49, 0), (0.24, 1, 0), (1, 0.26, 1)])
def test_score_is_objectness_times_class(objectness: float, score: float, count: int) -> None:
    detections = select(rows((100, 100, 20, 20, objectness, 0, score)), THRESHOLDS)
    assert len(detections.boxes) == count
    assert detections.scores == pytest.approx([objectness * score] * count)


def test_keeps_the_better_of_two_overlapping_boxes_of_a_class() -> None:
    detections = select(rows((100, 100, 40, 40, 0.7, 0, 1), (104, 100, 40, 40, 0.9, 0, 1)), THRESHOLDS)
    np.testing.assert_allclose(detections.boxes, [[84, 80, 124, 120]])


def test_boxes_of_two_classes_do_not_suppress_each_other() -> None:
    detections = select(rows((100, 100, 40, 40, 0.7, 0, 1), (100, 100, 40, 40, 0.9, 79, 1)), THRESHOLDS)
    assert detections.classes.tolist() == [79, 0]


@pytest.mark.parametrize(("shift", "count"), [(10, 1), (20, 2)])
def test_suppresses_boxes_with_an_iou_above_the_threshold(shift: float, count: int) -> None:
    """The IoU of squares of 40 px is 0.6 with a shift of 10, and 0.33 with a shift of 20."""
    detections = select(rows((100, 100, 40, 40, 0.7, 3, 1), (100 + shift, 100, 40, 40, 0.9, 3, 1)), THRESHOLDS)
    assert len(detections.boxes) == count


def test_returns_the_best_boxes_first_and_at_most_the_limit() -> None:
    many = rows(*((30 * (k % 20) + 15, 30 * (k // 20) + 15, 10, 10, 0.3 + k / 1000, 0, 1) for k in range(400)))
    detections = select(many, THRESHOLDS)
    assert len(detections.scores) == 300
    assert detections.scores[0] == pytest.approx(0.699)
    assert (np.diff(detections.scores) <= 0).all()


def test_ignores_rows_with_nan_or_infinity() -> None:
    odd = rows((np.nan, 1, 2, 3, 0.9, 0, 1), (1, 1, np.inf, 3, 0.9, 0, 1), (50, 50, 9, 9, np.nan, 0, 1))
    odd[100] = rows((50, 300, 20, 20, 0.9, 0, 1))[0]
    answer = json.loads(detect(odd, 640, 640, LABELS, THRESHOLDS))
    assert [d["box"] for d in answer["detections"]] == [[40, 290, 60, 310]]


def test_does_not_write_to_the_rows() -> None:
    """The tensor is in the server's shared memory."""
    tensor = rows((100, 100, 40, 40, 0.7, 0, 1))
    tensor.flags.writeable = False
    assert len(select(tensor, THRESHOLDS).boxes) == 1


def test_accepts_fewer_labels_than_classes_and_non_ascii_labels() -> None:
    answer = detect(rows((50, 50, 9, 9, 0.9, 0, 1), (90, 90, 9, 9, 0.8, 41, 1)), 640, 640, ["křižovatka"], THRESHOLDS)
    assert "křižovatka" in answer.decode()
    assert [d["label"] for d in json.loads(answer)["detections"]] == ["křižovatka", "class_41"]


@pytest.mark.parametrize("columns", [6, 9, 85])
def test_accepts_any_number_of_classes(columns: int) -> None:
    tensor = np.zeros((10, columns), np.float32)
    tensor[3] = 0.9
    tensor[3, :4] = 100, 100, 20, 20
    assert select(tensor, THRESHOLDS).classes.tolist() == [0]
