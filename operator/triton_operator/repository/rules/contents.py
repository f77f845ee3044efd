"""Checks of the model files of TensorRT, PyTorch, OpenVINO and TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from triton_operator.repository.contents import Contents, weights_of
from triton_operator.repository.files import FileKind
from triton_operator.repository.findings import Finding
from triton_operator.repository.model import Model, Repository
from triton_operator.repository.rules.base import did_you_mean, error, listed, warning


def model_file(_: Repository, model: Model) -> Iterator[Finding]:
    """TR801: the backend can't load the file."""
    for path, content in model.contents.items():
        if content.problem:
            level = error if content.sure else warning
            yield level(f"{model.directory}/{path}", "TR801", content.problem, content.remedy)


def weights(_: Repository, model: Model) -> Iterator[Finding]:
    """TR802: the weights of an OpenVINO model are missing or truncated."""
    for path, content in model.contents.items():
        beside = model.named.get(weights_of(path))
        if not content.weights or beside is None:
            continue
        if beside.kind is FileKind.NOTHING:
            why = f"the file with its weights, {weights_of(path)}, doesn't exist"
        elif beside.kind is FileKind.FILE and beside.size < content.weights:
            why = f"{weights_of(path)} has {beside.size} bytes, but the model needs {content.weights}"
        else:
            continue
        yield error(f"{model.directory}/{path}", "TR802", why, "add both files of the same conversion")


def tensors(_: Repository, model: Model) -> Iterator[Finding]:
    """TR803: the inputs or outputs of an OpenVINO model differ from config.pbtxt."""
    if model.config is None:
        return
    for path, content in model.contents.items():
        yield from _count(model, path, content)
        for side, known in (("input", content.inputs), ("output", content.outputs)):
            yield from _names(model, path, side, getattr(model.config, side), known)


def _count(model: Model, path: str, content: Contents) -> Iterator[Finding]:
    """The backend refuses another number of inputs. It fills in the inputs only if config.pbtxt has none."""
    declared = len(model.config.input)
    if content.inputs is not None and declared not in (0, len(content.inputs)):
        yield error(
            model.config_path,
            "TR803",
            f"config.pbtxt declares {declared} inputs, but {path} has {len(content.inputs)}",
            f"declare the inputs {listed(sorted(min(names) for names in content.inputs))}",
            model.where.find("input", 0),
        )


def _names(
    model: Model, path: str, side: str, declared: Sequence[Any], known: Sequence[frozenset[str]] | None
) -> Iterator[Finding]:
    names = frozenset().union(*known) if known is not None else frozenset()
    for index, tensor in enumerate(declared):
        if known is not None and tensor.name and tensor.name not in names:
            yield error(
                model.config_path,
                "TR803",
                f"there is no {side} {tensor.name!r} in {path}",
                did_you_mean(tensor.name, names) or f"use an existing {side}: {listed(sorted(names))}",
                model.where.find(side, index, "name"),
            )
