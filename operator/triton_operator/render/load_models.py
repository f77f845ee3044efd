"""The models of spec.server.loadModels that servers load when they start.

They are in a ConfigMap and not in the pod template, so that a change of them replaces no server
(docs/decisions/0039-load-models-in-a-configmap.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.types import TritonModel

from .child_type import Child
from .choices import Choices, Models
from .common import obj

FOLDER = "/.triton-operator/load-models"
VOLUME = {"name": "load-models", "mountPath": FOLDER, "readOnly": True}
LIST = f"{FOLDER}/models"
"""The file with a model in each line."""


def name(model: TritonModel) -> str:
    """Returns the name of the ConfigMap."""
    return names.account(model.name)


def config_maps(model: TritonModel, choices: Choices) -> list[dict[str, Any]]:
    """Returns the ConfigMap with the models; none if a change of them replaces the servers."""
    if not model.changes_models:
        return []
    models = choices.models or Models(tuple(model.spec.server.load_models))
    data = {"models": _lines(models.listed), "others": _lines(models.others)}
    return [obj(model, kinds.CONFIG_MAP, name(model), data=data)]


def read(config_map: Mapping[str, Any] | None) -> Models | None:
    """Returns the models in the ConfigMap; None without one."""
    if config_map is None:
        return None
    data = config_map.get("data") or {}
    return Models(*(tuple(data.get(key, "").split()) for key in ("models", "others")))


def _lines(models: Iterable[str]) -> str:
    return "".join(f"{model}\n" for model in models)


def volumes(model: TritonModel) -> list[dict[str, Any]]:
    """Returns the volume of the ConfigMap; none without one."""
    return [{"name": VOLUME["name"], "configMap": {"name": name(model)}}] if model.changes_models else []


def mounts(model: TritonModel) -> list[dict[str, Any]]:
    """Returns the mount of that volume."""
    return [VOLUME] if model.changes_models else []


def flags(model: TritonModel) -> list[str]:
    """Returns the flags of tritonserver for models that aren't in the ConfigMap."""
    return [] if model.changes_models else [f"--load-model={name}" for name in model.spec.server.load_models]


def check_flags(model: TritonModel) -> list[str]:
    """Returns the flag of the repository check in the pod with the models; none if there are no models."""
    if model.changes_models:
        return [f"--load-models-file={LIST}"]
    return [f"--load-models={','.join(model.spec.server.load_models)}"] if model.spec.server.load_models else []


CHILD = Child(kinds.CONFIG_MAP, config_maps)
