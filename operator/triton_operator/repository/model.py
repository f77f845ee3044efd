"""A model repository as it was read: plain facts, without judgement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from triton_operator.repository.files import Entry
from triton_operator.repository.onnx import Network
from triton_operator.repository.places import Node

NOT_VERSIONS = frozenset({"warmup", "initial_state", "configs"})
"""Directories beside the versions that Triton knows by name (VersionsToLoad in core/model_lifecycle.cc)."""

_VERSION = re.compile(r"0|[1-9][0-9]*")
MODEL_FILES = {
    "model.onnx": "onnxruntime",
    "model.plan": "tensorrt",
    "model.pt": "pytorch",
    "model.savedmodel": "tensorflow",
    "model.graphdef": "tensorflow",
    "model.xml": "openvino",
    "model.py": "python",
}
"""The files by which Triton tells the backend where config.pbtxt doesn't."""
DEFAULT_FILES = {
    "python": ("model.py",),
    "onnxruntime": ("model.onnx",),
    "tensorrt": ("model.plan",),
    "pytorch": ("model.pt",),
    "tensorflow": ("model.savedmodel", "model.graphdef"),
    "openvino": ("model.xml",),
    "dali": ("model.dali", "dali.py"),
    "vllm": ("model.json",),
}
"""What a version directory must hold, one of these; backends that are not listed have rules of their own."""
PLATFORMS = {
    "tensorrt_plan": "tensorrt",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
}
"""The older way to name a backend; `ensemble` is the one platform without a backend."""


_HERE = "$$TRITON_MODEL_DIRECTORY"


def files_in_parameters(config: Any) -> dict[str, str]:
    """The parameters that name a file of the model's directory: key → path relative to that directory. Files elsewhere
    in the server's image aren't among them."""
    found = {}
    if config.backend == "python" and "EXECUTION_ENV_PATH" in config.parameters:
        said = config.parameters["EXECUTION_ENV_PATH"].string_value
        if said.startswith(_HERE):
            found["EXECUTION_ENV_PATH"] = said.removeprefix(_HERE).lstrip("/")
    return found


@dataclass(frozen=True, slots=True)
class Data:
    """A file under warmup/ or initial_state/, whose content is one tensor."""

    size: int
    """Bytes."""
    strings: int | None = None
    """How many strings it holds, each after its length in 4 bytes; None where it can't be read as such."""


@dataclass(frozen=True)
class Model:
    """One directory of the repository: Triton takes each of them for a model."""

    name: str
    """The directory's name, under which Triton serves it."""
    directory: str
    """Path relative to the repository."""
    config: Any
    """The parsed `ModelConfig`; None where config.pbtxt is missing or can't be parsed."""
    config_path: str
    """Path of config.pbtxt relative to the repository, whether it exists or not."""
    has_config: bool = True
    """Whether there is a config.pbtxt, however broken."""
    folders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Each directory in it, as a rule its versions, with the names of what is in there."""
    files: frozenset[str] = frozenset()
    """The names of the files beside the versions."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Python files of the versions that were read: path relative to the repository → text."""
    networks: Mapping[str, Network | str] = field(default_factory=dict)
    """ONNX files of the versions: path relative to the repository → what it declares, or why it is no ONNX model."""
    data: Mapping[str, Data] = field(default_factory=dict)
    """The files of warmup/ and initial_state/: path relative to the model, e.g. `warmup/image`."""
    named: Mapping[str, Entry] = field(default_factory=dict)
    """What lies at each path that the configuration names, and at those of model files, relative to the model."""
    pointers: frozenset[str] = frozenset()
    """Those of `named` that are pointers of git LFS."""
    closed: frozenset[str] = frozenset()
    """Versions whose content isn't known: links that lead out of the repository."""
    unread: bool = False
    """Whether nothing of the model is known: its directory is a link that leads out of the repository."""
    where: Node = field(default_factory=lambda: Node(1, 1))
    """Where config.pbtxt says what."""

    @cached_property
    def versions(self) -> tuple[int, ...]:
        """The numbers of the version directories, ascending. `01` is none: Triton skips leading zeros."""
        return tuple(sorted(int(name) for name in self.folders if _VERSION.fullmatch(name)))

    @cached_property
    def served(self) -> tuple[int, ...]:
        """Those of `versions` that the version policy lets Triton load; by default the highest one."""
        if self.config is None or not self.config.HasField("version_policy"):
            return self.versions[-1:]
        policy = self.config.version_policy
        if policy.HasField("specific"):
            return tuple(v for v in self.versions if v in policy.specific.versions)
        if policy.HasField("latest"):
            return self.versions[-policy.latest.num_versions :] if policy.latest.num_versions else ()
        return self.versions

    @property
    def is_ensemble(self) -> bool:
        """Whether it only connects other models."""
        return self.config is not None and (
            self.config.platform == "ensemble" or self.config.HasField("ensemble_scheduling")
        )

    @cached_property
    def steps(self) -> tuple[Any, ...]:
        """The `ModelEnsembling.Step` messages in the order of the text; none unless it is an ensemble."""
        return tuple(self.config.ensemble_scheduling.step) if self.is_ensemble else ()

    @property
    def backend(self) -> str:
        """The backend that config.pbtxt, its platform, a model file or the end of the directory's name
        (`resize.python`) tells, in Triton's order; `ensemble` for ensembles, and empty where nothing does."""
        if self.is_ensemble:
            return "ensemble"
        if self.config is not None and self.config.backend:
            return str(self.config.backend)
        if self.config is not None and self.config.platform:
            return PLATFORMS.get(self.config.platform, "")
        by_file = next((MODEL_FILES[name] for name in sorted(self.entries) if name in MODEL_FILES), "")
        return by_file or (self.name.rpartition(".")[2] if "." in self.name else "")

    @property
    def entries(self) -> frozenset[str]:
        """The names of all that is in the version directories that are served."""
        return frozenset().union(*(self.folders[str(v)] for v in self.served))

    @property
    def model_files(self) -> tuple[str, ...]:
        """The files of the served versions that the backend loads and that may be there, relative to the model."""
        served = {str(version) for version in self.served}
        return tuple(path for path in self.named if path.partition("/")[0] in served)

    def looks_like_one(self) -> bool:
        """Whether anything in the directory says that a model was meant."""
        return self.has_config or bool(self.versions) or self.unread


@dataclass(frozen=True)
class Repository:
    """A directory of models."""

    path: str
    """As the caller gave it."""
    models: Mapping[str, Model]
    """By directory name, in the order of the names."""
    below: tuple[str, ...] = ()
    """Directories further down that hold models, relative to the repository; looked for only where it has none."""
    is_model: bool = False
    """Whether the path is itself a model: it then points one level too deep."""
