"""Maps releases to Triton versions, and versions to the fields that they know."""

from __future__ import annotations

import pytest

from triton_repository_check import versions
from triton_repository_check.schema import ModelConfig


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.51", (2, 51)), ("2.51.0", (2, 51)), ("24.10", (2, 51)), ("24.11", (2, 52)), ("25.01", (2, 54)),
        ("25.06", (2, 59)), ("25.07", (2, 59)), ("25.08", (2, 60)), ("23.01", (2, 30)), ("21.01", (2, 6)),
    ],
)  # fmt: skip
def test_parses_versions_and_releases(text, version):
    assert versions.parse(text) == version


@pytest.mark.parametrize("text", ["", "latest", "3.1", "24", "24.10-py3", "2.x"])
def test_rejects_other_text(text):
    with pytest.raises(ValueError, match="neither a server version"):
        versions.parse(text)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("nvcr.io/nvidia/tritonserver:24.10-py3", (2, 51)),
        ("nvcr.io/nvidia/tritonserver:24.11-vllm-python-py3", (2, 52)),
        ("registry:5000/tritonserver:24.10", (2, 51)),
        ("nvcr.io/nvidia/tritonserver:24.10-py3@sha256:00", (2, 51)),
        ("nvcr.io/nvidia/tritonserver@sha256:00", None),
        ("nvcr.io/nvidia/tritonserver", None),
        ("team/server:24.10", None),
        ("tritonserver:dev", None),
    ],
)
def test_finds_the_version_of_an_image(image, version):
    assert versions.of_image(image) == version


def test_unknown_returns_the_version_that_added_a_field():
    assert versions.unknown("ModelConfig.model_metrics", (2, 51)) == (2, 52)
    assert versions.unknown("ModelConfig.model_metrics", (2, 52)) is None
    assert versions.unknown("ModelConfig.name", (2, 10)) is None
    # Between the two versions that were compared, the answer is open.
    assert versions.unknown("ModelSequenceBatching.iterative_sequence", (2, 39)) is None


def test_table_contains_only_fields_of_the_schema():
    fields = set()

    def walk(message: object) -> None:
        fields.update(f.full_name.partition(".")[2] for f in message.fields)  # type: ignore[attr-defined]
        for inner in message.nested_types:  # type: ignore[attr-defined]
            walk(inner)

    for message in ModelConfig.DESCRIPTOR.file.message_types_by_name.values():
        walk(message)
    assert set(versions.SINCE) <= fields
    assert all(without < having for without, having in versions.SINCE.values())


@pytest.mark.parametrize(
    ("image", "without"),
    [
        ("nvcr.io/nvidia/tritonserver:24.10-vllm-python-py3", {"onnxruntime", "tensorrt", "tensorrtllm"}),
        ("nvcr.io/nvidia/tritonserver:24.10-trtllm-python-py3", {"onnxruntime", "vllm"}),
        ("nvcr.io/nvidia/tritonserver:24.10-pyt-python-py3", {"onnxruntime", "vllm"}),
        ("nvcr.io/nvidia/tritonserver:24.10-py3-min", {"python", "onnxruntime"}),
        ("nvcr.io/nvidia/tritonserver:24.10-py3@sha256:0", {"vllm", "tensorrtllm"}),
    ],
)
def test_knows_backends_that_an_image_lacks(image, without):
    assert without <= set(versions.lacks(image))


def test_does_not_judge_other_images():
    assert versions.lacks("team/tritonserver:24.10-vllm-python-py3") == ()
    assert versions.lacks("nvcr.io/nvidia/tritonserver:24.10-custom") == ()
    assert "tensorflow" not in versions.lacks("nvcr.io/nvidia/tritonserver:25.02-py3")
    assert "python" not in versions.lacks("nvcr.io/nvidia/tritonserver:24.10-vllm-python-py3")
