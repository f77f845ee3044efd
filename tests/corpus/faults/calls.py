"""Calls in model.py whose arguments prove that each request fails, and arrays of a wrong type."""

from __future__ import annotations

from pathlib import Path

from corpus.faults.core import then
from corpus.faults.fault import Fault
from corpus.good.repository import HEAD
from support.mutations import Change, add, edit, write

SLOW, SLOW_PY = "slow/config.pbtxt", "slow/1/model.py"
OUTER_PY = "outer/1/model.py"
OUT = 'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given)])'


def answers(expression: str, before: str = "pass") -> Change:
    """Writes a model.py that appends `expression` in line 11."""
    return write(
        SLOW_PY,
        f"""{HEAD}\
    def execute(self, requests):
        responses = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            {before}
            responses.append({expression})
        return responses
""",
    )


def wrong(name: str, change: Change, line: int = 11) -> Fault:
    return Fault(name, "cache", change, "TR318", "error", f"{SLOW_PY}:{line}")


def tensor(value: str) -> Change:
    return answers(f'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", {value})])')


INITIALIZE = """\
    def initialize(self, args):
        config = __import__("json").loads(args["model_config"])
        self.kind = pb_utils.get_output_config_by_name(config, "OUTPUT")["data_type"]

"""
UNCALLED = 'given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy'
STRINGS = edit(SLOW, '"OUT" data_type: TYPE_FP32 dims: [ 4 ]', '"OUT" data_type: TYPE_STRING dims: [ 1 ]')
FAULTS = (
    wrong("text for an error", answers('pb_utils.InferenceResponse(error="negative")')),
    wrong(
        "exception for the message of an error",
        answers('pb_utils.InferenceResponse([], pb_utils.TritonError(ValueError("negative")))'),
    ),
    wrong(
        "number for the code of an error", answers('pb_utils.InferenceResponse([], pb_utils.TritonError("no", 400))')
    ),
    wrong("tensor without a list", answers('pb_utils.InferenceResponse(pb_utils.Tensor("OUT", given))')),
    wrong("names for tensors", answers('pb_utils.InferenceResponse(["OUT"])')),
    wrong("tensor without a value", answers('pb_utils.InferenceResponse([pb_utils.Tensor("OUT")])')),
    wrong("tensor with its arguments swapped", answers('pb_utils.InferenceResponse([pb_utils.Tensor(given, "OUT")])')),
    wrong(
        "tensor with named arguments", answers('pb_utils.InferenceResponse([pb_utils.Tensor(name="OUT", data=given)])')
    ),
    wrong("list for an array", tensor("[[1.0, 2.0, 3.0, 4.0]]")),
    wrong(
        "all requests for one", answers(OUT, 'given = pb_utils.get_input_tensor_by_name(requests, "IN").as_numpy()'), 10
    ),
    wrong(
        "request and name swapped",
        answers(OUT, 'given = pb_utils.get_input_tensor_by_name("IN", request).as_numpy()'),
        10,
    ),
    wrong("log message with a level", answers(OUT, 'pb_utils.Logger.log_info("got", "it")'), 10),
    Fault(
        "number for a request's id",
        "bls",
        edit(OUTER_PY, 'model_name="inner",', 'model_name="inner", request_id=1,'),
        "TR318",
        "error",
        f"{OUTER_PY}:10",
    ),
    Fault(
        "text for the names of outputs", "bls", edit(OUTER_PY, '["OUT"]', '"OUT"'), "TR318", "error", f"{OUTER_PY}:10"
    ),
    Fault(
        "request without the names of outputs",
        "bls",
        edit(OUTER_PY, 'requested_output_names=["OUT"],', ""),
        "TR318",
        "error",
        f"{OUTER_PY}:10",
    ),
    Fault(
        "await of a call without async",
        "bls",
        then(edit(OUTER_PY, "call.exec()", "await call.exec()"), edit(OUTER_PY, "    def exec", "    async def exec")),
        "TR318",
        "error",
        f"{OUTER_PY}:15",
    ),
    Fault(
        "asynchronous call in a function",
        "bls",
        edit(OUTER_PY, "call.exec()", "call.async_exec()"),
        "TR318",
        "error",
        f"{OUTER_PY}:15",
    ),
    Fault(
        "output that the called model lacks",
        "bls",
        edit(OUTER_PY, 'names=["OUT"]', 'names=["SCORES"]'),
        "TR320",
        "error",
        f"{OUTER_PY}:12",
    ),
    Fault(
        "input that the called model lacks",
        "bls",
        edit(OUTER_PY, 'Tensor("IN"', 'Tensor("INPUT"'),
        "TR320",
        "error",
        f"{OUTER_PY}:13",
    ),
    Fault(
        "input missing in a call",
        "bls",
        edit(OUTER_PY, '[pb_utils.Tensor("IN", given)]', "[]"),
        "TR320",
        "error",
        f"{OUTER_PY}:10",
    ),
    Fault(
        "model that calls itself",
        "bls",
        then(
            edit(OUTER_PY, 'model_name="inner"', 'model_name="outer"'),
            edit(OUTER_PY, '["OUT"]', '["ANSWER"]'),
            edit(OUTER_PY, 'Tensor("IN"', 'Tensor("QUESTION"'),
        ),
        "TR321",
        "error",
        f"{OUTER_PY}:10",
    ),
    Fault(
        "version of a called model that isn't there",
        "bls",
        edit(OUTER_PY, 'model_name="inner",', 'model_name="inner", model_version=3,'),
        "TR330",
        "error",
        f"{OUTER_PY}:11",
    ),
    Fault(
        "called model that isn't loaded",
        "bls",
        Path.is_dir,
        "TR330",
        "warning",
        f"{OUTER_PY}:11",
        {"load_models": ("outer",)},
    ),
    Fault(
        "warm-up of a model that calls another",
        "bls",
        add(
            "outer/config.pbtxt",
            'model_warmup [ { name: "zeros" batch_size: 1 inputs { key: "QUESTION" value '
            "{ data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } } ]\n",
        ),
        "TR329",
        "error",
        f"{OUTER_PY}:11",
    ),
    Fault(
        "call of a decoupled model",
        "bls",
        then(
            add("inner/config.pbtxt", "model_transaction_policy { decoupled: true }\n"),
            write(
                "inner/1/model.py",
                f"""{HEAD}\
    def execute(self, requests):
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            sender = request.get_response_sender()
            sender.send({OUT}, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
            ),
        ),
        "TR331",
        "error",
        f"{OUTER_PY}:15",
    ),
    Fault("array without a call", "cache", answers(OUT, UNCALLED), "TR328", "warning", f"{SLOW_PY}:10"),
    Fault(
        "condition without a call",
        "bls",
        edit(OUTER_PY, "answer.has_error()", "answer.has_error"),
        "TR328",
        "warning",
        f"{OUTER_PY}:16",
    ),
    Fault(
        "level that the logger lacks",
        "cache",
        answers(OUT, 'pb_utils.Logger.log("got it", pb_utils.Logger.WARN)'),
        "TR313",
        "warning",
        f"{SLOW_PY}:10",
    ),
    Fault(
        "configuration of an output that isn't declared",
        "cache",
        then(answers(OUT), edit(SLOW_PY, "    def execute", f"{INITIALIZE}    def execute")),
        "TR327",
        "error",
        f"{SLOW_PY}:8",
    ),
    Fault(
        "only the first requests of a batch",
        "cache",
        then(
            answers(OUT),
            edit(SLOW_PY, "for request in requests:", "for request in requests[:1]:"),
            add(SLOW, "dynamic_batching { }\n"),
        ),
        "TR312",
        "warning",
        f"{SLOW_PY}:8",
    ),
    Fault("float64 for FP32", "cache", tensor("given.astype(np.float64) * 2"), "TR319", "warning", f"{SLOW_PY}:11"),
    Fault("numpy's default type of zeros", "cache", tensor("np.zeros((1, 4))"), "TR319", "warning", f"{SLOW_PY}:11"),
    Fault(
        "numpy's type of whole numbers",
        "cache",
        then(
            edit(SLOW, '"OUT" data_type: TYPE_FP32 dims: [ 4 ]', '"OUT" data_type: TYPE_INT32 dims: [ 1 ]'),
            tensor("np.array([[len(row)] for row in given])"),
        ),
        "TR319",
        "warning",
        f"{SLOW_PY}:11",
    ),
    Fault(
        "array of Python strings",
        "cache",
        then(STRINGS, tensor('np.array([["star"]] * len(given))')),
        "TR319",
        "error",
        f"{SLOW_PY}:11",
    ),
)
