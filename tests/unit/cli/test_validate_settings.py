"""The settings of `kubectl triton validate`: which codes depend on which option, and that options win over --spec."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kubectl_triton.main import main
from support import onnx_file
from support.mutations import Change, add, edit, remove, write
from triton_repository_check.expected import OPTIONS
from unit.repository import gen

PAGE = Path(__file__).parents[3] / "docs/validate.md"
LIMITED = "--server-arg=--rate-limit=execution_count"
CACHED = "--server-arg=--cache-config=local,size=1048576"
RESOURCE = 'kind: KIND_CPU rate_limiter { resources { name: "R" count: 4 } }'
ON_GPU = "instance_group { kind: KIND_GPU }\n"
AUTO = "instance_group { kind: KIND_AUTO }\n"
PRECISE = 'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" parameters { '
FOREST = """\
backend: "fil"
input { name: "input__0" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "output__0" data_type: TYPE_FP32 dims: [ 1 ] }
parameters { key: "is_classifier" value { string_value: "false" } }
"""
VLLM = (
    write("llm/config.pbtxt", 'backend: "vllm"\ninstance_group { count: 1 kind: KIND_MODEL }\n'),
    write("llm/1/model.json", '{"model": "facebook/opt-125m", "tensor_parallel_size": 4}'),
)
CALLS = gen.MODEL_PY.replace(
    "return [",
    'request = pb_utils.InferenceRequest(model_name="other", requested_output_names=["a"], inputs=[])\n'
    "        request.exec()\n        return [",
)
NEWER_PYTHON = (
    gen.MODEL_PY + "\n    def f(self):\n        try:\n            pass\n        except* OSError:\n            pass\n"
)
NEWEST_PYTHON = gen.MODEL_PY + "\n    def f(self):\n        return t'{x}' ?\n"
SHRINKS = (
    "instance_group { kind: KIND_CPU }\n"
    'parameters { key: "memory.enable_memory_arena_shrinkage" value { string_value: "cpu:0;gpu:0" } }\n'
)
BOXES = [onnx_file.value("boxes", onnx_file.FP32, ["n", 100, 6])]
OUTSIDE = onnx_file.model(
    [onnx_file.value("images", onnx_file.FP32, ["n", 3, 64, 64])], BOXES, [onnx_file.node("Neg", ["w"], ["z"])],
    [onnx_file.external_weight("w", "../weights")],
)  # fmt: skip
MANY = edit("pre/config.pbtxt", "count: 2", "count: 26")
GLOBAL = edit(
    "pre/config.pbtxt",
    "kind: KIND_CPU",
    'kind: KIND_CPU rate_limiter { resources { name: "R" } resources { name: "R" global: true } }',
)


def on_each_gpu(count: int) -> Change:
    return edit("pre/config.pbtxt", "count: 2 kind: KIND_CPU", f"count: {count} kind: KIND_GPU")


EXAMPLES: dict[str, dict[str, tuple[list[Change], list[str], str]]] = {
    "--entrypoint": {
        "TR501": ([], [], "other"),
        "TR502": ([remove("detect")], [], "net"),
    },
    "--load-models": {
        "TR330": ([write("other/config.pbtxt", gen.NET), write("other/1/model.onnx", gen.NETWORK),
                   write("pre/1/model.py", CALLS)], [], "detect"),
        "TR502": ([remove("detect")], [], "net"),
        "TR503": ([], [], "other,net"),
        "TR504": ([], ["--shm-size=1Ki"], "net"),
        "TR516": ([MANY], [], "net"),
        "TR518": ([GLOBAL], [LIMITED], "net"),
    },
    "--server-version": {
        "TR109": ([add("net/config.pbtxt", 'runtime: "x"\n')], [], "2.30"),
        "TR126": ([add("net/config.pbtxt", SHRINKS)], [], "2.60"),
        "TR134": ([add("net/config.pbtxt", ON_GPU + PRECISE + 'key: "precision_mode" value: "BF16" } } } }\n')], [],
                  "2.65"),
        "TR301": ([write("pre/1/model.py", NEWEST_PYTHON)], [], "2.51"),
        "TR311": ([write("pre/1/model.py", NEWER_PYTHON)], [], "24.10"),
        "TR504": ([], ["--shm-size=150Mi"], "2.37"),
        "TR519": ([], ["--server-arg=--log-level=2"], "2.30"),
        "TR607": ([write("net/1/model.onnx", OUTSIDE), write("net/weights", bytes(32))], [], "2.66"),
        "TR610": ([write("net/1/model.onnx", b"\x08\x0e" + gen.NETWORK[2:])], [], "2.51"),
        "TR803": ([write("trees/config.pbtxt", FOREST), write("trees/1/xgboost.model", "x")], [], "2.51"),
    },
    "--cpus": {"TR505": ([add("net/config.pbtxt", "instance_group { count: 2 kind: KIND_CPU }\n")], [], "1")},
    "--gpus": {
        "TR119": ([add("net/config.pbtxt", ON_GPU)], [], "0"),
        "TR133": ([write("plan/config.pbtxt", gen.NET.replace("onnxruntime", "tensorrt")),
                   write("plan/1/model.plan", "ftrt")], [], "0"),
        "TR134": ([add("net/config.pbtxt", PRECISE + 'key: "precision_mode" value: "half" } } } }\n')], [], "0"),
        "TR204": ([add("net/config.pbtxt", AUTO + 'cc_model_filenames { key: "8.0" value: "gone.onnx" }\n')], [], "0"),
        "TR504": ([on_each_gpu(2)], ["--shm-size=150Mi"], "4"),
        "TR505": ([], ["--cpus=1"], "0"),
        "TR516": ([on_each_gpu(8)], [], "4"),
        "TR517": ([*VLLM], [], "2"),
    },
    "--shm-size": {"TR504": ([], [], "32Mi")},
    "--server-arg": {
        "TR104": ([remove("net/config.pbtxt")], [], "--disable-auto-complete-config"),
        "TR504": ([], ["--shm-size=150Mi"], "--backend-config=python,shm-default-byte-size=67108864"),
        "TR506": ([add("net/config.pbtxt", "response_cache { enable: true }\n")], [], "--log-info=false"),
        "TR512": ([edit("pre/config.pbtxt", "kind: KIND_CPU", RESOURCE)], [], "--log-info=false"),
        "TR513": ([edit("pre/config.pbtxt", "kind: KIND_CPU", RESOURCE)], [LIMITED], "--rate-limit-resource=R:2"),
        "TR516": ([MANY], [], "--backend-config=python,thread-pool-size=1"),
        "TR518": ([GLOBAL], [], "--rate-limit=execution_count"),
        "TR519": ([], [], "--http-thread-count=ten"),
        "TR520": ([], [], "--http-thread-count=10s"),
    },
}  # fmt: skip
"""For each option and code: changes of a good repository, further options, and a value that changes the findings."""
EACH = [(option, code) for option, codes in EXAMPLES.items() for code in codes]
TOLD_WITHOUT = {
    *(("--load-models", code) for code in ("TR502", "TR504", "TR516", "TR518")),  # all models are loaded
    *(("--server-version", code) for code in ("TR126", "TR301", "TR519", "TR607")),
    *(("--gpus", code) for code in ("TR134", "TR204")),
    *(("--server-arg", code) for code in ("TR104", "TR516")),
    ("--entrypoint", "TR502"),
}
"""What the check also tells without the option, in another form. All else it skips."""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["validate", *map(str, arguments)])


def lines(code: str, *arguments: object) -> list[str]:
    """Returns the findings with this code."""
    result = run(*arguments)
    assert result.exit_code in (0, 1), result.output
    return [line for line in result.stdout.splitlines() if f" {code}: " in line]


def spec_file(folder: Path, **fields: object) -> Path:
    spec = folder / "model.yaml"
    document = {"modelImage": {"reference": "r:1"}, **fields}
    spec.write_text(json.dumps({"kind": "TritonModel", "metadata": {"name": "detection"}, "spec": document}))
    return spec


@pytest.mark.parametrize(("option", "code"), EACH)
def test_the_code_depends_on_the_option(tmp_path: Path, option: str, code: str) -> None:
    changes, others, value = EXAMPLES[option][code]
    root = gen.good(tmp_path, *changes)
    without = lines(code, root, *others)
    assert lines(code, root, *others, f"{option}={value}") != without
    assert bool(without) == ((option, code) in TOLD_WITHOUT)


def rows() -> dict[str, list[str]]:
    """Returns the codes of each row of the page's table, by the first word in backticks that isn't --spec."""
    section = PAGE.read_text().partition("## Settings of the server\n")[2].partition("\n## ")[0]
    found = {}
    for line in section.splitlines():
        if line.startswith("| ") and "TR" in line:
            *columns, codes = line.strip("|").split(" | ")
            name = next(word for word in re.findall(r"`([^` ]+)", " ".join(columns)) if word != "--spec")
            found[name] = []
            for start, end in re.findall(r"TR(\d+)(?: to TR(\d+))?", codes):
                found[name] += [f"TR{number}" for number in range(int(start), int(end or start) + 1)]
    return found


def test_the_table_of_the_page_names_the_codes_that_depend_on_the_option() -> None:
    named = {name: codes for name, codes in rows().items() if name.startswith("--")}
    assert named.keys() <= EXAMPLES.keys()
    assert len(named) > 5
    assert {name: set(codes) ^ set(EXAMPLES[name]) for name, codes in named.items()} == {name: set() for name in named}


def test_errors_of_models_that_are_not_loaded_become_warnings(tmp_path: Path) -> None:
    root = gen.good(tmp_path, write("idle/config.pbtxt", 'backend: "python"\n'))
    result = run(root)
    assert (result.exit_code, result.stdout.partition(":")[2][:12]) == (1, " error TR201")
    result = run(root, "--load-models", "detect")
    assert (result.exit_code, result.stdout.partition(":")[2][:14]) == (0, " warning TR201")


WINS: dict[str, tuple[list[Change], dict[str, Any], str, str]] = {
    "--entrypoint": ([], {"entrypoint": "other"}, "TR501", "detect"),
    "--load-models": ([], {"entrypoint": "net", "server": {"modelControl": "explicit", "loadModels": ["other"]}},
                      "TR503", "net"),
    "--server-version": ([write("pre/1/model.py", NEWER_PYTHON)], {"server": {"image": "tritonserver:24.10-py3"}},
                         "TR311", "25.10"),
    "--cpus": ([add("net/config.pbtxt", "instance_group { count: 2 kind: KIND_CPU }\n"),
                add("net/config.pbtxt", 'parameters { key: "intra_op_thread_count" value { string_value: "1" } }\n')],
               {"server": {"resources": {"limits": {"cpu": "1"}}}}, "TR505", "2"),
    "--gpus": ([add("net/config.pbtxt", ON_GPU)], {}, "TR119", "1"),
    "--shm-size": ([], {"server": {"sharedMemory": "32Mi"}}, "TR504", "1Gi"),
    "--server-arg": ([edit("pre/config.pbtxt", "kind: KIND_CPU", RESOURCE)],
                     {"server": {"args": ["--rate-limit=off"]}}, "TR512", "--rate-limit=execution_count"),
}  # fmt: skip
"""Changes of the repository, a spec with which the check tells the code, and a value of the option that is right."""


@pytest.mark.parametrize("option", WINS)
def test_the_option_wins_over_the_spec(tmp_path: Path, option: str) -> None:
    changes, fields, code, value = WINS[option]
    root, spec = gen.good(tmp_path / "models", *changes), spec_file(tmp_path, **fields)
    assert lines(code, root, "--spec", spec)
    assert lines(code, root, "--spec", spec, f"{option}={value}") == []


def test_each_option_is_tried_against_the_spec() -> None:
    assert {option.plugin for option in OPTIONS if option.plugin} == WINS.keys() == EXAMPLES.keys()


OF_SPEC: dict[str, tuple[list[Change], dict[str, Any]]] = {
    "TR132": ([write("llm/config.pbtxt", 'backend: "vllm"\n'), write("llm/1/model.json", '{"model": "x"}')],
              {"server": {"image": "nvcr.io/nvidia/tritonserver:24.10-py3"}}),
    "TR508": ([], {"healthRequest": {"file": "net/gone.json"}}),
    "TR509": ([], {"models": [{"name": "other", "config": {"max_batch_size": 8}}]}),
    "TR510": ([], {"models": [{"name": "net", "config": {"instance_group": [{"knd": 1}]}}]}),
    "TR511": ([], {"models": [{"name": "net", "config": {"max_batch_size": 0}}]}),
    "TR514": ([], {"modelImage": {"reference": "r:1", "delivery": "Copy"},
                   "server": {"resources": {"limits": {"ephemeral-storage": "1Ki"}}}}),
    "TR515": ([add("net/config.pbtxt", "response_cache { enable: true }\n"), write("net/health.json", "{}")],
              {"entrypoint": "net", "healthRequest": {"file": "net/health.json"},
               "server": {"args": [CACHED.removeprefix("--server-arg=")]}}),
    "TR516": ([edit("pre/config.pbtxt", "count: 2", "count: 20")],
              {"server": {"env": [{"name": "OMP_NUM_THREADS", "value": "32"}]}}),
}  # fmt: skip
"""Changes of the repository, and a spec."""


@pytest.mark.parametrize("code", OF_SPEC)
def test_the_code_needs_a_spec(tmp_path: Path, code: str) -> None:
    changes, fields = OF_SPEC[code]
    root = gen.good(tmp_path / "models", *changes)
    assert lines(code, root) == []
    assert lines(code, root, "--spec", spec_file(tmp_path, **fields))


def test_the_table_of_the_page_names_the_codes_that_depend_on_the_spec() -> None:
    named = {code for name, codes in rows().items() if not name.startswith("--") for code in codes}
    assert named
    assert named == OF_SPEC.keys()


def test_the_size_of_the_repository_counts_only_for_a_copy(tmp_path: Path) -> None:
    limits = {"resources": {"limits": {"ephemeral-storage": "1Ki"}}}
    spec = spec_file(tmp_path, modelImage={"reference": "r:1", "delivery": "ImageVolume"}, server=limits)
    assert lines("TR514", gen.good(tmp_path / "models"), "--spec", spec) == []


def test_the_flag_names_the_configurations_that_are_judged(tmp_path: Path) -> None:
    root = gen.good(tmp_path, write("net/configs/edge.pbtxt", gen.NET + "knd: 1\n"))
    assert run(root).exit_code == 0
    [line] = lines("TR102", root, "--server-arg=--model-config-name=edge")
    assert line.startswith("net/configs/edge.pbtxt:6:1: error")


def test_the_flags_of_both_are_read(tmp_path: Path) -> None:
    """--server-arg adds arguments to those of the spec."""
    root = gen.good(tmp_path / "models", edit("pre/config.pbtxt", "kind: KIND_CPU", RESOURCE))
    spec = spec_file(tmp_path, server={"args": ["--rate-limit=execution_count"]})
    assert len(lines("TR513", root, "--spec", spec, "--server-arg=--rate-limit-resource=R:2")) == 1


def test_the_option_is_given_again_for_each_flag(tmp_path: Path) -> None:
    root = gen.good(tmp_path, edit("pre/config.pbtxt", "kind: KIND_CPU", RESOURCE))
    assert len(lines("TR513", root, LIMITED, "--server-arg=--rate-limit-resource=R:2")) == 1
    assert lines("TR513", root, LIMITED, "--server-arg=--rate-limit-resource=R:4") == []
