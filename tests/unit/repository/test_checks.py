"""Runs each check on a repository with a fault, and all checks on a good repository."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
from pathlib import Path

import pytest

from kubectl_triton.trial import findings as of_requests
from kubectl_triton.validate import server_args, tritonserver, with_server
from support import onnx_file
from support.mutations import add, edit, folder, move, remove, write
from triton_repository_check import check_table, rules
from triton_repository_check.check_table import CODES
from triton_repository_check.rules.base import each_model
from triton_repository_check.server_flags import ServerFlags
from unit.repository.gen import MODEL_PY, NET, NETWORK, PRE, brief, findings, good

DETECT = "detect/config.pbtxt"
IN = onnx_file.value("images", onnx_file.FP32, ["n", 3, 64, 64])
OUT = onnx_file.value("boxes", onnx_file.FP32, ["n", 100, 6])
WITH_SCALE = onnx_file.model([IN, onnx_file.value("scale", onnx_file.FP32, ["n", 1])], [OUT])
WITH_IMAGE = onnx_file.model([IN], [OUT, onnx_file.value("IMG", onnx_file.STRING, ["n", 1])])


def test_accepts_a_good_repository(tmp_path):
    assert findings(good(tmp_path), entrypoint="detect", load_models=("detect",), shared_memory=2**30) == ()


FAULTS = [
    # Config syntax and schema.
    ("bracket", [edit("pre/config.pbtxt", 'name: "IMAGE"', 'name "IMAGE"')], ["error TR101 pre/config.pbtxt:5:10"]),
    ("never closed", [edit("net/config.pbtxt", "8 ] }", "8 ]")], ["error TR101 net/config.pbtxt:5:50"]),
    (
        "value of an enum",
        [edit("net/config.pbtxt", '"images" data_type: TYPE_FP32', '"images" data_type: TYPE_FLOAT')],
        ["error TR101 net/config.pbtxt:3:35"],
    ),
    (
        "number of an enum",
        [edit("net/config.pbtxt", '"images" data_type: TYPE_FP32', '"images" data_type: 99')],
        ["error TR101 net/config.pbtxt:3:35"],
    ),
    (
        "number beyond an enum",
        [edit("net/config.pbtxt", '"images" data_type: TYPE_FP32', '"images" data_type: 9999999999')],
        ["error TR101 net/config.pbtxt:3:35"],
    ),
    ("number", [edit("net/config.pbtxt", "size: 8", "size: 9999999999")], ["error TR101 net/config.pbtxt:2:17"]),
    ("field", [edit("net/config.pbtxt", "max_batch_size", "max_batchsize")], ["error TR102 net/config.pbtxt:2:1"]),
    ("field inside", [edit("pre/config.pbtxt", "count", "cuont")], ["error TR102 pre/config.pbtxt:11:20"]),
    ("latin-1", [write("net/config.pbtxt", NET.encode() + b"# \xe9\n")], []),
    ("name", [edit("pre/config.pbtxt", '"pre"', '"prep"')], ["error TR103 pre/config.pbtxt:1:7"]),
    (
        "no config, model file",
        [remove("net/config.pbtxt"), edit(DETECT, "size: 8", "size: 4")],
        ["note TR104 net/config.pbtxt"],
    ),
    (
        "no config, no model file",
        [remove("net/config.pbtxt"), move("net/1/model.onnx", "net/1/weights.bin")],
        ["error TR104 net/config.pbtxt"],
    ),
    (
        "no backend",
        [edit("net/config.pbtxt", 'backend: "onnxruntime"\n', ""), move("net/1/model.onnx", "net/1/weights.bin")],
        ["error TR105 net/config.pbtxt"],
    ),
    ("no backend, model file", [edit("net/config.pbtxt", 'backend: "onnxruntime"\n', "")], []),
    ("backend", [edit("net/config.pbtxt", "onnxruntime", "onxruntime")], ["warning TR106 net/config.pbtxt:1:10"]),
    (
        "backend that comes along",
        [edit("net/config.pbtxt", "onnxruntime", "mine"), write("net/1/libtriton_mine.so", "")],
        [],
    ),
    (
        "platform",
        [edit("net/config.pbtxt", 'backend: "onnxruntime"', 'platform: "onnx_runtime"')],
        ["warning TR106 net/config.pbtxt:1:11"],
    ),
    (
        "no batches",
        [
            edit("net/config.pbtxt", "max_batch_size: 8\n", ""),
            edit("net/config.pbtxt", "preferred_batch_size: [ 4, 8 ]", ""),
        ],
        [
            "error TR605 net/config.pbtxt:2:53",
            "error TR605 net/config.pbtxt:3:53",
            "warning TR416 detect/config.pbtxt:18:40",
            "warning TR416 detect/config.pbtxt:19:40",
            "warning TR107 net/config.pbtxt:4:1",
        ],
    ),
    ("batch too large", [edit("net/config.pbtxt", "[ 4, 8 ]", "[ 4, 9 ]")], ["error TR108 net/config.pbtxt:5:47"]),
    # Directories and files.
    ("stray directory", [write("docs/index.md", "")], ["error TR003 docs"]),
    ("lost+found", [folder("lost+found")], ["error TR003 lost+found"]),
    ("file beside the models", [write("README.md", "")], []),
    ("no version", [remove("net/1")], ["error TR201 net"]),
    ("no version of an ensemble", [remove("detect/1")], ["error TR201 detect"]),
    ("version in letters", [move("net/1", "net/latest")], ["error TR201 net"]),
    ("leading zero", [move("net/1", "net/01")], ["error TR201 net", "warning TR202 net/01"]),
    ("leading zero beside", [folder("net/002")], ["warning TR202 net/002"]),
    ("old version kept", [write("net/1.bak/model.onnx", "")], ["warning TR203 net/1.bak"]),
    ("warm-up data", [write("net/warmup/input", "")], []),
    ("empty version", [remove("net/1/model.onnx")], ["error TR204 net/1"]),
    ("empty highest version", [folder("net/2")], ["error TR204 net/2"]),
    ("empty version that isn't served", [folder("net/0")], []),
    ("model file", [move("net/1/model.onnx", "net/1/net.onnx")], ["error TR204 net/1"]),
    (
        "model file by its name",
        [
            move("net/1/model.onnx", "net/1/net.onnx"),
            edit("net/config.pbtxt", "max_batch_size", 'default_model_filename: "net.onnx"\nmax_batch_size'),
        ],
        [],
    ),
    (
        "model file by a wrong name",
        [edit("net/config.pbtxt", "max_batch_size", 'default_model_filename: "net.onnx"\nmax_batch_size')],
        ["error TR204 net/1"],
    ),
    (
        "model file by device",
        [
            move("net/1/model.onnx", "net/1/sm90.onnx"),
            edit(
                "net/config.pbtxt",
                "max_batch_size",
                'cc_model_filenames { key: "9.0" value: "sm90.onnx" } max_batch_size',
            ),
        ],
        [],
    ),
    ("model.py", [move("pre/1/model.py", "pre/1/pre.py")], ["error TR204 pre/1"]),
    ("empty version of an ensemble", [remove("detect/1/.keep")], ["note TR205 detect/1"]),
    (
        "version that isn't there",
        [write("net/config.pbtxt", NET + "version_policy { specific { versions: [ 3 ] } }\n")],
        ["error TR206 net/config.pbtxt:6:18"],
    ),
    (
        "one version that isn't there",
        [write("net/config.pbtxt", NET + "version_policy { specific { versions: [ 1, 3 ] } }\n")],
        ["warning TR206 net/config.pbtxt:6:18"],
    ),
    # model.py.
    ("python", [edit("pre/1/model.py", "(self, requests):", "(self, requests:")], ["error TR301 pre/1/model.py:8:16"]),
    ("null byte", [write("pre/1/model.py", "\0")], ["error TR301 pre/1/model.py"]),
    ("class", [edit("pre/1/model.py", "TritonPythonModel", "Model")], ["error TR302 pre/1/model.py"]),
    ("execute", [edit("pre/1/model.py", "execute", "run")], ["error TR303 pre/1/model.py:4:1"]),
    ("class from elsewhere", [write("pre/1/model.py", "from impl import Pre as TritonPythonModel\n")], []),
    ("class from a star", [write("pre/1/model.py", "from impl import *\n")], []),
    ("class made", [write("pre/1/model.py", "from impl import make\nif True:\n    TritonPythonModel = make()\n")], []),
    (
        "class in a class",
        [write("pre/1/model.py", "class A:\n    class TritonPythonModel: ...\n")],
        ["error TR302 pre/1/model.py"],
    ),
    ("execute inherited", [write("pre/1/model.py", "from impl import Base\nclass TritonPythonModel(Base): ...\n")], []),
    (
        "execute by a decorator",
        [write("pre/1/model.py", "import m\n@m\nclass TritonPythonModel: ...\n")],
        [],
    ),
    (
        "execute by a metaclass",
        [write("pre/1/model.py", "import m\nclass TritonPythonModel(metaclass=m): ...\n")],
        [],
    ),
    (
        "execute assigned",
        [write("pre/1/model.py", "import run\nclass TritonPythonModel:\n    execute = run\n")],
        [],
    ),
    ("execute awaited", [edit("pre/1/model.py", "def execute", "async def execute")], []),
    (
        "source by its name",
        [
            move("pre/1/model.py", "pre/1/pre.py"),
            edit("pre/config.pbtxt", "max_batch_size", 'default_model_filename: "pre.py" max_batch_size'),
            edit("pre/1/pre.py", "TritonPythonModel", "Model"),
        ],
        ["error TR302 pre/1/pre.py"],
    ),
    # Ensembles.
    ("step's model", [edit(DETECT, 'model_name: "net"', 'model_name: "nets"')], [f"error TR401 {DETECT}:16:19"]),
    (
        "input's name",
        [edit(DETECT, '{ key: "images"', '{ key: "image"')],
        [f"error TR404 {DETECT}:15:5", f"error TR402 {DETECT}:18:24"],
    ),
    ("output's name", [edit(DETECT, '{ key: "boxes"', '{ key: "box"')], [f"error TR403 {DETECT}:19:25"]),
    (
        "names that the model may add",
        [
            edit(DETECT, '{ key: "TENSOR"', '{ key: "OTHER"'),
            write(
                "pre/1/model.py", MODEL_PY + "\n    @staticmethod\n    def auto_complete_config(c):\n        return c\n"
            ),
        ],
        [],
    ),
    (
        "names that the backend completes",
        [
            edit(DETECT, '{ key: "boxes"', '{ key: "box"'),
            edit(DETECT, "size: 8", "size: 4"),
            write("net/config.pbtxt", 'backend: "onnxruntime"\n'),
        ],
        [],
    ),
    (
        "input left out",
        [
            write("net/1/model.onnx", WITH_SCALE),
            edit("net/config.pbtxt", "output {", 'input { name: "scale" data_type: TYPE_FP32 dims: [ 1 ] }\noutput {'),
        ],
        [f"error TR404 {DETECT}:15:5"],
    ),
    (
        "optional input left out",
        [
            write("net/1/model.onnx", WITH_SCALE),
            edit(
                "net/config.pbtxt",
                "output {",
                'input { name: "scale" data_type: TYPE_FP32 dims: [ 1 ] optional: true }\noutput {',
            ),
        ],
        ["error TR608 net/config.pbtxt:4:66"],
    ),
    (
        "tensor that no step writes",
        [
            edit(
                DETECT,
                'value: "tensor" }\n      output_map { key: "SC',
                'value: "tenor" }\n      output_map { key: "SC',
            )
        ],
        [f"error TR406 {DETECT}:12:41", f"error TR405 {DETECT}:18:40"],
    ),
    (
        "output that no step writes",
        [edit(DETECT, '      output_map { key: "SCALE" value: "SCALE" }\n', "")],
        [f"error TR407 {DETECT}:5:18"],
    ),
    (
        "input that no step reads",
        [edit(DETECT, "output [ {", 'input { name: "MORE" data_type: TYPE_FP32 dims: [ 1 ] }\noutput [ {')],
        [f"error TR406 {DETECT}:4:15"],
    ),
    (
        "circle of steps",
        [
            write("net/1/model.onnx", WITH_IMAGE),
            edit("net/config.pbtxt", "output {", 'output { name: "IMG" data_type: TYPE_STRING dims: [ 1 ] }\noutput {'),
            edit(DETECT, 'input_map { key: "IMAGE" value: "IMAGE" }', 'input_map { key: "IMAGE" value: "again" }'),
            edit(
                DETECT,
                'output_map { key: "boxes"',
                'output_map { key: "IMG" value: "again" } output_map { key: "boxes"',
            ),
            edit(DETECT, 'input [ { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] } ]', ""),
        ],
        [f"error TR408 {DETECT}:8:5"],
    ),
    (
        "ensemble in itself",
        [edit(DETECT, 'model_name: "net"', 'model_name: "detect"')],
        [
            f"error TR404 {DETECT}:15:5",
            f"error TR409 {DETECT}:16:19",
            f"error TR402 {DETECT}:18:24",
            f"error TR403 {DETECT}:19:25",
            "warning TR502 .",
        ],
    ),
    (
        "tensor written twice",
        [edit(DETECT, '"SCALE" value: "SCALE"', '"SCALE" value: "BOXES"')],
        [f"error TR407 {DETECT}:5:18", f"error TR410 {DETECT}:13:40", f"error TR410 {DETECT}:19:40"],
    ),
    ("platform of an ensemble", [edit(DETECT, 'platform: "ensemble"\n', "")], [f"error TR411 {DETECT}:5:1"]),
    (
        "instances of an ensemble",
        [edit(DETECT, "max_batch_size", "instance_group [ { count: 2 } ]\nmax_batch_size")],
        [f"error TR412 {DETECT}:2:18"],
    ),
    (
        "version of a step",
        [edit(DETECT, '"net"\n      model_version: -1', '"net"\n      model_version: 2')],
        [f"error TR413 {DETECT}:17:22"],
    ),
    (
        "type of a tensor",
        [edit("net/config.pbtxt", '"images" data_type: TYPE_FP32', '"images" data_type: TYPE_FP16')],
        [f"error TR414 {DETECT}:18:40", "error TR604 net/config.pbtxt:3:35"],
    ),
]


@pytest.mark.parametrize(("changes", "expected"), [pytest.param(c, s, id=i) for i, c, s in FAULTS])
def test_finds_a_fault(tmp_path, changes, expected):
    assert brief(findings(good(tmp_path, *changes))) == expected


def test_one_fault_does_not_hide_another(tmp_path):
    root = good(
        tmp_path,
        edit("net/config.pbtxt", "max_batch_size", "max_batchsize"),
        edit("pre/1/model.py", "execute", "run"),
        remove("detect/1"),
    )
    assert brief(findings(root)) == [
        "error TR201 detect",
        "error TR102 net/config.pbtxt:2:1",
        "error TR303 pre/1/model.py:4:1",
    ]


class TestNoModels:
    def test_rejects_an_empty_directory(self, tmp_path):
        assert brief(findings(tmp_path)) == ["error TR001 ."]

    def test_names_the_directory_if_the_path_is_too_high(self, tmp_path):
        good(tmp_path / "app" / "models")
        (finding,) = findings(tmp_path)
        assert "found models under app/models/" in finding.message
        assert "spec.modelImage.path" in finding.remedy
        assert "/app/models" in finding.remedy

    def test_rejects_a_path_to_a_single_model(self, tmp_path):
        (finding,) = findings(good(tmp_path) / "net")
        assert finding.code == "TR001"
        assert "single model" in finding.message

    def test_rejects_a_missing_directory(self, tmp_path):
        assert brief(findings(tmp_path / "gone")) == ["error TR001 .", "error TR002 ."]


class TestMessages:
    def test_shows_the_invalid_text(self, tmp_path):
        (finding,) = findings(good(tmp_path, edit("net/config.pbtxt", "max_batch_size", "max_batchsize")))
        assert str(finding).startswith("net/config.pbtxt:2:1: error TR102: ")
        assert '"max_batchsize", in: max_batchsize: 8 — ' in str(finding)

    @pytest.mark.parametrize(
        ("written", "meant"), [("onxruntime", "onnxruntime"), ("onnx", "onnxruntime"), ("Python", "python")]
    )
    def test_suggests_the_nearest_backend(self, tmp_path, written, meant):
        (finding, *_) = findings(good(tmp_path, edit("net/config.pbtxt", "onnxruntime", written)))
        assert f"did you mean {meant!r}?" in finding.message

    def test_calls_another_backend_no_misspelling(self, tmp_path):
        """NVIDIA's Kaldi example is no misspelt DALI."""
        reported = findings(good(tmp_path, edit("net/config.pbtxt", "onnxruntime", "kaldi")))
        assert brief(reported) == ["note TR106 net/config.pbtxt:1:10"]

    def test_explains_a_byte_order_mark(self, tmp_path):
        (finding,) = findings(good(tmp_path, write("net/config.pbtxt", "\ufeff" + NET)))
        assert (finding.code, finding.line, finding.column) == ("TR101", 1, 1)
        assert "byte order mark" in finding.remedy

    def test_reports_an_unexpected_end_of_file(self, tmp_path):
        (finding,) = findings(good(tmp_path, write("net/config.pbtxt", "input [ {\n}\n")))
        assert (finding.line, finding.column) == (2, 2)
        assert finding.message == 'Expected "]", got end of file, in: }'

    def test_suggests_the_nearest_model(self, tmp_path):
        (finding, *_) = findings(good(tmp_path, edit(DETECT, 'model_name: "net"', 'model_name: "nets"')))
        assert finding.remedy == "did you mean 'net'?"

    def test_names_the_ensembles_of_a_cycle(self, tmp_path):
        outer = """\
platform: "ensemble"
input { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "BOXES" data_type: TYPE_FP32 dims: [ 100, 6 ] }
ensemble_scheduling { step { model_name: "%s" model_version: -1
  input_map { key: "IMAGE" value: "IMAGE" } output_map { key: "BOXES" value: "BOXES" } } }
"""
        for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
            good(tmp_path, write(f"{name}/config.pbtxt", outer % other), write(f"{name}/1/.keep", ""))
        (finding,) = (f for f in findings(tmp_path, entrypoint="a") if f.severity == "error")
        assert (finding.code, finding.line) == ("TR409", 4)
        assert "a → b → c → a" in finding.message

    def test_replaces_control_characters(self, tmp_path):
        good(tmp_path, write("net\nwork/README", ""))
        assert all("\n" not in str(finding) for finding in findings(tmp_path))
        assert brief(findings(tmp_path)) == ["error TR003 net work"]

    def test_replaces_names_that_are_not_utf8(self, tmp_path):
        (tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
        (finding,) = (f for f in findings(good(tmp_path)))
        assert str(finding).encode().startswith(b"caf?: error TR003")


class TestExpected:
    def test_rejects_a_missing_entrypoint(self, tmp_path):
        (finding,) = findings(good(tmp_path), entrypoint="detector")
        assert (finding.severity, finding.code) == ("error", "TR501")
        assert "detect, net, pre" in finding.message

    def test_warns_about_an_ambiguous_entrypoint(self, tmp_path):
        assert brief(findings(good(tmp_path, remove("detect")))) == ["warning TR502 ."]

    def test_rejects_a_missing_model_to_load(self, tmp_path):
        reported = findings(good(tmp_path), load_models=("detect", "nett"), entrypoint="detect")
        assert brief(reported) == ["error TR503 ."]
        assert "net" in reported[0].remedy

    @pytest.mark.parametrize("file", ["net/health.json", "net/warmup/image"])
    def test_accepts_a_health_request(self, tmp_path, file):
        root = good(tmp_path)
        (root / file).parent.mkdir(exist_ok=True)
        (root / file).write_text("{}")
        assert findings(root, health_request=file) == ()

    @pytest.mark.parametrize("file", ["net/health.json", "other/health.json", "net/warmup/image", "net/1/model.onnx"])
    def test_rejects_a_missing_health_request(self, tmp_path, file):
        assert brief(findings(good(tmp_path), health_request=file)) == ["error TR508 ."]

    @pytest.mark.parametrize(("content", "codes"), [
        (b'\xef\xbb\xbf{"inputs": []}', []), (b'{"inputs": ["\xff"]}', []), (b"", ["TR508"]),
        (b'{"inputs": [],}', ["TR508"]), ("{}".encode("utf-16"), ["TR508"]), (b"[" * 100_000, ["TR508"]),
    ])  # fmt: skip
    def test_rejects_a_health_request_that_isnt_json(self, tmp_path, content, codes):
        root = good(tmp_path, write("net/health.json", content), write("net/picture", content))
        assert [f.code for f in findings(root, health_request="net/health.json")] == codes
        assert findings(root, health_request="net/picture") == ()

    def test_suggests_a_file_for_the_health_request(self, tmp_path):
        root = good(tmp_path)
        (root / "net" / "health.json").write_text("{}")
        (finding,) = findings(root, health_request="net/healthy.json")
        assert "net/health.json" in finding.remedy

    @pytest.mark.parametrize("cached", ["net", "detect"])
    def test_rejects_a_health_request_that_a_cache_answers(self, tmp_path, cached):
        """The ensemble detect has the step net."""
        cache = "response_cache { enable: true }\n"
        root = good(tmp_path, add(f"{cached}/config.pbtxt", cache), write("detect/health.json", "{}"))
        with_cache = {"flags": ServerFlags(response_cache=True)}
        (finding,) = findings(root, health_request="detect/health.json", **with_cache)
        assert brief([finding])[0].startswith(f"error TR515 {cached}/config.pbtxt:")
        assert ("in its step 'net'" in finding.message) == (cached == "net")
        assert findings(root, **with_cache) == ()
        root = good(tmp_path / "other", add("detect/config.pbtxt", cache), write("net/health.json", "{}"))
        assert findings(root, health_request="net/health.json", **with_cache) == ()
        # Without a cache in the server, Triton ignores the field.
        codes = [f.code for f in findings(root, health_request="net/health.json", flags=ServerFlags())]
        assert codes == ["TR506"]

    def test_warns_about_too_little_shared_memory(self, tmp_path):
        assert brief(findings(good(tmp_path), shared_memory=64 * 2**20)) == ["warning TR504 ."]
        assert findings(good(tmp_path), shared_memory=2**30) == ()

    def test_errors_in_models_that_are_not_loaded_become_warnings(self, tmp_path):
        root = good(
            tmp_path,
            write("old/config.pbtxt", "name "),
            write("old/1/model.onnx", NETWORK),
            folder("lost+found"),
        )
        assert brief(findings(root)) == ["error TR003 lost+found", "error TR101 old/config.pbtxt:1:6"]
        assert brief(findings(root, load_models=("detect",))) == [
            "warning TR003 lost+found",
            "warning TR101 old/config.pbtxt:1:6",
        ]

    def test_ignores_the_memory_of_models_that_are_not_loaded(self, tmp_path):
        assert findings(good(tmp_path), shared_memory=2**23, load_models=("net",)) == ()
        assert brief(findings(good(tmp_path), shared_memory=2**23, load_models=("detect",))) == ["warning TR504 ."]

    def test_errors_in_step_models_stay_errors(self, tmp_path):
        root = good(tmp_path, edit("net/config.pbtxt", "max_batch_size", "max_batchsize"))
        assert brief(findings(root, load_models=("detect",))) == ["error TR102 net/config.pbtxt:2:1"]


ONE_THREAD = ServerFlags(pool_threads=1)


@pytest.mark.parametrize(
    ("count", "expected", "level", "words"),
    [
        (25, {}, "", ""),
        (26, {}, "note", "26 instances of Python models have about 1054 threads, and 26 more for each further core"),
        (104, {}, "note", "about 4096 threads"),
        (105, {}, "warning", "add --backend-config=python,thread-pool-size=1 to spec.server.args, which leaves about"),
        (24, {"numpy_threads": 2}, "", ""),
        (25, {"numpy_threads": 2}, "note", "about 1040 threads: where the kubelet's podPidsLimit is lower (1024 in"),
        (25, {"numpy_threads": 2}, "note", "thread-pool-size=1 to spec.server.args, which leaves about 265"),
        (25, {"numpy_threads": 64}, "note", "thread-pool-size=1 to spec.server.args and OPENBLAS_NUM_THREADS=1 to"),
        (25, {"flags": ServerFlags()}, "", ""),
        (105, {"flags": ONE_THREAD}, "", ""),
        (
            20,
            {"flags": ONE_THREAD, "numpy_threads": 64},
            "note",
            "add OPENBLAS_NUM_THREADS=1 to spec.server.env, which",
        ),
        (200, {"flags": ONE_THREAD, "numpy_threads": 1}, "note", "load fewer models, lower their instances"),
        (105, {"load_models": ("net",)}, "", ""),
        (105, {"load_models": ("detect",)}, "warning", "105 instances"),
    ],
)
def test_says_before_that_python_models_have_many_threads(tmp_path, count, expected, level, words):
    reported = findings(good(tmp_path, edit("pre/config.pbtxt", "count: 2", f"count: {count}")), **expected)
    assert brief(reported) == ([f"{level} TR516 ."] if level else [])
    assert words in "".join(map(str, reported))


def test_many_models_with_one_instance_have_one_finding_and_other_backends_none(tmp_path):
    assert findings(good(tmp_path, edit("net/config.pbtxt", "dynamic", "instance_group { count: 105 }\ndynamic"))) == ()
    for number in range(40):
        write(f"pre_{number}/config.pbtxt", PRE.replace('name: "pre"\n', ""))(tmp_path)
        write(f"pre_{number}/1/model.py", MODEL_PY)(tmp_path)
    assert brief(findings(tmp_path, entrypoint="detect")) == ["note TR516 ."]


@pytest.mark.parametrize(("backend", "told"), [("onnxruntime", []), ("mine", ["warning TR107 net/config.pbtxt:2:1"])])
def test_warns_about_dynamic_batching_only_if_the_file_sets_max_batch_size_0(tmp_path, backend, told):
    """If the file doesn't set max_batch_size, the backend may set it; that of onnxruntime also instead of 0."""
    config = f'backend: "{backend}"\ndynamic_batching {{ }}\n'
    root = good(tmp_path, write("net/config.pbtxt", config), edit("detect/config.pbtxt", "size: 8", "size: 4"))
    assert [line for line in brief(findings(root)) if "TR106" not in line] == []
    write("net/config.pbtxt", config + "max_batch_size: 0\n")(root)
    assert [line for line in brief(findings(root)) if "TR106" not in line] == told


def test_checks_all_versions_that_the_policy_serves(tmp_path):
    root = good(
        tmp_path,
        write("pre/config.pbtxt", PRE + "version_policy { all { } }\n"),
        write("pre/2/model.py", MODEL_PY),
        edit("pre/1/model.py", "execute", "run"),
    )
    assert brief(findings(root)) == ["error TR303 pre/1/model.py:4:1"]
    write("pre/config.pbtxt", PRE)(root)
    assert findings(root) == ()


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ('metric_control { metric_identifier { family: "a" } histogram_options { buckets: [ 1 ] } }', []),
        ("metric_control { histogram_options { buckets: [ 1 ] } }", ["error TR122 pre/config.pbtxt:12:17"]),
        ('metric_control { metric_identifier { family: "a" } }', ["error TR122 pre/config.pbtxt:12:17"]),
    ],
)
def test_rejects_incomplete_model_metrics(tmp_path, metrics, expected):
    root = good(tmp_path, add("pre/config.pbtxt", f"model_metrics {{ {metrics} }}\n"))
    assert brief(findings(root)) == expected


def test_an_ensemble_needs_the_tensors_of_a_model_without_a_configuration(tmp_path):
    assert [line for line in brief(findings(good(tmp_path, remove("pre/config.pbtxt")))) if "error" in line] == [
        "error TR402 detect/config.pbtxt:11:24",
        "error TR403 detect/config.pbtxt:12:25",
        "error TR403 detect/config.pbtxt:13:25",
    ]


def test_a_check_that_fails_on_a_model_is_told_and_ends_no_other(tmp_path, monkeypatch):
    def fails(_repository, model):
        if model.name == "net":
            raise RecursionError
        yield from ()

    monkeypatch.setattr(check_table, "CHECKS", (("fails", each_model(fails)), *check_table.CHECKS))
    root = good(tmp_path, edit("net/config.pbtxt", "max_batch_size: 8", "max_batch_size: -1"))
    assert {line[:17] for line in brief(findings(root))} >= {"warning TR007 net", "error TR108 net/c"}


def codes_of(tree):
    """Returns the codes that a file lists, and those that it produces."""
    values = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "CODES"]
    keys = values[0].keys if values else []
    used = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and re.fullmatch(r"TR\d{3}", str(node.value)) and node not in keys
    }
    return [key.value for key in keys], used


def test_each_code_is_listed_where_it_is_produced_and_tested():
    package = Path(inspect.getfile(check_table)).parent
    others = (of_requests, server_args, tritonserver)
    files = [*package.rglob("*.py"), *(Path(inspect.getfile(module)) for module in others)]
    found = [codes_of(ast.parse(file.read_text())) for file in files]
    assert all(set(listed) <= used for listed, used in found)
    everything = [code for listed, _ in found for code in listed]
    assert len(everything) == len(set(everything))
    assert (
        set(everything)
        == {*CODES, *server_args.CODES, *with_server.CODES}
        == {code for _, used in found for code in used}
    )
    here = Path(__file__).parent
    faults = (here.parents[1] / "corpus/faults").glob("*.py")
    tested = [*here.glob("test_*.py"), *faults]
    tested += (here.parent / "cli" / f"test_{name}.py" for name in ("server_args", "tritonserver"))
    tested += (here.parent / "cli/trial").glob("test_*.py")
    tests = "".join(path.read_text() for path in tested)
    assert {code for code in everything if code not in tests} == set()


GONE = {"TR308", "TR315", "TR317", "TR322", "TR323", "TR324", "TR325", "TR326"}
"""Codes of rules that were removed. Users have them in the settings of their code hosts."""


def test_the_code_of_a_removed_rule_gets_no_other_meaning():
    assert GONE.isdisjoint({*CODES, *server_args.CODES, *with_server.CODES})


def test_the_table_has_the_checks_of_each_file_of_rules():
    names = [path.stem for path in Path(inspect.getfile(rules)).parent.glob("[a-z]*.py")]
    files = [importlib.import_module(f"{rules.__name__}.{name}") for name in names]
    assert sorted(name for file in files for name, _ in getattr(file, "CHECKS", ())) == sorted(dict(check_table.CHECKS))


MODEL_IMAGES = Path(__file__).parents[3] / "model_images"


@pytest.mark.parametrize("source", sorted(MODEL_IMAGES.glob("*/repository")), ids=lambda path: path.parent.name)
def test_accepts_the_model_images(source):
    assert [str(finding) for finding in findings(source)] == []
