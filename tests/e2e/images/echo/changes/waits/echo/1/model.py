"""Returns its input after 20 ms, which it sleeps: one server handles at most 50 requests per second."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            time.sleep(0.02)
            echoed = pb_utils.Tensor("OUTPUT", pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy())
            variant = pb_utils.Tensor("VERSION", np.array([b"waits"], dtype=np.object_))
            responses.append(pb_utils.InferenceResponse([echoed, variant]))
        return responses
