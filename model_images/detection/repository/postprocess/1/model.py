"""Triton's Python backend around detections.py."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import triton_python_backend_utils as pb_utils
from detections import Thresholds, detect


class TritonPythonModel:
    """PREDICTIONS [n, 25200, 85] and ORIGINAL_SHAPE [n, 2] (height, width) → DETECTIONS [n, 1], JSON."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the thresholds and the labels."""
        cv2.setNumThreads(1)  # an instance is the unit of parallelism, not a thread
        parameters = json.loads(args["model_config"])["parameters"]
        self.thresholds = Thresholds(
            score=float(parameters["score_threshold"]["string_value"]),
            iou=float(parameters["iou_threshold"]["string_value"]),
            most=int(parameters["max_detections"]["string_value"]),
        )
        self.labels = Path(__file__).with_name("labels.txt").read_text(encoding="utf-8").splitlines()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request from views of its rows: gathering 8.5 MB an image would only copy them."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        rows = pb_utils.get_input_tensor_by_name(request, "PREDICTIONS").as_numpy()
        shapes = pb_utils.get_input_tensor_by_name(request, "ORIGINAL_SHAPE").as_numpy().tolist()
        try:
            answers = [
                detect(image_rows, height, width, self.labels, self.thresholds)
                for image_rows, (height, width) in zip(rows, shapes, strict=True)
            ]
        except (ValueError, ZeroDivisionError, cv2.error) as error:
            failure = pb_utils.TritonError(f"no boxes for this image: {error}", pb_utils.TritonError.INTERNAL)
            return pb_utils.InferenceResponse(error=failure)
        return pb_utils.InferenceResponse([pb_utils.Tensor("DETECTIONS", np.array(answers, np.object_).reshape(-1, 1))])
