"""A Python-based Triton backend named `onnxruntime`: serves model.onnx with ONNX Runtime on the CPU."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        version = Path(args["model_repository"]) / args["model_version"]
        path = str(version / (config.get("default_model_filename") or "model.onnx"))
        options = onnxruntime.SessionOptions()
        threads = config.get("parameters", {}).get("intra_op_thread_count", {}).get("string_value")
        options.intra_op_num_threads = int(threads) if threads else 0
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [i.name for i in self.session.get_inputs()]
        self.outputs = [o.name for o in self.session.get_outputs()]
        declared = {o["name"] for o in config["output"]}
        missing = declared - set(self.outputs)
        if missing:
            raise pb_utils.TritonModelException(f"unexpected outputs {sorted(missing)}: the model has {self.outputs}")
        self.batched = config.get("max_batch_size", 0) > 0

    def execute(self, requests):
        if not self.batched:
            return [self._respond(self._run(self._tensors([request]))) for request in requests]
        sizes = [pb_utils.get_input_tensor_by_name(request, self.inputs[0]).shape()[0] for request in requests]
        outputs = self._run(self._tensors(requests))
        parts = [np.split(output, np.cumsum(sizes)[:-1]) for output in outputs]
        return [self._respond([part[k] for part in parts]) for k in range(len(requests))]

    def _tensors(self, requests):
        return {
            name: np.concatenate([pb_utils.get_input_tensor_by_name(r, name).as_numpy() for r in requests])
            if len(requests) > 1
            else pb_utils.get_input_tensor_by_name(requests[0], name).as_numpy()
            for name in self.inputs
        }

    def _run(self, tensors):
        return self.session.run(self.outputs, tensors)

    def _respond(self, outputs):
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, value) for name, value in zip(self.outputs, outputs, strict=True)]
        )
