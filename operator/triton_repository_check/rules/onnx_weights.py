"""Checks of the files with external weights of ONNX files."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator

from triton_repository_check.expected import Expected
from triton_repository_check.files import FileKind
from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository, weights_path
from triton_repository_check.rules.base import Checks, each_model_expected, error, warning
from triton_repository_check.versions import Version, release

CODES = {
    "TR607": "model.onnx: the weights are missing, truncated, or outside of the version's directory",
}

_INSIDE: Version = (2, 66)
"""The first server whose ONNX Runtime, 1.24.1, refuses weights outside of the directory of the ONNX file."""


def weights(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR607: a file with external weights is missing, truncated or elsewhere."""
    for file, net in model.networks.items():
        if isinstance(net, str):
            continue
        for name, need in sorted(net.external.items()):
            if fault := _fault(model, file, name, need, expected.server):
                level, why, remedy = fault
                yield level(file, "TR607", f"the file with its weights, {name!r}, {why}", remedy)
        for name, (length, size) in sorted(net.lengths.items())[:1]:
            more = f"; {len(net.lengths) - 1} more have a wrong length" if len(net.lengths) > 1 else ""
            message = f"the weight {name!r} has {length} bytes, but its shape needs {size}{more}"
            yield error(file, "TR607", message, "export the model again")


def _fault(
    model: Model, file: str, name: str, need: int, server: Version | None
) -> tuple[Callable[..., Finding], str, str] | None:
    """Returns the severity of what is wrong with a file of weights, why it is wrong, and what to do."""
    folder, path = posixpath.dirname(file), weights_path(file, name)
    if not name:
        return error, "has no name", "export the model again"
    inside = not name.startswith("/") and path not in model.elsewhere
    linked = not name.startswith("/") and f"{model.directory}/{path}".startswith(f"{folder}/")
    where = f"is a link out of {folder}/" if linked else f"is outside of {folder}/"
    remedy = f"export the model again with this file in {folder}/, or with its weights in one file"
    remedy = "put the file in place of the link" if linked else remedy
    if not inside and server is not None and server >= _INSIDE:
        return error, f"{where}, which ONNX Runtime refuses", remedy
    if broken := _broken(model, folder, path, need):
        return error, *broken
    if not inside and server is None:
        return warning, f"{where}, which servers refuse from release {release(_INSIDE)} on", remedy
    if not inside and (not path or model.named[path].kind is FileKind.OUTSIDE):
        return warning, "is outside of the repository, so that servers have it only if their image has it", remedy
    return None


def _broken(model: Model, folder: str, path: str, need: int) -> tuple[str, str] | None:
    """Returns what is wrong with the file itself, and what to do. `folder`: that of the ONNX file."""
    entry = model.named.get(path)
    remedy = f"add the file to {folder}/, or export the model with its weights in one file"
    if entry is None:
        return None
    if entry.kind is FileKind.NOTHING:
        return "doesn't exist", remedy
    if entry.kind is FileKind.FOLDER:
        return "is a directory", remedy
    if path in model.pointers:
        return "is a Git LFS pointer", "run git lfs pull, then rebuild the image"
    if entry.kind is FileKind.FILE and entry.size < need:
        return f"has {entry.size} bytes, but the model needs {need}", remedy
    return None


CHECKS: Checks = (("weights of model.onnx", each_model_expected(weights)),)
