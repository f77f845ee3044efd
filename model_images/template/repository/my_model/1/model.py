"""The interface of compute.py to Triton's Python backend."""

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from compute import score


class TritonPythonModel:
    """Computes SCORE [n, 1] from FEATURES [n, 4]."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the weights once. If it raises, the model doesn't load, and the log contains the message."""
        parameters = json.loads(args["model_config"])["parameters"]
        self.weights = np.array(parameters["weights"]["string_value"].split(","), np.float32)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Concatenates the requests, computes once, and splits the result. Returns the responses in order.

        It must not raise, because that would fail every request of the batch.
        """
        inputs = [pb_utils.get_input_tensor_by_name(request, "FEATURES").as_numpy() for request in requests]
        try:
            together = score(np.concatenate(inputs), self.weights)
        except ValueError:
            # At least one request is invalid: compute each one separately, so that only invalid ones fail.
            return [self._alone(features) for features in inputs]
        parts = np.split(together, np.cumsum([len(features) for features in inputs])[:-1])
        return [_respond(part) for part in parts]

    def _alone(self, features: Any) -> Any:
        try:
            return _respond(score(features, self.weights))
        except ValueError as error:
            # INVALID_ARG is HTTP 400, UNAVAILABLE is 503, the default is 500.
            refused = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=refused)

    def finalize(self) -> None:
        """Cleans up when Triton unloads the model. Optional."""


def _respond(scores: Any) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor("SCORE", scores)])
