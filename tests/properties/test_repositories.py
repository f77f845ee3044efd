"""For any model repository, the check ends in time with a report that fits into a termination message."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpus.good import GOOD
from support import specs
from support.profiles import SOAK, examples
from triton_repository_check import overrides, places, server_flags, textformat
from triton_repository_check.check_table import judge
from triton_repository_check.expected import NOTHING, Expected
from triton_repository_check.findings import Finding
from triton_repository_check.load import load
from triton_repository_check.model import Model, Repository
from triton_repository_check.report import parse, render, report
from triton_repository_check.schema import ModelConfig

TEXTS = sorted({text for good in GOOD for name, text in good.files().items()
                if isinstance(text, str) and name.endswith((".pbtxt", ".py"))})  # fmt: skip
FIELDS = sorted(
    {field.name for message in ModelConfig.DESCRIPTOR.file.message_types_by_name.values() for field in message.fields}
)
NUMBERS = ["0", "-1", "1", "2147483647", "2147483648", "9223372036854775807", "-9223372036854775808", "1" * 400,
           "1e400",
           "nan", "inf", "0x7f", "１"]  # fmt: skip
STRINGS = [
    '"a"',
    "'a'",
    '""',
    '"\\xff"',
    '"\\000"',
    '"\\ud800"',
    '"a/../../b"',
    '"/etc/passwd"',
    f'"{"n" * 300}"',
    '"..',
    '"/"',
]
TOKENS = st.one_of(
    st.sampled_from(["{", "}", "[", "]", "<", ">", ":", ",", ";", "#", "\n", "\r", "\\", '"', "'", "-"]),
    st.sampled_from(
        ["TYPE_FP32", "TYPE_STRING", "KIND_GPU", "KIND_CPU", "true", "ensemble", "python", "onnxruntime", "99"]
    ),
    st.sampled_from(FIELDS),
    st.sampled_from(NUMBERS),
    st.sampled_from(STRINGS),
    specs.TEXT,
)
FILE_NAMES = st.one_of(
    st.sampled_from(["config.pbtxt", "1", "2", "01", "1a", "１", "9" * 255, "model.py", "model.onnx", "warmup",
                     "initial_state",
                     "configs", ".git", "a\nb", "\t", " ", "-", "\udcff", "a" * 255, "Config.PBTXT", "model"]),
    st.text(specs.CHARACTERS, min_size=1, max_size=8),
).filter(lambda name: name not in (".", "..") and "/" not in name and "\x00" not in name)  # fmt: skip


def with_random_edits(text: str) -> st.SearchStrategy[str]:
    """Generates copies of `text` with up to six random tokens replaced."""
    tokens = re.split(r"(\s+|[\[\]{},:()\"])", text)
    changes = st.lists(
        st.tuples(st.integers(0, len(tokens) - 1), st.one_of(TOKENS, st.sampled_from(tokens))), max_size=6
    )

    def replace_tokens(edits: list[tuple[int, str]]) -> str:
        out = list(tokens)
        for place, token in edits:
            out[place] = token
        return "".join(out)

    return changes.map(replace_tokens)


CONTENT = st.one_of(
    st.sampled_from(TEXTS).flatmap(with_random_edits).map(lambda text: text.encode("utf-8", "surrogateescape")),
    st.lists(TOKENS, max_size=30).map(lambda tokens: " ".join(tokens).encode()),
    st.binary(max_size=60),
)
TREES = st.recursive(
    st.one_of(CONTENT, CONTENT, st.sampled_from(["->.", "->..", "->nowhere", "->/dev/zero", "->config.pbtxt", "pipe"])),
    lambda inner: st.dictionaries(FILE_NAMES, inner, max_size=4),
    max_leaves=8,
)
"""The bytes of a file, the target of a symbolic link (->), a named pipe, or a directory."""
REPOSITORIES = st.dictionaries(
    st.one_of(st.sampled_from(["a", "b"]), FILE_NAMES),
    st.one_of(
        st.fixed_dictionaries(
            {"config.pbtxt": CONTENT},
            optional={
                "1": st.fixed_dictionaries({}, optional={"model.py": CONTENT, "model.onnx": CONTENT}),
                "2": TREES,
            },
        ),
        TREES,
    ),
    max_size=4,
)
FLAGS = st.one_of(
    specs.TEXT,
    st.sampled_from([
        "--model-config-name=edge", "--cache-config", "local,size=1", "--disable-auto-complete-config", "7",
        "--backend-config=python,shm-default-byte-size=67108864", "--rate-limit=execution_count",
        "--backend-config=python,thread-pool-size=1",
        "--rate-limit-resource=turn:1:0", "--rate-limit-resource", "turn:x",
    ]),
)  # fmt: skip
EXPECTATIONS = st.builds(
    Expected,
    entrypoint=st.one_of(st.none(), specs.TEXT),
    load_models=st.lists(st.sampled_from(["a", "b", "c"]), max_size=2).map(tuple),
    shared_memory=st.one_of(st.none(), st.integers(0, 2**63)),
    gpus=st.one_of(st.none(), st.integers(0, 2**63)),
    cpus=st.one_of(st.none(), st.sampled_from([0.0, 1e-9, 0.5, 2.0, 1e19, float("inf")])),
    numpy_threads=st.one_of(st.none(), st.integers(0, 64)),
    flags=st.one_of(st.none(), st.lists(FLAGS, max_size=4).map(server_flags.parse)),
    storage=st.one_of(st.none(), st.integers(0, 2**63)),
    server=st.sampled_from([None, (2, 0), (2, 51), (99, 0)]),
)


def write_tree(root: Path, tree: object) -> None:
    """Writes `tree` to `root`. Skips entries that the file system rejects."""
    with contextlib.suppress(OSError, UnicodeEncodeError):
        if isinstance(tree, dict):
            root.mkdir()
            for name, below in tree.items():
                write_tree(root / name, below)
        elif isinstance(tree, bytes):
            root.write_bytes(tree)
        elif tree == "pipe":
            os.mkfifo(root)
        else:
            root.symlink_to(str(tree).removeprefix("->"))


def check(root: Path, expected: Expected = NOTHING) -> list[Finding]:
    """Runs the repository check and asserts what holds for any findings and their report. Returns the findings."""
    lines = functools.cache(lambda file: len(file.read_bytes().splitlines()) + 1 if file.is_file() else 10**9)
    repository, unreadable = load(root)
    findings = judge(repository, unreadable, expected)
    for finding in findings:
        assert finding.code != "TR007", finding
        assert "\n" not in str(finding)
        str(finding).encode()
        if finding.line is not None:
            assert 1 <= finding.line <= lines(root / finding.file), finding
    complete = report(repository, findings, expected)
    for size in (512, 2048, 4096):
        text = render(complete, size)
        assert len(text.encode()) <= size
        read = parse(text)
        assert read is not None
        assert (read.ok, read.entrypoint, read.model_count) == (complete.ok, complete.entrypoint, complete.model_count)
        assert len(read.findings) + read.truncated == len(findings)
    return list(findings)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("repositories")
    return (base / str(number) for number in itertools.count())


@examples(60)
@given(REPOSITORIES, EXPECTATIONS)
def test_check_accepts_any_directory(folders: Iterator[Path], tree: dict[str, object], expected: Expected) -> None:
    root = next(folders)
    write_tree(root, tree)
    check(root, expected)


@examples(60)
@given(st.sampled_from(GOOD).flatmap(lambda good: st.tuples(st.just(good), st.sampled_from(
    sorted(n for n, t in good.files().items() if isinstance(t, str))).flatmap(
        lambda name: st.tuples(st.just(name), with_random_edits(str(good.files()[name])))))))  # fmt: skip
def test_check_accepts_a_good_repository_with_random_edits(folders: Iterator[Path], edited: tuple) -> None:
    good, (name, text) = edited
    root = good.write(next(folders))
    (root / name).write_text(text, errors="replace")
    check(root, good.expected)


@examples(60)
@given(st.lists(TOKENS, max_size=60))
@example(["backend", ":", '"python"', "default_model_filename", ":", f'"{"n" * 300}"'])
@example(["backend", ":", '"python"', "default_model_filename", ":", '"/etc/passwd"'])
def test_check_accepts_any_text_as_configuration(folders: Iterator[Path], tokens: list[str]) -> None:
    root = next(folders)
    write_tree(root, {"a": {"config.pbtxt": " ".join(tokens).encode(), "1": {"model.py": b""}}})
    check(root)


HUGE = "[" + ", ".join(["9223372036854775807"] * 300) + "]"
LARGE_TENSORS = f"""
backend: "python" max_batch_size: 2147483647
input {{ name: "A" data_type: TYPE_FP64 dims: {HUGE} reshape {{ shape: {HUGE} }} }}
output {{ name: "B" data_type: TYPE_FP64 dims: {HUGE} reshape {{ shape: [ 1 ] }} }}
instance_group {{ count: 2147483647 }}
model_warmup {{ name: "w" batch_size: 1 inputs {{ key: "A" value {{
  data_type: TYPE_FP64 dims: {HUGE} input_data_file: "a" }} }} }}
"""
THREADS = """
backend: "onnxruntime"
instance_group { count: 2147483647 kind: KIND_CPU }
parameters { key: "intra_op_thread_count" value: { string_value: "%s" } }
"""


@pytest.mark.parametrize("text", [LARGE_TENSORS, THREADS % ("9" * 5000), THREADS % "٣", THREADS.replace("intra", "x")])
@pytest.mark.parametrize("cpus", [0.0, float("inf"), float("nan"), 1e300])
def test_check_accepts_huge_numbers(tmp_path: Path, text: str, cpus: float) -> None:
    write_tree(tmp_path / "r", {"a": {"config.pbtxt": text.encode(), "1": {"model.py": b""}, "warmup": {"a": b""}}})
    check(tmp_path / "r", Expected(cpus=cpus, shared_memory=1))


# Duration. Each of these configurations has the maximum size and would be slow with an algorithm of quadratic time.

MANY, BYTES = (20_000, 4_000_000) if SOAK else (2_000, 500_000)
SECONDS = 20
"""Far more than the check needs, and less than an algorithm of quadratic time would need."""


def ensemble(steps: str) -> str:
    return f'platform: "ensemble" ensemble_scheduling {{ step [ {steps} ] }}'


def step(model: str, reads: str, writes: str) -> str:
    return f'{{model_name:"{model}" input_map{{key:"A" value:"{reads}"}} output_map{{key:"B" value:"{writes}"}}}}'


def chain(numbers: Iterable[int]) -> str:
    """Returns an ensemble in which each step reads the output of the step with the previous number."""
    return ensemble(",".join(step("b", f"t{n}", f"t{(n + 1) % (MANY // 2)}") for n in numbers))


def alike(count: int) -> list[str]:
    """Returns different names of 62 characters, of the same letters: comparing two takes long."""
    letters = list("ab" * 29)
    shuffle = random.Random(count).shuffle
    return ["".join(letters) + f"{number:04}" for number in range(count) if shuffle(letters) is None]


LARGE_CONFIGURATIONS = {
    "names that are alike": ensemble(
        ",".join(step("b", read, f"o{number}") for number, read in enumerate(alike(MANY // 2)))
    )
    + "".join(f' input {{ name: "{name}" data_type: TYPE_FP32 dims: 1 }}' for name in alike(190)),
    "inputs": 'backend: "python"' + "".join(f' input {{ name: "i{n}" }}' for n in range(MANY)),
    "same input": 'backend: "python"' + ' input { name: "i" data_type: TYPE_FP32 dims: 1 }' * MANY,
    "batch inputs that aren't declared": 'backend: "python"'
    + "".join(f' batch_input {{ source_input: "other{n}" }} input {{ name: "input{n}" }}' for n in range(MANY // 3)),
    "chained steps": chain(range(1, MANY // 2)),
    "chained steps in reverse order": chain(reversed(range(1, MANY // 2))),
    "steps in a cycle": chain(range(MANY // 2)),
    "steps that call missing models": ensemble(",".join(step(f"model{n}", "a", f"b{n}") for n in range(MANY // 2))),
    "steps that read missing tensors": ensemble(
        ",".join(step("b", f"tensor{n}", f"tenser{n}") for n in range(MANY // 2))
    ),
    "one long name": f'backend: "{"x" * BYTES}"',
    "one long string of escapes": 'name: "' + "\\\\" * (BYTES // 3) + '"',
    "open brackets": "[" * BYTES,
    "open braces": "input {" * (BYTES // 8),
    "quotes": '"' * BYTES,
    "parameters": "".join(f' parameters {{ key: "{n}" value: {{ string_value: "a" }} }}' for n in range(MANY)),
    "versions": f"version_policy {{ specific {{ versions: {list(range(MANY))} }} }}",
    "lists of one number": f'backend: "python" input {{ name: "i" data_type: TYPE_FP32 {"dims: [1] " * 80_000} }}',
    "comments": "# a comment\n" * (BYTES // 14),
    "blanks": " " * BYTES,
}


@pytest.mark.parametrize("name", LARGE_CONFIGURATIONS)
def test_check_of_a_large_configuration_is_fast(tmp_path: Path, name: str) -> None:
    pair = b'backend: "python" input { name: "A" data_type: TYPE_FP32 dims: 1 }'
    pair += b' output { name: "B" data_type: TYPE_FP32 dims: 1 }'
    tree = {
        "a": {"config.pbtxt": LARGE_CONFIGURATIONS[name].encode(), "1": {}},
        "b": {"config.pbtxt": pair, "1": {"model.py": b""}},
    }
    write_tree(tmp_path / "r", tree)
    started = time.process_time()
    check(tmp_path / "r")
    assert time.process_time() - started < SECONDS


PB_UTILS = "import triton_python_backend_utils as pb_utils\n"
EXECUTE = PB_UTILS + "class TritonPythonModel:\n    def execute(self, requests):\n"
LARGE_SOURCES = {
    "assignments": EXECUTE + "        x = x\n" * MANY + "        return x\n",
    "a chain of assignments": EXECUTE
    + "".join(f"        x{n} = x{n + 1}\n" for n in range(MANY))
    + f"        x{MANY} = __file__\n        return x0\n",
    "tensors of a variable": EXECUTE + '        x = [x, x]\n        pb_utils.Tensor("B", x)\n' * MANY,
    "returns of a method": EXECUTE
    + "        return self.a(requests)\n    def a(self, r):\n"
    + "        return self.a(r)\n" * MANY,
    "returns in loops": EXECUTE
    + "        for r in requests:\n            if r: return [pb_utils.InferenceResponse()]\n" * MANY,
    "unknown names that are alike": "".join(f"b{name} = 1\n" for name in alike(200))
    + EXECUTE
    + "".join(f"        a{name}\n" for name in alike(MANY // 2)),
    "unknown names of pb_utils": EXECUTE + "        pb_utils.eman_yb_rosnet_tuptuo_teg\n" * MANY,
    "requests": EXECUTE
    + '        pb_utils.InferenceRequest(model_name="b", inputs=[], requested_output_names=[])\n' * MANY,
    **{
        f"nested: {part}": EXECUTE + f"        x = {start}{part * 800}{end}\n        open(x, 'w')\n        return x\n"
        for start, part, end in (
            ("", "1 + ", "1"), ("a", ".b", ""), ("a", "[0]", ""), ("a", ".b()", ""), ("", "not ", "1"), ("", "-", "1"),
        )
    },
    **{
        f"number: {call}": PB_UTILS
        + "class TritonPythonModel:\n    def auto_complete_config(c):\n        "
        + call.replace("N", "0x" + "F" * 5000)
        + "\n        return c\n    def execute(self, requests): return []\n"
        for call in ("c.set_max_batch_size(-N)", 'c.set_model_transaction_policy({"decoupled": N})',
                     'c.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [N]})')
    },
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE_SOURCES)
def test_check_of_a_large_source_is_fast(tmp_path: Path, name: str) -> None:
    config = b'backend: "python" max_batch_size: 2 input { name: "A" data_type: TYPE_FP32 dims: 1 }'
    config += b' output { name: "B" data_type: TYPE_FP32 dims: 1 }'
    tree = {model: {"config.pbtxt": config, "1": {"model.py": LARGE_SOURCES[name].encode()}} for model in "ab"}
    write_tree(tmp_path / "r", tree)
    started = time.process_time()
    check(tmp_path / "r")
    assert time.process_time() - started < SECONDS


def test_check_of_ensembles_in_a_ring_is_fast(tmp_path: Path) -> None:
    tree: dict[str, object] = {
        f"m{n}": {"config.pbtxt": ensemble(step(f"m{(n + 1) % MANY}", "a", "b")).encode(), "1": {}} for n in range(MANY)
    }
    write_tree(tmp_path / "r", tree)
    started = time.process_time()
    check(tmp_path / "r")
    assert time.process_time() - started < SECONDS


SETTINGS = specs.admitted(specs.schema("spec", "models")["items"]["properties"]["config"])
WRONG = st.dictionaries(st.one_of(st.sampled_from(FIELDS), specs.TEXT), specs.JSON, max_size=4)


@examples(150)
@given(st.one_of(SETTINGS, WRONG), st.one_of(SETTINGS, st.just({})))
@example({"parameters": {"\ud800": {"string_value": "\ud800"}}}, {})
@example({"dynamic_batching": {"priority_queue_policy": {"01": {}, "1": {}}}}, {})
@example({"max_batch_size": float("inf")}, {})
def test_merges_settings_or_finds_what_is_wrong_with_them(config: dict, before: dict) -> None:
    """The server's parser reads what the check writes as what it has judged."""
    nowhere = places.at(1, 1)
    first, where, _ = overrides.merge("a", ModelConfig(), nowhere, before)
    merged, where, findings = overrides.merge("a", first, where, config)
    if not any(finding.code == "TR510" for finding in findings):
        model = Model("a", "a", merged, "a/config.pbtxt", where=where, replaced=("x",))
        text = overrides.texts(Repository("", {"a": model}))["a"]
        assert str(textformat.parse(text)[0]) == str(merged)
    assert all(finding.in_spec and finding.model == "a" for finding in findings)
