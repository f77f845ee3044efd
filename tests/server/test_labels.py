"""Triton copies each line of a label file into its answers, byte by byte. TR208 reports what clients can't read."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_images.support import Server, serving
from triton_repository_check.check_table import judge
from triton_repository_check.load import load

pytestmark = pytest.mark.server

CONFIG = """\
backend: "python"
input { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "labels.txt" }
instance_group { kind: KIND_CPU }
"""
MODEL = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        values = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", value)]) for value in values]
"""
LABELS = {
    "utf_8": "猫\n狗\n".encode(),
    "gbk": "猫\n狗\n".encode("gbk"),
    "cp949": "고양이\n개\n".encode("cp949"),
    "utf_16": "cat\ndog\n".encode("utf-16"),
    "bom": "cat\ndog\n".encode("utf-8-sig"),
    "crlf": b"cat\r\ndog\r\n",
    "short": b"cat\n",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("labels")
    root.parent.chmod(0o755)
    root.chmod(0o755)
    for name, labels in LABELS.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(CONFIG)
        (root / name / "1" / "model.py").write_text(MODEL)
        (root / name / "labels.txt").write_bytes(labels)
    return root


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Server]:
    with serving(repository) as running:
        yield running


def classify(server: Server, model: str) -> bytes:
    """Returns the answer with the labels of both classes, in JSON."""
    body = {
        "inputs": [{"name": "X", "shape": [2], "datatype": "FP32", "data": [2, 1]}],
        "outputs": [{"name": "Y", "parameters": {"classification": 2}}],
    }
    connection = http.client.HTTPConnection(server.http, timeout=30)
    connection.request("POST", f"/v2/models/{model}/infer", json.dumps(body))
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.read()


@pytest.mark.parametrize(
    ("model", "labels"),
    [
        ("utf_8", ["2.000000:0:猫", "1.000000:1:狗"]),
        ("bom", ["2.000000:0:\ufeffcat", "1.000000:1:dog"]),
        ("crlf", ["2.000000:0:cat\r", "1.000000:1:dog\r"]),
        ("short", ["2.000000:0:cat", "1.000000:1"]),
        ("gbk", None), ("cp949", None), ("utf_16", None),
    ],
)  # fmt: skip
def test_an_answer_has_the_bytes_of_the_labels(server: Server, model: str, labels: list[str] | None) -> None:
    answer = classify(server, model)
    if labels is None:
        with pytest.raises(UnicodeDecodeError):
            json.loads(answer)
    else:
        assert json.loads(answer)["outputs"][0]["data"] == labels


def test_the_check_tells_all_but_utf_8(repository: Path) -> None:
    told = {finding.model for finding in judge(*load(repository)) if finding.code == "TR208"}
    assert told == LABELS.keys() - {"utf_8"}
