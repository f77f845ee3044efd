"""Returns its input, but each fifth request fails.

It raises: Triton counts a pb_utils.TritonError as a success.
"""

import itertools

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.numbers = itertools.count(1)

    def execute(self, requests):
        responses = []
        for request in requests:
            if next(self.numbers) % 5 == 0:
                raise ValueError("the labels are missing")
            echoed = pb_utils.Tensor("OUTPUT", pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy())
            variant = pb_utils.Tensor("VERSION", np.array([b"fails"], dtype=np.object_))
            responses.append(pb_utils.InferenceResponse([echoed, variant]))
        return responses
