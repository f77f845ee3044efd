"""Echoes until a file exists in its server, or until it gets -1, which ends its process. It raises for -2.

/dev/shm/broken: each request fails, as after a CUDA error. /dev/shm/stuck: each request waits, as in a deadlock.
LOAD_SECONDS: how long it takes to load.
"""

import os
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        time.sleep(float(os.environ.get("LOAD_SECONDS", "0")))

    def execute(self, requests):
        if Path("/dev/shm/broken").exists():
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        while Path("/dev/shm/stuck").exists():
            time.sleep(0.1)
        values = {pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()[0] for request in requests}
        if -1 in values:
            os._exit(1)
        if -2 in values:
            raise ValueError("-2 is no input")
        version = np.array([b"breaks"], dtype=np.object_)
        return [
            pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor("OUTPUT", pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()),
                    pb_utils.Tensor("VERSION", version),
                ]
            )
            for request in requests
        ]
