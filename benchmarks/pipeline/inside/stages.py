"""The detector's own stages outside of Triton: for who has no Triton, and for who has it do the network alone."""

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
    """The detector's preprocessing: fills `out` [3, 640, 640]; returns the image's height and width."""
    stored = read(jpeg, 64_000_000)
    letterbox(upright(fit(stored.pixels), stored.orientation), out)
    return stored.shape


class Limit:
    """All three stages in this process: `session` is ONNX Runtime's, shared by the threads."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._tensor = np.empty((1, 3, SIZE, SIZE), np.float32)

    def __call__(self, jpeg: bytes) -> bytes:
        height, width = load(jpeg, self._tensor[0])
        (rows,) = self._session.run(["output0"], {"images": self._tensor})
        return detect(rows[0], height, width, LABELS, THRESHOLDS)


class ClientSide:
    """Decoding and suppression in the client; FP32 up, 25200 rows down."""

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
    """The bytes up, JSON down: `model` is an ensemble, or whatever else has its tensors."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection, self._model = connection, model

    def __call__(self, jpeg: bytes) -> bytes:
        _, content = self._connection.infer(self._model, b"", [jpeg])
        return bytes(content[4:])  # after the string's length
