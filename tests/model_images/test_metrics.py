"""The evaluation metrics, on cases with results that are computed by hand."""

import numpy as np
import pytest
from metrics import hits, iou, score


def boxes(*corners: tuple[float, float, float, float]) -> np.ndarray:
    return np.array(corners, float).reshape(-1, 4)


def test_computes_the_iou() -> None:
    ious = iou(boxes((0, 0, 2, 2), (5, 5, 6, 6), (0, 0, 0, 0)), boxes((1, 0, 3, 2), (0, 0, 2, 2)))
    np.testing.assert_allclose(ious, [[1 / 3, 1], [0, 0], [0, 0]])


def test_matches_a_truth_once_with_the_best_score() -> None:
    truth = boxes((0, 0, 10, 10))
    twice = boxes((0, 0, 10, 9), (0, 0, 10, 10))
    assert hits(twice, np.array([0.9, 0.8]), truth).tolist() == [True, False]
    assert hits(twice, np.array([0.7, 0.8]), truth).tolist() == [False, True]


def test_an_iou_below_one_half_is_not_a_match() -> None:
    assert not hits(boxes((0, 0, 10, 4)), np.array([1.0]), boxes((0, 0, 10, 10))).any()
    assert hits(boxes((0, 0, 10, 5)), np.array([1.0]), boxes((0, 0, 10, 10))).all()


def test_accepts_no_truths_and_no_boxes() -> None:
    assert hits(boxes((0, 0, 1, 1)), np.array([1.0]), boxes()).tolist() == [False]
    assert hits(boxes(), np.array([]), boxes((0, 0, 1, 1))).tolist() == []
    assert score(np.array([], bool), np.array([]), 4)[:3] == (0, 0, 0)


def test_average_precision_is_the_area_under_the_monotonic_curve() -> None:
    """Right, wrong, right of three truths: the precision is 1 up to recall 1/3, 2/3 up to recall 2/3, then 0."""
    result = score(np.array([True, True, False]), np.array([0.9, 0.5, 0.7]), 3)
    assert result.precision == pytest.approx(2 / 3)
    assert result.recall == pytest.approx(2 / 3)
    assert result.average_precision == pytest.approx(1 / 3 * 1 + 1 / 3 * 2 / 3)


def test_all_scores_are_1_if_all_boxes_are_right() -> None:
    assert score(np.ones(5, bool), np.arange(5), 5)[:3] == pytest.approx((1, 1, 1))
