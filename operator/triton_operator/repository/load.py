"""Reads a directory into a Repository. The only file here, with `check`, that touches the disk."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from triton_operator.repository.findings import Finding, Severity, one_line
from triton_operator.repository.model import MODEL_FILES, Data, Model, Repository
from triton_operator.repository.onnx import Network, OnnxError
from triton_operator.repository.onnx import read as read_onnx
from triton_operator.repository.places import Node, places, written
from triton_operator.repository.schema import ModelConfig

MAX_TEXT = 4 * 2**20
"""Bytes of a config.pbtxt or model.py that are read; more of them is something else under that name."""

DEPTH = 3
"""How many levels down misplaced models are looked for."""

DATA_FOLDERS = frozenset({"warmup", "initial_state"})
"""Directories of a model whose files hold tensors."""

_BACKSLASHES = re.compile(r"\\{500}")
"""The parser's time grows with the square of a row of them."""
_PARSE_ERROR = re.compile(r"^\d+:\d+ : ")


class _Reader:
    """Collects what can't be read, so that one bad file doesn't hide the others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.findings: list[Finding] = []

    def unreadable(self, path: Path, reason: str) -> None:
        self.findings.append(
            Finding(
                "TR002",
                Severity.ERROR,
                self.name(path),
                None,
                None,
                f"cannot be read: {reason}",
                f"make it readable for user {os.geteuid()}, as which the pod runs"
                if "denied" in reason
                else "see that the image holds a plain file or directory here",
            )
        )

    def name(self, path: Path) -> str:
        return one_line(path.relative_to(self.root).as_posix())

    def children(self, directory: Path) -> tuple[list[Path], list[Path]]:
        """Directories and files, sorted by name; symbolic links count as what they lead to."""
        folders: list[Path] = []
        files: list[Path] = []
        try:
            for entry in sorted(directory.iterdir()):
                (folders if entry.is_dir() else files).append(entry)
        except OSError as error:
            self.unreadable(directory, error.strerror or type(error).__name__)
        return folders, files

    def text(self, path: Path) -> str | None:
        try:
            if not path.is_file():  # a pipe would block, a dangling link is nothing to read
                self.unreadable(path, "not a regular file")
                return None
            if path.stat().st_size > MAX_TEXT:
                self.unreadable(path, f"larger than {MAX_TEXT} bytes")
                return None
            return path.read_bytes().decode("utf-8")
        except OSError as error:
            self.unreadable(path, error.strerror or type(error).__name__)
        except UnicodeDecodeError as error:
            self.unreadable(path, f"not UTF-8 at byte {error.start}")
        return None


def load(path: str | os.PathLike[str]) -> tuple[Repository, tuple[Finding, ...]]:
    """Read the model repository at `path`, and tell what of it can't be read.

    What is unreadable or unparsable becomes a finding and leaves its place in the Repository empty; no exception
    comes from the content of the directory, nor from its absence.
    """
    root = Path(path)
    reader = _Reader(root)
    folders, _ = reader.children(root)
    models = {model.name: model for model in (_model(reader, folder) for folder in folders)}
    empty = not any(model.looks_like_one() for model in models.values())
    repository = Repository(
        path=str(path),
        models=models,
        below=tuple(sorted(set(_below(reader, root, DEPTH)))) if empty else (),
        is_model=empty and _is_model(reader, root),
    )
    return repository, tuple(reader.findings)


def _model(reader: _Reader, directory: Path) -> Model:
    folders, files = reader.children(directory)
    config_file = directory / "config.pbtxt"
    contents: dict[str, frozenset[str]] = {}
    for folder in folders:
        inner, leaves = reader.children(folder) if folder.name.isdecimal() else ([], [])
        contents[one_line(folder.name)] = frozenset(one_line(entry.name) for entry in inner + leaves)
    config, where = _config(reader, config_file) if config_file in files else (None, Node(1, 1))
    model = Model(
        name=one_line(directory.name),
        directory=reader.name(directory),
        config=config,
        config_path=reader.name(config_file),
        has_config=config_file in files,
        folders=contents,
        files=frozenset(one_line(file.name) for file in files),
        where=where,
    )
    sources, networks = _model_files(reader, directory, model)
    return replace(model, sources=sources, networks=networks, data=_data(reader, directory, model))


def _model_files(reader: _Reader, directory: Path, model: Model) -> tuple[dict[str, str], dict[str, Network | str]]:
    """The python files that Triton would run, and what ONNX files declare. Of other model files it is only told
    whether they can be read."""
    named = model.config.default_model_filename if model.config is not None else ""
    sources: dict[str, str] = {}
    networks: dict[str, Network | str] = {}
    for version in model.served:
        for name in {named} if named else MODEL_FILES.keys() & model.folders[str(version)]:
            path = directory / str(version) / name.lstrip("/")
            # A name may be anything: too long for a file, or that of one elsewhere, which is none of ours to read.
            if ".." in path.parts or not os.path.exists(path):  # noqa: PTH110 - Path's raises
                continue
            if not os.access(path, os.R_OK, effective_ids=True):
                reader.unreadable(path, os.strerror(errno.EACCES))
            elif model.backend == "python" and path.suffix == ".py":
                if (text := reader.text(path)) is not None:
                    sources[reader.name(path)] = text
            elif model.backend == "onnxruntime" and path.is_file():
                networks[reader.name(path)] = _network(path)
    return sources, networks


def _network(path: Path) -> Network | str:
    try:
        return read_onnx(path)
    except OnnxError as error:
        return str(error)
    except OSError as error:
        return error.strerror or type(error).__name__


def _data(reader: _Reader, directory: Path, model: Model) -> dict[str, Data]:
    """The files that hold a tensor each, for warm-up and for the first state of sequences."""
    found: dict[str, Data] = {}
    for name in sorted(DATA_FOLDERS & model.folders.keys()):
        for path in reader.children(directory / name)[1]:
            if not path.is_file():
                continue
            size = path.stat().st_size
            content = path.read_bytes() if size <= MAX_TEXT and os.access(path, os.R_OK) else None
            found[path.relative_to(directory).as_posix()] = Data(size, None if content is None else _strings(content))
    return found


def _strings(content: bytes) -> int | None:
    """How many strings `content` holds, each after its length: 4 bytes, little-endian. None where it isn't so."""
    at = count = 0
    while at + 4 <= len(content):
        at += 4 + int.from_bytes(content[at : at + 4], "little")
        count += 1
    return count if at == len(content) else None


def _config(reader: _Reader, path: Path) -> tuple[Any, Node]:
    """The parsed message and its places; (None, root) with a finding where the text isn't a ModelConfig."""
    nowhere = Node(1, 1)
    text = reader.text(path)
    if text is None:
        return None, nowhere
    if row := _BACKSLASHES.search(text):
        reader.findings.append(_backslashes(reader.name(path), text.count("\n", 0, row.start()) + 1))
        return None, nowhere
    try:
        config = text_format.Parse(text, ModelConfig())
    except text_format.ParseError as error:
        reader.findings.append(_syntax(reader.name(path), text, error))
        return None, nowhere
    except ValueError as error:  # a number beyond its field's type, of which the parser keeps no place
        reader.findings.append(_out_of_range(reader.name(path), text, str(error)))
        return None, nowhere
    where = places(text)
    for field, value, node in written(config, where):
        if field.enum_type is not None and value not in field.enum_type.values_by_number:
            reader.findings.append(
                Finding(
                    "TR101",
                    Severity.ERROR,
                    reader.name(path),
                    node.line,
                    node.column,
                    f"{field.enum_type.name} has no value {value}",
                    f"use one of {', '.join(v.name for v in field.enum_type.values)}",
                )
            )
            return None, nowhere
    return config, where


def _syntax(file: str, text: str, error: text_format.ParseError) -> Finding:
    line, column = error.GetLine(), error.GetColumn()
    lines = text.split("\n")
    offending = lines[line - 1] if line is not None else ""
    message = _PARSE_ERROR.sub("", str(error)).removeprefix(f"'{offending}': ").removeprefix("'': ").rstrip(".")
    if not offending and line is not None:
        message += ", and there the text ends" if not "".join(lines[line:]).strip() else ""
    offending = offending.strip()[:80]
    unknown = "has no field named" in message
    return Finding(
        "TR102" if unknown else "TR101",
        Severity.ERROR,
        file,
        line,
        column,
        f"{message}, in: {offending}" if offending else message,
        "correct the field's name; fields newer than this schema are not known to it either"
        if unknown
        else "save the file without a byte order mark, which Triton doesn't read"
        if text.startswith("\ufeff")
        else "correct the text format of protobuf here: brackets, quotes, colons, names of values",
    )


def _backslashes(file: str, line: int) -> Finding:
    message = "hundreds of backslashes in a row, which no text needs"
    return Finding("TR101", Severity.ERROR, file, line, None, message, "take them out")


def _out_of_range(file: str, text: str, message: str) -> Finding:
    number = message.rpartition(" ")[2]
    line = next((n for n, content in enumerate(text.split("\n"), 1) if number in content), None)
    return Finding("TR101", Severity.ERROR, file, line, None, message, "correct the number")


def _below(reader: _Reader, directory: Path, depth: int) -> Iterator[str]:
    """Directories under `directory` that hold a model, without reading them."""
    if depth == 0:
        return
    for folder in reader.children(directory)[0]:
        if any(_is_model(reader, child) for child in reader.children(folder)[0]):
            yield reader.name(folder)
        else:
            yield from _below(reader, folder, depth - 1)


def _is_model(reader: _Reader, directory: Path) -> bool:
    folders, files = reader.children(directory)
    return any(f.name == "config.pbtxt" for f in files) or any(f.name.isdecimal() for f in folders)
