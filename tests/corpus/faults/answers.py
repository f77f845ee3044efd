"""Programs with wrong answers, and settings that a backend refuses."""

from __future__ import annotations

from pathlib import Path

from corpus.faults.core import then
from corpus.faults.fault import Fault
from corpus.good.repository import HEAD
from support.mutations import add, edit, write

SLOW, SLOW_PY = "slow/config.pbtxt", "slow/1/model.py"


def _returns(value: str) -> str:
    return f"{HEAD}    def execute(self, requests):\n        return {value}\n"


def _folder(root: Path) -> None:
    (root / SLOW_PY).rename(root / "slow/1/old.py")
    (root / SLOW_PY).mkdir()


SENT = (
    HEAD
    + """\
    def execute(self, requests):
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            answer = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given)])
            request.get_response_sender().send(answer)
"""
)
TENSORS = '[pb_utils.Tensor("OUT", np.zeros((1, 4), np.float32)) for _ in requests]'

FAULTS = (
    Fault("no responses beside a module of constants", "cache", then(
        write("slow/1/helper.py", "SCALE = 2\n"),
        edit(SLOW_PY, "import numpy as np", "import numpy as np\nfrom helper import SCALE"),
        edit(SLOW_PY, "return responses", "del responses")), "TR309", "error", f"{SLOW_PY}:7"),
    Fault("return inside a loop over numbered requests", "cache", then(
        edit(SLOW_PY, "for request in requests", "for i, request in enumerate(requests)"),
        edit(SLOW_PY, "        return responses", "            return responses"),
        add(SLOW, "dynamic_batching { }\n")), "TR312", "warning", f"{SLOW_PY}:11"),
    Fault("an empty list of responses", "cache", write(SLOW_PY, _returns("[]")), "TR312", "error", f"{SLOW_PY}:7"),
    Fault("texts for responses", "cache", write(SLOW_PY, _returns('["" for _ in requests]')), "TR309", "error",
          f"{SLOW_PY}:7"),
    Fault("tensors for responses", "cache", write(SLOW_PY, _returns(TENSORS)), "TR309", "error", f"{SLOW_PY}:7"),
    Fault("no last response of a model that sends one", "cache", write(SLOW_PY, SENT), "TR316", "warning",
          f"{SLOW_PY}:10"),
    Fault("constructor with an argument", "cache",
          edit(SLOW_PY, "    def execute", "    def __init__(self, args):\n        pass\n\n    def execute"),
          "TR304", "error", f"{SLOW_PY}:6"),
    Fault("pb_utils misspelt inside", "cache", edit(SLOW_PY, "pb_utils.InferenceResponse", "pb_utils.InferResponse"),
          "TR313", "warning", f"{SLOW_PY}:10"),
    Fault("input misspelt after a helper", "cache", edit(SLOW_PY, '"IN"', '"INN"'), "TR305", "error", f"{SLOW_PY}:9"),
    Fault("directory for a model.py", "cache", _folder, "TR204", "error", "slow/1"),
    Fault("backend for a platform", "cache", edit(SLOW, 'backend: "python"', 'platform: "python"'), "TR106", "error",
          f"{SLOW}:1"),
    Fault("parameter of the python backend", "cache",
          add(SLOW, 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "true" } }\n'),
          "TR126", "error", f"{SLOW}:11"),
    Fault("batches for a step that takes none", "versions", edit("two/config.pbtxt", "max_batch_size: 8\n", ""),
          "TR416", "warning", "pinned/config.pbtxt:16"),
)  # fmt: skip
