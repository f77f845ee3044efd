"""Returns its input after 30 ms, which it sleeps: one server handles at most 33 requests per second."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            time.sleep(0.03)
            echoed = pb_utils.Tensor("OUTPUT", pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy())
            variant = pb_utils.Tensor("VERSION", np.array([b"slower"], dtype=np.object_))
            responses.append(pb_utils.InferenceResponse([echoed, variant]))
        return responses
