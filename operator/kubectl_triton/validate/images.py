"""Opens the model repository of an image in Docker or in a file."""

from __future__ import annotations

import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from triton_repository_check.files import Directory, Store

from . import unpack
from .tritonserver import DockerError, docker, image_name

MAX_DOCUMENT = 16 * 2**20
"""Maximum size of a manifest in bytes. Registries accept 4 MiB."""
MAX_INDEXES = 4
"""Maximum number of nested indexes. Usually there is one."""
MAX_PARTS = 10_000
"""Maximum number of entries of a file with an image: for each layer one or, in older versions of Docker, four."""
MAX_LAYERS = 1024
"""Maximum number of layers. Docker creates at most 127."""


class ImageError(ValueError):
    """The image doesn't contain the repository, or can't be read."""


@contextmanager
def repository(target: str, path: str, *, is_image: bool = False) -> Iterator[Store]:
    """Opens the model repository `target`, for use in a `with` statement.

    `target` is a directory, a file with an image from `docker save` or an OCI tool, or the name of an image that Docker
    has or pulls; with `is_image` only the last. `path` is the directory of the models inside of the image. Raises
    ImageError.
    """
    place = Path(target)
    try:
        is_directory, is_file = not is_image and place.is_dir(), not is_image and place.is_file()
        store = Directory(place)
        if is_directory:
            store.names("")
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise ImageError(f"{target}: can't be read: {getattr(error, 'strerror', None) or error}") from None
    if is_directory:
        yield store
        return
    with ExitStack() as stack:
        try:
            read = _from_file if is_file else _from_docker
            image = read(target, path, stack)
        except Exception as error:  # a malicious image can make the readers raise any exception
            kind = "not an image from docker save: " if isinstance(error, tarfile.TarError) else ""
            raise ImageError(f"{target}: {kind}{str(error) or type(error).__name__}") from None
        yield image


@contextmanager
def on_disk(store: Store) -> Iterator[Path]:
    """Returns the repository as a directory. Deletes a temporary copy at the end of the context.

    Raises ImageError.
    """
    if isinstance(store, Directory):
        yield Path(store.root)
        return
    with tempfile.TemporaryDirectory(prefix="triton-validate-") as folder:
        try:
            unpack.write(store, Path(folder))
        except OSError as error:
            raise ImageError(f"can't copy the repository for the server: {error.strerror}") from None
        Path(folder).chmod(0o755)  # so that the server's user can read it
        yield Path(folder)


def _from_docker(reference: str, path: str, stack: ExitStack) -> Store:
    """Copies the models with `docker cp` from a container that never runs, since the image may have no program."""
    try:
        container = docker("create", image_name(reference), "never-started").split("\n")[-1]
    except DockerError as error:
        raise ImageError(f"neither a directory, nor a file, nor an image: {error}") from None
    spool = _spool(stack)
    try:
        source = f"{container}:{path.rstrip('/')}/."
        process = subprocess.run(["docker", "cp", source, "-"], stdout=spool, stderr=subprocess.PIPE, check=False)
        if process.returncode:
            raise ImageError(
                f"no models at {path}; set the directory with --path: {process.stderr.decode(errors='replace').strip()}"
            )
    finally:
        subprocess.run(["docker", "rm", "--force", container], capture_output=True, check=False)
    spool.seek(0)
    return streamed(spool, path)


def _spool(stack: ExitStack) -> IO[bytes]:
    """Creates a temporary file. `stack` deletes it."""
    return stack.enter_context(tempfile.NamedTemporaryFile(prefix="triton-validate-"))


def streamed(tar: IO[bytes], path: str) -> Store:
    """Returns the models in an archive that contains only the directory `path`."""
    image = unpack.Image()
    image.add(tar)
    return unpack.Archived(image.top, path)


def _from_file(file: str, path: str, stack: ExitStack) -> Store:
    """Returns the models at `path` in the image in `file`. Copies only files below `path` from compressed layers."""
    stream, packed = unpack.decompressed(stack.enter_context(Path(file).open("rb")))  # noqa: SIM115 - the stack closes
    archive = tarfile.open(fileobj=stream, mode="r:", tarinfo=unpack.Header)  # noqa: SIM115 - the stack closes the file
    image, layers = unpack.Image(), []
    for name in _layers(archive):
        blob = archive.extractfile(name)
        if blob is None:
            raise ImageError(f"the file doesn't contain layer {name}")
        layer, compressed = unpack.decompressed(blob)
        image.add(layer)
        if packed or compressed:
            layers.append(layer)
    folder = image.under(path)
    if folder is None or not folder.held:
        raise ImageError(f"no models at {path}; set the directory with --path")
    store = unpack.Archived(folder, path)
    if layers:
        spool = _spool(stack)
        for layer in layers:
            unpack.keep(layer, spool, (content for content in store.files() if content.source is layer))
    return store


def _layers(archive: tarfile.TarFile) -> list[str]:
    """Returns the names of the layers in the archive, lowest first, from Docker's manifest.json or OCI's index.json."""

    def document(name: str) -> object:
        blob = archive.extractfile(name)
        if blob is None:
            return None
        text = blob.read(MAX_DOCUMENT + 1)
        if len(text) > MAX_DOCUMENT:
            raise ImageError(f"{name} is larger than {MAX_DOCUMENT} bytes")
        return json.loads(text)

    names = set[str]()
    for count, member in enumerate(archive):
        names.add(member.name)
        if count == MAX_PARTS:
            raise ImageError(f"not an image: the file has more than {MAX_PARTS} entries")
    if "manifest.json" in names:
        manifest = document("manifest.json")
        return _bounded(list(manifest[0]["Layers"]))  # type: ignore[index]
    if "index.json" not in names:
        raise ImageError("not an image: the file is neither from docker save nor an OCI archive")
    current = document("index.json")
    for _ in range(MAX_INDEXES):
        if isinstance(current, dict) and "manifests" in current:
            current = document(_blob(current["manifests"][0]["digest"]))
    if not isinstance(current, dict) or "layers" not in current:
        raise ImageError("the file contains no manifest")
    return _bounded([_blob(layer["digest"]) for layer in current["layers"]])


def _bounded(layers: list[str]) -> list[str]:
    if len(layers) > MAX_LAYERS:
        raise ImageError(f"the image has {len(layers)} layers, but at most {MAX_LAYERS} are supported")
    return layers


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/", 1)
