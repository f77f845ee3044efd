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

from .tritonserver import DockerError, docker


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
        except (tarfile.TarError, OSError, LookupError, TypeError, ValueError) as error:
            raise ImageError(f"{target}: {error}") from None
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
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            archive.extract(member, root, filter="data")


def _from_file(file: Path, path: str, root: Path) -> None:
    """Apply the image's layers, of each only what lies under `path`."""
    with tarfile.open(file) as archive:
        names = set(archive.getnames())
        for layer in _layers(archive, names):
            held = archive.extractfile(layer)
            if held is None:
                raise ImageError(f"layer {layer} isn't in it")
            with held, tarfile.open(fileobj=held, mode="r:*") as content:
                _apply(content, path.strip("/"), root)
    if not any(root.iterdir()):
        raise ImageError(f"nothing at {path}")


def _layers(archive: tarfile.TarFile, names: set[str]) -> list[str]:
    """The layers' names in the archive, the lowest first: by docker's manifest.json or OCI's index.json."""

    def document(name: str) -> object:
        held = archive.extractfile(name)
        return json.load(held) if held is not None else None

    if "manifest.json" in names:
        manifest = document("manifest.json")
        return list(manifest[0]["Layers"])  # type: ignore[index]
    if "index.json" not in names:
        raise ImageError("neither written by docker save nor an OCI archive")
    current = document("index.json")
    while isinstance(current, dict) and "manifests" in current:
        current = document(_blob(current["manifests"][0]["digest"]))
    if not isinstance(current, dict):
        raise ImageError("there is no manifest in it")
    return [_blob(layer["digest"]) for layer in current["layers"]]


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/", 1)


def _apply(layer: tarfile.TarFile, path: str, root: Path) -> None:
    for member in layer:
        name = posixpath.normpath(member.name.lstrip("/"))
        inner = posixpath.relpath(name, path or ".")
        if inner.startswith("..") or inner == ".":
            continue
        folder, base = posixpath.split(inner)
        if base == ".wh..wh..opq":
            _clear(root / folder)
        elif base.startswith(".wh."):
            _clear(root / folder / base.removeprefix(".wh."), itself=True)
        else:
            layer.extract(member.replace(name=inner, deep=False), root, filter="data")


def _clear(target: Path, itself: bool = False) -> None:
    """Take what a layer deleted away again."""
    for entry in sorted(target.rglob("*"), reverse=True):
        entry.rmdir() if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    if itself and target.exists():
        target.rmdir() if target.is_dir() else target.unlink()
