"""Adds up the values of each sequence."""

import socket
from collections import OrderedDict
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

MOST = 1000
"""Maximum number of sums. Triton doesn't tell a model that it has ended a sequence because of a long pause."""


class TritonPythonModel:
    """Returns SUM [1, 1], the sum of the sequence so far, and SERVER [1, 1], the name of the pod."""

    def initialize(self, _: dict[str, str]) -> None:
        """Starts without sums."""
        self.sums: OrderedDict[int, int] = OrderedDict()
        self.server = np.array([[socket.gethostname().encode()]], np.object_)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers each request separately."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        start, end, sequence, value = (
            int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().flat[0])
            for name in ("START", "END", "CORRID", "VALUE")
        )
        total = value + (0 if start else self.sums.pop(sequence))
        if not end:
            self.sums[sequence] = total
            if len(self.sums) > MOST:
                self.sums.popitem(last=False)
        outputs = {"SUM": np.array([[total]], np.int64), "SERVER": self.server}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, values) for name, values in outputs.items()])
