"""Checks of the repository against the TritonModel's spec."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding
from triton_repository_check.graph import EntrypointError, entrypoint, parts
from triton_repository_check.model import Repository
from triton_repository_check.rules.base import Checks, error, near, warning

CODES = {
    "TR501": "spec.entrypoint isn't in the repository",
    "TR502": "the entrypoint is ambiguous",
    "TR503": "spec.server.loadModels names a model that doesn't exist",
    "TR508": "spec.healthRequest names a file that doesn't exist, or isn't JSON",
    "TR515": "the response cache answers spec.healthRequest",
}


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


def health_request(repository: Repository, expected: Expected) -> Iterator[Finding]:
    """TR508: spec.healthRequest names a missing file, or one that isn't JSON, so that no server ever gets ready."""
    if expected.health_request is None:
        return
    name, _, file = expected.health_request.partition("/")
    model = repository.models.get(name)
    if model is not None and (model.unread or file in model.files or file in model.data):
        if repository.request_fault:
            yield error(
                expected.health_request,
                "TR508",
                f"the request of spec.healthRequest isn't JSON: {repository.request_fault}",
                'write e.g. {"inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [0]}]} in UTF-8',
            )
        return
    names = {f"{m.name}/{path}" for m in repository.models.values() for path in (*m.files, *m.data)}
    close = near(expected.health_request, names)
    yield error(
        ".",
        "TR508",
        f"spec.healthRequest.file names {expected.health_request!r}, which isn't in the repository",
        f"did you mean {close!r}?" if close else "correct it, or add the file to the folder of the model in the image",
    )


def cached_health_request(repository: Repository, expected: Expected) -> Iterator[Finding]:
    """TR515: the cache answers spec.healthRequest, also while the model hangs, because each request is the same."""
    if expected.health_request is None or expected.flags is None or not expected.flags.response_cache:
        return
    asked = expected.health_request.partition("/")[0]
    for name in sorted(parts(repository, asked)):
        model = repository.models.get(name)
        if model is None or model.config is None or not model.config.response_cache.enable:
            continue
        yield error(
            model.config_path,
            "TR515",
            f"the cache answers the health request of {asked!r}"
            + (f" in its step {name!r}" if name != asked else "")
            + ", so that it passes while the model hangs",
            "remove response_cache, name a file of another model in spec.healthRequest, or remove that",
            model.where.find("response_cache"),
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


CHECKS: Checks = (
    ("models to load", load_models),
    ("health request", health_request),
    ("cached health request", cached_health_request),
    ("entrypoint", entry),
)
