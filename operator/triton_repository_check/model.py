"""The data model of a model repository."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from triton_repository_check.contents import Contents
from triton_repository_check.files import Entry
from triton_repository_check.onnx import Network
from triton_repository_check.places import Node, at

NOT_VERSIONS = frozenset({"warmup", "initial_state", "configs"})
"""Directories of a model that Triton doesn't treat as versions (VersionsToLoad in core/model_lifecycle.cc)."""

_VERSION = re.compile(r"0|[1-9][0-9]*")
MODEL_FILES = {
    "model.onnx": "onnxruntime",
    "model.plan": "tensorrt",
    "model.pt": "pytorch",
    "model.pt2": "pytorch",
    "model.savedmodel": "tensorflow",
    "model.graphdef": "tensorflow",
    "model.xml": "openvino",
    "model.py": "python",
}
"""Model files and their backends. Triton uses them if config.pbtxt doesn't set the backend."""
DEFAULT_FILES = {
    "python": ("model.py",),
    "onnxruntime": ("model.onnx",),
    "tensorrt": ("model.plan",),
    "pytorch": ("model.pt",),
    "torch_aoti": ("model.pt2",),
    "tensorflow": ("model.savedmodel", "model.graphdef"),
    "openvino": ("model.xml",),
    "dali": ("model.dali", "dali.py"),
    "vllm": ("model.json",),
}
"""Model files by backend, or by the platform torch_aoti. A version directory needs one of them. Backends that aren't
listed have other rules."""
FIL_FILES = {
    "xgboost": ("xgboost.model",),
    "xgboost_json": ("xgboost.json",),
    "xgboost_ubj": ("xgboost.ubj",),
    "lightgbm": ("model.txt",),
    "treelite_checkpoint": ("checkpoint.tl",),
}
"""Model files of the fil backend by its parameter model_type."""
PLATFORMS = {
    "tensorrt_plan": "tensorrt",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "torch_aoti": "pytorch",
}
"""Platforms, the older setting, and their backends. The platform `ensemble` has no backend."""


STUB = "triton_python_backend_stub"
"""A program in a model's directory that runs its model.py instead of the backend's own."""
HERE = "$$TRITON_MODEL_DIRECTORY"
ACTIVATE = "bin/activate"
"""The file that an environment of Python must have."""
ENVIRONMENT = "EXECUTION_ENV_PATH"
"""The parameter of the python backend with the path of an environment of Python: a directory or a tar file."""


SERVED_AT = "/models"
"""The path of the repository in the operator's servers."""
_ENGINES = frozenset({"gpt_model_path", "engine_dir", "decoder_model_path", "encoder_model_path", "tokenizer_dir"})
"""Parameters of TensorRT-LLM's models that name a directory."""
WRITTEN = {
    "trt_engine_cache_path": "trt_engine_cache_enable",
    "trt_ep_context_file_path": "trt_dump_ep_context_model",
    "trt_timing_cache_path": "trt_timing_cache_enable",
}
"""Parameters of ONNX Runtime's TensorRT with a path that it writes to, and those that make it write."""


def in_repository(path: str, directory: str) -> str:
    """Returns the path relative to `directory`, a model's, of an absolute path of the server.

    Empty if it isn't below the repository, or has `..`, which may lead elsewhere after a link.
    """
    inside = path.startswith(f"{SERVED_AT}/") and ".." not in path.split("/")
    return posixpath.relpath(path, f"{SERVED_AT}/{directory}") if inside else ""


def weights_path(file: str, name: str) -> str:
    """Returns the path, relative to the model, of the file `name` with external weights of an ONNX file.

    Empty for an absolute path that isn't below the repository. `file`: the path of the ONNX file in the repository.
    """
    directory, _, inner = file.partition("/")
    if name.startswith("/"):
        return in_repository(name, directory)
    return posixpath.normpath(posixpath.join(posixpath.dirname(inner), name))


def files_in_parameters(config: Any, directory: str) -> dict[str, str]:
    """Returns the files and directories of the repository that parameters name: key → path relative to `directory`.

    Leaves out other files of the server image. `directory`: the model's.
    """
    values = {key: config.parameters[key].string_value for key in sorted(_ENGINES & set(config.parameters))}
    values[ENVIRONMENT] = environment(config, directory)
    here = f"{SERVED_AT}/{directory}"
    return {key: posixpath.relpath(value, here) for key, value in values.items() if value.startswith(f"{SERVED_AT}/")}


def environment(config: Any, directory: str) -> str:
    """Returns the path that the python backend opens as its environment of Python; empty without one."""
    if (config.backend or config.platform or "python") != "python" or ENVIRONMENT not in config.parameters:
        return ""
    value = str(config.parameters[ENVIRONMENT].string_value)
    at = value.find(HERE)
    # Where the variable isn't at the start, the backend replaces as many characters too many (python_be.cc).
    return value if at < 0 else f"{value[:at]}{SERVED_AT}/{directory}{value[2 * at + len(HERE) :]}"


@dataclass(frozen=True, slots=True)
class Data:
    """A file under warmup/ or initial_state/ that contains a tensor.

    - `size`: size in bytes.
    - `strings`: number of strings, each after its length in 4 bytes; None if the content isn't in this format.
    """

    size: int
    strings: int | None = None


@dataclass(frozen=True, slots=True)
class Labels:
    """The names of classes, one a line.

    - `count`: number of lines; None if the file is too large to count them.
    - `fault`: what is wrong with the text.
    """

    count: int | None
    fault: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Model:
    """A directory of the repository. Triton treats each of them as a model.

    - `name`: the directory's name, which is the name of the model in Triton.
    - `directory`: path relative to the repository.
    - `config`: the parsed `ModelConfig`; None if config.pbtxt is missing or can't be parsed.
    - `config_path`: path of config.pbtxt relative to the repository, even if it doesn't exist.
    - `has_config`: whether config.pbtxt exists, even if it is invalid.
    - `folders`: the directories of the model, usually its versions, and the names of their entries.
    - `files`: the names of the model's entries that are not directories.
    - `sources`: the Python model files: path relative to the repository → text.
    - `networks`: the ONNX model files: path relative to the repository → its interface, or why it isn't an ONNX model.
    - `contents`: what other model files say about themselves: path relative to the model → contents.
    - `data`: the files of warmup/ and initial_state/ by path relative to the model, e.g. `warmup/image`.
    - `named`: the entries at the paths of the configuration and of model files, by path relative to the model.
    - `pointers`: the paths in `named` that are Git LFS pointers.
    - `elsewhere`: the paths in `named` of external weights that aren't in the directory of their ONNX file.
    - `labels`: the label files that can be read, by path relative to the model.
    - `closed`: versions with unknown content: links that lead out of the repository, and unreadable directories.
    - `unread`: whether the model's directory is a link that leads out of the repository, so that its content is
      unknown.
    - `unfilled`: the strings of config.pbtxt with a placeholder of a template: the field's name and its position.
    - `where`: the positions of the values in config.pbtxt, or in the spec.
    - `replaced`: the fields of `config` that spec.models sets.
    """

    name: str
    directory: str
    config: Any
    config_path: str
    has_config: bool = True
    folders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    files: frozenset[str] = frozenset()
    sources: Mapping[str, str] = field(default_factory=dict)
    networks: Mapping[str, Network | str] = field(default_factory=dict)
    contents: Mapping[str, Contents] = field(default_factory=dict)
    data: Mapping[str, Data] = field(default_factory=dict)
    named: Mapping[str, Entry] = field(default_factory=dict)
    pointers: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    labels: Mapping[str, Labels] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    unread: bool = False
    unfilled: tuple[tuple[str, Node], ...] = ()
    where: Node = field(default_factory=lambda: at(1, 1))
    replaced: tuple[str, ...] = ()

    @cached_property
    def versions(self) -> tuple[int, ...]:
        """The numbers of the version directories, ascending. Leaves out `01`: Triton ignores leading zeros."""
        return tuple(sorted(int(name) for name in self.folders if _VERSION.fullmatch(name)))

    @cached_property
    def served(self) -> tuple[int, ...]:
        """The versions that Triton loads by the version policy; by default the highest one."""
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
        """Whether the model is an ensemble."""
        return self.config is not None and (
            self.config.platform == "ensemble" or self.config.HasField("ensemble_scheduling")
        )

    @property
    def is_decoupled(self) -> bool:
        """Whether it may send several responses to a request, by its own configuration.

        Triton's vLLM backend makes its models decoupled. A model.py that does so without config.pbtxt isn't recognized.
        """
        if self.config is None:
            return False
        if self.config.HasField("model_transaction_policy"):
            return bool(self.config.model_transaction_policy.decoupled)
        return self.backend == "vllm"

    @cached_property
    def steps(self) -> tuple[Any, ...]:
        """The `ModelEnsembling.Step` messages in the order of the text; empty if it isn't an ensemble."""
        return tuple(self.config.ensemble_scheduling.step) if self.is_ensemble else ()

    @property
    def backend(self) -> str:
        """The model's backend; `ensemble` for ensembles, and empty if it is unknown.

        The first of these sets it, as in Triton: `backend`, `platform`, a model file, the end of the directory's name
        (`resize.python`).
        """
        if self.is_ensemble:
            return "ensemble"
        if self.config is not None and self.config.backend:
            return str(self.config.backend)
        if self.config is not None and self.config.platform:
            return PLATFORMS.get(self.config.platform, "")
        by_file = next((MODEL_FILES[name] for name in sorted(self.entries) if name in MODEL_FILES), "")
        return by_file or (self.name.rpartition(".")[2] if "." in self.name else "")

    @property
    def default_files(self) -> tuple[str, ...]:
        """The names of the model files that the backend looks for without default_model_filename."""
        aoti = self.config is not None and self.config.platform == "torch_aoti"
        if self.backend == "fil" and self.config is not None:
            values = self.config.parameters
            return FIL_FILES.get(values["model_type"].string_value if "model_type" in values else "xgboost", ())
        return DEFAULT_FILES.get("torch_aoti" if aoti else self.backend, ())

    @property
    def entries(self) -> frozenset[str]:
        """The names of all entries of the served version directories."""
        return frozenset().union(*(self.folders[str(v)] for v in self.served))

    @property
    def model_files(self) -> tuple[str, ...]:
        """The paths of the model files of the served versions, relative to the model. Some may not exist."""
        served = {str(version) for version in self.served}
        return tuple(path for path in self.named if path.partition("/")[0] in served)

    def looks_like_model(self) -> bool:
        """Whether the directory is probably meant as a model."""
        return self.has_config or bool(self.versions) or self.unread


@dataclass(frozen=True)
class Repository:
    """A directory of models.

    - `path`: the path from the caller.
    - `models`: the models by directory name, sorted.
    - `below`: directories below it that contain models, relative to the repository; empty if the repository has models.
    - `is_model`: whether the path is a model, so one level too low.
    - `request_fault`: why the file of spec.healthRequest isn't JSON; empty if it is, or needn't be.
    - `size`: the sum of its files in bytes; None if it wasn't measured.
    """

    path: str
    models: Mapping[str, Model]
    below: tuple[str, ...] = ()
    is_model: bool = False
    request_fault: str = ""
    size: int | None = None
