"""Triton's side of the model; what it computes is in compute.py."""

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from compute import score


class TritonPythonModel:
    """FEATURES [n, 4] → SCORE [n, 1]."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load what is needed once. An exception here keeps the model from loading, and its text is in the log."""
        parameters = json.loads(args["model_config"])["parameters"]
        self.weights = np.array(parameters["weights"]["string_value"].split(","), np.float32)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests, in their order: gather them, compute once, split.

        Nothing may be raised here: it would fail every request of the batch.
        """
        inputs = [pb_utils.get_input_tensor_by_name(request, "FEATURES").as_numpy() for request in requests]
        try:
            together = score(np.concatenate(inputs), self.weights)
        except ValueError:
            # One of them is bad: only it may fail.
            return [self._alone(features) for features in inputs]
        parts = np.split(together, np.cumsum([len(features) for features in inputs])[:-1])
        return [_respond(part) for part in parts]

    def _alone(self, features: Any) -> Any:
        try:
            return _respond(score(features, self.weights))
        except ValueError as error:
            # 400; UNAVAILABLE is 503, and 500 when you don't say.
            refused = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=refused)

    def finalize(self) -> None:
        """Clean up when the model is unloaded. Leave it out if there is nothing to do."""


def _respond(scores: Any) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor("SCORE", scores)])
