"""The interface of images.py and letterbox.py to Triton's Python backend."""

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import cv2
import numpy as np
import triton_python_backend_utils as pb_utils
from cores import cores
from images import ImageError, read, read_header, upright
from letterbox import SIZE, fit, letterbox
from measures import Measures

# Larger images are decoded one at a time, so that their memory doesn't grow with the number of cores.
LARGE_PIXELS = 8_000_000


class CancelledError(Exception):
    """The client cancelled the request."""


class TritonPythonModel:
    """Converts IMAGE [n, 1] to PROCESSED_IMAGE [n, 3, 640, 640] and ORIGINAL_SHAPE [n, 2] (height, width)."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the limit, and allocates the batch's memory and one thread per core."""
        cv2.setNumThreads(1)  # our threads decode images in parallel
        config = json.loads(args["model_config"])
        self.max_pixels = int(config["parameters"]["max_pixels"]["string_value"])
        kinds = {output["name"]: output["data_type"] for output in config["output"]}
        kind = pb_utils.triton_string_to_numpy(kinds["PROCESSED_IMAGE"])
        max_batch = max(1, config["max_batch_size"])
        # Each execute reuses it: Triton has copied the responses before the next one starts.
        self.batch = np.empty((max_batch, 3, SIZE, SIZE), kind)
        self.threads = ThreadPoolExecutor(min(cores(), max_batch))
        self.large = threading.Lock()
        self.measures = Measures({"model": args["model_name"], "version": args["model_version"]})

    def execute(self, requests: list[Any]) -> list[Any]:
        """Decodes each image into its place in the batch. An image that can't be decoded fails only its request."""
        started = time.perf_counter_ns()
        inputs = [pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy().ravel() for request in requests]
        images = [image for part in inputs for image in part]
        # Triton has just checked the first request for cancellation; the others may be cancelled while they wait.
        whose = [request for request, part in zip(requests, inputs, strict=True) for _ in part]
        whose[:1] = [None] * len(whose[:1])
        # For a single image another thread would only cost time.
        several = self.threads.map if len(images) > 1 else map
        results = list(several(self._process, images, whose, self.batch))
        self.measures.batch(time.perf_counter_ns() - started, Counter(_result(result) for result in results))
        responses, at = [], 0
        for part in inputs:
            responses.append(self._respond(results[at : at + len(part)], self.batch[at : at + len(part)]))
            at += len(part)
        return responses

    def finalize(self) -> None:
        """Ends the threads."""
        self.threads.shutdown()

    def _process(self, data: bytes, request: Any, out: Any) -> tuple[int, int] | Exception:
        """Fills `out` [3, 640, 640]. Returns the upright height and width, or the error.

        First checks whether the client has cancelled `request`. `request` may be None.
        """
        try:
            if request is not None and request.is_cancelled():
                raise CancelledError("the request was cancelled")
            header = read_header(data)
            with self.large if header.height * header.width > LARGE_PIXELS else nullcontext():
                stored = read(data, self.max_pixels)
                # Scale before turning: turning a whole photograph takes as long as decoding it.
                small = fit(stored.pixels)
            letterbox(upright(small, stored.orientation), out)
        except Exception as error:  # fail only this request, not the whole batch
            return error
        return stored.shape

    def _respond(self, results: list[Any], processed: Any) -> Any:
        """Returns the response of a request, from the results of `_process` and its part of the batch."""
        for k, result in enumerate(results):
            if isinstance(result, Exception):
                where = f"image {k + 1} of {len(results)}: " if len(results) > 1 else ""
                return pb_utils.InferenceResponse(error=_failure(result, where))
        shapes = np.array(results, np.int32)
        tensors = [pb_utils.Tensor("PROCESSED_IMAGE", processed), pb_utils.Tensor("ORIGINAL_SHAPE", shapes)]
        return pb_utils.InferenceResponse(tensors)


def _failure(error: Exception, where: str) -> Any:
    """Returns 400 for a bad image, 503 for lack of memory, 500 for other errors."""
    if isinstance(error, ImageError):
        return pb_utils.TritonError(f"{where}{error}", pb_utils.TritonError.INVALID_ARG)
    if isinstance(error, CancelledError):
        return pb_utils.TritonError(f"{where}{error}", pb_utils.TritonError.CANCELLED)
    if isinstance(error, MemoryError):
        return pb_utils.TritonError(f"{where}{error}", pb_utils.TritonError.UNAVAILABLE)
    return pb_utils.TritonError(f"{where}{type(error).__name__}: {error}", pb_utils.TritonError.INTERNAL)


def _result(outcome: Any) -> str:
    """Returns the label `result` of the metric for an image."""
    if isinstance(outcome, ImageError):
        return "refused"
    if isinstance(outcome, CancelledError):
        return "cancelled"
    return "failed" if isinstance(outcome, Exception) else "decoded"
