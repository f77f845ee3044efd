"""Model files of TensorRT, PyTorch and OpenVINO: real ones pass, and files that no server loads are errors.

model_files/make.py makes the real files. Each error here was also tried with PyTorch 2.15, or with OpenVINO 2024.0 and
2026.4.
"""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path

import pytest

from support.mutations import write
from triton_operator.repository.contents import MAX_XML, read
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
    with zipfile.ZipFile(content, "w") as made:
        for name in names:
            made.writestr(name, b"")
    return content.getvalue()


def said(tmp_path: Path, config: str, files: dict[str, bytes]) -> list[str]:
    """Returns the severities, codes and messages for a model with these files in its version directory."""
    for name, content in files.items():
        write(f"m/1/{name}", content)(tmp_path)
    write("m/config.pbtxt", config)(tmp_path)
    found = findings(tmp_path)
    return [f"{f.severity} {f.code} {f.message}" for f in found if str(f.severity) != "note"]


@pytest.mark.parametrize("name", ["script.pt", "trace.pt", "flatbuffer.pt"])
def test_accepts_torchscript(tmp_path, name):
    content = (FILES / name).read_bytes()
    assert said(tmp_path, 'backend: "pytorch"\n' + TORCH, {"model.pt": content}) == []
    assert said(tmp_path, 'platform: "pytorch_libtorch"\n' + TORCH, {"model.pt": content}) == []


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
    (told,) = said(tmp_path, 'backend: "pytorch"\n' + TORCH, {"model.pt": content})
    assert told.startswith("error TR801")
    assert why in told


def test_lets_a_program_load_any_file(tmp_path):
    """With `runtime`, the model.py of the backend or of the model loads the weights."""
    config = 'backend: "pytorch"\nruntime: "model.py"\n' + TORCH
    assert said(tmp_path, config, {"model.pt": (FILES / "state.pt").read_bytes(), "model.py": b""}) == []


def test_accepts_aotinductor(tmp_path):
    content = archive("aoti/data/aotinductor/model/a.wrapper.so", "aoti/archive_format")
    assert said(tmp_path, 'backend: "pytorch"\nplatform: "torch_aoti"\n' + TORCH, {"model.pt2": content}) == []


@pytest.mark.parametrize("name", ["export.pt2", "script.pt"])
def test_refuses_packages_without_a_compiled_model(tmp_path, name):
    files = {"model.pt2": (FILES / name).read_bytes()}
    (told,) = said(tmp_path, 'backend: "pytorch"\nplatform: "torch_aoti"\n' + TORCH, files)
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
    told = said(tmp_path, 'backend: "tensorrt"\n' + OPENVINO, {"model.plan": content})
    assert [line.split(" ")[0] for line in told] == ([severity] if severity else [])
    assert all(why in line for line in told)


@pytest.mark.parametrize(
    ("name", "told"), [("saved_model.pb", []), ("saved_model.cpb", []), ("weights.h5", ["it has no saved_model.pb"])]
)
def test_needs_the_graph_of_a_saved_model(tmp_path, name, told):
    config = 'platform: "tensorflow_savedmodel"\n' + OPENVINO
    wanted = [f"error TR801 {line}" for line in told]
    assert said(tmp_path, config, {f"model.savedmodel/{name}": b""}) == wanted


def openvino(tmp_path: Path, xml: bytes, weights: bytes | None = BIN, config: str = OPENVINO) -> list[str]:
    files = {"model.xml": xml} if weights is None else {"model.xml": xml, "model.bin": weights}
    return said(tmp_path, 'backend: "openvino"\n' + config, files)


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
    ("xml", "weights", "why"),
    [
        (XML[:700], BIN, "error TR801 it ends before </net>"),
        (b"<html>404</html>", BIN, "error TR801 it has no <net>"),
        (XML, None, "error TR802 the file with its weights, 1/model.bin, doesn't exist"),
        (XML, BIN[:10], "error TR802 1/model.bin has 10 bytes, but the model needs 16"),
    ],
)
def test_refuses_what_openvino_refuses(tmp_path, xml, weights, why):
    (told,) = openvino(tmp_path, xml, weights)
    assert told.startswith(why)


def test_needs_no_weights_without_constants(tmp_path):
    assert openvino(tmp_path, XML.replace(b'size="16"', b'size="0"'), None) == []


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (OPENVINO.replace('"x"', '"first, of all"'), []),
        (OPENVINO.replace('"x"', '"X"'), ["error TR803 there is no input 'X' in 1/model.xml"]),
        (OPENVINO.replace('"y"', '"z"'), ["error TR803 there is no output 'z' in 1/model.xml"]),
        (OPENVINO[OPENVINO.index("output") :], []),
        (
            OPENVINO + 'input { name: "first, of all" data_type: TYPE_FP32 dims: [ 4 ] }',
            ["error TR803 config.pbtxt declares 2 inputs, but 1/model.xml has 1"],
        ),
    ],
    ids=["alias", "input", "output", "completed", "count"],
)
def test_compares_the_names_of_openvino(tmp_path, config, told):
    assert openvino(tmp_path, XML, config=config) == told


def test_does_not_compare_the_names_of_older_models(tmp_path):
    """OpenVINO adds the names of the layers to the names of their tensors."""
    config = OPENVINO.replace('"x"', '"layer"')
    xml = XML.replace(b'name="x" type', b'name="layer" type')
    assert openvino(tmp_path / "new", xml, config=config) == ["error TR803 there is no input 'layer' in 1/model.xml"]
    assert openvino(tmp_path / "old", xml.replace(b'version="11"', b'version="10"'), config=config) == []


def test_ignores_the_inputs_of_inner_networks():
    inner = b'<layer id="9" type="If"><body><layers><layer id="0" type="Parameter"><output><port id="0" names="p"/>'
    inner += b"</output></layer></layers></body></layer>"
    xml = XML.replace(b"</layers>", inner + b"</layers>", 1)
    content = read("openvino", "1/model.xml", "", io.BytesIO(xml), len(xml))
    assert content is not None
    assert content.inputs == (frozenset({"x", "first, of all"}),)


@pytest.mark.parametrize(
    "content",
    [
        b"<net </net>" + b"<!--" * 1_000_000,
        b"<net </net>" + b'<a "' * 1_000_000,
        b"<net </net><layer " + b"a" * 4_000_000 + b">",
        b"<net><" + b"/net>" + b"<a>" * 2_000_000,
        b"<net " * (MAX_XML // 6) + b"</net>",
    ],
    ids=["comments", "quotes", "attribute", "tags", "starts"],
)
def test_reads_hostile_models_in_five_seconds(content):
    start = time.process_time()
    read("openvino", "model.xml", "", io.BytesIO(content), len(content))
    assert time.process_time() - start < 5


def test_does_not_read_a_large_directory():
    content = archive(*(f"{n:01000}" for n in range(5000)))
    assert read("pytorch", "model.pt", "", io.BytesIO(content), len(content)).problem == ""  # type: ignore[union-attr]
