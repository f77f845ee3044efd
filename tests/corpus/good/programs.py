"""Models whose model.py uses more features of the python backend."""

from __future__ import annotations

from corpus.good.repository import ECHO, ECHO_CONFIG, HEAD, Files


def decoupled() -> Files:
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


def bls() -> Files:
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


def completed() -> Files:
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
