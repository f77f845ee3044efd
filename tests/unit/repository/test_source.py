"""Checks of model.py: accepts valid sources, and finds faults."""

from __future__ import annotations

import sys

import pytest

from support.mutations import edit, write
from unit.repository.gen import PRE, brief, findings, good

HEAD = "import triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n"
BACK = "    def execute(self, requests):\n        return [self.f(r) for r in requests]\n"


def findings_of(root, source, *changes):
    return brief(findings(good(root, write("pre/1/model.py", source), *changes)))


FINE = {
    "names that are computed": HEAD + BACK + """
    def f(self, r):
        pb_utils.get_input_tensor_by_name(r, self.name)
        return pb_utils.Tensor(self.out, r)
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
        made = [pb_utils.Tensor("theirs", r)]
        return pb_utils.InferenceRequest(model_name="net", requested_output_names=["boxes"], inputs=made).exec()
""",
    "tensors made elsewhere": "import helper\n" + HEAD + BACK + """
    def f(self, r):
        return pb_utils.Tensor("TENSOR", r), helper.scale(r)
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
    import traced
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
            request.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
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
    "requests in a list": "import helper\n" + HEAD + """
    def execute(self, requests):
        batch = list(requests)
        helper.answer(batch)
""",
    "requests by their iterator": "import helper\n" + HEAD + """
    def execute(self, requests):
        rest = iter(requests)
        helper.answer(next(rest))
""",
    "requests that are taken": "import helper\n" + HEAD + """
    def execute(self, requests):
        while requests:
            request = requests.pop()
            helper.answer(request)
""",
    "requests in an attribute": "import helper\n" + HEAD + """
    def execute(self, requests):
        self.requests = requests
        helper.answer(self)
""",
    "requests by a method": "import helper\n" + HEAD + """
    def execute(self, requests):
        self.f(requests)
    def f(self, batch):
        helper.answer(batch)
""",
    "utils as an argument": "class TritonPythonModel:\n" + BACK + """
    def f(self, r, pb_utils=None):
        return pb_utils
""",
}  # fmt: skip


@pytest.mark.parametrize("source", FINE.values(), ids=FINE)
def test_accepts_valid_sources(tmp_path, source):
    assert findings_of(tmp_path / "a", source, write("pre/1/helper.py", "")) == []
    assert findings_of(tmp_path / "b", source, write("pre/helper.py", "")) == []


def test_warns_about_an_undeclared_input_whose_result_may_be_none(tmp_path):
    source = HEAD + BACK + '\n    def f(self, r):\n        return pb_utils.get_input_tensor_by_name(r, "MORE")\n'
    assert findings_of(tmp_path, source) == ["warning TR305 pre/1/model.py:9:53"]
    used = source.replace('"MORE")', '"MORE").as_numpy()')
    assert findings_of(tmp_path / "b", used) == ["warning TR305 pre/1/model.py:9:53"]


@pytest.mark.parametrize(
    ("before", "level"),
    [
        ("", "error"),
        ("if self.f(request): continue", "warning"),
        ("if self.f(request): request = 1", "error"),
        ("try: self.f(request)\n            except ValueError: return []", "warning"),
    ],
)
def test_reading_an_undeclared_input_is_an_error_where_each_request_reaches_it(tmp_path, before, level):
    source = HEAD + "    def execute(self, requests):\n        answers = []\n        for request in requests:\n"
    source += f"            {before}\n" if before else ""
    source += '            x = pb_utils.get_input_tensor_by_name(request, "MORE").as_numpy()\n'
    source += "            answers.append(pb_utils.InferenceResponse([self.f(x)]))\n        return answers\n"
    source += '\n    def f(self, x):\n        return pb_utils.Tensor("TENSOR", x), pb_utils.Tensor("SCALE", x)\n'
    assert [line.partition(" pre/")[0] for line in findings_of(tmp_path, source)] == [f"{level} TR305"]


def test_checks_names_in_constants(tmp_path):
    source = "NAME = 'IMGE'\n" + HEAD + BACK + "\n    def f(self, r):\n        "
    source += "return pb_utils.get_input_tensor_by_name(r, NAME).as_numpy()\n"
    (finding,) = findings(good(tmp_path, write("pre/1/model.py", source)))
    assert (finding.code, finding.line, finding.remedy) == ("TR305", 10, "did you mean 'IMAGE'?")


def test_warns_about_syntax_that_is_newer_than_the_servers_python(tmp_path):
    source = (
        HEAD
        + BACK
        + "\n    def f(self, r):\n        try:\n            pass\n        except* ValueError:\n            pass\n"
    )
    root = good(tmp_path, write("pre/1/model.py", source))
    assert brief(findings(root, server=(2, 51)))[0].startswith("warning TR311 pre/1/model.py:")
    assert brief(findings(root, server=(2, 52))) == brief(findings(root)) == []


@pytest.mark.parametrize("line", ['f"{self.names["a"]}"', "t'{x}'"])
def test_warns_about_syntax_that_only_a_newer_server_may_accept(tmp_path, line):
    source = HEAD + BACK + f"\n    def f(self, r):\n        return {line} {'' if sys.version_info < (3, 12) else '?'}\n"
    assert findings_of(tmp_path / "a", source)[0].startswith("warning TR301 pre/1/model.py:9")
    # The server's Python is older than the one that runs the test.
    root = good(tmp_path / "b", write("pre/1/model.py", source))
    assert brief(findings(root, server=(2, 51)))[0].startswith("error TR301 pre/1/model.py:9")


def test_accepts_sequence_controls_as_inputs(tmp_path):
    control = """
sequence_batching { max_sequence_idle_microseconds: 5000000 control_input [ { name: "START"
  control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }
"""
    source = (
        HEAD + BACK + '\n    def f(self, r):\n        return pb_utils.get_input_tensor_by_name(r, "START").as_numpy()\n'
    )
    assert findings_of(tmp_path, source, write("pre/config.pbtxt", PRE + control)) == []


def test_decoupled_model_must_return_none(tmp_path):
    decoupled = write("pre/config.pbtxt", PRE + "model_transaction_policy { decoupled: true }\n")
    source = HEAD + "    def execute(self, requests):\n        {}\n"
    assert findings_of(tmp_path / "a", source.format("return None"), decoupled) == []
    assert findings_of(tmp_path / "b", source.format("return requests"), decoupled) == [
        "error TR309 pre/1/model.py:6:9"
    ]


DECOUPLED = write("pre/config.pbtxt", PRE + "model_transaction_policy { decoupled: true }\n")
BATCHED = write("pre/config.pbtxt", PRE + "dynamic_batching { }\n")
RESPONSES = {
    "a helper takes the sender": """
    def execute(self, requests):
        for request in requests:
            self.answer(request)
    def answer(self, request):
        request.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
    "a helper returns the responses": """
    def execute(self, requests):
        return self.answers(requests)
    def answers(self, requests):
        return [None for _ in requests]
""",
    "a task answers": """
    def execute(self, requests):
        for request in requests:
            coroutine = self.answer(request)
            self.loop.create_task(coroutine)
        return None
    async def answer(self, request):
        sender = request.get_response_sender()
""",
    "a list in a variable": """
    def execute(self, requests):
        responses: list = []
        for request in requests:
            responses.append(request)
        return responses
""",
    "a coroutine": """
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]
""",
    "an early return": """
    def execute(self, requests):
        if not self.ready:
            return [None] * len(requests)
        return self.answers(requests)
""",
}
SENT = {
    "an early return": """
    def execute(self, requests):
        if not self.ready:
            return
        for request in requests:
            request.get_response_sender().send(None, flags=1)
        return None
""",
    "both ways": """
    def execute(self, requests):
        responses = []
        if self.config["decoupled"]:
            return None
        return responses
""",
    "a helper's result": """
    def execute(self, requests):
        return self._stream(requests)
    def _stream(self, requests):
        for request in requests:
            request.get_response_sender().send(None, flags=1)
""",
    "the result of a function from elsewhere": """
    def execute(self, requests):
        from vendor import stream
        return stream(requests)
""",
}
REFUSED = {
    "nothing": "    def execute(self, requests):\n        pass\n",
    "a tuple": "    def execute(self, requests):\n        return tuple(requests)\n",
    "a tuple of two": "    def execute(self, requests):\n        return 1, 2\n",
    "a dict": "    def execute(self, requests):\n        out = {}\n        return out\n",
    "a response": "    def execute(self, requests):\n        return pb_utils.InferenceResponse([])\n",
    "a generator expression": "    def execute(self, requests):\n        return (r for r in requests)\n",
    "a generator": "    def execute(self, requests):\n        for r in requests:\n            yield r\n",
}


@pytest.mark.parametrize("source", RESPONSES.values(), ids=RESPONSES)
def test_accepts_responses(tmp_path, source):
    assert findings_of(tmp_path / "a", HEAD + source) == []
    assert findings_of(tmp_path / "b", HEAD + source, BATCHED) == []


@pytest.mark.parametrize("source", SENT.values(), ids=SENT)
def test_accepts_returns_of_decoupled_models(tmp_path, source):
    assert findings_of(tmp_path, HEAD + source, DECOUPLED) == []


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_rejects_values_that_are_not_a_list_of_responses(tmp_path, source):
    (finding,) = findings_of(tmp_path, HEAD + source)
    assert finding.startswith("error TR309 pre/1/model.py:")


@pytest.mark.parametrize(
    "body",
    [
        "vendor.answer(requests)",
        "def work(): vendor.answer(requests)\n\n        vendor.run(work)",
        "batch = list(requests); self.worker.submit(batch)",
        "self.worker.pending += requests",
        "self.answer(requests)",
        "for request in requests: self.answer(request)",
    ],
)
def test_warns_if_a_function_of_another_module_may_send_the_responses(tmp_path, body):
    source = "import vendor\n" + HEAD + f"    def execute(self, requests):\n        {body}\n"
    assert findings_of(tmp_path / "a", source) == ["warning TR309 pre/1/model.py:6:5"]
    assert findings_of(tmp_path / "b", source + "        return []\n") == []
    (decoupled,) = findings_of(tmp_path / "c", source + "        return []\n", DECOUPLED)
    assert decoupled.startswith("note TR309")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("        for request in requests:\n            responses = [request]\n            return responses\n", 8),
        ("        return [pb_utils.InferenceResponse([])]\n", 6),
    ],
)
def test_warns_about_one_response_for_a_whole_batch(tmp_path, body, line):
    source = HEAD + "    def execute(self, requests):\n" + body
    assert [f.rpartition(":")[0] for f in findings_of(tmp_path / "a", source, BATCHED)] == [
        f"warning TR312 pre/1/model.py:{line}"
    ]
    # Without a batching scheduler, execute gets one request at a time.
    assert findings_of(tmp_path / "b", source) == []


NAMES = {
    "in a comprehension": "[n for n in requests]",
    "in a lambda": "(lambda x: x)(1)",
    "an exception": "1\n        try: pass\n        except ValueError as e: print(e)",
    "a match": "1\n        match requests:\n            case [a, *b]: print(a, b)\n            case {**c}: print(c)",
    "global": "1\n        global late\n        late = 1",
    "of the module": "__file__, __name__, __class__, LATER",
    "unseen": "1\n        exec('x = 1')\n        print(x)",
    "walrus": "(y := 1) + y",
    "tried": "1\n        try: unicode\n        except NameError: pass",
}


@pytest.mark.parametrize("value", NAMES.values(), ids=NAMES)
def test_accepts_each_way_to_bind_a_name(tmp_path, value):
    source = (
        HEAD + BACK + f"\n    def f(self, requests):\n        value = {value}\n        return value\n\n\nLATER = 1\n"
    )
    assert findings_of(tmp_path, source) == []


def test_notes_an_extra_tensor_if_all_outputs_are_created(tmp_path):
    source = (
        HEAD
        + BACK
        + """
    def f(self, r):
        return [pb_utils.Tensor("TENSOR", r), pb_utils.Tensor("SCALE", r), pb_utils.Tensor("EXTRA", r)]
"""
    )
    assert findings_of(tmp_path, source) == ["note TR306 pre/1/model.py:9:92"]


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + HEAD.encode() + BACK.encode(),
        b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + HEAD.encode() + BACK.encode(),
    ],
    ids=["a byte order mark", "latin-1"],
)
def test_reads_the_declared_encoding(tmp_path, content):
    assert findings_of(tmp_path, content) == []


@pytest.mark.parametrize("content", [b"# caf\xe9\n", b"# -*- coding: nonesuch -*-\n"])
def test_rejects_invalid_encodings(tmp_path, content):
    assert findings_of(tmp_path, content + HEAD.encode() + BACK.encode()) == ["error TR301 pre/1/model.py:1"]


def test_accepts_max_batch_size_0_with_the_batch_in_dims(tmp_path):
    """An ONNX model with a batch dimension is valid with max_batch_size 0."""
    root = good(
        tmp_path,
        edit("net/config.pbtxt", "max_batch_size: 8", "max_batch_size: 0"),
        edit("net/config.pbtxt", "[ 3, 64, 64 ]", "[ -1, 3, 64, 64 ]"),
        edit("net/config.pbtxt", "[ 100, 6 ]", "[ -1, 100, 6 ]"),
        edit("net/config.pbtxt", "dynamic_batching { preferred_batch_size: [ 4, 8 ] }\n", ""),
    )
    assert brief(findings(root)) == []
