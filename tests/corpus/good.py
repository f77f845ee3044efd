"""Good repositories, each made from documented features of Triton, and each answers a request of zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support import onnx_file
from triton_operator.repository.checks import Expected

SERVER = (2, 51)
MIB = 2**20

Files = dict[str, str | bytes]


@dataclass(frozen=True)
class Good:
    """A repository without a fault."""

    name: str
    title: str
    """What of Triton it uses."""
    files: Callable[[], Files]
    wanted: Expected

    def write(self, root: Path) -> Path:
        """Put it under `root`."""
        for file, content in self.files().items():
            path = root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return root


def expected(entrypoint: str, **more: object) -> Expected:
    """What a pod with two cores and no GPU wants, on server 2.51."""
    usual = {"shared_memory": 256 * MIB, "gpus": 0, "cpus": 2.0, "response_cache": False, "server": SERVER}
    return Expected(entrypoint=entrypoint, **{**usual, **more})  # type: ignore[arg-type]


def string(text: bytes) -> bytes:
    """A string as Triton reads it from a file: after its length."""
    return len(text).to_bytes(4, "little") + text


HEAD = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
"""
ECHO = (
    HEAD
    + """\
    def execute(self, requests):
        responses = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given)]))
        return responses
"""
)
ECHO_CONFIG = """\
backend: "python"
max_batch_size: 8
input [
  { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] }
]
output [
  { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }
]
instance_group [ { kind: KIND_CPU } ]
"""


def _detection() -> Files:
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


def _ragged() -> Files:
    return {
        "lengths/config.pbtxt": """\
backend: "python"
max_batch_size: 16
input [
  { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
]
output [
  { name: "LENGTH" data_type: TYPE_INT32 dims: [ 1 ] }
]
batch_input [
  {
    kind: BATCH_ACCUMULATED_ELEMENT_COUNT
    target_name: "ENDS"
    data_type: TYPE_FP32
    source_input: "IN"
  }
]
dynamic_batching { max_queue_delay_microseconds: 100 }
instance_group [ { kind: KIND_CPU } ]
""",
        "lengths/1/model.py": HEAD
        + """\
    def execute(self, requests):
        responses = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            length = np.full((given.shape[0], 1), given.shape[1], np.int32)
            responses.append(pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("LENGTH", length)]))
        return responses
""",
    }


def _sequence() -> Files:
    return {
        "sum/config.pbtxt": """\
backend: "python"
max_batch_size: 4
input [
  { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
]
output [
  { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
]
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  oldest { max_candidate_sequences: 8 preferred_batch_size: [ 2, 4 ] }
  control_input [
    {
      name: "START"
      control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ]
    },
    {
      name: "CORRID"
      control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ]
    }
  ]
}
instance_group [ { kind: KIND_CPU } ]
""",
        "sum/1/model.py": HEAD
        + """\
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            start = pb_utils.get_input_tensor_by_name(request, "START").as_numpy()
            who = int(pb_utils.get_input_tensor_by_name(request, "CORRID").as_numpy().ravel()[0])
            before = 0 if start.ravel()[0] else self.sums.get(who, 0)
            self.sums[who] = before + int(given.ravel()[0])
            made = np.array([[self.sums[who]]], np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", made)]))
        return responses
""",
        "state/config.pbtxt": """\
backend: "python"
max_batch_size: 1
input [
  { name: "IN" data_type: TYPE_FP32 dims: [ 2 ] }
]
output [
  { name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }
]
sequence_batching {
  direct { minimum_slot_utilization: 0.5 max_queue_delay_microseconds: 100 }
  state [
    {
      input_name: "BEFORE"
      output_name: "AFTER"
      data_type: TYPE_FP32
      dims: [ 2 ]
      initial_state: {
        data_type: TYPE_FP32
        dims: [ 2 ]
        data_file: "first"
        name: "first state"
      }
    }
  ]
}
instance_group [ { kind: KIND_CPU } ]
""",
        "state/initial_state/first": bytes(8),
        "state/1/model.py": ECHO,
    }


def _decoupled() -> Files:
    return {
        "repeat/config.pbtxt": """\
backend: "python"
max_batch_size: 0
input [
  { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
]
output [
  { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
]
model_transaction_policy { decoupled: true }
instance_group [ { kind: KIND_CPU } ]
""",
        "repeat/1/model.py": HEAD
        + """\
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            for _ in range(2):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
""",
    }


def _bls() -> Files:
    return {
        "inner/config.pbtxt": ECHO_CONFIG,
        "inner/1/model.py": ECHO,
        "outer/config.pbtxt": ECHO_CONFIG.replace('"IN"', '"QUESTION"').replace('"OUT"', '"ANSWER"'),
        "outer/1/model.py": HEAD
        + """\
    def execute(self, requests):
        responses = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "QUESTION").as_numpy()
            call = pb_utils.InferenceRequest(
                model_name="inner",
                requested_output_names=["OUT"],
                inputs=[pb_utils.Tensor("IN", given)],
            )
            answer = call.exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            made = pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("ANSWER", made)]))
        return responses
""",
    }


def _optional() -> Files:
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


def _cache() -> Files:
    return {
        "slow/config.pbtxt": ECHO_CONFIG + "response_cache { enable: true }\n",
        "slow/1/model.py": ECHO,
    }


def _versions() -> Files:
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


def _instances() -> Files:
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


def _warmup() -> Files:
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


def _completed() -> Files:
    return {
        "short/config.pbtxt": 'backend: "python"\ninstance_group [ { kind: KIND_CPU } ]\n',
        "short/1/model.py": HEAD
        + """\
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        auto_complete_model_config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [4]})
        auto_complete_model_config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [4]})
        auto_complete_model_config.set_max_batch_size(0)
        return auto_complete_model_config

    def execute(self, requests):
        responses = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given)]))
        return responses
""",
    }


def _queues() -> Files:
    return {
        "queue/config.pbtxt": """\
backend: "python"
max_batch_size: 8
input [
  { name: "IN" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 2, 2 ] reshape: { shape: [ 12 ] } }
]
output [
  { name: "OUT" data_type: TYPE_FP32 dims: [ 3, 2, 2 ] reshape: { shape: [ 12 ] } }
]
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 1000
  priority_levels: 3
  default_priority_level: 2
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 1000000 max_queue_size: 100 }
  priority_queue_policy { key: 1 value: { max_queue_size: 10 } }
}
instance_group [ { kind: KIND_CPU } ]
""",
        "queue/1/model.py": ECHO,
    }


def _nested() -> Files:
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
    # Without batches it has the batch among its dims, where an ensemble with batches may use it.
    flat = ECHO_CONFIG.replace("max_batch_size: 8", "max_batch_size: 0").replace("[ 4 ]", "[ -1, 4 ]")
    return {
        "flat/config.pbtxt": flat,
        "flat/1/model.py": ECHO,
        "inside/config.pbtxt": chain % (8, "4", "4", "flat", "IN", "OUT"),
        "inside/1/.keep": "",
        "outside/config.pbtxt": chain % (4, "4", "4", "inside", "X", "Y"),
        "outside/1/.keep": "",
    }


GOOD = (
    Good("detection", "ensemble of Python and ONNX, dynamic batching, instances", _detection, expected("detect")),
    Good("ragged", "ragged batches with a batch input", _ragged, expected("lengths")),
    Good("sequence", "sequence batching with controls, implicit state from a file", _sequence, expected("sum")),
    Good("decoupled", "decoupled: several responses to a request", _decoupled, expected("repeat")),
    Good("bls", "a Python model that calls another (BLS)", _bls, expected("outer")),
    Good("optional", "optional inputs, left out by an ensemble", _optional, expected("plain")),
    Good("cache", "response cache", _cache, expected("slow", response_cache=True)),
    Good("versions", "version policies, a pinned version", _versions, expected("pinned")),
    Good("instances", "explicit instance groups, rate limiter", _instances, expected("many")),
    Good("warmup", "warm-up from files, zeros and noise; labels", _warmup, expected("words")),
    Good("completed", "configuration completed by model.py", _completed, expected("short")),
    Good("queues", "priorities, queue policy, reshape, format", _queues, expected("queue")),
    Good("nested", "ensemble in an ensemble, a step without batches", _nested, expected("outside")),
)
BY_NAME = {good.name: good for good in GOOD}
