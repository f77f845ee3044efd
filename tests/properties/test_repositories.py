"""For any model repository, the check ends in time with a report that fits into a termination message."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpus.good import GOOD
from support import specs
from support.growth import assert_linear
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


# Duration. Each of these would be slow with an algorithm of quadratic time.

MANY, BYTES = (20_000, 4_000_000) if SOAK else (1_000, 250_000)
Content = Callable[[int], str]


def ensemble(steps: str) -> str:
    return f'platform: "ensemble" ensemble_scheduling {{ step [ {steps} ] }}'


def step(model: str, reads: str, writes: str) -> str:
    return f'{{model_name:"{model}" input_map{{key:"A" value:"{reads}"}} output_map{{key:"B" value:"{writes}"}}}}'


def chain(numbers: Sequence[int]) -> str:
    """Returns an ensemble in which each step reads the output of the step with the previous number."""
    count = max(numbers) + 1
    return ensemble(",".join(step("b", f"t{n}", f"t{(n + 1) % count}") for n in numbers))


def alike(count: int) -> list[str]:
    """Returns different names of 62 characters, of the same letters: comparing two takes long."""
    letters = list("ab" * 29)
    shuffle = random.Random(count).shuffle
    return ["".join(letters) + f"{number:04}" for number in range(count) if shuffle(letters) is None]


def inputs(names: Iterable[str]) -> str:
    return "".join(f' input {{ name: "{name}" data_type: TYPE_FP32 dims: 1 }}' for name in names)


LARGE_CONFIGURATIONS: dict[str, tuple[int, Content]] = {
    "names that are alike": (
        MANY,
        lambda n: (
            ensemble(",".join(step("b", read, f"o{number}") for number, read in enumerate(alike(n // 2))))
            + inputs(alike(190))
        ),
    ),
    "inputs": (MANY, lambda n: 'backend: "python"' + "".join(f' input {{ name: "i{i}" }}' for i in range(n))),
    "same input": (MANY, lambda n: 'backend: "python"' + inputs(["i"] * n)),
    "batch inputs that aren't declared": (
        MANY // 3,
        lambda n: (
            'backend: "python"'
            + "".join(f' batch_input {{ source_input: "other{i}" }} input {{ name: "input{i}" }}' for i in range(n))
        ),
    ),
    "chained steps": (MANY // 2, lambda n: chain(range(1, n))),
    "chained steps in reverse order": (MANY // 2, lambda n: chain(range(n - 1, 0, -1))),
    "steps in a cycle": (MANY // 2, lambda n: chain(range(n))),
    "steps that call missing models": (
        MANY // 2, lambda n: ensemble(",".join(step(f"model{i}", "a", f"b{i}") for i in range(n))),
    ),
    "steps that read missing tensors": (
        MANY // 2, lambda n: ensemble(",".join(step("b", f"tensor{i}", f"tenser{i}") for i in range(n))),
    ),
    "one long name": (BYTES, lambda n: f'backend: "{"x" * n}"'),
    "one long string of escapes": (BYTES // 3, lambda n: 'name: "' + "\\\\" * n + '"'),
    "open brackets": (BYTES, lambda n: "[" * n),
    "open braces": (BYTES // 8, lambda n: "input {" * n),
    "quotes": (BYTES, lambda n: '"' * n),
    "parameters": (
        MANY, lambda n: "".join(f' parameters {{ key: "{i}" value: {{ string_value: "a" }} }}' for i in range(n)),
    ),
    "versions": (MANY, lambda n: f"version_policy {{ specific {{ versions: {list(range(n))} }} }}"),
    "lists of one number": (
        40_000, lambda n: f'backend: "python" input {{ name: "i" data_type: TYPE_FP32 {"dims: [1] " * n} }}',
    ),
    "comments": (BYTES // 14, lambda n: "# a comment\n" * n),
    "blanks": (BYTES, lambda n: " " * n),
}  # fmt: skip


def assert_linear_check(tmp_path: Path, size: int, tree: Callable[[int], dict[str, object]]) -> None:
    """Asserts that the check of a repository of twice the size takes twice the time."""

    def prepare(part: int) -> Path:
        write_tree(tmp_path / str(part), tree(part))
        return tmp_path / str(part)

    assert_linear(prepare, check, size)


@pytest.mark.parametrize("name", LARGE_CONFIGURATIONS)
def test_check_of_twice_the_configuration_takes_twice_the_time(tmp_path: Path, name: str) -> None:
    pair = b'backend: "python" input { name: "A" data_type: TYPE_FP32 dims: 1 }'
    pair += b' output { name: "B" data_type: TYPE_FP32 dims: 1 }'
    size, content = LARGE_CONFIGURATIONS[name]
    assert_linear_check(tmp_path, size, lambda part: {
        "a": {"config.pbtxt": content(part).encode(), "1": {}},
        "b": {"config.pbtxt": pair, "1": {"model.py": b""}},
    })  # fmt: skip


PB_UTILS = "import triton_python_backend_utils as pb_utils\n"
EXECUTE = PB_UTILS + "class TritonPythonModel:\n    def execute(self, requests):\n"


def repeated(text: str, before: str = "", after: str = "") -> Content:
    return lambda n: EXECUTE + before + text * n + after


def nested(begin: str, part: str, end: str) -> Content:
    return lambda n: EXECUTE + f"        x = {begin}{part * n}{end}\n        open(x, 'w')\n        return x\n"


def with_number(call: str) -> Content:
    head = PB_UTILS + "class TritonPythonModel:\n    def auto_complete_config(c):\n        "
    end = "\n        return c\n    def execute(self, requests): return []\n"
    return lambda n: head + call.replace("N", "0x" + "F" * n) + end


LARGE_SOURCES: dict[str, tuple[int, Content]] = {
    "assignments": (MANY, repeated("        x = x\n", after="        return x\n")),
    "a chain of assignments": (
        MANY,
        lambda n: (
            EXECUTE
            + "".join(f"        x{i} = x{i + 1}\n" for i in range(n))
            + f"        x{n} = __file__\n        return x0\n"
        ),
    ),
    "tensors of a variable": (MANY, repeated('        x = [x, x]\n        pb_utils.Tensor("B", x)\n')),
    "returns of a method": (
        MANY, repeated("        return self.a(r)\n", "        return self.a(requests)\n    def a(self, r):\n"),
    ),
    "returns in loops": (
        MANY,
        repeated("        for r in requests:\n            if r: return [pb_utils.InferenceResponse()]\n"),
    ),
    "unknown names that are alike": (
        MANY // 2,
        lambda n: (
            "".join(f"b{name} = 1\n" for name in alike(200))
            + EXECUTE
            + "".join(f"        a{name}\n" for name in alike(n))
        ),
    ),
    "unknown names of pb_utils": (MANY, repeated("        pb_utils.eman_yb_rosnet_tuptuo_teg\n")),
    "requests": (
        MANY,
        repeated('        pb_utils.InferenceRequest(model_name="b", inputs=[], requested_output_names=[])\n'),
    ),
    **{
        f"nested: {part}": (800, nested(begin, part, end))
        for begin, part, end in (
            ("", "1 + ", "1"), ("a", ".b", ""), ("a", "[0]", ""), ("a", ".b()", ""), ("", "not ", "1"), ("", "-", "1"),
        )
    },
    **{
        f"number: {call}": (5000, with_number(call))
        for call in ("c.set_max_batch_size(-N)", 'c.set_model_transaction_policy({"decoupled": N})',
                     'c.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [N]})')
    },
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE_SOURCES)
def test_check_of_twice_the_source_takes_twice_the_time(tmp_path: Path, name: str) -> None:
    config = b'backend: "python" max_batch_size: 2 input { name: "A" data_type: TYPE_FP32 dims: 1 }'
    config += b' output { name: "B" data_type: TYPE_FP32 dims: 1 }'
    size, content = LARGE_SOURCES[name]
    assert_linear_check(tmp_path, size, lambda part: {
        model: {"config.pbtxt": config, "1": {"model.py": content(part).encode()}} for model in "ab"
    })  # fmt: skip


def test_check_of_a_ring_of_twice_the_ensembles_takes_twice_the_time(tmp_path: Path) -> None:
    assert_linear_check(tmp_path, MANY, lambda part: {
        f"m{n}": {"config.pbtxt": ensemble(step(f"m{(n + 1) % part}", "a", "b")).encode(), "1": {}}
        for n in range(part)
    })  # fmt: skip


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
