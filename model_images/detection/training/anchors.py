"""Strides, anchors and tensor sizes of yolov5s's three scales."""

import numpy as np

SIZE = 640
# x, y, w, h, objectness, 80 class scores.
COLUMNS = 85
STRIDES = (8, 16, 32)
# Width and height in pixels of the 640 frame: [scale, anchor, 2].
ANCHORS = np.array(
    [
        [[10, 13], [16, 30], [33, 23]],
        [[30, 61], [62, 45], [59, 119]],
        [[116, 90], [156, 198], [373, 326]],
    ],
    np.float32,
)
ROWS = sum(3 * (SIZE // stride) ** 2 for stride in STRIDES)
