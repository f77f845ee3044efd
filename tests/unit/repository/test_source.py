"""model.py: what must not be called a fault, and what is."""

from __future__ import annotations

import pytest

from support.mutations import edit, write
from unit.repository.gen import PRE, brief, findings, good

HEAD = "import triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n"
BACK = "    def execute(self, requests):\n        return [self.f(r) for r in requests]\n"


def said(root, source, *changes):
    return brief(findings(good(root, write("pre/1/model.py", source), *changes)))


FINE = {
    "names that are computed": HEAD + BACK + """
    def f(self, r):
        pb_utils.get_input_tensor_by_name(r, self.name)
        return pb_utils.Tensor(self.out, 1)
""",
    "names in constants": "IMAGE = 'IMAGE'\n" + HEAD + BACK + """
    def f(self, r):
        return pb_utils.get_input_tensor_by_name(r, IMAGE)
""",
    "tensors of another library": "import torch\n" + HEAD + BACK + """
    def f(self, r):
        return torch.Tensor("x")
""",
    "tensors for another model": HEAD + BACK + """
    def f(self, r):
        return pb_utils.InferenceRequest(model_name="m", inputs=[pb_utils.Tensor("theirs", 1)]).exec()
""",
    "tensors made elsewhere": "import helper\n" + HEAD + BACK + """
    def f(self, r):
        return pb_utils.Tensor("TENSOR", 1), helper.scale(r)
""",
    "from_dlpack": HEAD + BACK + """
    def f(self, r):
        return pb_utils.Tensor.from_dlpack("TENSOR", r), pb_utils.Tensor.from_dlpack("SCALE", r)
""",
    "defaults": HEAD + """
    def initialize(self, args, more=None): ...
    def execute(self, *requests): return list(requests)
    def finalize(self, *_): ...
""",
    "decorated": HEAD + """
    @traced
    def execute(self): return []
""",
    "not implemented": HEAD + """
    def execute(self, requests):
        raise NotImplementedError
""",
    "responses sent": HEAD + """
    def execute(self, requests):
        for request in requests:
            request.get_response_sender().send(None)
""",
    "a generator": HEAD + """
    def execute(self, requests):
        yield from requests
""",
    "class method": HEAD + BACK + """
    @classmethod
    def auto_complete_config(cls, config):
        return config
""",
    "utils by another name": "import triton_python_backend_utils as utils\n" + HEAD.split("\n\n\n")[1] + BACK + """
    def f(self, r):
        return utils.get_input_tensor_by_name(r, "IMAGE").as_numpy()
""",
    "utils as an argument": "class TritonPythonModel:\n" + BACK + """
    def f(self, r, pb_utils=None):
        return pb_utils
""",
}  # fmt: skip


@pytest.mark.parametrize("source", FINE.values(), ids=FINE)
def test_fine(tmp_path, source):
    helper = write("pre/1/helper.py", "")
    assert said(tmp_path, source, helper) == []


def test_input_that_may_be_absent_is_a_warning(tmp_path):
    source = HEAD + BACK + '\n    def f(self, r):\n        return pb_utils.get_input_tensor_by_name(r, "MORE")\n'
    assert said(tmp_path, source) == ["warning TR305 pre/1/model.py:9:53"]
    used = source.replace('"MORE")', '"MORE").as_numpy()')
    assert said(tmp_path / "b", used) == ["error TR305 pre/1/model.py:9:53"]


def test_name_in_a_constant_is_judged(tmp_path):
    source = "NAME = 'IMGE'\n" + HEAD + BACK + "\n    def f(self, r):\n        "
    source += "return pb_utils.get_input_tensor_by_name(r, NAME).as_numpy()\n"
    (finding,) = findings(good(tmp_path, write("pre/1/model.py", source)))
    assert (finding.code, finding.line, finding.remedy) == ("TR305", 10, "did you mean 'IMAGE'?")


def test_syntax_of_a_newer_python(tmp_path):
    source = (
        HEAD
        + BACK
        + "\n    def f(self, r):\n        try:\n            pass\n        except* ValueError:\n            pass\n"
    )
    root = good(tmp_path, write("pre/1/model.py", source))
    assert brief(findings(root, server=(2, 51)))[0].startswith("warning TR311 pre/1/model.py:")
    assert brief(findings(root, server=(2, 52))) == brief(findings(root)) == []


def test_controls_of_sequences_are_inputs(tmp_path):
    control = """
sequence_batching { control_input [ { name: "START"
  control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }
"""
    source = (
        HEAD + BACK + '\n    def f(self, r):\n        return pb_utils.get_input_tensor_by_name(r, "START").as_numpy()\n'
    )
    assert said(tmp_path, source, write("pre/config.pbtxt", PRE + control)) == []


def test_response_of_none_for_decoupled(tmp_path):
    decoupled = write("pre/config.pbtxt", PRE + "model_transaction_policy { decoupled: true }\n")
    source = HEAD + "    def execute(self, requests):\n        {}\n"
    assert said(tmp_path / "a", source.format("return None"), decoupled) == []
    assert said(tmp_path / "b", source.format("return requests"), decoupled) == ["error TR309 pre/1/model.py:6:9"]


def test_batch_that_is_fixed(tmp_path):
    """A network with the batch among its dims goes with max_batch_size 0."""
    root = good(
        tmp_path,
        edit("net/config.pbtxt", "max_batch_size: 8", "max_batch_size: 0"),
        edit("net/config.pbtxt", "[ 3, 64, 64 ]", "[ -1, 3, 64, 64 ]"),
        edit("net/config.pbtxt", "[ 100, 6 ]", "[ 1, 100, 6 ]"),
        edit("net/config.pbtxt", "dynamic_batching { preferred_batch_size: [ 4, 8 ] }\n", ""),
    )
    assert brief(findings(root)) == []
