"""The detector's stages outside Triton: all of them without Triton, or all but the network in the client."""

import sys
from pathlib import Path
from typing import Any

MODELS = Path("/models")
for stage in ("preprocess", "postprocess"):
    sys.path.append(str(MODELS / stage / "1"))

import cv2  # noqa: E402
import numpy as np  # noqa: E402
from detections import Thresholds, detect  # noqa: E402
from images import read, upright  # noqa: E402
from letterbox import SIZE, fit, letterbox  # noqa: E402
from wire import Connection, tensor_header  # noqa: E402

THRESHOLDS = Thresholds()
LABELS = (MODELS / "postprocess" / "1" / "labels.txt").read_text(encoding="utf-8").splitlines()
cv2.setNumThreads(1)


def load(jpeg: bytes, out: Any) -> tuple[int, int]:
    """Preprocesses a JPEG into `out` [3, 640, 640]. Returns the image's height and width."""
    stored = read(jpeg, 64_000_000)
    letterbox(upright(fit(stored.pixels), stored.orientation), out)
    return stored.shape


class Limit:
    """All three stages in this process. The threads share the ONNX Runtime session."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._tensor = np.empty((1, 3, SIZE, SIZE), np.float32)

    def __call__(self, jpeg: bytes) -> bytes:
        height, width = load(jpeg, self._tensor[0])
        (rows,) = self._session.run(["output0"], {"images": self._tensor})
        return detect(rows[0], height, width, LABELS, THRESHOLDS)


class ClientSide:
    """Decoding and NMS in the client. Sends an FP32 tensor and receives 25200 rows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tensor = np.empty((1, 3, SIZE, SIZE), np.float32)
        self._header = tensor_header("images", self._tensor.shape, "FP32", self._tensor.nbytes)

    def __call__(self, jpeg: bytes) -> bytes:
        height, width = load(jpeg, self._tensor[0])
        _, content = self._connection.infer("yolov5s", self._header, [self._tensor.data.cast("B")])
        rows = np.frombuffer(content, np.float32).reshape(25200, 85)
        return detect(rows, height, width, LABELS, THRESHOLDS)


class ServerSide:
    """All stages in Triton. Sends the JPEG and receives JSON. `model` has the tensors of the ensemble."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection, self._model = connection, model

    def __call__(self, jpeg: bytes) -> bytes:
        _, content = self._connection.infer(self._model, b"", [jpeg])
        return bytes(content[4:])  # after the string's length
