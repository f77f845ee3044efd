"""Checks of the model files of TensorRT, PyTorch, OpenVINO and TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.rules.base import Checks, each_model, error, warning

CODES = {
    "TR801": "the model file has another format, or is truncated",
}


def model_file(_: Repository, model: Model) -> Iterator[Finding]:
    """TR801: the backend can't load the file."""
    for path, content in model.contents.items():
        if content.problem:
            level = error if content.sure else warning
            yield level(f"{model.directory}/{path}", "TR801", content.problem, content.remedy)


CHECKS: Checks = (("contents of model files", each_model(model_file)),)
