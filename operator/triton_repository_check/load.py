"""Loads a directory or an archive as a Repository."""

from __future__ import annotations

import errno
import io
import json
import os
import posixpath
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from triton_repository_check import contents, labels, overrides, placeholders
from triton_repository_check.contents import Contents
from triton_repository_check.files import Directory, Entry, FileKind, Files, OutsideError, Store, join
from triton_repository_check.findings import Finding, Severity
from triton_repository_check.model import (
    ACTIVATE,
    ENVIRONMENT,
    STUB,
    WRITTEN,
    Data,
    Labels,
    Model,
    Repository,
    files_in_parameters,
    in_repository,
    weights_path,
)
from triton_repository_check.onnx import MAX_FIELDS, ORT, Network, OnnxError, TooManyFieldsError, is_ort
from triton_repository_check.onnx import read as read_onnx
from triton_repository_check.overrides import Overrides
from triton_repository_check.places import Node, at, strings
from triton_repository_check.schema import ModelConfig
from triton_repository_check.text import is_utf_16, one_line
from triton_repository_check.textformat import MAX_VALUES, TextError, TooManyValuesError, parse

CODES = {
    "TR002": "a file or directory can't be read",
    "TR004": "a link leads out of the repository",
    "TR005": "a file is too large to check",
    "TR006": "a link is broken",
    "TR101": "config.pbtxt: syntax error",
    "TR102": "config.pbtxt: unknown field",
    "TR130": "config.pbtxt: a value isn't UTF-8",
}

MAX_CONFIG = 32 * 2**20
"""Maximum size of a config.pbtxt in bytes. The check skips larger ones. Triton has no limit."""
MAX_SOURCE = 256 * 2**10
"""Maximum size in bytes of a model.py. The check skips larger ones: parsing may take 700 times as much memory."""
MAX_DATA = 4 * 2**20
"""Maximum size in bytes of a file with strings. The check skips larger ones."""

DEPTH = 3
"""Number of directory levels in which to search for misplaced models."""

DATA_FOLDERS = frozenset({"warmup", "initial_state"})
"""Directories of a model whose files contain tensors."""

_LABEL_BYTES = 256 * 2**10
"""Number of bytes that are read of a label file."""
_POINTER = b"version https://git-lfs"
_POINTER_BYTES = 1024
"""Maximum size of a Git LFS pointer."""


class _Reader:
    """A reader of files that collects errors as findings, so that one bad file doesn't hide the others."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.findings: list[Finding] = []

    def unreadable(self, path: str, reason: str, severity: Severity = Severity.ERROR) -> None:
        self._add(
            "TR002",
            severity,
            path,
            f"cannot be read: {reason}",
            "make it readable for every user, so that servers can read it: chmod -R a+rX"
            if "denied" in reason
            else "make sure that the path is a valid regular file or directory",
        )

    def too_large(self, path: str, why: str) -> None:
        message = f"not checked, because it {why}"
        self._add("TR005", Severity.WARNING, path, message, "make sure that it is the correct file")

    def outside(self, path: str, target: str) -> None:
        self._add(
            "TR004",
            Severity.WARNING,
            path,
            f"not checked: a link to {target}, outside of the repository, which the server follows in its own image",
            "move the file into the repository, unless the server image contains it",
        )

    def nowhere(self, path: str) -> None:
        self._add(
            "TR006",
            Severity.ERROR,
            path,
            "broken link: its target doesn't exist or is the link itself, so that Triton can't read the directory",
            "correct the link, or remove it",
        )

    def failed(self, path: str, error: OSError) -> None:
        """Adds the finding for an error of the file system, or for a link out of the repository."""
        if isinstance(error, OutsideError):
            self.outside(path, error.target)
        else:
            self.unreadable(path, error.strerror or str(error) or type(error).__name__)

    def children(self, directory: str) -> dict[str, Entry]:
        """Returns the entries of a directory by name, sorted. Follows links."""
        try:
            return {name: self.files.look(join(directory, name)) for name in self.files.names(directory)}
        except OSError as error:
            self.failed(directory, error)
            return {}

    def content(self, path: str, max_bytes: int) -> bytes | None:
        try:
            entry = self.files.resolve(path)[1]
            if entry.kind is not FileKind.FILE:  # a pipe would block
                self.unreadable(path, "not a regular file")
                return None
            if not entry.readable:  # in an image, whose files this process can read
                self.unreadable(path, os.strerror(errno.EACCES))
                return None
            content = self.files.read(path, max_bytes + 1)
        except OSError as error:
            self.failed(path, error)
            return None
        if len(content) > max_bytes:
            self.too_large(path, f"is larger than {max_bytes} bytes")
            return None
        return content

    def _add(self, code: str, severity: Severity, path: str, message: str, remedy: str) -> None:
        self.findings.append(Finding(code, severity, one_line(path) or ".", None, None, message, remedy))


_NO_OVERRIDES: Overrides = {}


def load(
    source: str | os.PathLike[str] | Store,
    settings: Overrides = _NO_OVERRIDES,
    config_name: str = "",
    measured: bool = False,
    request: str | None = None,
) -> tuple[Repository, tuple[Finding, ...]]:
    """Loads the model repository in the directory `source`, or in a store. Returns it and the findings.

    The models have the configurations with which the server runs them: those of the files, with `settings`. With
    `config_name`, the file is configs/NAME.pbtxt in models that have it. `measured`: whether to
    add up the sizes of all files. `request`: spec.healthRequest.file.

    A file that can't be read or parsed becomes a finding, and its field in the Repository stays empty. Neither the
    content of the directory nor its absence raises an exception. Follows no link out of the repository.
    """
    store = Directory(source) if isinstance(source, str | os.PathLike) else source
    reader = _Reader(Files(store))
    models: dict[str, Model] = {}
    for name, entry in reader.children("").items():
        if entry.kind is FileKind.FOLDER:
            model = _model(reader, name, settings.get(name, {}), config_name)
            models[model.name] = model
        elif entry.kind is FileKind.OUTSIDE:
            reader.outside(name, entry.target)
            models[one_line(name)] = Model(one_line(name), one_line(name), None, f"{one_line(name)}/config.pbtxt",
                                           unread=True)  # fmt: skip
        elif entry.kind is FileKind.NOTHING:
            reader.nowhere(name)
    reader.findings += overrides.absent(settings, models, {model.name for model in models.values() if model.unread})
    empty = not any(model.looks_like_model() for model in models.values())
    repository = Repository(
        path=str(source) if isinstance(source, str | os.PathLike) else store.root,
        models=models,
        below=tuple(sorted(set(_below(reader, "", DEPTH)))) if empty else (),
        is_model=empty and _is_model(reader, ""),
        size=_size(store) if measured else None,
        request_fault=_not_json(reader.files, request) if request is not None and request.endswith(".json") else "",
    )
    return repository, tuple(reader.findings)


def _not_json(files: Files, path: str) -> str:
    """Returns why Triton can't parse a request in JSON; empty if it can, or if the file can't be read."""
    try:
        content = files.read(path, contents.MAX_JSON + 1)
        # Triton skips a byte order mark, and doesn't look at the bytes inside of strings.
        json.loads(content.decode("utf-8-sig", "replace") if len(content) <= contents.MAX_JSON else "{}")
    except (ValueError, RecursionError) as error:
        return one_line(str(error))
    except OSError:  # the rule reports it
        return ""
    return ""


def _size(store: Store) -> int:
    """Returns the sum of all files in bytes, without those that can't be read."""
    total, folders = 0, [""]
    while folders:
        folder = folders.pop()
        with suppress(OSError):
            for name in store.names(folder):
                path = join(folder, name)
                with suppress(OSError):
                    entry = store.entry(path)
                    total += entry.size if entry.kind is FileKind.FILE else 0
                    folders += [path] if entry.kind is FileKind.FOLDER else []
    return total


def _model(reader: _Reader, directory: str, settings: Mapping[str, Any], config_name: str) -> Model:
    entries = reader.children(directory)
    config_file = _config_file(reader, directory, config_name)
    folders: dict[str, frozenset[str]] = {}
    hidden: dict[str, list[str]] = {}
    closed = set()
    for name, entry in entries.items():
        path = join(directory, name)
        if entry.kind is FileKind.NOTHING:
            reader.nowhere(path)
        elif entry.kind is FileKind.OUTSIDE:
            reader.outside(path, entry.target)
            closed |= {one_line(name)} if name.isdecimal() else set()
        if entry.kind is FileKind.FOLDER or (entry.kind is FileKind.OUTSIDE and name.isdecimal()):
            listed = name.isdecimal() or (name.startswith(".") and entry.readable)
            inner = reader.children(path) if listed and entry.kind is FileKind.FOLDER else {}
            folders[one_line(name)] = frozenset(map(one_line, inner))
            hidden[one_line(name)] = [join(path, name) for name, entry in inner.items() if not entry.readable]
            closed |= set() if entry.readable else {one_line(name)}  # reader.children has reported it
    has_config = "config.pbtxt" in entries or config_file != join(directory, "config.pbtxt")
    config, where = (ModelConfig() if settings else None), at(1, 1)
    if has_config:
        earlier = len(reader.findings)
        config, where = _config(reader, config_file, rewritten=bool(settings))
        if settings and config is None and not any(f.severity is Severity.ERROR for f in reader.findings[earlier:]):
            reader.findings.append(overrides.unread(directory))
    replaced = settings if config is not None else {}
    if replaced:
        has_config = True
        config, where, faults = overrides.merge(directory, config, where, settings)
        reader.findings += faults
        # With an error nothing is merged. `validate --with-server` starts the server nevertheless.
        replaced = {} if any(fault.severity is Severity.ERROR for fault in faults) else replaced
    model = Model(
        name=one_line(directory),
        directory=one_line(directory),
        config=config,
        config_path=one_line(config_file),
        has_config=has_config,
        replaced=tuple(sorted(replaced)),
        folders=folders,
        files=frozenset(one_line(name) for name, entry in entries.items() if one_line(name) not in folders),
        closed=frozenset(closed),
        unfilled=placeholders.of_values(where),
        where=where,
    )
    model = replace(model, data=_data(reader, directory, model), named=_named(reader, directory, model))
    written = files_in_parameters(model.config, directory).values() if model.config is not None else ()
    paths = (path for path in (*model.model_files, *written)
             if _is_pointer(reader, join(directory, path), model.named[path]))  # fmt: skip
    model = replace(model, pointers=frozenset(paths), labels=dict(_labels(reader, directory, model)))
    sources, networks = _model_files(reader, directory, model)
    model = replace(model, sources=sources, networks=networks, contents=_contents(reader, directory, model))
    weights = {**_weights(reader, directory, model), **_on_server(reader, directory, model)}
    named = {join(directory, path) for path in model.named}
    for path in (path for version in model.served for path in hidden[str(version)] if path not in named):
        reader.unreadable(path, os.strerror(errno.EACCES), Severity.WARNING)  # the server may not need it
    pointers = {path for path, entry in weights.items() if _is_pointer(reader, join(directory, path), entry)}
    elsewhere = frozenset(_elsewhere(reader, directory, model))
    named_too = {**model.named, **weights}
    return replace(model, named=named_too, pointers=model.pointers | pointers, elsewhere=elsewhere)


def _config_file(reader: _Reader, directory: str, config_name: str) -> str:
    """Returns the path of the configuration that the server reads."""
    custom = join(directory, "configs", f"{config_name}.pbtxt")
    has_custom = bool(config_name) and reader.files.look(custom).kind is FileKind.FILE
    return custom if has_custom else join(directory, "config.pbtxt")


def _named(reader: _Reader, directory: str, model: Model) -> dict[str, Entry]:
    """Returns the entries at the paths of the configuration and of the model files, relative to the model."""
    config = model.config
    paths: set[str] = set()
    for version in model.served:
        names = {config.default_model_filename} if config is not None and config.default_model_filename else set()
        names = names or set(model.default_files) & model.folders.get(str(version), frozenset())
        paths |= {f"{version}/{name.lstrip('/')}" for name in names}
        paths |= {f"{version}/{name.lstrip('/')}/model.onnx" for name in names if model.backend == "onnxruntime"}
        if config is not None:
            paths |= {f"{version}/{name}" for name in config.cc_model_filenames.values()}
    if config is not None:
        paths |= {tensor.label_filename for tensor in config.output if tensor.label_filename}
        paths |= {
            f"warmup/{tensor.input_data_file}"
            for sample in config.model_warmup
            for tensor in sample.inputs.values()
            if tensor.WhichOneof("input_data_type") == "input_data_file"
        }
        paths |= {
            f"initial_state/{first.data_file}"
            for state in config.sequence_batching.state
            for first in state.initial_state
            if first.WhichOneof("state_data") == "data_file"
        }
        in_parameters = files_in_parameters(config, directory)
        paths |= set(in_parameters.values())
        paths |= {f"{in_parameters[ENVIRONMENT]}/{ACTIVATE}"} if ENVIRONMENT in in_parameters else set()
    paths |= {STUB} & model.files
    entries = {path: reader.files.look(join(directory, path)) for path in sorted(paths)}
    for path, entry in entries.items():
        if entry.kind is FileKind.OUTSIDE and ".." not in path.split("/"):
            reader.outside(join(directory, path), entry.target)
    return entries


def _model_files(reader: _Reader, directory: str, model: Model) -> tuple[dict[str, str], dict[str, Network | str]]:
    """Returns the Python files that Triton would run, and the interfaces of the ONNX files, by path.

    Adds a finding for each model file that can't be read.
    """
    sources: dict[str, str] = {}
    networks: dict[str, Network | str] = {}
    for path in model.model_files:
        entry, whole = model.named[path], join(directory, path)
        if entry.kind is FileKind.UNKNOWN or not entry.readable:
            reader.unreadable(whole, os.strerror(errno.EACCES))
        elif entry.kind is FileKind.SPECIAL:
            reader.unreadable(whole, "not a regular file")
        elif entry.kind is FileKind.FILE and model.backend == "python" and path.endswith(".py"):
            if (text := _source(reader, whole)) is not None:
                sources[one_line(whole)] = text
        elif (
            entry.kind is FileKind.FILE
            and model.backend == "onnxruntime"
            and (network := _network(reader, whole, entry.size)) is not None
        ):
            networks[one_line(whole)] = network
    return sources, networks


def _contents(reader: _Reader, directory: str, model: Model) -> dict[str, Contents]:
    """Returns what the model files of other backends say about themselves, by path relative to the model."""
    descriptions: dict[str, Contents] = {}
    archive = files_in_parameters(model.config, directory).get(ENVIRONMENT) if model.config is not None else None
    if archive is not None and model.named[archive].kind is FileKind.FILE and archive not in model.pointers:
        with suppress(OSError):  # the server may be able to read it
            descriptions[archive] = contents.archive(reader.files.read(join(directory, archive), contents.TAR_BYTES))
    platform = model.config.platform if model.config is not None else ""
    for path in model.model_files:
        entry = model.named[path]
        by_python = path.endswith(".py") or (model.config is not None and model.config.runtime)
        whole = join(directory, path)
        content = None
        with suppress(OSError):  # _model_files reports it
            if entry.kind is FileKind.FOLDER and platform == "tensorflow_savedmodel":
                content = contents.saved_model(reader.files.names(whole))
            elif entry.kind is FileKind.FILE and entry.size and path not in model.pointers and not by_python:
                with reader.files.open(whole) as file:
                    content = contents.read(model.backend, path, platform, file, entry.size)
        if content is not None:
            descriptions[path] = content
    return descriptions


def _weights(reader: _Reader, directory: str, model: Model) -> dict[str, Entry]:
    """Returns the entries at the paths of ONNX models' external weights, relative to the model."""
    networks = {file: net for file, net in model.networks.items() if isinstance(net, Network)}
    paths = {weights_path(file, name) for file, net in networks.items() for name in net.external if name}
    return {path: reader.files.look(join(directory, path)) for path in sorted(paths - {""})}


def _elsewhere(reader: _Reader, directory: str, model: Model) -> Iterator[str]:
    """Yields the paths of external weights that aren't in the directory of their ONNX file, relative to the model.

    Follows links as ONNX Runtime 1.24.4 does: the directory is that of the ONNX file's path, or that to which links
    lead. 1.24.1 allows only the first.
    """
    for file, network in model.networks.items():
        folders = {_place(reader, posixpath.dirname(file)), posixpath.dirname(_place(reader, file))}
        for name in network.external if isinstance(network, Network) else ():
            path = weights_path(file, name)
            place = _place(reader, join(directory, path))
            if name and not any(place.startswith(f"{each}/") for each in folders):
                yield path


def _place(reader: _Reader, path: str) -> str:
    """Returns where a path leads; for one that leads to nothing, where its directory does."""
    for known, rest in ((path, ""), posixpath.split(path)):
        with suppress(OSError, ValueError):
            return join(reader.files.resolve(known)[0], rest)
    return path


def _on_server(reader: _Reader, directory: str, model: Model) -> dict[str, Entry]:
    """Returns the entries at paths of the server that are in the repository, relative to the model."""
    config = model.config
    accelerators = () if config is None else config.optimization.execution_accelerators.gpu_execution_accelerator
    values = [value for each in accelerators for key, value in each.parameters.items() if key in WRITTEN]
    values += [content.model for content in model.contents.values()]
    paths = {in_repository(value, directory) for value in values}
    return {path: reader.files.look(join(directory, path)) for path in sorted(paths - {""})}


def _labels(reader: _Reader, directory: str, model: Model) -> Iterator[tuple[str, Labels]]:
    """Returns the label files by path."""
    for path in {tensor.label_filename for tensor in model.config.output} if model.config is not None else ():
        entry = model.named.get(path)
        if entry is not None and entry.kind is FileKind.FILE:
            with suppress(OSError):  # another check reports it
                content = reader.files.read(join(directory, path), _LABEL_BYTES)
                yield path, labels.read(content, whole=entry.size <= _LABEL_BYTES)


def _is_pointer(reader: _Reader, path: str, entry: Entry) -> bool:
    """Whether a file is a Git LFS pointer."""
    if entry.kind is not FileKind.FILE or not len(_POINTER) <= entry.size <= _POINTER_BYTES or not entry.readable:
        return False
    try:
        return reader.files.read(path, len(_POINTER)) == _POINTER
    except OSError:
        return False


def _source(reader: _Reader, path: str) -> str | None:
    """Returns the text of a Python file in its declared encoding; None with a finding if it can't be decoded."""
    content = reader.content(path, MAX_SOURCE)
    if content is None:
        return None
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        reader.findings.append(
            Finding(
                "TR301",
                Severity.ERROR,
                one_line(path),
                1,
                None,
                f"cannot be decoded: {one_line(str(error))}",
                "save it as UTF-8, or declare its encoding in the first line: # -*- coding: latin-1 -*-",
            )
        )
        return None


def _network(reader: _Reader, path: str, size: int) -> Network | str | None:
    """Returns the interface of an ONNX file, why it has none, or None.

    None has a finding if the file is too large, and none if it has the ORT format under a name that is right for it.
    """
    try:
        with reader.files.open(path) as file:
            if not path.lower().endswith(ORT):
                return read_onnx(file, size)
            return None if is_ort(file) else f"a file *{ORT} must have the ORT format"
    except OnnxError as error:
        return str(error)
    except TooManyFieldsError:
        reader.too_large(path, f"has more than {MAX_FIELDS} fields")
        return None
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__


def _data(reader: _Reader, directory: str, model: Model) -> dict[str, Data]:
    """Returns the files that contain tensors, for warm-up and for initial states of sequences."""
    files: dict[str, Data] = {}
    for folder in sorted(DATA_FOLDERS & model.folders.keys()):
        for name, entry in reader.children(join(directory, folder)).items():
            path = join(directory, folder, name)
            if entry.kind is FileKind.OUTSIDE:
                reader.outside(path, entry.target)
            if entry.kind is not FileKind.FILE:
                continue
            content = None
            if entry.size <= MAX_DATA and entry.readable:
                content = reader.content(path, MAX_DATA)
            files[f"{folder}/{one_line(name)}"] = Data(entry.size, None if content is None else _strings(content))
    return files


def _strings(content: bytes) -> int | None:
    """Returns the number of strings in `content`, each after its length (4 bytes, little-endian); None if invalid."""
    at = count = 0
    while at + 4 <= len(content):
        at += 4 + int.from_bytes(content[at : at + 4], "little")
        count += 1
    return count if at == len(content) else None


def _config(reader: _Reader, path: str, *, rewritten: bool = False) -> tuple[Any, Node]:
    """Returns the parsed message and its positions; (None, root) with a finding if it isn't a ModelConfig.

    `rewritten`: whether the server gets another text of the message, which can't have what isn't UTF-8.
    """
    nowhere = at(1, 1)
    content = reader.content(path, MAX_CONFIG)
    if content is None:
        return None, nowhere
    if is_utf_16(content):
        message = "the file is UTF-16, which Triton can't read"
        reader.findings.append(
            Finding(
                "TR101", Severity.ERROR, one_line(path), 1, 1, message, "save it as UTF-8 without a byte order mark"
            )
        )
        return None, nowhere
    text = content.decode("utf-8", "surrogateescape")  # comments may have any bytes
    try:
        config, where = parse(text)
    except TextError as error:
        reader.findings.append(_syntax(one_line(path), text, error))
        return None, nowhere
    except TooManyValuesError:
        reader.too_large(path, f"has more than {MAX_VALUES} values")
        return None, nowhere
    odd = not text.isascii() and any("\udc80" <= char <= "\udcff" for char in text)
    if odd or (rewritten and "\\" in text):  # "\377" is a byte, too
        remedy = "save the file as UTF-8" if odd else "write it in UTF-8, without escapes of other bytes"
        severity = Severity.ERROR if rewritten else Severity.WARNING
        reader.findings += _not_utf_8(one_line(path), where, severity, remedy)
    return config, where


def _not_utf_8(file: str, where: Node, severity: Severity, remedy: str) -> Iterator[Finding]:
    """TR130: a value isn't UTF-8. Triton serves it, but nobody can name such a tensor in JSON."""
    for _, node in strings(where):
        if "\ufffd" in node.text:
            message = f"the value {node.text[:80]!r} isn't UTF-8"
            yield Finding("TR130", severity, file, node.line, node.column, message, remedy)


def _syntax(file: str, text: str, error: TextError) -> Finding:
    offending = one_line(text.split("\n")[error.line - 1].strip()[:80])
    if left := placeholders.unfilled(text):
        return placeholders.finding(file, Severity.ERROR, left, at(error.line, error.column))
    return Finding(
        "TR102" if error.unknown else "TR101",
        Severity.ERROR,
        file,
        error.line,
        error.column,
        one_line(f"{error}, in: {offending}" if offending else str(error)),
        one_line(error.remedy),
    )


def _below(reader: _Reader, directory: str, depth: int) -> Iterator[str]:
    """Returns the directories under `directory` that contain models. Doesn't read the models."""
    if depth == 0:
        return
    for folder in _folders(reader, directory):
        if any(_is_model(reader, child) for child in _folders(reader, folder)):
            yield one_line(folder)
        else:
            yield from _below(reader, folder, depth - 1)


def _folders(reader: _Reader, directory: str) -> list[str]:
    return [
        join(directory, name) for name, entry in reader.children(directory).items() if entry.kind is FileKind.FOLDER
    ]


def _is_model(reader: _Reader, directory: str) -> bool:
    entries = reader.children(directory)
    return "config.pbtxt" in entries or any(e.kind is FileKind.FOLDER and n.isdecimal() for n, e in entries.items())
