"""The interface of ONNX files, and what is none."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from support import onnx_file
from support.onnx_file import FP32, INT64, STRING, model, node, shape_constant, value
from triton_operator.repository.onnx import Network, OnnxError, Tensor, read

REPOSITORIES = Path(__file__).parents[3] / "model_images"


def parsed(tmp_path: Path, content: bytes) -> Network:
    return read(io.BytesIO(content), len(content))


def test_inputs_and_outputs(tmp_path):
    content = model(
        [value("x", FP32, ["n", 3, -1, 0]), value("words", STRING, []), value("any", INT64, None)],
        [value("y", 20, [1])],
        [node("Reshape", ["x", "shape"], ["y"])],
        [shape_constant("shape", [1])],
    )
    assert parsed(tmp_path, content) == Network(
        (
            Tensor("x", "TYPE_FP32", (-1, 3, -1, -1)),
            Tensor("words", "TYPE_STRING", ()),
            Tensor("any", "TYPE_INT64", None),
        ),
        (Tensor("y", "", (1,)),),
    )


def test_weights_that_old_files_list_as_inputs_are_none(tmp_path):
    content = model([value("x", FP32, [1]), value("w", INT64, [1])], [], weights=[shape_constant("w", [1])])
    assert [tensor.name for tensor in parsed(tmp_path, content).inputs] == ["x"]


def test_weights_elsewhere(tmp_path):
    content = model(
        [], [], weights=[onnx_file.external_weight("w", "a.data"), onnx_file.external_weight("v", "a.data")]
    )
    assert parsed(tmp_path, content).external == ("a.data",)


@pytest.mark.parametrize("path", sorted(REPOSITORIES.glob("detection/repository/*/1/model.onnx")), ids=str)
def test_agrees_with_onnxruntime(path):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    known = {t.name: (t.type, len(t.shape)) for t in (*session.get_inputs(), *session.get_outputs())}
    net = read(io.BytesIO(path.read_bytes()), path.stat().st_size)
    assert {t.name: ("tensor(float)", len(t.dims or ())) for t in (*net.inputs, *net.outputs)} == known


def test_what_the_corpus_writes_is_taken_by_onnxruntime(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    content = onnx_file.reshaped(("x", FP32, ["n", 4]), ("y", FP32, ["n", 2, 2]), [-1, 2, 2])
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["n", 4]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git LFS"),
        (b"plain text", "no ONNX"),
        (onnx_file.number(1, 8), "no graph"),
        (onnx_file.block(7, b"") * 2, "no graph"),
        (b"\xff" * 20, "no ONNX"),
    ],
)
def test_no_onnx(tmp_path, content, words):
    with pytest.raises(OnnxError, match=words):
        parsed(tmp_path, content)


def test_cut_off_anywhere(tmp_path):
    """Each head of a file is an interface or an OnnxError, never another exception."""
    content = onnx_file.reshaped(("x", FP32, ["n", 4]), ("y", FP32, ["n", 2, 2]), [-1, 2, 2])
    for size in range(1, len(content)):
        try:
            assert parsed(tmp_path, content[:size]).outputs
        except OnnxError:
            continue


def test_noise(tmp_path):
    import random

    source = random.Random(7)
    good = bytearray(onnx_file.reshaped(("x", FP32, ["n", 4]), ("y", FP32, ["n", 2, 2]), [-1, 2, 2]))
    for _ in range(500):
        content = bytearray(good)
        for _ in range(source.randrange(1, 6)):
            content[source.randrange(len(content))] = source.randrange(256)
        try:
            parsed(tmp_path, bytes(content))
        except OnnxError:
            continue
