"""Models with batching, sequences and queues."""

from __future__ import annotations

from corpus.good.repository import ECHO, HEAD, Files


def ragged() -> Files:
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


def sequence() -> Files:
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
  direct { minimum_slot_utilization: 0.5 max_queue_delay_microseconds: 100 } max_sequence_idle_microseconds: 5000000
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


def queues() -> Files:
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
