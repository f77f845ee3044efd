"""Legal repositories that look faulty: each is a good one after a change that Triton accepts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from corpus.faults.core import environment
from corpus.faults.fault import NET, TEXT
from corpus.good import BY_NAME
from corpus.good.repository import HEAD
from support import onnx_file
from support.mutations import Change, add, edit, move, recoded, remove, write
from triton_repository_check.expected import Expected
from triton_repository_check.server_flags import ServerFlags


@dataclass(frozen=True)
class Legal:
    """A mutation of a good repository that must cause neither an error nor a warning."""

    name: str
    """Unique name of the mutation."""
    of: str
    """Name of the good repository."""
    change: Change
    expectations: dict[str, object] = field(default_factory=dict)
    """Expectations that differ from those of the good repository."""

    @property
    def expected(self) -> Expected:
        return replace(BY_NAME[self.of].expected, **self.expectations)  # type: ignore[arg-type]

    def write(self, root: Path) -> Path:
        """Writes the repository to `root`."""
        self.change(BY_NAME[self.of].write(root))
        return root


def both(*changes: Change) -> Change:
    """Makes the changes in order."""

    def change(root: Path) -> None:
        for step in changes:
            step(root)

    return change


def link(path: str, target: str) -> Change:
    """Makes a symbolic link."""

    def change(root: Path) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)

    return change


SLOW, SLOW_PY = "slow/config.pbtxt", "slow/1/model.py"
REPEAT_PY = "repeat/1/model.py"
PLAIN = "plain/config.pbtxt"
ECHOED = 'given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()'
OUT = 'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given)])'

SENT_BY_A_HELPER = (
    HEAD
    + f"""\
    def execute(self, requests):
        for request in requests:
            self._answer(request)

    def _answer(self, request):
        sender = request.get_response_sender()
        {ECHOED}
        sender.send({OUT}, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
)
STREAMED = (
    HEAD
    + f"""\
    def execute(self, requests):
        if not requests:
            return
        return self._stream(requests)

    def _stream(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            {ECHOED}
            sender.send({OUT})
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
)
RETURNED_BY_A_HELPER = (
    HEAD
    + f"""\
    def execute(self, requests):
        return self._answers(requests)

    def _answers(self, requests):
        responses: list = []
        for request in requests:
            {ECHOED}
            responses.append({OUT})
        return responses
"""
)
COROUTINE = (
    HEAD
    + f"""\
    async def execute(self, requests):
        return [await self._answer(request) for request in requests]

    async def _answer(self, request):
        {ECHOED}
        return {OUT}
"""
)
ASSIGNED = RETURNED_BY_A_HELPER.replace("class TritonPythonModel:", "class Echo:") + "\n\nTritonPythonModel = Echo\n"

SCALAR = onnx_file.model(
    [onnx_file.value("in", onnx_file.FP32, [2, 3])],
    [onnx_file.value("out", onnx_file.FP32, [])],
    [onnx_file.node("ReduceSum", ["in"], ["out"], onnx_file.block(5, onnx_file.block(1, "keepdims")
                    + onnx_file.number(3, 0) + onnx_file.number(20, 2)))],
)  # fmt: skip

LEGAL = (
    Legal("responses sent by a helper", "cache", write(SLOW_PY, SENT_BY_A_HELPER)),
    Legal("responses returned by a helper", "cache", write(SLOW_PY, RETURNED_BY_A_HELPER)),
    Legal("execute as a coroutine", "cache", write(SLOW_PY, COROUTINE)),
    Legal("class assigned under another name", "cache", write(SLOW_PY, ASSIGNED)),
    Legal("decoupled model with an early return and a helper", "decoupled", write(REPEAT_PY, STREAMED)),
    Legal(
        "additional output tensor",
        "cache",
        edit(SLOW_PY, 'Tensor("OUT", given)', 'Tensor("OUT", given), pb_utils.Tensor("X", given)'),
    ),
    Legal(
        "duplicate output",
        "cache",
        add(SLOW, 'output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'),
    ),
    Legal("annotations with types of pb_utils that nobody evaluates", "cache", both(
        edit(SLOW_PY, "import numpy as np", "from __future__ import annotations"),
        edit(SLOW_PY, "def execute(self, requests):",
             "def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:"),
    )),
    Legal("names of pb_utils behind a condition at import", "cache", edit(
        SLOW_PY, "import numpy as np",
        "import triton_python_backend_utils as pb_utils\nKIND = getattr(pb_utils, 'TritonError', None)\n"
        "if KIND:\n    KIND = pb_utils.TritonError",
    )),
    Legal("model.py with a byte order mark", "cache", recoded(SLOW_PY, "utf-8-sig", "")),
    Legal("model.py in Latin-1", "cache", recoded(SLOW_PY, "latin-1", "# -*- coding: latin-1 -*-\n# caf\xe9\n")),
    Legal("model.py in another directory", "cache", both(
        move(SLOW_PY, "slow/shared/model.py"),
        write("slow/1/.keep", ""),
        add(SLOW, 'default_model_filename: "../shared/model.py"\n'),
    )),
    Legal("model.py in a subdirectory of the version", "cache", both(
        move(SLOW_PY, "slow/1/program/echo.py"), add(SLOW, 'default_model_filename: "program/echo.py"\n'),
    )),
    Legal("config.pbtxt of five megabytes", "cache", add(SLOW, ("# " + "x" * 98 + "\n") * 50_000)),
    Legal("symbolic links inside the repository", "cache", both(
        move("slow/1", "slow/.first"), link("slow/1", ".first"),
        move(SLOW, "slow/shared.pbtxt"), link(SLOW, "shared.pbtxt"),
    )),
    Legal("broken symbolic link in a version", "cache", link("slow/1/cache", "nowhere")),
    Legal("warm-up with zero requests", "cache", add(
        SLOW,
        'model_warmup { name: "w" batch_size: 0 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ -1 ] '
        'input_data_file: "gone" } } }\n',
    )),
    Legal("warm-up file with one sample for a batch", "warmup", edit(
        TEXT, 'name: "one"\n    batch_size: 1', 'name: "one"\n    batch_size: 3',
    )),
    Legal("warm-up file in a directory", "warmup", both(
        move("words/warmup/words", "words/warmup/first/words"),
        lambda root: (root / TEXT).write_text((root / TEXT).read_text().replace(
            'input_data_file: "words"', 'input_data_file: "first/words"')),
    )),
    Legal("label file in a directory", "warmup", both(
        move("words/labels.txt", "words/names/labels.txt"), edit(TEXT, '"labels.txt"', '"names/labels.txt"'),
    )),
    Legal("label file with more lines than classes", "warmup", add("words/labels.txt", "\nd\n")),
    Legal("execution environment in a directory", "cache", both(
        write("slow/env/bin/activate", ""), add(SLOW, environment("$$TRITON_MODEL_DIRECTORY/env")),
    )),
    Legal("ONNX file with a scalar output", "instances", both(
        write("net/1/model.onnx", SCALAR), edit(NET, "dims: [ 6 ]", "dims: [ 1 ]"),
    )),
    Legal("backend's own file without config.pbtxt", "completed", remove("short/config.pbtxt")),
    Legal("text format of C++: quotes, lists and separators", "cache", both(
        edit(SLOW, 'backend: "python"\n', "backend: 'pyt' 'h\\157n';\n"),
        edit(SLOW, "max_batch_size: 8\n", "max_batch_size: 0x8,\n"),
    )),
    Legal("step with model_version before model_name", "detection", edit(
        "detect/config.pbtxt", 'model_name: "post"\n      model_version: -1', 'model_version: -1 model_name: "post"',
    )),
    Legal("oldest sequence strategy without max_candidate_sequences", "sequence", edit(
        "sum/config.pbtxt", "max_candidate_sequences: 8 preferred_batch_size: [ 2, 4 ]", "",
    )),
    Legal("instance count below one", "cache", edit(SLOW, "kind: KIND_CPU", "count: 0 kind: KIND_CPU")),
    Legal("version 0", "cache", move("slow/1", "slow/0")),
    Legal("step without a version and a model with version 0", "versions", both(
        move("two/10", "two/0"), edit("two/config.pbtxt", "latest { num_versions: 2 }", "all { }"),
        edit("pinned/config.pbtxt", "      model_version: -1\n", ""),
    )),
    Legal("empty version policy", "cache", add(SLOW, "version_policy { }\n")),
    Legal("import of a module of the model", "cache", both(
        write("slow/1/helper.py", "import numpy as np\n"),
        edit(SLOW_PY, "import numpy as np", "from .helper import np"),
    )),
    Legal("tensors that model.py completes", "completed", add(
        "short/config.pbtxt", 'input { name: "IN" dims: [ 4 ] }\noutput { name: "OUT" data_type: TYPE_FP32 }\n',
    )),
    Legal("missing model file for an absent GPU", "detection", add(
        NET, 'cc_model_filenames { key: "8.0" value: "gone.onnx" }\n',
    )),
    Legal("empty model file of another backend", "cache", write("slow/1/model.onnx", b"")),
    Legal("queue policies of undefined priority levels", "cache", add(
        SLOW, "dynamic_batching { priority_queue_policy { key: 9 value { } } }\n",
    )),
    Legal("comments in GBK", "cache", recoded(SLOW, "gbk", "# 图片\n")),
    Legal("decoupled model that returns an empty list", "decoupled", edit(REPEAT_PY, "return None", "return []")),
    Legal("module beside model.py that answers", "cache", both(
        write("slow/1/answers.py", RETURNED_BY_A_HELPER.partition("\n\n\n")[0]),
        edit(SLOW_PY, "import numpy as np", "import numpy as np\nimport answers"),
    )),
    Legal("optional input of an ensemble that its step doesn't need either", "optional", both(
        edit(PLAIN, "dims: [ 4 ] } ]\noutput",
             'dims: [ 4 ] }, { name: "F" data_type: TYPE_FP32 dims: [ 1 ] optional: true } ]\noutput'),
        edit(PLAIN, 'input_map { key: "IN" value: "X" }',
             'input_map { key: "IN" value: "X" } input_map { key: "FACTOR" value: "F" }'),
    )),
    Legal("ensemble without batches, with the batch of its step in the first dim", "optional", both(
        edit(PLAIN, "max_batch_size: 8\n", ""),
        edit(PLAIN, '"X" data_type: TYPE_FP32 dims: [ 4 ]', '"X" data_type: TYPE_FP32 dims: [ 8, 4 ]'),
        edit(PLAIN, '"Y" data_type: TYPE_FP32 dims: [ 4 ]', '"Y" data_type: TYPE_FP32 dims: [ 8, 4 ]'),
    )),
    Legal("resource that is global in each place", "instances", both(
        edit("many/config.pbtxt", 'name: "R" count: 1', 'name: "R" count: 1 global: true'),
        edit("auto/config.pbtxt", "count: 2 kind: KIND_AUTO",
             'count: 2 kind: KIND_AUTO rate_limiter { resources [ { name: "R" count: 1 global: true } ] }'),
    ), {"flags": ServerFlags(rate_limiter=True)}),
    Legal("resources of two names, one of them global", "instances", edit(
        "many/config.pbtxt", 'name: "R" count: 1 }', 'name: "R" count: 1 }, { name: "S" count: 1 global: true }',
    ), {"flags": ServerFlags(rate_limiter=True)}),
)  # fmt: skip
