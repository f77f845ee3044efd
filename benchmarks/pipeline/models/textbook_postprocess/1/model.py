"""Postprocessing as in tutorials: the scores and corners of all rows, and non-maximum suppression in NumPy."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

SIZE = 640
SCORE, IOU, MAX_BOXES = 0.45, 0.45, 300
LABELS = ["circle", "rectangle", "triangle", "star"]


def nms(boxes, scores):
    """Returns the indices of the boxes that non-maximum suppression keeps."""
    x1, y1, x2, y2 = boxes.T
    areas = (x2 - x1) * (y2 - y1)
    order = scores.argsort()[::-1]
    keep = []
    while order.size > 0:
        best, rest = order[0], order[1:]
        keep.append(best)
        width = np.maximum(0.0, np.minimum(x2[best], x2[rest]) - np.maximum(x1[best], x1[rest]))
        height = np.maximum(0.0, np.minimum(y2[best], y2[rest]) - np.maximum(y1[best], y1[rest]))
        overlap = width * height
        iou = overlap / (areas[best] + areas[rest] - overlap)
        order = rest[iou <= IOU]
    return keep


def detect(rows, height, width):
    """Returns the detections in the rows [25200, 85] of one image, in pixels of the image."""
    scores = rows[:, 4:5] * rows[:, 5:]
    classes = np.argmax(scores, axis=1)
    scores = np.max(scores, axis=1)
    boxes = np.empty_like(rows[:, :4])
    boxes[:, 0] = rows[:, 0] - rows[:, 2] / 2
    boxes[:, 1] = rows[:, 1] - rows[:, 3] / 2
    boxes[:, 2] = rows[:, 0] + rows[:, 2] / 2
    boxes[:, 3] = rows[:, 1] + rows[:, 3] / 2
    mask = scores > SCORE
    boxes, scores, classes = boxes[mask], scores[mask], classes[mask]
    indices = []
    for class_id in np.unique(classes):
        of_class = np.where(classes == class_id)[0]
        indices.extend(of_class[nms(boxes[of_class], scores[of_class])])
    indices.sort(key=lambda k: -scores[k])

    scale = min(SIZE / height, SIZE / width)
    new_width, new_height = max(1, round(width * scale)), max(1, round(height * scale))
    top, left = (SIZE - new_height) // 2, (SIZE - new_width) // 2
    detections = []
    for k in indices[:MAX_BOXES]:
        x1, y1, x2, y2 = boxes[k]
        box = [
            min(max((x1 - left) * width / new_width, 0), width),
            min(max((y1 - top) * height / new_height, 0), height),
            min(max((x2 - left) * width / new_width, 0), width),
            min(max((y2 - top) * height / new_height, 0), height),
        ]
        class_id = int(classes[k])
        detections.append(
            {
                "box": [round(float(side), 2) for side in box],
                "score": round(float(scores[k]), 4),
                "class_id": class_id,
                "label": LABELS[class_id] if class_id < len(LABELS) else f"class_{class_id}",
            }
        )
    return {"image": {"width": int(width), "height": int(height)}, "detections": detections}


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "PREDICTIONS").as_numpy()
            shapes = pb_utils.get_input_tensor_by_name(request, "ORIGINAL_SHAPE").as_numpy()
            answers = [json.dumps(detect(r, *shape)) for r, shape in zip(rows, shapes, strict=True)]
            tensor = pb_utils.Tensor("DETECTIONS", np.array(answers, dtype=np.object_).reshape(-1, 1))
            responses.append(pb_utils.InferenceResponse(output_tensors=[tensor]))
        return responses
