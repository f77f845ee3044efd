"""Legal repositories that the check must not refuse, although it doesn't know all of their parts."""

from __future__ import annotations

import sys

import pytest

from support.mutations import edit, remove, write
from triton_repository_check.check import main
from triton_repository_check.check_table import judge
from triton_repository_check.load import load
from triton_repository_check.server_flags import ServerFlags
from unit.repository.gen import MODEL_PY, NET, PRE, brief, findings, good


def test_only_the_backend_opens_default_model_filename(tmp_path):
    mine = NET.replace('"onnxruntime"', '"mine"') + 'default_model_filename: "weights-x"\n'
    root = good(tmp_path, write("net/config.pbtxt", mine), remove("net/1/model.onnx"), write("net/1/a", ""))
    assert brief(findings(root)) == ["note TR106 net/config.pbtxt:1:10"]
    config = NET + 'default_model_filename: "weights-x"\n'
    assert "error TR204 net/1" in brief(findings(good(tmp_path, write("net/config.pbtxt", config))))


@pytest.mark.parametrize(("name", "level"), [("scale.mine", "note"), ("scale.v2", "error"), ("scale.1", "error")])
def test_a_directory_may_name_the_backend(tmp_path, name, level):
    root = good(tmp_path, write(f"{name}/1/weights", "x"))
    assert brief(findings(root)) == [f"{level} TR104 {name}/config.pbtxt"]


@pytest.mark.parametrize(
    ("model_type", "file"),
    [("", "xgboost.model"), ("xgboost_json", "xgboost.json"), ("lightgbm", "model.txt"),
     ("treelite_checkpoint", "checkpoint.tl")],
)  # fmt: skip
def test_the_file_of_the_fil_backend_follows_its_model_type(tmp_path, model_type, file):
    text = PRE.replace('"python"', '"fil"').replace("TYPE_STRING", "TYPE_FP32")
    text += f'parameters {{ key: "model_type" value {{ string_value: "{model_type}" }} }}\n' if model_type else ""
    root = good(tmp_path, write("pre/config.pbtxt", text))
    [missing] = [finding for finding in findings(root) if finding.code == "TR204"]
    assert f"no {file}," in missing.message
    (root / "pre/1" / file).write_text("x")
    assert "TR204" not in {finding.code for finding in findings(root)}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python parses the syntax")
def test_syntax_of_the_servers_newer_python_is_no_fault(tmp_path):
    newer = MODEL_PY + 'NAMES = {"a": 1}\nTEXT = f"{NAMES["a"]}"\n'
    root = good(tmp_path, write("pre/1/model.py", newer))
    assert brief(findings(root, server=(2, 60)))[0].startswith("note TR301 pre/1/model.py:11")
    assert brief(findings(root))[0].startswith("warning TR301 pre/1/model.py:11")
    assert brief(findings(root, server=(2, 51)))[0].startswith("error TR301 pre/1/model.py:11")


@pytest.mark.parametrize("wrong", ["give 1", "print 'x'", "x = 1)"])
@pytest.mark.parametrize("server", [None, (2, 51), (2, 60)])
def test_syntax_that_no_python_accepts_is_an_error(tmp_path, wrong, server):
    root = good(tmp_path, write("pre/1/model.py", f"{MODEL_PY}\n\ndef f():\n    {wrong}\n"))
    assert brief(findings(root, server=server))[0].startswith("error TR301 pre/1/model.py:13")


DECOUPLED = PRE + "model_transaction_policy { decoupled: true }\n"
SENDS = MODEL_PY.replace(
    "return [pb_utils.InferenceResponse([]) for _ in requests]",
    """\
for request in requests:
            request.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return []""",
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (SENDS, ["note TR309 pre/1/model.py:11:9"]),
        (SENDS.replace("return []", "return list()"), ["note TR309 pre/1/model.py:11:9"]),
        (SENDS.replace("return []", "answers = []\n        return answers"), ["note TR309 pre/1/model.py:12:9"]),
        (SENDS.replace("return []", "return requests"), ["warning TR309 pre/1/model.py:11:9"]),
        (MODEL_PY, ["error TR309 pre/1/model.py:9:9"]),
    ],
)
def test_an_empty_list_of_a_decoupled_model_that_sends_is_no_fault(tmp_path, source, expected):
    changes = write("pre/config.pbtxt", DECOUPLED), write("pre/1/model.py", source)
    reported = findings(good(tmp_path, *changes))
    assert [line for line in brief(reported) if "TR309" in line] == expected


IMPORTED = "from company.base import TritonPythonModel\n"


@pytest.mark.parametrize(
    "source",
    [
        IMPORTED,
        "from company.base import make\n\nTritonPythonModel = make()\n",
        "from company.base import *\n",
        f"try:\n    {IMPORTED}except ImportError:\n    from company.slow import TritonPythonModel\n",
        MODEL_PY + "#" * 2**18,  # too large to be checked
    ],
)
def test_a_class_that_is_unknown_may_complete_the_configuration(tmp_path, source):
    bare = (
        write("pre/config.pbtxt", PRE.partition("input")[0] + 'input { name: "X" }\n'),
        write("pre/1/model.py", source),
    )
    assert [line for line in brief(findings(good(tmp_path, *bare))) if line.startswith("error")] == []


def test_a_backend_that_the_server_image_lacks_is_an_error(tmp_path):
    root = good(tmp_path)
    assert brief(findings(root, lacks=("onnxruntime",))) == ["error TR132 net/config.pbtxt:1:10"]
    assert findings(root, lacks=("vllm",)) == ()
    (root / "net/libtriton_onnxruntime.so").write_text("x")
    assert findings(root, lacks=("onnxruntime",)) == ()


def test_the_server_reads_the_configuration_of_the_given_name(tmp_path):
    """With --model-config-name it reads configs/NAME.pbtxt, and config.pbtxt in models that don't have it."""
    plan = NET.replace('"onnxruntime"', '"tensorrt"')
    root = good(tmp_path, write("net/config.pbtxt", plan), write("net/configs/edge.pbtxt", NET + "dims: 1\n"))
    assert brief(judge(*load(root))) == ["error TR204 net/1"]
    assert brief(judge(*load(root, config_name="edge"))) == ["error TR102 net/configs/edge.pbtxt:6:1"]
    (root / "net/configs/edge.pbtxt").write_text(NET)
    assert brief(judge(*load(root, config_name="edge"))) == []
    assert main([str(root), "--server-arg=--model-config-name=edge"]) == 0


def test_a_missing_configuration_is_an_error_if_a_flag_switches_off_its_completion(tmp_path):
    root = good(tmp_path, remove("net/config.pbtxt"), edit("detect/config.pbtxt", "size: 8", "size: 4"))
    assert brief(findings(root, flags=ServerFlags())) == ["note TR104 net/config.pbtxt"]
    assert brief(findings(root, flags=ServerFlags(completion=False))) == ["error TR104 net/config.pbtxt"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"model": "facebook/opt-125m"}', ""),
        ('{"model": "a",}', "it isn't JSON: "),
        ('"a"', "it isn't a JSON object"),
        ('\ufeff{"model": "a"}', "it isn't JSON: Unexpected UTF-8 BOM"),
        ('{"model": "a"}'.encode("utf-16"), "it isn't JSON: "),
    ],
)
def test_reads_the_arguments_of_vllms_engine(tmp_path, text, problem):
    root = good(tmp_path, write("llm/config.pbtxt", 'backend: "vllm"\n'), write("llm/1/model.json", text))
    refusals = [finding for finding in findings(root) if finding.code == "TR801"]
    assert [(f.severity, f.file, f.message.startswith(problem)) for f in refusals] == (
        [("error", "llm/1/model.json", True)] if problem else []
    )


def test_a_directory_model_onnx_may_contain_the_file(tmp_path):
    root = good(tmp_path)
    content = (root / "net/1/model.onnx").read_bytes()
    (root / "net/1/model.onnx").unlink()
    write("net/1/model.onnx/model.onnx", content)(root)
    assert "TR204" not in {finding.code for finding in findings(root)}


@pytest.mark.parametrize(
    ("backend", "severity"), [("python", "error"), ("onnxruntime", "warning"), ("mine", "warning")]
)
def test_only_the_python_backend_certainly_needs_the_type_of_a_state(tmp_path, backend, severity):
    state = "sequence_batching { state { input_name: 'BEFORE' output_name: 'AFTER' dims: [ 2 ] } }\n"
    root = good(tmp_path, write("pre/config.pbtxt", PRE.replace('"python"', f'"{backend}"') + state))
    assert [(f.severity, f.message) for f in findings(root) if f.code == "TR113"] == [
        (severity, "state 'BEFORE' has no data_type")
    ]


@pytest.mark.parametrize("hidden", ["pre/1/.git/HEAD", "pre/.hidden", "pre/.a/model.py", "pre/old/HEAD"])
def test_hidden_files_and_other_directories_hide_no_backend(tmp_path, hidden):
    text = PRE.replace('backend: "python"\n', "")
    root = good(tmp_path, write("pre/config.pbtxt", text), write(hidden, ""))
    assert "TR214" not in {finding.code for finding in findings(root)}


def test_only_the_limits_of_loaded_models_and_of_a_rate_limiter_meet(tmp_path):
    group = 'instance_group [ {{ kind: KIND_CPU rate_limiter {{ resources {{ name: "R" count: 1 {} }} }} }} ]\n'
    text = PRE.replace("instance_group [ { count: 2 kind: KIND_CPU } ]\n", "")
    root = good(
        tmp_path,
        write("pre/config.pbtxt", text + group.format("")),
        write("net/config.pbtxt", NET + group.format("global: true")),
    )
    limited = ServerFlags(rate_limiter=True)
    assert "TR518" in {finding.code for finding in findings(root, flags=limited)}
    assert "TR518" not in {finding.code for finding in findings(root, flags=ServerFlags())}
    assert "TR518" not in {finding.code for finding in findings(root, flags=limited, load_models=("net",))}


@pytest.mark.parametrize(
    ("outer", "ensemble", "inner", "step", "told"),
    [
        ("8, 4", 0, "4", 8, []),  # the step takes all as one batch
        ("9, 4", 0, "4", 8, ["error"]),
        ("-1, 4", 0, "4", 8, []),
        ("4", 8, "-1, 4", 0, []),
        ("4", 8, "1, 4", 0, ["warning"]),  # only requests with one
        ("4", 1, "1, 4", 0, []),
        ("4", 8, "9, 4", 0, ["error"]),
        ("4", 8, "8, 5", 0, []),  # of another rule, TR404
        ("4", 8, "4", 8, []),
    ],
)
def test_a_fixed_first_dim_may_be_a_batch(tmp_path, outer, ensemble, inner, step, told):
    config = "backend: 'python'\nmax_batch_size: {}\ninput {{ name: 'IN' data_type: TYPE_FP32 dims: [ {} ] }}\n"
    config += "output {{ name: 'OUT' data_type: TYPE_FP32 dims: [ -1 ] }}\n"
    whole = (
        f"platform: 'ensemble'\nmax_batch_size: {ensemble}\n"
        f"input {{ name: 'X' data_type: TYPE_FP32 dims: [ {outer} ] }}\n"
        "output { name: 'Y' data_type: TYPE_FP32 dims: [ -1 ] }\n"
        "ensemble_scheduling { step { model_name: 'scale' model_version: -1 "
        "input_map { key: 'IN' value: 'X' } output_map { key: 'OUT' value: 'Y' } } }\n"
    )
    root = good(
        tmp_path,
        write("scale/config.pbtxt", config.format(step, inner)),
        write("scale/1/model.py", MODEL_PY),
        write("whole/config.pbtxt", whole),
        write("whole/1/.keep", ""),
    )
    assert [str(f.severity) for f in findings(root) if f.code == "TR416" and "fixed" in f.message] == told
