"""Triton's Python backend around images.py and letterbox.py."""

import json
from typing import Any

import cv2
import numpy as np
import triton_python_backend_utils as pb_utils
from images import ImageError, decode
from letterbox import SIZE, letterbox


class TritonPythonModel:
    """IMAGE [n, 1] of encoded bytes → PROCESSED_IMAGE [n, 3, 640, 640], ORIGINAL_SHAPE [n, 2] (height, width)."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the limit and set the batch's memory aside."""
        cv2.setNumThreads(1)  # an instance is the unit of parallelism, not a thread
        config = json.loads(args["model_config"])
        self.max_pixels = int(config["parameters"]["max_pixels"]["string_value"])
        # Written anew by each execute: Triton has copied the responses before the next one starts.
        self.batch = np.empty((max(1, config["max_batch_size"]), 3, SIZE, SIZE), np.float32)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Decode each image into its place in the batch; an image that can't be served fails its request alone."""
        responses, at = [], 0
        for request in requests:
            images = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy().ravel()
            processed = self.batch[at : at + len(images)]
            try:
                shapes = self._process(images, processed)
            except ImageError as error:
                failure = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=failure))
                continue
            at += len(images)
            tensors = [pb_utils.Tensor("PROCESSED_IMAGE", processed), pb_utils.Tensor("ORIGINAL_SHAPE", shapes)]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses

    def _process(self, images: Any, out: Any) -> Any:
        """Fill `out` [n, 3, 640, 640]; returns the upright sizes, INT32 [n, 2]. Raises ImageError."""
        shapes = np.empty((len(images), 2), np.int32)
        for k, data in enumerate(images):
            try:
                image = decode(data, self.max_pixels)
            except ImageError as error:
                if len(images) == 1:
                    raise
                raise ImageError(f"image {k + 1} of {len(images)}: {error}") from error
            shapes[k] = image.shape[:2]
            letterbox(image, out[k])
        return shapes
