"""The repository against what the TritonModel says."""

from __future__ import annotations

from collections.abc import Iterator

from triton_operator.repository.findings import Finding
from triton_operator.repository.graph import EntrypointError, entrypoint
from triton_operator.repository.model import Repository
from triton_operator.repository.rules.base import Expected, error, near, warning


def load_models(repository: Repository, expected: Expected) -> Iterator[Finding]:
    """TR503: Triton doesn't start with a model to load that isn't there."""
    for name in expected.load_models:
        if name not in repository.models:
            close = near(name, repository.models.keys())
            yield error(
                ".",
                "TR503",
                f"spec.server.loadModels names {name!r}, which the repository doesn't hold",
                f"did you mean {close!r}?" if close else "take it out, or add the model to the image",
            )


def entry(repository: Repository, expected: Expected) -> Iterator[Finding]:
    """TR501, TR502: the model that clients call."""
    try:
        entrypoint(repository, expected.entrypoint, expected.load_models)
    except EntrypointError as problem:
        if expected.entrypoint is not None:
            yield error(".", "TR501", str(problem), "correct spec.entrypoint")
        else:
            yield warning(".", "TR502", str(problem), "thresholds and readiness then follow that model")
