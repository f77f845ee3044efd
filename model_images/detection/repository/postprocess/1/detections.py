"""Converts the network's rows to boxes of the original image."""

import json
from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

SIZE = 640
# NMS compares boxes in pairs. Scenes have tens of candidates, but a request may set the confidence to 0.
MAX_CANDIDATES = 3000

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Thresholds(NamedTuple):
    """Minimum objectness × class score, maximum IoU of two boxes of a class, and maximum number of boxes."""

    score: float = 0.25
    iou: float = 0.45
    max_boxes: int = 300


class Detections(NamedTuple):
    """Boxes [n, 4] (x1, y1, x2, y2) in pixels, scores [n] and class ids [n], best first."""

    boxes: Floats
    scores: Floats
    classes: Ints


def select(rows: Floats, thresholds: Thresholds) -> Detections:
    """Returns the detections in rows [r, 5 + classes] (x, y, w, h, objectness, class scores), in the 640 frame."""
    # A score never exceeds the objectness, so this drops nearly all rows cheaply.
    rows = rows[rows[:, 4] > thresholds.score]
    classes = rows[:, 5:].argmax(axis=1)
    scores = rows[:, 4] * rows[np.arange(len(rows)), 5 + classes]
    keep = (scores > thresholds.score) & np.isfinite(rows[:, :4]).all(axis=1)
    centres, sides, classes, scores = rows[keep, :2], rows[keep, 2:4], classes[keep], scores[keep]
    corners = np.concatenate([centres - sides / 2, centres + sides / 2], axis=1)
    if len(scores) > MAX_CANDIDATES:
        best = np.argpartition(scores, -MAX_CANDIDATES)[-MAX_CANDIDATES:]
        corners, sides, classes, scores = corners[best], sides[best], classes[best], scores[best]
    if len(corners) == 0:
        return Detections(corners, scores, classes)
    # Move the classes apart, so that one pass of NMS suppresses only within each class.
    step = float(corners.max() - corners.min()) + 1
    apart = corners[:, :2] + classes[:, None] * step
    indices = cv2.dnn.NMSBoxes(
        np.concatenate([apart, sides], axis=1).tolist(),
        scores.tolist(),
        thresholds.score,
        thresholds.iou,
    )
    chosen = np.asarray(indices, np.int64).ravel()[: thresholds.max_boxes]
    return Detections(corners[chosen], scores[chosen], classes[chosen])


def to_image(boxes: Floats, height: int, width: int) -> Floats:
    """Undoes the letterbox: returns boxes [n, 4] in pixels of the height × width image, clipped to it."""
    scale = min(SIZE / height, SIZE / width)
    new_height, new_width = (max(1, round(side * scale)) for side in (height, width))
    top, left = (SIZE - new_height) // 2, (SIZE - new_width) // 2
    offset = np.array([left, top, left, top], np.float32)
    stretch = np.array([width / new_width, height / new_height] * 2, np.float32)
    clipped: Floats = np.clip((boxes - offset) * stretch, 0, np.array([width, height] * 2, np.float32))
    return clipped


def to_json(detections: Detections, height: int, width: int, labels: Sequence[str]) -> bytes:
    """Returns the detections as JSON in UTF-8. A class without a label is named class_<id>."""
    return json.dumps(
        {
            "image": {"width": width, "height": height},
            "detections": [
                {
                    "box": [round(side, 2) for side in box],
                    "score": round(score, 4),
                    "class_id": class_id,
                    "label": labels[class_id] if class_id < len(labels) else f"class_{class_id}",
                }
                for box, score, class_id in zip(
                    detections.boxes.tolist(), detections.scores.tolist(), detections.classes.tolist(), strict=True
                )
            ],
        },
        ensure_ascii=False,
    ).encode()


def detect(rows: Floats, height: int, width: int, labels: Sequence[str], thresholds: Thresholds) -> bytes:
    """Returns the JSON for one image's rows [r, 5 + classes]; `height` and `width` are the upright image's."""
    detections = select(rows, thresholds)
    return to_json(detections._replace(boxes=to_image(detections.boxes, height, width)), height, width, labels)
