"""Returns its input, the request's parameters and the name of the instance."""

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Returns OUTPUT [n, w] (the INPUT), PARAMETERS [n, 1] (the request's, as JSON) and INSTANCE [n, 1] (its name)."""

    def initialize(self, args: dict[str, str]) -> None:
        """Stores the name of this instance."""
        self.name = args["model_instance_name"].encode()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers each request separately, because a batch wouldn't be faster."""
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
        # Create only the requested outputs, to avoid copies.
        names = request.requested_output_names()
        return pb_utils.InferenceResponse([pb_utils.Tensor(k, v) for k, v in outputs.items() if k in names])


def column(text: bytes, rows: int) -> Any:
    """Returns `text` for each row of the batch, as [rows, 1]."""
    return np.full((rows, 1), text, np.object_)
