"""Decides from configurations whether a model may change while its server runs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from triton_operator.repository.graph import parts
from triton_operator.repository.model import Model, Repository


def obstacle(model: str, live: Mapping[str, Any], new: Repository, ready: Collection[str]) -> str:
    """Returns why a change of `model` needs new servers; "" if it doesn't.

    - `live`: its configuration on the server, empty if it isn't READY there.
    - `new`: the new repository, in which no other loaded model differs.
    - `ready`: the models that the server serves.
    """
    after = new.models.get(model)
    if live.get("sequence_batching"):
        return f"{model} has sequence_batching, and its open sequences would be lost"
    if live and after and bool(live.get("ensemble_scheduling")) != after.is_ensemble:
        return f"{model} becomes an ensemble" if after.is_ensemble else f"{model} is no longer an ensemble"
    if absent := sorted(parts(new, model) - {model} - set(ready)):
        return f"{model} needs {absent[0]}, which isn't loaded, and nobody knows whether it fits into the memory"
    ensembles = sorted(users(model, new, ready) - {model})
    if ensembles and after and not _declares(after):
        return (
            f"{model} is a step of {ensembles[0]}, and Triton knows only after a load whether it fits: its "
            "config.pbtxt doesn't have its inputs and outputs"
        )
    for name in sorted(ready):
        other = new.models.get(name)
        if other and other.config is not None and other.config.response_cache.enable:
            return f"{name} has a response cache, which may have answers of the former {model}"
    return ""


def users(model: str, repository: Repository, ready: Collection[str]) -> set[str]:
    """Returns the ensembles among `ready` that `model` is a step of, also through others, and `model` itself."""
    return {name for name in ready if model in parts(repository, name)}


def _declares(model: Model) -> bool:
    """Returns whether the repository check knows the inputs and outputs. It reads those of ONNX files."""
    return (
        model.is_ensemble or bool(model.networks) or bool(model.config and model.config.input and model.config.output)
    )
