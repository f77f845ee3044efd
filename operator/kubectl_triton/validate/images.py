"""Opens the model repository of an image in Docker or in a file."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from triton_repository_check.files import Directory, Store

from . import archives, platforms, unpack
from .archives import Archive, ImageError
from .in_docker import DockerError, docker, image_name
from .platforms import Platform


@contextmanager
def repository(target: str, path: str, *, is_image: bool = False, platform: Platform | None = None) -> Iterator[Store]:
    """Opens the model repository `target`, for use in a `with` statement.

    `target` is a directory, a file with an image from `docker save` or an OCI tool, or the name of an image that Docker
    has or pulls; with `is_image` only the last. `path` is the directory of the models inside of the image. Of images
    for several platforms in a file it is the one for `platform`, by default linux/amd64; Docker's default is its own
    platform. Raises ImageError.
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
            image = read(target, path, platform, stack)
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


def _from_docker(reference: str, path: str, platform: Platform | None, stack: ExitStack) -> Store:
    """Copies the models with `docker cp` from a container that never runs, since the image may have no program."""
    try:
        options = [f"--platform={platform}"] if platform else []
        container = docker("create", *options, image_name(reference), "never-started").split("\n")[-1]
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
    return streamed(spool, path, str(platform or ""))


def _spool(stack: ExitStack) -> IO[bytes]:
    """Creates a temporary file. `stack` deletes it."""
    return stack.enter_context(tempfile.NamedTemporaryFile(prefix="triton-validate-"))


def streamed(tar: IO[bytes], path: str, platform: str = "") -> Store:
    """Returns the models in an archive that contains only the directory `path`."""
    image = unpack.Image()
    image.add(tar)
    return unpack.Archived(image.top, path, platform)


def _from_file(file: str, path: str, platform: Platform | None, stack: ExitStack) -> Store:
    """Returns the models at `path` in the image in `file`. Copies only files below `path` from compressed layers."""
    stream, packed = unpack.decompressed(stack.enter_context(Path(file).open("rb")))  # noqa: SIM115 - the stack closes
    archive = Archive(tarfile.open(fileobj=stream, mode="r:", tarinfo=unpack.Header))  # noqa: SIM115 - as above
    content = archive.content()
    chosen = archives.choose(content, platform)
    image, layers = unpack.Image(), []
    for name in archive.layers(chosen):
        blob = archive.open(name)
        layer, compressed = unpack.decompressed(blob)
        image.add(layer)
        if packed or compressed:
            layers.append(layer)
    folder = image.under(path)
    if folder is None or not folder.held:
        raise ImageError(f"no models at {path}; set the directory with --path")
    is_usual = chosen.platform == platforms.DEFAULT and len(archives.platform_names(content.images)) == 1
    store = unpack.Archived(folder, path, "" if is_usual else str(chosen.platform or ""))
    if layers:
        spool = _spool(stack)
        for layer in layers:
            unpack.keep(layer, spool, (content for content in store.files() if content.source is layer))
    return store
