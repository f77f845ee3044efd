"""Adds numbers up, and reports the count of numbers, the rows of the last batch and the time of a batch."""

import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from measures import Measures


class TritonPythonModel:
    """Computes SUM [n, 1] from VALUES [n, w]. The metrics are in measures.py."""

    def initialize(self, args: dict[str, str]) -> None:
        """Creates the metrics, so that they exist before the first request."""
        self.measures = Measures({"model": args["model_name"], "version": args["model_version"]})

    def execute(self, requests: list[Any]) -> list[Any]:
        """Returns the sum of each row of each request."""
        started = time.perf_counter()
        inputs = [pb_utils.get_input_tensor_by_name(request, "VALUES").as_numpy() for request in requests]
        sums = [values.sum(axis=1, keepdims=True, dtype=np.float32) for values in inputs]
        rows, count = sum(len(values) for values in inputs), sum(values.size for values in inputs)
        self.measures.batch(rows, count, time.perf_counter() - started)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SUM", values)]) for values in sums]
