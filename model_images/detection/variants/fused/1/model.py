"""Runs the three stages in one process, without boundaries between models. It needs onnxruntime."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils
from cores import cores
from detections import Thresholds, detect
from images import ImageError, read, upright
from labels import read_labels
from letterbox import SIZE, fit, letterbox
from parameters import ParameterError, requested


class TritonPythonModel:
    """Returns DETECTIONS [n, 1] (JSON) for IMAGE [n, 1] (encoded bytes)."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the network, with this instance's share of the cores as threads."""
        cv2.setNumThreads(1)
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        self.max_pixels = int(parameters["max_pixels"])
        self.thresholds = Thresholds(
            score=float(parameters["score_threshold"]),
            iou=float(parameters["iou_threshold"]),
            max_boxes=int(parameters["max_detections"]),
        )
        here = Path(__file__).parent
        self.labels = read_labels(here / parameters["labels"])
        options = onnxruntime.SessionOptions()
        instances = sum(group["count"] for group in config["instance_group"])
        options.intra_op_num_threads = max(1, cores() // instances)
        self.network = onnxruntime.InferenceSession(
            str(here / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self.tensor = np.empty((1, 3, SIZE, SIZE), np.float32)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers the requests one after the other. A bad image fails only its request."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        images = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy().ravel()
        answers: list[bytes] = []
        try:
            thresholds = requested(request.parameters(), self.thresholds)
            for data in images:
                answers.append(self._detect(data, thresholds))
        except (ImageError, ParameterError) as error:
            several = isinstance(error, ImageError) and len(images) > 1
            where = f"image {len(answers) + 1} of {len(images)}: " if several else ""
            failure = pb_utils.TritonError(f"{where}{error}", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=failure)
        return pb_utils.InferenceResponse([pb_utils.Tensor("DETECTIONS", np.array(answers, np.object_).reshape(-1, 1))])

    def _detect(self, data: bytes, thresholds: Thresholds) -> bytes:
        """Returns the JSON for an image. Raises ImageError."""
        stored = read(data, self.max_pixels)
        letterbox(upright(fit(stored.pixels), stored.orientation), self.tensor[0])
        (rows,) = self.network.run(["output0"], {"images": self.tensor})
        return detect(rows[0], *stored.shape, self.labels, thresholds)
