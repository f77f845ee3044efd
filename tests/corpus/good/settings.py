"""Models with other settings of config.pbtxt: cache, versions, instances, warm-up."""

from __future__ import annotations

from corpus.good.repository import ECHO, ECHO_CONFIG, HEAD, Files, string
from support import onnx_file


def cache() -> Files:
    return {
        "slow/config.pbtxt": ECHO_CONFIG + "response_cache { enable: true }\n",
        "slow/1/model.py": ECHO,
    }


def versions() -> Files:
    return {
        "three/config.pbtxt": ECHO_CONFIG + "version_policy { specific { versions: [ 1, 3 ] } }\n",
        "three/1/model.py": ECHO,
        "three/2/model.py": "this one isn't served and may be anything",
        "three/3/model.py": ECHO,
        "two/config.pbtxt": ECHO_CONFIG + "version_policy { latest { num_versions: 2 } }\n",
        "two/7/model.py": ECHO,
        "two/10/model.py": ECHO,
        "pinned/config.pbtxt": """\
platform: "ensemble"
max_batch_size: 8
input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "Z" data_type: TYPE_FP32 dims: [ 4 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "three"
      model_version: 1
      input_map { key: "IN" value: "X" }
      output_map { key: "OUT" value: "Y" }
    },
    {
      model_name: "two"
      model_version: -1
      input_map { key: "IN" value: "Y" }
      output_map { key: "OUT" value: "Z" }
    }
  ]
}
""",
        "pinned/1/.keep": "",
    }


def instances() -> Files:
    return {
        "many/config.pbtxt": ECHO_CONFIG.replace(
            "instance_group [ { kind: KIND_CPU } ]",
            """\
instance_group [
  {
    name: "first"
    count: 1
    kind: KIND_CPU
    rate_limiter { resources [ { name: "R" count: 1 } ] priority: 1 }
  },
  { name: "rest" count: 2 kind: KIND_CPU }
]""",
        ),
        "many/1/model.py": ECHO,
        "auto/config.pbtxt": ECHO_CONFIG.replace("kind: KIND_CPU", "count: 2 kind: KIND_AUTO"),
        "auto/1/model.py": ECHO,
        "net/config.pbtxt": """\
platform: "onnxruntime_onnx"
max_batch_size: 0
input [ { name: "in" data_type: TYPE_FP32 dims: [ 2, 3 ] } ]
output [ { name: "out" data_type: TYPE_FP32 dims: [ 6 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
parameters { key: "intra_op_thread_count" value: { string_value: "1" } }
""",
        "net/1/model.onnx": onnx_file.reshaped(("in", onnx_file.FP32, [2, 3]), ("out", onnx_file.FP32, [6]), [6]),
    }


def warmup() -> Files:
    return {
        "words/config.pbtxt": """\
backend: "python"
max_batch_size: 4
input [
  { name: "TEXT" data_type: TYPE_STRING dims: [ 2 ] },
  { name: "WEIGHT" data_type: TYPE_FP32 dims: [ -1 ] }
]
output [
  { name: "CLASS" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }
]
instance_group [ { kind: KIND_CPU } ]
model_warmup [
  {
    name: "one"
    batch_size: 1
    inputs { key: "TEXT" value: { data_type: TYPE_STRING dims: [ 2 ] input_data_file: "words" } }
    inputs { key: "WEIGHT" value: { data_type: TYPE_FP32 dims: [ 5 ] input_data_file: "weights" } }
  },
  {
    name: "four"
    batch_size: 4
    count: 2
    inputs { key: "TEXT" value: { data_type: TYPE_STRING dims: [ 2 ] zero_data: true } }
    inputs { key: "WEIGHT" value: { data_type: TYPE_FP32 dims: [ 5 ] random_data: true } }
  }
]
""",
        "words/labels.txt": "a\nb\nc\n",
        "words/warmup/words": string(b"first") + string(b"second"),
        "words/warmup/weights": bytes(20),
        "words/1/model.py": HEAD
        + """\
    def execute(self, requests):
        responses = []
        for request in requests:
            words = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            weights = pb_utils.get_input_tensor_by_name(request, "WEIGHT").as_numpy()
            made = np.zeros((len(words), 3), np.float32) + weights.sum()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("CLASS", made)]))
        return responses
""",
    }
