"""Adds numbers up, and reports how many, how many at a time and how quickly."""

import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from measures import Measures


class TritonPythonModel:
    """VALUES [n, w] → SUM [n, 1]; the metrics are in measures.py."""

    def initialize(self, args: dict[str, str]) -> None:
        """Make the metrics, so that they are there, at 0, before the first request."""
        self.measures = Measures({"model": args["model_name"], "version": args["model_version"]})

    def execute(self, requests: list[Any]) -> list[Any]:
        """Add up each row of each request."""
        started = time.perf_counter()
        inputs = [pb_utils.get_input_tensor_by_name(request, "VALUES").as_numpy() for request in requests]
        sums = [values.sum(axis=1, keepdims=True, dtype=np.float32) for values in inputs]
        rows, count = sum(len(values) for values in inputs), sum(values.size for values in inputs)
        self.measures.batch(rows, count, time.perf_counter() - started)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SUM", values)]) for values in sums]
