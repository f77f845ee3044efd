"""Faults in model.py that the server reports when it loads the model, or at a request."""

from __future__ import annotations

from corpus.faults.core import SLOW, SLOW_PY, then
from corpus.faults.fault import Fault
from corpus.good.repository import HEAD
from support.mutations import add, edit, write

REPEAT_PY = "repeat/1/model.py"
GIVEN = 'pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()'
ANSWER = f'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", {GIVEN})])'
MADE = f"[{ANSWER} for request in requests]"


def execute(body: str) -> str:
    return f"{HEAD}    def execute(self, requests):\n{body}"


RETURNS = (
    Fault(
        "responses in a tuple",
        "cache",
        write(SLOW_PY, execute(f"        return tuple({MADE})\n")),
        "TR309",
        "error",
        "slow/1/model.py:7",
    ),
    Fault(
        "responses in a dict",
        "cache",
        write(
            SLOW_PY,
            execute(
                f"        made = {{}}\n        for request in requests:\n            made[request] = {ANSWER}\n"
                "        return made\n"
            ),
        ),
        "TR309",
        "error",
        "slow/1/model.py:10",
    ),
    Fault(
        "single response without a list",
        "cache",
        write(
            SLOW_PY,
            execute(
                f"        for request in requests:\n            made = {ANSWER}\n"
                "        return pb_utils.InferenceResponse(made.output_tensors())\n"
            ),
        ),
        "TR309",
        "error",
        "slow/1/model.py:9",
    ),
    Fault(
        "responses from a generator",
        "cache",
        write(SLOW_PY, execute(f"        for request in requests:\n            yield {ANSWER}\n")),
        "TR309",
        "error",
        "slow/1/model.py:6",
    ),
    Fault(
        "return inside the loop over requests",
        "cache",
        then(
            write(SLOW_PY, execute(f"        for request in requests:\n            return [{ANSWER}]\n")),
            add(SLOW, "dynamic_batching { }\n"),
        ),
        "TR312",
        "warning",
        "slow/1/model.py:8",
    ),
    Fault(
        "missing final response",
        "decoupled",
        edit(REPEAT_PY, "            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)\n", ""),
        "TR316",
        "warning",
        "repeat/1/model.py:8",
    ),
)
NAMES = (
    Fault(
        "undefined name",
        "cache",
        edit(SLOW_PY, '.Tensor("OUT", given)', '.Tensor("OUT", givn)'),
        "TR313",
        "warning",
        "slow/1/model.py:10",
    ),
    Fault(
        "missing import at module level",
        "cache",
        edit(SLOW_PY, "import numpy as np", "SIZE = np.int32(1)"),
        "TR313",
        "error",
        "slow/1/model.py:1",
    ),
    Fault(
        "BLS request to a missing model",
        "bls",
        edit("outer/1/model.py", 'model_name="inner"', 'model_name="iner"'),
        "TR314",
        "warning",
        "outer/1/model.py:11",
    ),
    Fault(
        "execute missing in all base classes",
        "cache",
        edit(
            SLOW_PY,
            "class TritonPythonModel:\n    def execute",
            "class Base:\n    pass\n\n\nclass TritonPythonModel(Base):\n    def run",
        ),
        "TR303",
        "error",
        "slow/1/model.py:9",
    ),
)

FAULTS = (*RETURNS, *NAMES)
