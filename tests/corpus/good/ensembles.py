"""Ensembles, also nested ones, and ensembles that leave out optional inputs."""

from __future__ import annotations

from corpus.good.repository import ECHO, ECHO_CONFIG, HEAD, Files
from support import onnx_file


def detection() -> Files:
    return {
        "pre/config.pbtxt": """\
name: "pre"
backend: "python"
max_batch_size: 8
input [
  { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] }
]
output [
  { name: "TENSOR" data_type: TYPE_FP32 dims: [ 3, 8, 8 ] },
  { name: "SIZE" data_type: TYPE_INT32 dims: [ 2 ] }
]
dynamic_batching { }
instance_group [ { count: 2 kind: KIND_CPU } ]
""",
        "pre/1/model.py": HEAD
        + """\
    def initialize(self, args):
        self.name = args["model_name"]

    def execute(self, requests):
        responses = []
        for request in requests:
            images = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
            tensor = np.zeros((len(images), 3, 8, 8), np.float32)
            size = np.full((len(images), 2), 8, np.int32)
            outputs = [pb_utils.Tensor("TENSOR", tensor), pb_utils.Tensor("SIZE", size)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses

    def finalize(self):
        pass
""",
        "net/config.pbtxt": """\
name: "net"
backend: "onnxruntime"
max_batch_size: 8
input [
  { name: "images" data_type: TYPE_FP32 dims: [ 3, 8, 8 ] }
]
output [
  { name: "boxes" data_type: TYPE_FP32 dims: [ 32, 6 ] }
]
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 500 }
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters { key: "intra_op_thread_count" value: { string_value: "1" } }
""",
        "net/1/model.onnx": onnx_file.reshaped(
            ("images", onnx_file.FP32, ["n", 3, 8, 8]), ("boxes", onnx_file.FP32, ["n", 32, 6]), [-1, 32, 6]
        ),
        "post/config.pbtxt": """\
name: "post"
backend: "python"
max_batch_size: 16
input [
  { name: "BOXES" data_type: TYPE_FP32 dims: [ -1, 6 ] },
  { name: "SIZE" data_type: TYPE_INT32 dims: [ 2 ] }
]
output [
  { name: "JSON" data_type: TYPE_STRING dims: [ 1 ] }
]
instance_group [ { kind: KIND_CPU } ]
parameters { key: "threshold" value: { string_value: "0.25" } }
""",
        "post/1/model.py": HEAD
        + """\
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        boxes = pb_utils.get_input_tensor_by_name(request, "BOXES").as_numpy()
        sizes = pb_utils.get_input_tensor_by_name(request, "SIZE").as_numpy()
        texts = [f"{len(b)} boxes in {s.tolist()}" for b, s in zip(boxes, sizes)]
        made = np.array(texts, np.object_).reshape(-1, 1)
        return pb_utils.InferenceResponse([pb_utils.Tensor("JSON", made)])
""",
        "detect/config.pbtxt": """\
name: "detect"
platform: "ensemble"
max_batch_size: 8
input [
  { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] }
]
output [
  { name: "JSON" data_type: TYPE_STRING dims: [ 1 ] }
]
ensemble_scheduling {
  step [
    {
      model_name: "pre"
      model_version: -1
      input_map { key: "IMAGE" value: "IMAGE" }
      output_map { key: "TENSOR" value: "tensor" }
      output_map { key: "SIZE" value: "size" }
    },
    {
      model_name: "net"
      model_version: -1
      input_map { key: "images" value: "tensor" }
      output_map { key: "boxes" value: "boxes" }
    },
    {
      model_name: "post"
      model_version: -1
      input_map { key: "BOXES" value: "boxes" }
      input_map { key: "SIZE" value: "size" }
      output_map { key: "JSON" value: "JSON" }
    }
  ]
}
""",
        "detect/1/.keep": "",
    }


def optional() -> Files:
    return {
        "scale/config.pbtxt": """\
backend: "python"
max_batch_size: 8
input [
  { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] },
  { name: "FACTOR" data_type: TYPE_FP32 dims: [ 1 ] optional: true }
]
output [
  { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }
]
dynamic_batching { }
instance_group [ { kind: KIND_CPU } ]
""",
        "scale/1/model.py": HEAD
        + """\
    def execute(self, requests):
        responses = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            factor = pb_utils.get_input_tensor_by_name(request, "FACTOR")
            made = given if factor is None else given * factor.as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", made)]))
        return responses
""",
        "plain/config.pbtxt": """\
platform: "ensemble"
max_batch_size: 8
input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "scale"
      model_version: -1
      input_map { key: "IN" value: "X" }
      output_map { key: "OUT" value: "Y" }
    }
  ]
}
""",
        "plain/1/.keep": "",
    }


def nested() -> Files:
    chain = """\
platform: "ensemble"
max_batch_size: %d
input [ { name: "X" data_type: TYPE_FP32 dims: [ %s ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ %s ] } ]
ensemble_scheduling {
  step [ {
    model_name: "%s"
    model_version: -1
    input_map { key: "%s" value: "X" }
    output_map { key: "%s" value: "Y" }
  } ]
}
"""
    # With max_batch_size 0 the batch is in its dims, so that an ensemble with batches can use it.
    flat = ECHO_CONFIG.replace("max_batch_size: 8", "max_batch_size: 0").replace("[ 4 ]", "[ -1, 4 ]")
    return {
        "flat/config.pbtxt": flat,
        "flat/1/model.py": ECHO,
        "inside/config.pbtxt": chain % (8, "4", "4", "flat", "IN", "OUT"),
        "inside/1/.keep": "",
        "outside/config.pbtxt": chain % (4, "4", "4", "inside", "X", "Y"),
        "outside/1/.keep": "",
    }
