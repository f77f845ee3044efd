"""Checks of directories and files: models, versions, model files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from triton_repository_check import placeholders
from triton_repository_check.expected import Expected
from triton_repository_check.files import FileKind
from triton_repository_check.findings import Finding
from triton_repository_check.model import (
    ACTIVATE,
    ENVIRONMENT,
    HERE,
    MODEL_FILES,
    NOT_VERSIONS,
    STUB,
    Model,
    Repository,
    environment,
    files_in_parameters,
)
from triton_repository_check.rules.base import (
    Checks,
    each_model,
    each_model_expected,
    error,
    listed,
    note,
    on_cpu,
    warning,
)

CODES = {
    "TR001": "the path contains no models, or is one level too high or too low",
    "TR003": "a directory is not a model",
    "TR104": "config.pbtxt is missing",
    "TR123": "version_policy serves no version",
    "TR201": "no version directory",
    "TR202": "the version directory has leading zeros",
    "TR203": "the directory's name starts with a number but isn't a version",
    "TR204": "the model file is missing",
    "TR205": "the version directory of an ensemble is empty",
    "TR206": "version_policy names versions that don't exist",
    "TR207": "the configuration isn't named config.pbtxt",
    "TR209": "a parameter names a file that isn't there, or that Triton can't find",
    "TR210": "config.pbtxt is in a version directory",
    "TR211": "the model file is empty, or is a Git LFS pointer",
    "TR212": "the python backend doesn't support the model's name",
    "TR213": "the program that runs model.py isn't executable",
    "TR214": "a hidden directory keeps Triton from finding the backend",
}

_CONFIG_NAMES = frozenset({"config.pbtxt", "config.pbtext", "config.pb", "config.txt", "config.prototxt", "config"})
"""Common wrong names of config.pbtxt, in lower case."""

MAX_VERSION = 2**63 - 1
"""The highest version number."""
_NUMBER = re.compile(r"(\s*[+-]?)(\d+)")
"""The start of a name that C++ stoll parses as a number."""
_WEIGHTS = frozenset({"onnxruntime", "openvino", "pytorch", "tensorflow", "tensorrt"})
"""Backends that can't load an empty file."""

_CAPABILITY = re.compile(r"\d+\.\d+")
"""A compute capability of a GPU. The backend never looks for other keys of cc_model_filenames."""
_NUMBERED = re.compile(r"v?\d.*")
"""The end of a directory's name that is a version, not a backend."""
_WHERE = "(in a TritonModel: spec.modelImage.path)"
_NO_PATH = re.compile(r"^(?:[A-Za-z]:|file:)|[\\$~]")
"""A part of a path of Windows, of a URL that Triton doesn't know, or of a shell's path. It knows s3: and others."""
_PULL = "run git lfs pull, then rebuild the image"
_KEEP = "git and object stores drop empty directories: add a file such as .keep to it"


def no_models(repository: Repository, _: Expected) -> Iterator[Finding]:
    """TR001: the path contains no models. Usually the path is wrong."""
    if any(model.looks_like_model() for model in repository.models.values()):
        return
    if repository.is_model:
        message = "this is a single model, not a repository of models"
        remedy = f"name the directory above it {_WHERE}"
    elif repository.below:
        message = "no models in this directory, but found models under " + ", ".join(f"{d}/" for d in repository.below)
        remedy = f"append /{repository.below[0]} to the path {_WHERE}"
    else:
        message = "no models: no directory contains a config.pbtxt or a version directory"
        remedy = f"name the directory that contains <model>/config.pbtxt {_WHERE}"
    yield error(".", "TR001", message, remedy)


def stray(repository: Repository, _: Expected) -> Iterator[Finding]:
    """TR003: a directory is not a model, which stops Triton, because it loads every directory."""
    for model in repository.models.values():
        if not model.looks_like_model():
            yield error(
                model.directory,
                "TR003",
                "not a model: it has no config.pbtxt and no version directory, but Triton loads every directory",
                "move it out of the repository, or list the models to load in spec.server.loadModels",
            )


def missing_config(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR104: config.pbtxt is missing. Triton can generate it for some backends."""
    if model.has_config:
        return
    if expected.flags and not expected.flags.completion and model.served:
        message = "config.pbtxt is missing, and a flag of the server switches off its completion"
        remedy = "add one, or remove --strict-model-config and --disable-auto-complete-config from spec.server.args"
        yield error(model.config_path, "TR104", message, remedy)
        return
    files = sorted(MODEL_FILES.keys() & model.entries)
    if files:
        yield note(
            model.config_path,
            "TR104",
            f"config.pbtxt is missing; Triton generates it from {files[0]}",
            "add one to set the tensors, the batch size and the instances",
        )
    elif model.backend and not _NUMBERED.fullmatch(model.backend):
        message = f"config.pbtxt is missing; Triton takes backend {model.backend!r} from the directory's name"
        yield note(model.config_path, "TR104", message, "add one unless the server image has this backend")
    elif model.served:
        yield error(
            model.config_path,
            "TR104",
            "config.pbtxt is missing, and no version contains a file from which Triton can generate it "
            f"({', '.join(MODEL_FILES)})",
            "add a config.pbtxt",
        )


def misnamed(_: Repository, model: Model) -> Iterator[Finding]:
    """TR207: the configuration file has a name that Triton doesn't read."""
    if model.has_config:
        return
    for name in sorted(model.files):
        if name.lower() in _CONFIG_NAMES or re.fullmatch(r"config\.pbtxt\..+", name.lower()):
            yield warning(
                f"{model.directory}/{name}",
                "TR207",
                "Triton doesn't read this file, only config.pbtxt",
                "rename it to config.pbtxt",
            )


def versions(_: Repository, model: Model) -> Iterator[Finding]:
    """TR201-TR203, TR206, TR123: missing version directories, and names that only look like versions."""
    for name in sorted(model.folders):
        where = f"{model.directory}/{name}"
        if re.fullmatch(r"0\d+", name):
            yield warning(
                where,
                "TR202",
                "Triton ignores version directories with leading zeros",
                f"rename it to {int(name)}",
            )
        elif (start := _NUMBER.match(name)) and name not in NOT_VERSIONS and (len(start[0]) < len(name) or start[1]):
            number = int(start[2])
            if start[1].strip() == "-":
                continue  # a negative version, which Triton serves only if there is no other
            lost = number not in model.versions and _would_serve(model, number)
            yield (error if lost else warning)(
                where,
                "TR203",
                f"Triton parses the number at the start of the name and treats the directory as version {number}"
                + (", which doesn't exist" if lost else ""),
                "move it out of the model's directory",
            )
    for name in sorted(model.folders):
        if (start := _NUMBER.match(name)) and not name.startswith("0") and int(start[2]) > MAX_VERSION:
            yield error(
                f"{model.directory}/{name}",
                "TR203",
                f"the version is above {MAX_VERSION}, which crashes the server",
                "use a smaller number, or move the directory out of the model's directory",
            )
    if not model.versions:
        others = sorted(model.folders.keys() - NOT_VERSIONS)
        yield error(
            model.directory,
            "TR201",
            "no version directory" + (f": {', '.join(others)} is not a version number" if others else ""),
            "add a directory with a number as its name, e.g. 1; ensembles need one too; " + _KEEP,
        )
    elif model.config is not None and model.config.version_policy.HasField("specific"):
        gone = sorted(set(model.config.version_policy.specific.versions) - set(model.versions))
        if gone:
            level = warning if model.served else error
            yield level(
                model.config_path,
                "TR206",
                f"version_policy names versions without a directory: {listed(gone)}",
                f"add the directories, or use existing versions: {listed(model.versions)}",
                model.where.find("version_policy", "specific"),
            )
    if model.versions and not model.served and model.config is not None and not _specific(model):
        yield error(
            model.config_path,
            "TR123",
            "version_policy serves no version",
            "set e.g. version_policy { latest { num_versions: 1 } }, or remove version_policy",
            model.where.find("version_policy"),
        )


def _specific(model: Model) -> bool:
    """Whether the policy names versions. TR206 reports missing ones."""
    return bool(model.config.version_policy.specific.versions)


def _would_serve(model: Model, number: int) -> bool:
    """Whether Triton would load version `number` by the version policy, if it existed."""
    policy = model.config.version_policy if model.config is not None else None
    if policy is not None and policy.HasField("all"):
        return True
    if policy is not None and policy.HasField("specific"):
        return number in policy.specific.versions
    count = policy.latest.num_versions if policy is not None else 1
    return number in sorted({*model.versions, number})[-count:]


def model_files(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR204, TR205: the model file of a version is missing.

    The python backend of server 2.51 doesn't fail then: it logs an error and hangs for 20 minutes or more, and no
    model becomes ready.
    """
    files = model.default_files
    by_gpu: tuple[str, ...] = ()
    if model.config is not None:
        if model.config.runtime and model.backend != "python":
            return
        if model.config.default_model_filename:
            # Only the backend opens the file, so that an unknown one may use the name for something else.
            files = (model.config.default_model_filename,) if model.default_files else ()
        if not on_cpu(model, expected):
            names = model.config.cc_model_filenames
            by_gpu = tuple(sorted({names[key] for key in names if _CAPABILITY.fullmatch(key)}))
    for version in model.served:
        if str(version) in model.closed:
            continue
        entries = model.folders[str(version)]
        where = f"{model.directory}/{version}"
        if model.is_ensemble and not entries:
            yield note(where, "TR205", "the version directory is empty, which is correct for an ensemble", _KEEP)
        elif not model.is_ensemble and files and not any(_there(model, version, name) for name in (*files, *by_gpu)):
            state = f"it contains {', '.join(sorted(entries)[:5])}" if entries else "the directory is empty"
            if model.backend == "onnxruntime" and entries & set(files):
                state = "in its place is a directory without a file model.onnx"
            yield error(
                where,
                "TR204",
                f"no {' or '.join((*files, *by_gpu))}, which backend {model.backend} needs: {state}",
                "add the file, or set default_model_filename to another one" if entries else "add the file; " + _KEEP,
            )
        elif gone := [name for name in by_gpu if not _there(model, version, name) and not placeholders.names(name)]:
            yield warning(
                where,
                "TR204",
                f"no {listed(gone)}, which cc_model_filenames names for some GPUs",
                "add the file, or remove it from cc_model_filenames",
            )


def _there(model: Model, version: int, name: str) -> bool:
    """Whether the file may exist. A link that leads out of the repository may. Some models are directories."""
    path = f"{version}/{name.lstrip('/')}"
    entry = model.named.get(path)
    if entry is not None and entry.kind is FileKind.FOLDER and model.backend == "onnxruntime":
        entry = model.named.get(f"{path}/model.onnx")  # as LoadModel in onnxruntime.cc
    missing = (FileKind.NOTHING, FileKind.FOLDER) if name.endswith(".py") else (FileKind.NOTHING,)
    return entry is not None and entry.kind not in missing


def weights(_: Repository, model: Model) -> Iterator[Finding]:
    """TR211: a model file is empty, or is a Git LFS pointer. TR601 reports ONNX files."""
    for path in model.model_files:
        entry = model.named[path]
        pointer = path in model.pointers
        empty = entry.kind is FileKind.FILE and not entry.size and model.backend in _WEIGHTS
        if f"{model.directory}/{path}" not in model.networks and (pointer or empty):
            yield error(
                f"{model.directory}/{path}",
                "TR211",
                "the file is a Git LFS pointer, not the model" if pointer else "the model file is empty",
                _PULL if pointer else "replace it with the model",
            )


def named(_: Repository, model: Model) -> Iterator[Finding]:
    """TR209, TR211: a file or a directory of the repository that a parameter names is missing, or no use."""
    if model.config is None:
        return
    for key, path in files_in_parameters(model.config, model.directory).items():
        whole, kind = posixpath.normpath(f"{model.directory}/{path}"), model.named[path].kind
        if path in model.pointers and path not in model.model_files:
            yield error(whole, "TR211", "the file is a Git LFS pointer, not the model", _PULL)
        if kind is FileKind.FOLDER and key == ENVIRONMENT:
            path, kind = f"{path}/{ACTIVATE}", model.named[f"{path}/{ACTIVATE}"].kind
        if kind is FileKind.NOTHING:
            written = model.config.parameters[key].string_value
            yield error(
                model.config_path,
                "TR209",
                f"{key} names {written!r}, but {posixpath.normpath(f'{model.directory}/{path}')} doesn't exist",
                "add the file, or correct the path",
                model.where.find("parameters", key),
            )
    yield from _relative(model, environment(model.config, model.directory))


def _relative(model: Model, path: str) -> Iterator[Finding]:
    """TR209: the environment of Python isn't an absolute path, so that Triton looks for it beside its own files."""
    if path.startswith("/") or not path or placeholders.names(path):
        return
    inner = posixpath.normpath(path)
    beside = inner.partition("/")[0] in model.files | model.folders.keys()
    # A server image may have a plain path in Triton's working directory.
    level = error if beside or _NO_PATH.search(path) else warning
    yield level(
        model.config_path,
        "TR209",
        f"{ENVIRONMENT} opens {path!r}, which isn't an absolute path of Linux: Triton doesn't look for it beside "
        "config.pbtxt",
        f"write {f'{HERE}/{inner}'!r}"
        if beside
        else f"add the file to {model.directory}/, and write {HERE}/ and its name",
        model.where.find("parameters", ENVIRONMENT),
    )


def hidden(_: Repository, model: Model) -> Iterator[Finding]:
    """TR214: without a backend Triton looks for the model file only in the first directory, by name."""
    config = model.config
    if model.is_ensemble or "." in model.name or not model.versions:
        return
    if config is not None and (config.backend or config.platform or config.default_model_filename):
        return
    first = min(model.folders)
    if first.startswith(".") and not model.folders[first] & MODEL_FILES.keys():
        yield error(
            f"{model.directory}/{first}",
            "TR214",
            "config.pbtxt sets no backend, and Triton looks for a model file only in the first directory, this one",
            "remove the directory, or set backend" + (f": {model.backend!r}" if model.backend else ""),
        )


def stub(_: Repository, model: Model) -> Iterator[Finding]:
    """TR213: the program that runs model.py isn't executable."""
    program = model.named.get(STUB)
    if model.backend == "python" and program is not None and program.kind is FileKind.FILE and not program.executable:
        yield error(
            f"{model.directory}/{STUB}",
            "TR213",
            "Triton starts this program for model.py, but its user may not execute it",
            "make it executable: chmod a+rx",
        )


def misplaced(_: Repository, model: Model) -> Iterator[Finding]:
    """TR210: a config.pbtxt is in a version directory, where Triton doesn't read it."""
    for version, entries in sorted(model.folders.items()):
        if "config.pbtxt" in entries and version.isdecimal():
            yield warning(
                f"{model.directory}/{version}/config.pbtxt",
                "TR210",
                "Triton doesn't read this file, only config.pbtxt in the model's directory",
                "move it one directory up, or remove it",
            )


def names(_: Repository, model: Model) -> Iterator[Finding]:
    """TR212: the python backend doesn't support the model's name."""
    if model.backend != "python":
        return
    if any(c.isspace() for c in model.name):
        yield error(
            model.directory,
            "TR212",
            "the model's name contains a space, which crashes the python backend's process",
            "rename the model; use only letters, digits, . - and _",
        )
    elif not model.name.isascii() or "?" in model.name:
        yield warning(
            model.directory,
            "TR212",
            "the model's name contains ? or is not ASCII: the python backend's process may not find its files",
            "rename the model; use only letters, digits, . - and _",
        )


CHECKS: Checks = (
    ("stray directories", stray),
    ("missing config.pbtxt", each_model_expected(missing_config)),
    ("wrong name of config.pbtxt", each_model(misnamed)),
    ("versions", each_model(versions)),
    ("config.pbtxt in a version directory", each_model(misplaced)),
    ("files in parameters", each_model(named)),
    ("weights", each_model(weights)),
    ("names for the python backend", each_model(names)),
    ("model files", each_model_expected(model_files)),
    ("the program that runs model.py", each_model(stub)),
    ("hidden directories", each_model(hidden)),
)
