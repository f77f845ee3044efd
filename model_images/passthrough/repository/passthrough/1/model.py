"""Gives back its input and the request's parameters, and tells which instance did it."""

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """INPUT [n, w] → OUTPUT [n, w], the same; PARAMETERS [n, 1], JSON of the request's; INSTANCE [n, 1], a name."""

    def initialize(self, args: dict[str, str]) -> None:
        """Remember which of the instances this is."""
        self.name = args["model_instance_name"].encode()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request from its own tensors: there is nothing to compute that a batch would make quicker."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        if request.is_cancelled():
            gone = pb_utils.TritonError("the client has cancelled the request", pb_utils.TritonError.CANCELLED)
            return pb_utils.InferenceResponse(error=gone)
        rows = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
        outputs = {
            "OUTPUT": rows,
            "PARAMETERS": column(request.parameters().encode(), len(rows)),
            "INSTANCE": column(self.name, len(rows)),
        }
        # Copies of what nobody asked for would be made for nothing.
        wanted = request.requested_output_names()
        return pb_utils.InferenceResponse([pb_utils.Tensor(k, v) for k, v in outputs.items() if k in wanted])


def column(text: bytes, rows: int) -> Any:
    """`text` for each row of the batch: [rows, 1] of strings."""
    return np.full((rows, 1), text, np.object_)
