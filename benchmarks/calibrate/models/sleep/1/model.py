"""Takes 20 ms for each call, however many requests the call has. Returns the inputs."""

import time

import triton_python_backend_utils as pb_utils

SECONDS = 0.02


class TritonPythonModel:
    """Sleeps, so that its capacity doesn't depend on the machine."""

    def execute(self, requests):
        time.sleep(SECONDS)
        inputs = [pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", given)]) for given in inputs]
