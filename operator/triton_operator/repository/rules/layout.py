"""Directories and files: models, versions, model files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from triton_operator.repository.files import Kind
from triton_operator.repository.findings import Finding
from triton_operator.repository.model import (
    DEFAULT_FILES,
    MODEL_FILES,
    NOT_VERSIONS,
    Model,
    Repository,
    files_in_parameters,
)
from triton_operator.repository.rules.base import Expected, error, listed, note, warning

_NEARLY = frozenset({"config.pbtxt", "config.pbtext", "config.pb", "config.txt", "config.prototxt", "config"})
"""What people write instead of config.pbtxt, in lower case."""

MOST = 2**63 - 1
"""The highest version."""
_NUMBER = re.compile(r"(\s*[+-]?)(\d+)")
"""What stoll of C++ reads at the start of a name."""
_WEIGHTS = frozenset({"onnxruntime", "openvino", "pytorch", "tensorflow", "tensorrt"})
"""Backends that can't load an empty file."""

_KEEP = "git and object stores drop empty directories: put a file such as .keep into it"


def no_models(repository: Repository, _: Expected) -> Iterator[Finding]:
    """TR001: nothing here looks like a model; the path is wrong as a rule."""
    if any(model.looks_like_one() for model in repository.models.values()):
        return
    if repository.is_model:
        message = "this is a single model, not a repository of models"
        remedy = "set spec.modelImage.path to the directory above it"
    elif repository.below:
        message = "no models here; found models under " + ", ".join(f"{d}/" for d in repository.below)
        remedy = f"set spec.modelImage.path to that directory: add /{repository.below[0]} to what it is now"
    else:
        message = "no models here: no directory with a config.pbtxt or a numbered version"
        remedy = "see that spec.modelImage.path is where the image holds <model>/config.pbtxt"
    yield error(".", "TR001", message, remedy)


def stray(repository: Repository, _: Expected) -> Iterator[Finding]:
    """TR003: a directory that is no model; Triton tries to load every one, and stops at this one."""
    for model in repository.models.values():
        if not model.looks_like_one():
            yield error(
                model.directory,
                "TR003",
                "no model: it has neither a config.pbtxt nor a numbered version, and Triton loads every directory",
                "move it out of the repository, or name the models to load in spec.server.loadModels",
            )


def missing_config(_: Repository, model: Model) -> Iterator[Finding]:
    """TR104: no config.pbtxt, which some backends complete by themselves."""
    if model.has_config:
        return
    known = sorted(MODEL_FILES.keys() & model.entries)
    if known:
        yield note(
            model.config_path,
            "TR104",
            f"missing; Triton completes it from {known[0]}",
            "write one to fix the tensors, the batch size and the instances",
        )
    elif model.served:
        yield error(
            model.config_path,
            "TR104",
            f"missing, and no version holds a file that Triton could complete it from ({', '.join(MODEL_FILES)})",
            "add a config.pbtxt",
        )


def misnamed(_: Repository, model: Model) -> Iterator[Finding]:
    """TR207: a configuration under a name that Triton doesn't look for."""
    if model.has_config:
        return
    for name in sorted(model.files):
        if name.lower() in _NEARLY or re.fullmatch(r"config\.pbtxt\..+", name.lower()):
            yield warning(
                f"{model.directory}/{name}",
                "TR207",
                "Triton reads config.pbtxt, and not this",
                "rename it to config.pbtxt",
            )


def versions(_: Repository, model: Model) -> Iterator[Finding]:
    """TR201-TR203, TR206: what is a version and what only looks like one."""
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
                continue  # a version below all others, which is served when it is the only one
            lost = number not in model.versions and _would_serve(model, number)
            yield (error if lost else warning)(
                where,
                "TR203",
                f"Triton reads the number at its start and takes it for version {number}"
                + (", which it then doesn't find" if lost else ""),
                "move it out of the model's directory",
            )
    for name in sorted(model.folders):
        if (start := _NUMBER.match(name)) and not name.startswith("0") and int(start[2]) > MOST:
            yield error(
                f"{model.directory}/{name}",
                "TR203",
                f"a version above {MOST}, which ends the server",
                "use a smaller number, or move it out of the model's directory",
            )
    if not model.versions:
        others = sorted(model.folders.keys() - NOT_VERSIONS)
        yield error(
            model.directory,
            "TR201",
            "no version directory: " + (f"{', '.join(others)} won't do" if others else "there is none"),
            "add a directory named by a number, e.g. 1; ensembles need one too, and " + _KEEP,
        )
    elif model.config is not None and model.config.version_policy.HasField("specific"):
        gone = sorted(set(model.config.version_policy.specific.versions) - set(model.versions))
        if gone:
            level = warning if model.served else error
            yield level(
                model.config_path,
                "TR206",
                f"version_policy names versions that have no directory: {listed(gone)}",
                f"there are: {listed(model.versions)}",
                model.where.find("version_policy", "specific"),
            )
    if model.versions and not model.served and model.config is not None and not _specific(model):
        yield error(
            model.config_path,
            "TR123",
            "version_policy serves no version",
            "set e.g. version_policy { latest { num_versions: 1 } }, or leave it out",
            model.where.find("version_policy"),
        )


def _specific(model: Model) -> bool:
    """Whether the policy names versions, which are told one by one."""
    return bool(model.config.version_policy.specific.versions)


def _would_serve(model: Model, number: int) -> bool:
    """Whether the version policy has Triton load `number`, were it there."""
    policy = model.config.version_policy if model.config is not None else None
    if policy is not None and policy.HasField("all"):
        return True
    if policy is not None and policy.HasField("specific"):
        return number in policy.specific.versions
    most = policy.latest.num_versions if policy is not None else 1
    return number in sorted({*model.versions, number})[-most:]


def model_files(_: Repository, model: Model) -> Iterator[Finding]:
    """TR204, TR205: a version without what its backend loads. The python backend of server 2.51 doesn't fail then: it
    says so in the log and hangs, for 20 minutes and more, with no model ready."""
    wanted = DEFAULT_FILES.get(model.backend, ())
    if model.config is not None:
        if model.config.cc_model_filenames or (model.config.runtime and model.backend != "python"):
            return
        if model.config.default_model_filename:
            wanted = (model.config.default_model_filename,)
    for version in model.served:
        if str(version) in model.closed:
            continue
        held = model.folders[str(version)]
        where = f"{model.directory}/{version}"
        if model.is_ensemble and not held:
            yield note(where, "TR205", "empty, which is right for an ensemble", _KEEP)
        elif not model.is_ensemble and wanted and not any(_there(model, version, name) for name in wanted):
            state = f"holds {', '.join(sorted(held)[:5])}" if held else "is empty"
            yield error(
                where,
                "TR204",
                f"has no {' or '.join(wanted)}, which backend {model.backend} loads: it {state}",
                "add the file, or name another one in default_model_filename" if held else "add the file; " + _KEEP,
            )


def _there(model: Model, version: int, name: str) -> bool:
    """Whether a file may be there: also where a link leads out of the repository."""
    entry = model.named.get(f"{version}/{name.lstrip('/')}")
    return entry is not None and entry.kind is not Kind.NOTHING


def weights(_: Repository, model: Model) -> Iterator[Finding]:
    """TR211: model files without content: empty, or a pointer of git LFS. Those of ONNX have TR601."""
    for path in model.model_files:
        entry = model.named[path]
        pointer = path in model.pointers
        empty = entry.kind is Kind.FILE and not entry.size and model.backend in _WEIGHTS
        if f"{model.directory}/{path}" not in model.networks and (pointer or empty):
            yield error(
                f"{model.directory}/{path}",
                "TR211",
                "a pointer of git LFS, not the model itself" if pointer else "the file is empty",
                "run git lfs pull before the image is built" if pointer else "put the model there",
            )


def named(_: Repository, model: Model) -> Iterator[Finding]:
    """TR209: files of the model's directory that parameters name."""
    if model.config is None:
        return
    for key, path in files_in_parameters(model.config).items():
        if model.named[path].kind is Kind.NOTHING:
            yield error(
                model.config_path,
                "TR209",
                f"{key} names {path!r}, and there is no {model.directory}/{path}",
                "add the file, or correct the path",
                model.where.find("parameters", key),
            )


def misplaced(_: Repository, model: Model) -> Iterator[Finding]:
    """TR210: a config.pbtxt in a version, where Triton doesn't look for it."""
    for version, held in sorted(model.folders.items()):
        if "config.pbtxt" in held and version.isdecimal():
            yield warning(
                f"{model.directory}/{version}/config.pbtxt",
                "TR210",
                "Triton reads the config.pbtxt beside the versions, and not this",
                "move it one directory up, or take it out",
            )


def names(_: Repository, model: Model) -> Iterator[Finding]:
    """TR212: names that the python backend can't hand to its process."""
    if model.backend != "python":
        return
    if any(c.isspace() for c in model.name):
        yield error(
            model.directory,
            "TR212",
            "a space in the name of a python model: the process of its backend ends with it",
            "use letters, digits, . - and _",
        )
    elif not model.name.isascii() or "?" in model.name:
        yield warning(
            model.directory,
            "TR212",
            "a name that isn't ASCII: the process of the python backend may not find its files",
            "use letters, digits, . - and _",
        )
