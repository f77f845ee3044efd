"""Model files of TensorRT, PyTorch and OpenVINO: real ones pass, and files that no server loads are errors.

model_files/make.py makes the real files. Each error here was also tried with PyTorch 2.15, or with OpenVINO 2024.0 and
2026.4.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import IO

import pytest

from support import onnx_file
from support.mutations import write
from triton_repository_check.check_table import judge
from triton_repository_check.contents import read
from triton_repository_check.files import Directory
from triton_repository_check.load import load
from unit.repository.gen import findings

FILES = Path(__file__).parent / "model_files"
TORCH = """\
input { name: "x__0" data_type: TYPE_FP32 dims: [ 1, 4 ] }
output { name: "y__0" data_type: TYPE_FP32 dims: [ 1, 4 ] }
"""
XML = (FILES / "model.xml").read_bytes()
BIN = (FILES / "model.bin").read_bytes()
OPENVINO = TORCH.replace("__0", "")
SCRIPT = (FILES / "script.pt").read_bytes()


def archive(*names: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name in names:
            file.writestr(name, b"")
    return content.getvalue()


def findings_of(tmp_path: Path, config: str, files: dict[str, bytes]) -> list[str]:
    """Returns the severities, codes and messages for a model with these files in its version directory."""
    for name, content in files.items():
        write(f"m/1/{name}", content)(tmp_path)
    write("m/config.pbtxt", config)(tmp_path)
    reported = findings(tmp_path)
    return [f"{f.severity} {f.code} {f.message}" for f in reported if str(f.severity) != "note"]


@pytest.mark.parametrize("name", ["script.pt", "trace.pt", "flatbuffer.pt"])
def test_accepts_torchscript(tmp_path, name):
    content = (FILES / name).read_bytes()
    assert findings_of(tmp_path, 'backend: "pytorch"\n' + TORCH, {"model.pt": content}) == []
    assert findings_of(tmp_path, 'platform: "pytorch_libtorch"\n' + TORCH, {"model.pt": content}) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ((FILES / "state.pt").read_bytes(), "a file of torch.save"),
        ((FILES / "state_pickle.pt").read_bytes(), "a pickle of torch.save"),
        ((FILES / "export.pt2").read_bytes(), "a torch.export package"),
        (archive("aoti/data/aotinductor/model/a.wrapper.so"), "a package of AOTInductor"),
        (SCRIPT[:-200], "truncated"),
        (b"<html>404</html>", "not a ZIP file"),
    ],
    ids=["state", "pickle", "export", "aoti", "truncated", "html"],
)
def test_refuses_other_files_than_torchscript(tmp_path, content, why):
    (told,) = findings_of(tmp_path, 'backend: "pytorch"\n' + TORCH, {"model.pt": content})
    assert told.startswith("error TR801")
    assert why in told


def test_lets_a_program_load_any_file(tmp_path):
    """With `runtime`, the model.py of the backend or of the model loads the weights."""
    config = 'backend: "pytorch"\nruntime: "model.py"\n' + TORCH
    assert findings_of(tmp_path, config, {"model.pt": (FILES / "state.pt").read_bytes(), "model.py": b""}) == []


def test_accepts_aotinductor(tmp_path):
    content = archive("aoti/data/aotinductor/model/a.wrapper.so", "aoti/archive_format")
    assert findings_of(tmp_path, 'backend: "pytorch"\nplatform: "torch_aoti"\n' + TORCH, {"model.pt2": content}) == []


@pytest.mark.parametrize("name", ["export.pt2", "script.pt"])
def test_refuses_packages_without_a_compiled_model(tmp_path, name):
    files = {"model.pt2": (FILES / name).read_bytes()}
    (told,) = findings_of(tmp_path, 'backend: "pytorch"\nplatform: "torch_aoti"\n' + TORCH, files)
    assert told.startswith("error TR801 it has no compiled model")


@pytest.mark.parametrize(
    ("content", "severity", "why"),
    [
        (b"ftrt" + bytes(60), "", ""),
        (SCRIPT, "error", "it is a ZIP file"),
        (b"\x2a\x00\x00\x00" + b'{"description": "Ultralytics"}' + b"ftrt", "error", "JSON metadata of Ultralytics"),
        (b"\x08\x08\x12\x07pytorch", "warning", "it doesn't start with ftrt"),
    ],
    ids=["plan", "zip", "ultralytics", "onnx"],
)
def test_knows_a_plan_by_its_first_bytes(tmp_path, content, severity, why):
    told = findings_of(tmp_path, 'backend: "tensorrt"\n' + OPENVINO, {"model.plan": content})
    assert [line.split(" ")[0] for line in told] == ([severity] if severity else [])
    assert all(why in line for line in told)


@pytest.mark.parametrize(
    ("name", "told"), [("saved_model.pb", []), ("saved_model.cpb", []), ("weights.h5", ["it has no saved_model.pb"])]
)
def test_needs_the_graph_of_a_saved_model(tmp_path, name, told):
    config = 'platform: "tensorflow_savedmodel"\n' + OPENVINO
    expected = [f"error TR801 {line}" for line in told]
    assert findings_of(tmp_path, config, {f"model.savedmodel/{name}": b""}) == expected


def openvino(tmp_path: Path, xml: bytes) -> list[str]:
    return findings_of(tmp_path, 'backend: "openvino"\n' + OPENVINO, {"model.xml": xml, "model.bin": BIN})


@pytest.mark.parametrize(
    "xml",
    [
        XML,
        b"\xef\xbb\xbf\n" + XML[XML.index(b"<net") :] + b"more",
        XML.replace(b'name="double"', b'name="a & b < c > \xe9 \x01"'),
        XML.replace(b"<net ", b'<!DOCTYPE net [<!ENTITY a "b">]><!-- <layer type="Parameter"> --><net ', 1),
        XML.decode().encode("utf-16-le"),
        b"\x08\x08\x12\x07pytorch",
    ],
    ids=["good", "mark", "characters", "doctype", "utf-16", "onnx"],
)
def test_accepts_what_openvino_accepts(tmp_path, xml):
    assert openvino(tmp_path, xml) == []


@pytest.mark.parametrize(
    ("xml", "why"),
    [
        (XML[:700], "error TR801 it ends before </net>"),
        (b"<html>404</html>", "error TR801 it has no <net>"),
    ],
)
def test_refuses_what_openvino_refuses(tmp_path, xml, why):
    (told,) = openvino(tmp_path, xml)
    assert told.startswith(why)


def test_does_not_read_a_large_directory():
    content = archive(*(f"{n:01000}" for n in range(5000)))
    assert read("pytorch", "model.pt", "", io.BytesIO(content), len(content)).problem == ""  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "group", "gpus", "told"),
    [
        ('"tensor_parallel_size": 4', "KIND_MODEL", 4, []),
        ('"tensor_parallel_size": 4', "KIND_MODEL", None, []),
        ('"tensor_parallel_size": 4', "KIND_MODEL", 1, ["error TR517"]),
        ('"tensor_parallel_size": 2, "pipeline_parallel_size": 2', "KIND_MODEL", 2, ["error TR517"]),
        ('"tensor_parallel_size": 4, "distributed_executor_backend": "ray"', "KIND_MODEL", 1, []),
        ('"tensor_parallel_size": "4"', "KIND_MODEL", 1, []),
        ('"tensor_parallel_size": 2', "KIND_GPU", 2, ["error TR802"]),
        ('"dtype": "auto"', "KIND_GPU", 1, []),
        ('"dtype": "auto"', "KIND_MODEL", 0, ["warning TR517"]),
        ('"gpu_memory_utilization": 90', "KIND_MODEL", None, ["error TR802"]),
        ('"gpu_memory_utilization": 1', "KIND_MODEL", None, []),
        ('"gpu_memory_utilisation": 0.5', "KIND_MODEL", None, ["warning TR802"]),
        ('"data_parallel_size": 1, "max_num_partial_prefills": 1, "kv_cache_dtype": "auto"', "KIND_MODEL", None, []),
    ],
)
def test_reads_the_arguments_of_vllm(tmp_path, arguments, group, gpus, told):
    write("m/1/model.json", f'{{"model": "facebook/opt-125m", {arguments}}}')(tmp_path)
    write("m/config.pbtxt", f'backend: "vllm"\ninstance_group {{ count: 1 kind: {group} }}\n')(tmp_path)
    reported = findings(tmp_path, gpus=gpus)
    assert [f"{f.severity} {f.code}" for f in reported if str(f.severity) != "note"] == told


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/models/m/1/weights", []),
        ("/models/m/1/weights/model.gguf", []),
        ("/models//m/./1/weights/", []),
        ("/models/m/1", []),
        ("/models/shared", []),
        ("/models/linked", []),
        ("/models/outside", []),  # a link into the server image
        ("/models/outside/opt", []),
        ("/models/../data/llm", []),
        ("/models-of-others/llm", []),
        ("/data/llm", []),
        ("facebook/opt-125m", []),
        ("weights", []),
        ("models/m/1/absent", []),
        ("./absent", []),
        ("s3://bucket/models/llm", []),
        ("/models/${llm}", []),
        ("", []),
        ("/models/m/1/weight", ["error TR802"]),
        ("/models/m/weights", ["error TR802"]),
        ("/models/m/1/weights/model.gguf/x", ["error TR802"]),
        ("/models/opt-125m", ["error TR802"]),
    ],
)
def test_finds_the_model_of_vllm_in_the_repository(tmp_path, path, told):
    write("m/1/weights/model.gguf", "x")(tmp_path)
    write("shared/config.json", "{}")(tmp_path)
    (tmp_path / "linked").symlink_to("m/1/weights")
    (tmp_path / "outside").symlink_to("/opt/llm")
    write("m/1/model.json", json.dumps({"model": path}))(tmp_path)
    write("m/config.pbtxt", 'backend: "vllm"\n')(tmp_path)
    reported = [finding for finding in findings(tmp_path) if finding.file.startswith("m/")]
    assert [f"{f.severity} {f.code}" for f in reported if str(f.severity) != "note"] == told


@pytest.mark.parametrize("value", [None, 1, ["/models/absent"], {"path": "/models/absent"}])
def test_judges_no_model_of_vllm_that_is_no_text(tmp_path, value):
    write("m/1/model.json", json.dumps({"model": value, "dtype": "auto"}))(tmp_path)
    write("m/config.pbtxt", 'backend: "vllm"\n')(tmp_path)
    assert [str(finding) for finding in findings(tmp_path) if "TR802" in str(finding)] == []


class Counting(Directory):
    """A repository that counts the bytes that are read of each file."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.counts: Counter[str] = Counter()

    def open(self, path: str) -> IO[bytes]:
        counts, name = self.counts, Path(path).name

        class Counted(io.BufferedReader):
            def read(self, size: int | None = -1) -> bytes:
                content = super().read(size)
                counts[name] += len(content)
                return content

        self.counts[name] += 0
        return Counted(super().open(path))  # type: ignore[type-var]


WEIGHTS = bytes(8 * 2**20)


def torch_file() -> bytes:
    content = io.BytesIO(SCRIPT)
    with zipfile.ZipFile(content, "a") as file:
        file.writestr("script/data/weights", WEIGHTS)
    return content.getvalue()


@pytest.mark.parametrize(
    ("config", "files", "most"),
    [
        ('backend: "tensorrt"', {"model.plan": b"ftrt" + WEIGHTS}, {"model.plan": 64}),
        ('backend: "pytorch"', {"model.pt": torch_file()}, {"model.pt": 2**18}),
        ('backend: "openvino"', {"model.xml": XML, "model.bin": WEIGHTS}, {"model.xml": len(XML)}),
        ('backend: "onnxruntime"', {"model.onnx": onnx_file.model([], [], [], [onnx_file.block(9, WEIGHTS)])},
         {"model.onnx": 200}),
        ('backend: "onnxruntime"',
         {"model.onnx": onnx_file.model([], [], [], [onnx_file.external_weight("w", "weights")]), "weights": WEIGHTS},
         {"model.onnx": 200}),
        ('platform: "tensorflow_savedmodel"',
         {"model.savedmodel/saved_model.pb": b"x", "model.savedmodel/variables/weights": WEIGHTS}, {}),
    ],
    ids=["tensorrt", "pytorch", "openvino", "onnx", "external weights", "tensorflow"],
)  # fmt: skip
def test_reads_no_weights(tmp_path, config, files, most):
    for name, content in files.items():
        write(f"m/1/{name}", content)(tmp_path)
    write("m/config.pbtxt", f"{config}\n{TORCH}")(tmp_path)
    store = Counting(tmp_path)
    judge(*load(store))
    counts = {name: count for name, count in store.counts.items() if name != "config.pbtxt"}
    assert counts.keys() == most.keys()
    assert {name: count for name, count in counts.items() if not 0 < count <= most[name]} == {}
