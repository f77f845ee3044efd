"""Calls in model.py that are legal, or whose outcome the source doesn't prove."""

from __future__ import annotations

import pytest

from corpus.good import BY_NAME
from corpus.good.repository import ECHO_CONFIG, HEAD
from support.mutations import Change, add, edit, write
from triton_repository_check.server_flags import ServerFlags
from unit.repository.gen import brief, findings

HEADED = HEAD + "    def execute(self, requests):\n        responses = []\n        for request in requests:\n"
READ = '            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()\n'


def program(expression: str, before: str = "") -> str:
    return f"{HEADED}{READ}{before}            responses.append({expression})\n        return responses\n"


def out(value: str) -> str:
    return program(f'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", {value})])')


def slow(tmp_path, *changes: Change):
    root = BY_NAME["cache"].write(tmp_path)
    for change in changes:
        change(root)
    return [line for line in brief(findings(root, flags=ServerFlags(response_cache=True))) if "slow/" in line]


LEGAL = {
    "an error": program('pb_utils.InferenceResponse(error=pb_utils.TritonError("x", pb_utils.TritonError.NOT_FOUND))'),
    "an error without tensors": program('pb_utils.InferenceResponse([], pb_utils.TritonError(message=f"{given}"))'),
    "a message that is computed": program("pb_utils.InferenceResponse(error=pb_utils.TritonError(self.why(given)))"),
    "a list of tensors in a variable": program(
        "pb_utils.InferenceResponse(tensors)", '            tensors = [pb_utils.Tensor("OUT", given)]\n'
    ),
    "parameters of a response": program("pb_utils.InferenceResponse([], parameters={})"),
    "arguments in a dict": program("pb_utils.InferenceResponse(**self.made(given))"),
    "tensor of dlpack": program('pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", given)])'),
    "two bindings": program(
        'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)])',
        "            value = [1.0]\n            if given.any():\n                value = given\n",
    ),
    "float32": out("np.zeros((1, 4), np.float32)"),
    "float32 by name": out('np.zeros((1, 4), dtype="float32")'),
    "converted": out("np.zeros((1, 4)).astype(np.float32)"),
    "type of the input": out("given * np.float64(2)"),
    "computed type": out("np.zeros((1, 4), dtype=given.dtype)"),
    "list of arrays": out("np.array([given])"),
    "an error by another name": program(
        'pb_utils.InferenceResponse(error=Error("x"))', "            Error = pb_utils.TritonError\n"
    ),
    "an error by a function": "def toError(text):\n    return pb_utils.TritonError(text)\n\n\n"
    + program('pb_utils.InferenceResponse(error=toError("x"))'),
    "a tensor by another name": program(
        'pb_utils.InferenceResponse([T("OUT", given), pb_utils.Tensor("X", given)])',
        "            T = pb_utils.Tensor\n",
    ),
    "execute of another class": "class Step:\n    def execute(self, request):\n"
    '        return pb_utils.get_input_tensor_by_name(request, "IN")\n\n\n' + out("given"),
    "a coroutine from another function": out("given").replace("def execute", "async def execute")
    + """
    def ask(self, tensors):
        call = pb_utils.InferenceRequest(model_name=self.name, requested_output_names=["OUT"], inputs=tensors)
        return call.async_exec()
""",
    "an attribute with the name of a method": program(
        'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given)])',
        "            self.is_cancelled = False\n            if self.is_cancelled:\n                continue\n",
    ),
    "a method that a function gets": program(
        'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.run(request.is_cancelled, given))])'
    ),
    "a configuration by a name that is computed": program(
        'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given)])',
        "            pb_utils.get_output_config_by_name(self.config, self.name)\n",
    ),
    "names of 2.71": program(
        'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given)])',
        "            pb_utils.MetricFamily.HISTOGRAM, pb_utils.TritonError.CANCELLED, pb_utils.Logger.VERBOSE\n",
    ),
    "the rest of the requests": out("given")
    .replace("in requests:", "in requests[:1]:")
    .replace("return responses", "return responses + self.rest(requests[1:])"),
    "undeclared output": program(
        'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given), pb_utils.Tensor("X", given)])'
    ),
}


@pytest.mark.parametrize("source", LEGAL.values(), ids=LEGAL)
def test_accepts_legal_calls(tmp_path, source):
    lines = slow(tmp_path, write("slow/1/model.py", source))
    assert [line for line in lines if not line.startswith("note")] == []


WRONG = "pb_utils.InferenceResponse(error=pb_utils.TritonError(ValueError(1)))"


@pytest.mark.parametrize(
    ("body", "severity"),
    [
        (f"responses.append({WRONG})", "error"),
        (f"if given.any():\n                responses.append({WRONG})", "warning"),
        (f"with self.ignoring():\n                responses.append({WRONG})", "warning"),
        (f"with torch.no_grad():\n                responses.append({WRONG})", "error"),
        (f"for _ in self.words:\n                responses.append({WRONG})", "warning"),
        (
            f"try:\n                pass\n            except ValueError:\n                responses.append({WRONG})",
            "warning",
        ),
    ],
)
def test_a_wrong_call_that_is_not_always_reached_is_a_warning(tmp_path, body, severity):
    """The decoupled BLS models of Triton's own tests pass an exception in a branch, and are served."""
    source = f"{HEADED}{READ}            {body}\n        return responses\n"
    (line,) = [line for line in slow(tmp_path, write("slow/1/model.py", source)) if "TR318" in line]
    assert line.startswith(severity)


@pytest.mark.parametrize(
    ("value", "declared", "severity"),
    [
        ("np.ones(4)", "FP32", "warning"),
        ("np.full((1, 4), 1)", "FP32", "warning"),
        ("np.full((1, 4), 1.5)", "INT64", "warning"),
        ("np.argmax(given, axis=1)", "INT32", "warning"),
        ("np.array([1.5, 2])", "FP32", "warning"),
        ("np.array([float(given[0])])", "FP32", "warning"),
        ("np.array([[True]])", "FP32", "warning"),
        ("given.astype(float)", "FP32", "warning"),
        ("given.astype(np.int64).reshape(1, 4)", "INT32", "warning"),
        ('np.asarray(["a"], dtype=np.str_)', "STRING", "error"),
        ('np.array([f"{x}" for x in given])', "STRING", "error"),
        ("np.random.rand(1, 4)", "FP32", "warning"),
    ],
)
def test_finds_arrays_of_another_type(tmp_path, value, declared, severity):
    config = ECHO_CONFIG.replace('"OUT" data_type: TYPE_FP32', f'"OUT" data_type: TYPE_{declared}')
    lines = slow(tmp_path, write("slow/1/model.py", out(value)), write("slow/config.pbtxt", config))
    assert lines == [f"{severity} TR319 slow/1/model.py:10:58"]


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        ("given.astype(d)", "FP32"),  # d = np.float32
        ("np.eye(4, 4, 0, np.float32)", "FP32"),
        ("np.linspace(0, 1, 4, True, False, np.float32)", "FP32"),
        ("np.reshape(np.empty(4), 4, out=np.empty(4, np.float32))", "FP32"),
        ("np.array([18446744073709551615])", "UINT64"),
        ("np.array([n])", "FP64"),
        ("n", "FP64"),
        ("np.array(grown)", "FP64"),
    ],
)
def test_accepts_arrays_of_the_declared_type(tmp_path, value, declared):
    before = """\
            d = np.float32
            n = 0
            def add():
                nonlocal n
                n = 2.5
            grown = [1]
            grown.append(0.5)
"""
    source = program(f'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", {value})])', before)
    config = ECHO_CONFIG.replace('"OUT" data_type: TYPE_FP32', f'"OUT" data_type: TYPE_{declared}')
    lines = slow(tmp_path, write("slow/1/model.py", source), write("slow/config.pbtxt", config))
    assert [line for line in lines if "TR319" in line] == []


@pytest.mark.parametrize(("more", "expected"), [("", 1), ("            made = given\n", 0)])
def test_a_name_stands_for_what_it_is_bound_to_once(tmp_path, more, expected):
    before = f"            rows = np.zeros((4, 1))\n            made = np.squeeze(rows).copy()\n{more}"
    source = program('pb_utils.InferenceResponse([pb_utils.Tensor("OUT", made)])', before)
    assert len([line for line in slow(tmp_path, write("slow/1/model.py", source)) if "TR319" in line]) == expected


def test_proposes_a_type_that_each_numpy_has(tmp_path):
    config = ECHO_CONFIG.replace('"OUT" data_type: TYPE_FP32', '"OUT" data_type: TYPE_BOOL')
    root = BY_NAME["cache"].write(tmp_path)
    (root / "slow/config.pbtxt").write_text(config)
    (root / "slow/1/model.py").write_text(out("np.zeros(4)"))
    [remedy] = [finding.remedy for finding in findings(root) if finding.code == "TR319"]
    assert remedy == "add .astype(np.bool_), or dtype=np.bool_"


def test_a_wrong_type_in_an_ensemble_is_an_error(tmp_path):
    root = BY_NAME["versions"].write(tmp_path)
    models = list(root.glob("*/*/model.py"))
    for path in models:
        path.write_text(path.read_text().replace('"OUT", given)', '"OUT", given.astype(np.float64))'))
    assert any(line.startswith("error TR319 ") for line in brief(findings(root)))


@pytest.mark.parametrize(
    ("imported", "used"),
    [
        ("import triton_python_backend_utils as pb", "pb.Tensor"),
        ("from triton_python_backend_utils import Tensor", "Tensor"),
        ("from triton_python_backend_utils import Tensor as Made", "Made"),
    ],
)
def test_knows_tensors_by_their_imported_name(tmp_path, imported, used):
    source = out("given").replace("pb_utils.Tensor(", f"{used}(").replace('"OUT"', '"OUR"')
    lines = slow(tmp_path, write("slow/1/model.py", f"{imported}\n{source}"))
    assert "warning TR306 slow/1/model.py:11:63" in [line.rsplit(":", 1)[0] + ":63" for line in lines]


@pytest.mark.parametrize("owner", ["self", "TritonPythonModel"])
def test_knows_tensors_by_a_constant_of_the_class(tmp_path, owner):
    source = out("given").replace('"OUT"', f"{owner}.NAME").replace("    def exec", '    NAME = "OUR"\n\n    def exec')
    lines = slow(tmp_path, write("slow/1/model.py", source))
    assert [line.split()[:2] for line in lines if "TR306" in line] == [["warning", "TR306"]]
    source = source.replace("responses = []", f'responses = []\n        {owner}.NAME = "OUT"')
    assert not [line for line in slow(tmp_path / "set", write("slow/1/model.py", source)) if "TR306" in line]


def bls(tmp_path, *changes: Change):
    root = BY_NAME["bls"].write(tmp_path)
    for change in changes:
        change(root)
    return [line for line in brief(findings(root)) if "outer/" in line or "inner/" in line]


@pytest.mark.parametrize(
    "value",
    ["{'a': 1}", "(1, 2)", "None", 'pb_utils.get_input_tensor_by_name(request, "IN")'],
)
def test_finds_values_of_tensors_that_are_no_arrays(tmp_path, value):
    lines = slow(tmp_path, write("slow/1/model.py", out(value)))
    assert lines == ["error TR318 slow/1/model.py:10:58"]


def test_accepts_calls_of_models_that_complete_their_configuration(tmp_path):
    changes = (edit("outer/1/model.py", '["OUT"]', '["ANY"]'), write("inner/config.pbtxt", 'backend: "python"\n'),
               edit("inner/1/model.py", "class Triton", "# auto_complete_config\nclass Triton"))  # fmt: skip
    assert bls(tmp_path, *changes) == []


def test_finds_a_ring_of_models(tmp_path):
    source = (BY_NAME["bls"].write(tmp_path / "x") / "outer/1/model.py").read_text().replace('"inner"', '"outer"')
    lines = bls(tmp_path / "a", write("inner/1/model.py", source))
    assert [line.rpartition(":")[0] for line in lines if "TR321" in line] == [
        "warning TR321 inner/1/model.py:10", "warning TR321 outer/1/model.py:10"]  # fmt: skip


@pytest.mark.parametrize(("version", "rings"), [(1, 0), (2, 1), (-1, 1)])
def test_a_call_of_another_version_is_no_ring(tmp_path, version, rings):
    """Version 2 of a model, the latest, may call version 1."""
    source = (BY_NAME["bls"].write(tmp_path / "x") / "outer/1/model.py").read_text().replace('"inner"', '"outer"')
    lines = bls(
        tmp_path / "y",
        add("outer/config.pbtxt", "version_policy { all { } }\n"),
        write("outer/1/model.py", out("given")),
        write("outer/2/model.py", source.replace('="outer"', f'="outer", model_version={version}')),
    )
    assert len([line for line in lines if "TR321" in line]) == rings


@pytest.mark.parametrize(("decorator", "level"), [("torch.no_grad()", "error"), ("recovered", "warning")])
def test_a_decorator_may_suppress_the_exception(tmp_path, decorator, level):
    source = program(WRONG).replace("    def execute", f"    @{decorator}\n    def execute")
    lines = slow(tmp_path, write("slow/1/model.py", f"import torch\nfrom company import recovered\n{source}"))
    assert lines == [f"{level} TR318 slow/1/model.py:13:63"]


def test_is_ready_takes_no_argument(tmp_path):
    ready = "    def is_ready(self):\n        return True\n\n    def execute"
    assert slow(tmp_path / "a", edit("slow/1/model.py", "    def execute", ready)) == []
    ready = ready.replace("(self)", "(self, args)")
    assert slow(tmp_path / "b", edit("slow/1/model.py", "    def execute", ready)) == [
        "warning TR304 slow/1/model.py:6:5"
    ]
