"""The model repository of an image: out of Docker, or out of an image that was saved to a file."""

from __future__ import annotations

import json
import posixpath
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from . import unpack
from .tritonserver import DockerError, docker

MAX_DOCUMENT = 16 * 2**20
"""Bytes of a manifest; registries take 4 MiB."""
MAX_INDEXES = 4
"""Indexes that lead to one another before the manifest; there is one."""


class ImageError(ValueError):
    """The image has no such repository, or can't be read; the text says what and why."""


@contextmanager
def repository(target: str, path: str) -> Iterator[Path]:
    """The directory of models that `target` means: itself where it is a directory; `path` inside of an image that
    `docker save` or an OCI tool wrote to a file; else `path` inside of the image of that name, which Docker has or
    pulls. What is unpacked is gone when the context is left. Raises ImageError."""
    place = Path(target)
    if place.is_dir():
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="triton-validate-") as folder:
        root = Path(folder, "models")
        root.mkdir()
        try:
            if place.is_file():
                _from_file(place, path, root)
            else:
                _from_docker(target, path, root)
        except Exception as error:  # an image that is made so can have the readers raise anything
            raise ImageError(f"{target}: {str(error) or type(error).__name__}") from None
        yield root


def _from_docker(reference: str, path: str, root: Path) -> None:
    """`docker cp` of a container that is never started: the image may have no program at all."""
    try:
        container = docker("create", reference, "never-started").split("\n")[-1]
    except DockerError as error:
        raise ImageError(f"no directory, no file, and no image: {error}") from None
    try:
        source = f"{container}:{path.rstrip('/')}/."
        with subprocess.Popen(["docker", "cp", source, "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as copy:
            assert copy.stdout is not None  # noqa: S101, for the type checker
            assert copy.stderr is not None  # noqa: S101
            with suppress(tarfile.ReadError):  # an empty stream: docker says why
                _unpack(copy.stdout, root)
            said = copy.stderr.read().decode(errors="replace").strip()
        if copy.returncode:
            raise ImageError(f"nothing at {path}: {said}")
    finally:
        subprocess.run(["docker", "rm", "--force", container], capture_output=True, check=False)


def _unpack(stream: IO[bytes], root: Path) -> None:
    tree = unpack.Tree(root)
    with unpack.archive(stream, "r|") as archive:
        for member in archive:
            tree.add(archive, member, "")
    tree.seal()


def _from_file(file: Path, path: str, root: Path) -> None:
    """Apply the image's layers, of each only what lies under `path`."""
    tree = unpack.Tree(root)
    with file.open("rb") as opened, unpack.archive(opened) as archive:
        names = set(archive.getnames())
        for layer in _layers(archive, names):
            held = archive.extractfile(layer)
            if held is None:
                raise ImageError(f"layer {layer} isn't in it")
            with held, unpack.archive(held) as content:
                _apply(content, path, tree)
    tree.seal()
    if not any(root.iterdir()):
        raise ImageError(f"nothing at {path}")


def _layers(archive: tarfile.TarFile, names: set[str]) -> list[str]:
    """The layers' names in the archive, the lowest first: by docker's manifest.json or OCI's index.json."""

    def document(name: str) -> object:
        held = archive.extractfile(name)
        if held is None:
            return None
        text = held.read(MAX_DOCUMENT + 1)
        if len(text) > MAX_DOCUMENT:
            raise ImageError(f"{name} is larger than {MAX_DOCUMENT} bytes")
        return json.loads(text)

    if "manifest.json" in names:
        manifest = document("manifest.json")
        return list(manifest[0]["Layers"])  # type: ignore[index]
    if "index.json" not in names:
        raise ImageError("neither written by docker save nor an OCI archive")
    current = document("index.json")
    for _ in range(MAX_INDEXES):
        if isinstance(current, dict) and "manifests" in current:
            current = document(_blob(current["manifests"][0]["digest"]))
    if not isinstance(current, dict) or "layers" not in current:
        raise ImageError("there is no manifest in it")
    return [_blob(layer["digest"]) for layer in current["layers"]]


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/", 1)


def _apply(layer: tarfile.TarFile, path: str, tree: unpack.Tree) -> None:
    for member in layer:
        name = unpack.inside(member.name, path)
        if name is None:
            continue
        folder, base = posixpath.split(name)
        if base == ".wh..wh..opq":
            tree.empty(folder or ".")
        elif base.startswith(".wh."):
            tree.remove(_deleted(folder, base))
        else:
            tree.add(layer, member, path)


def _deleted(folder: str, mark: str) -> str:
    """What a layer says is deleted."""
    name = unpack.inside(posixpath.join(folder, mark.removeprefix(".wh.")), "")
    if name is None or name == (folder or "."):
        raise ImageError(f"{posixpath.join(folder, mark)} marks nothing")
    return name
