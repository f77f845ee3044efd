"""Precision, recall and average precision of boxes."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating]
Flags = npt.NDArray[np.bool_]


class Score(NamedTuple):
    """The scores of one class. `precision` and `recall` are over all given predictions."""

    precision: float
    recall: float
    average_precision: float
    truths: int


def iou(a: Array, b: Array) -> Array:
    """Returns the intersection over union [n, m] of boxes a [n, 4] and b [m, 4] (x1, y1, x2, y2)."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    common = np.clip(high - low, 0, None).prod(axis=2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(axis=1) for boxes in (a, b)]
    union = areas[0][:, None] + areas[1][None, :] - common
    shared: Array = np.divide(common, union, out=np.zeros_like(common, dtype=np.float64), where=union > 0)
    return shared


def hits(boxes: Array, scores: Array, truths: Array, threshold: float = 0.5) -> Flags:
    """Returns which boxes [n, 4] of one class in one image are right [n].

    In the order of their scores, each box matches the unmatched truth with the highest IoU, if that is at least
    `threshold`.
    """
    right = np.zeros(len(boxes), bool)
    overlap = iou(boxes, truths)
    for k in np.argsort(-scores, kind="stable"):
        best = overlap[k].argmax() if len(truths) else 0
        if len(truths) and overlap[k, best] >= threshold:
            right[k] = True
            overlap[:, best] = -1
    return right


def score(right: Flags, scores: Array, truths: int) -> Score:
    """Returns the scores of all boxes [n] of a class over all images; `truths` is the number of true boxes."""
    ordered = right[np.argsort(-scores, kind="stable")]
    matches = np.cumsum(ordered)
    precision = matches / np.arange(1, len(ordered) + 1)
    recall = matches / max(truths, 1)
    # The area under the curve, with the precision made monotonic from the right.
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    area = float((np.diff(recall, prepend=0) * envelope).sum())
    total = int(ordered.sum())
    return Score(total / max(len(ordered), 1), total / max(truths, 1), area, truths)
