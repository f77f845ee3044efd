"""Checks of the repository against the TritonModel's spec."""

from __future__ import annotations

from collections.abc import Iterator

from triton_operator.repository.findings import Finding
from triton_operator.repository.graph import EntrypointError, entrypoint
from triton_operator.repository.model import Repository
from triton_operator.repository.rules.base import Expected, error, near, warning


def load_models(repository: Repository, expected: Expected) -> Iterator[Finding]:
    """TR503: spec.server.loadModels names a missing model, so that Triton doesn't start."""
    for name in expected.load_models:
        if name not in repository.models:
            close = near(name, repository.models.keys())
            yield error(
                ".",
                "TR503",
                f"spec.server.loadModels names {name!r}, which isn't in the repository",
                f"did you mean {close!r}?" if close else "remove it, or add the model to the image",
            )


def entry(repository: Repository, expected: Expected) -> Iterator[Finding]:
    """TR501, TR502: the entrypoint is missing or ambiguous."""
    try:
        entrypoint(repository, expected.entrypoint, expected.load_models)
    except EntrypointError as problem:
        if expected.entrypoint is not None:
            yield error(".", "TR501", str(problem), "correct spec.entrypoint")
        else:
            yield warning(".", "TR502", str(problem), "thresholds and readiness then apply to that model")
