"""The model repository of an image: out of Docker, or out of an image that was saved to a file."""

from __future__ import annotations

import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from triton_operator.repository.files import Directory, Store

from . import unpack
from .tritonserver import DockerError, docker

MAX_DOCUMENT = 16 * 2**20
"""Bytes of a manifest; registries take 4 MiB."""
MAX_INDEXES = 4
"""Indexes that lead to one another before the manifest; there is one."""
MAX_LAYERS = 1024
"""Layers of an image; Docker makes 127 at most."""


class ImageError(ValueError):
    """The image has no such repository, or can't be read; the text says what and why."""


@contextmanager
def repository(target: str, path: str) -> Iterator[Store]:
    """The models that `target` means: a directory; `path` inside of an image that `docker save` or an OCI tool wrote to
    a file; else `path` inside of the image of that name, which Docker has or pulls. Raises ImageError."""
    place = Path(target)
    try:
        is_directory, is_file = place.is_dir(), place.is_file()
        store = Directory(place)
        if is_directory:
            store.names("")
    except (OSError, ValueError) as error:  # ValueError: a zero in the name
        raise ImageError(f"{target}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if is_directory:
        yield store
        return
    with ExitStack() as stack:
        try:
            read = _from_file if is_file else _from_docker
            image = read(target, path, stack)
        except Exception as error:  # an image that is made so can have the readers raise anything
            raise ImageError(f"{target}: {str(error) or type(error).__name__}") from None
        yield image


@contextmanager
def on_disk(store: Store) -> Iterator[Path]:
    """The repository as a directory, for programs that need one; a copy is gone when the context is left.
    Raises ImageError."""
    if isinstance(store, Directory):
        yield Path(store.root)
        return
    with tempfile.TemporaryDirectory(prefix="triton-validate-") as folder:
        try:
            unpack.write(store, Path(folder))
        except OSError as error:
            raise ImageError(f"the repository can't be copied for the server: {error.strerror}") from None
        Path(folder).chmod(0o755)  # for the server's user
        yield Path(folder)


def _from_docker(reference: str, path: str, stack: ExitStack) -> Store:
    """`docker cp` of a container that is never started: the image may have no program at all."""
    try:
        container = docker("create", reference, "never-started").split("\n")[-1]
    except DockerError as error:
        raise ImageError(f"no directory, no file, and no image: {error}") from None
    spool = _spool(stack)
    try:
        source = f"{container}:{path.rstrip('/')}/."
        done = subprocess.run(["docker", "cp", source, "-"], stdout=spool, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise ImageError(f"nothing at {path}: {done.stderr.decode(errors='replace').strip()}")
    finally:
        subprocess.run(["docker", "rm", "--force", container], capture_output=True, check=False)
    spool.seek(0)
    return streamed(spool, path)


def _spool(stack: ExitStack) -> IO[bytes]:
    """A file of our own on the disk, gone when `stack` is closed."""
    return stack.enter_context(tempfile.NamedTemporaryFile(prefix="triton-validate-"))


def streamed(tar: IO[bytes], path: str) -> Store:
    """The models in an archive of the directory `path` alone."""
    image = unpack.Image()
    image.add(tar)
    return unpack.Archived(image.top, path)


def _from_file(file: str, path: str, stack: ExitStack) -> Store:
    """The models at `path`, as the image's layers make them. Only compressed layers are copied, and of them only what
    lies at `path`."""
    opened, packed = unpack.decompressed(stack.enter_context(Path(file).open("rb")))  # noqa: SIM115 - the stack closes
    archive = tarfile.open(fileobj=opened, mode="r:", tarinfo=unpack.Header)  # noqa: SIM115 - it holds no file itself
    image, copied = unpack.Image(), []
    for name in _layers(archive):
        held = archive.extractfile(name)
        if held is None:
            raise ImageError(f"layer {name} isn't in it")
        layer, compressed = unpack.decompressed(held)
        image.add(layer)
        if packed or compressed:
            copied.append(layer)
    folder = image.under(path)
    if folder is None or not folder.held:
        raise ImageError(f"nothing at {path}")
    store = unpack.Archived(folder, path)
    if copied:
        spool = _spool(stack)
        for layer in copied:
            unpack.keep(layer, spool, (content for content in store.files() if content.source is layer))
    return store


def _layers(archive: tarfile.TarFile) -> list[str]:
    """The layers' names in the archive, the lowest first: by docker's manifest.json or OCI's index.json."""

    def document(name: str) -> object:
        held = archive.extractfile(name)
        if held is None:
            return None
        text = held.read(MAX_DOCUMENT + 1)
        if len(text) > MAX_DOCUMENT:
            raise ImageError(f"{name} is larger than {MAX_DOCUMENT} bytes")
        return json.loads(text)

    names = set(archive.getnames())
    if "manifest.json" in names:
        manifest = document("manifest.json")
        return _bounded(list(manifest[0]["Layers"]))  # type: ignore[index]
    if "index.json" not in names:
        raise ImageError("neither written by docker save nor an OCI archive")
    current = document("index.json")
    for _ in range(MAX_INDEXES):
        if isinstance(current, dict) and "manifests" in current:
            current = document(_blob(current["manifests"][0]["digest"]))
    if not isinstance(current, dict) or "layers" not in current:
        raise ImageError("there is no manifest in it")
    return _bounded([_blob(layer["digest"]) for layer in current["layers"]])


def _bounded(layers: list[str]) -> list[str]:
    if len(layers) > MAX_LAYERS:
        raise ImageError(f"{len(layers)} layers")
    return layers


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/", 1)
