"""Processes a call every 20 ms, however many requests the call has. Returns the inputs."""

import time

import triton_python_backend_utils as pb_utils

SECONDS = 0.02
OVERHEAD_SECONDS = 0.005


class TritonPythonModel:
    """Sleeps, so that its capacity doesn't depend on the machine."""

    def initialize(self, _args):
        self.end = 0.0

    def execute(self, requests):
        # While requests wait, the time of the backend between two calls counts as a part of the 20 ms.
        now = time.monotonic()
        self.end = (self.end if now - self.end < OVERHEAD_SECONDS else now) + SECONDS
        time.sleep(self.end - now)
        inputs = [pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", values)]) for values in inputs]
