"""Returns its input and the variant of the image, and keeps 5 MiB of each request of LEAK_EVERY."""

import os
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        text = (Path(args["model_repository"]) / args["model_version"] / "variant.txt").read_text().strip()
        self.variant = np.array([text.encode()], dtype=np.object_)
        self.every, self.number, self.kept = int(os.environ["LEAK_EVERY"]), 0, []

    def execute(self, requests):
        answers = []
        for request in requests:
            self.number += 1
            if self.number % self.every == 0:
                self.kept.append(b"x" * (5 << 20))
            answers.append(
                pb_utils.InferenceResponse(
                    [
                        pb_utils.Tensor("OUTPUT", pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()),
                        pb_utils.Tensor("VERSION", self.variant),
                    ]
                )
            )
        return answers
