"""Starts tritonserver on a repository in a pod of the user."""

from __future__ import annotations

import contextlib
import socket
import tarfile
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import click

from kubectl_triton import cluster, forward
from kubectl_triton.pod_session import Purpose, Session, SessionError, running
from triton_operator.api import kinds, names
from triton_operator.cluster.errors import ApiError
from triton_operator.pods import Pod
from triton_repository_check import view
from triton_repository_check.expected import Expected
from triton_repository_check.text import one_line

from . import server_pod
from .tritonserver import FIXED, MAX_LOG, Start, StartError, flags, refusals

PURPOSE = Purpose(
    "trial",
    names.CONTAINER_SERVER,
    "--with-server=cluster needs create, get and delete on pods, get and create on pods/exec and pods/portforward, and "
    "get on pods/log in the namespace; Kubernetes' role edit has them",
)
_START_SECONDS = 1800
"""Timeout until the server's image is pulled, which may have 15 GB."""
_TRIAL_SECONDS = 3600
"""The pod of a command that was killed ends by itself this long after its start."""
_POLL_SECONDS = 0.5
_SLOWEST_UPLOAD = 256 << 10
"""Bytes per second."""
_MIN_UPLOAD_SECONDS = 120


@contextlib.contextmanager
def started(
    repository: Path,
    expected: Expected,
    image: str,
    seconds: float,
    configs: Mapping[str, str],
    place: server_pod.Place,
) -> Iterator[Start]:
    """Starts tritonserver on `repository` in a pod, for use in a `with` statement.

    The arguments and the result are those of `in_docker.started`. Deletes the pod at the end of the context. Raises
    StartError.
    """
    try:
        with _started(repository, expected, image, seconds, configs, place) as start:
            yield start
    except (SessionError, forward.ServerError) as error:
        raise StartError(str(error)) from None


@contextlib.contextmanager
def _started(
    repository: Path,
    expected: Expected,
    image: str,
    seconds: float,
    configs: Mapping[str, str],
    place: server_pod.Place,
) -> Iterator[Start]:
    try:
        connection = cluster.connect(place.namespace or (place.model.namespace if place.model else None), place.context)
        openshift = connection.api.serves(kinds.SECURITY_CONTEXT_CONSTRAINTS)
    except (cluster.UnreachableError, ApiError) as error:
        raise SessionError(one_line(str(error))) from None
    with _archive(repository, configs) as (archive, size):
        model = place.model or server_pod.without_spec(expected)
        name = f"{model.name[:40]}-trial-{uuid.uuid4().hex[:8]}"
        limit = int(_START_SECONDS + seconds + _upload_seconds(size) + _TRIAL_SECONDS)
        server = server_pod.Server(image, (*FIXED, *flags(expected)), expected)
        pod = server_pod.manifest(model, connection.namespace, name, server, limit, openshift=openshift)
        with running(connection, pod, PURPOSE, _START_SECONDS, _say, _runs) as session:
            _say(f"uploading the repository, {max(size / 2**20, 0.1):,.1f} MiB, to the pod {name}")
            session.feed(archive, size, server_pod.UNPACK, _upload_seconds(size))
            yield from _connected(session, seconds, place.context)


def _connected(session: Session, seconds: float, context: str | None) -> Iterator[Start]:
    """Yields the start as soon as the server has tried to load the models, it has ended, or `seconds` have passed."""
    deadline = time.monotonic() + seconds
    pod = Pod(session.pod())
    while not (pod.server_is_ready or _has_ended(pod)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        pod = Pod(session.pod())
    text = session.log(MAX_LOG)
    if not pod.server_is_ready:
        yield Start(ready=False, ended=_has_ended(pod), refusals=refusals(text), log=text)
        return
    with forward.forward(session.namespace, session.name, names.PORTS["grpc"], context) as address:
        yield Start(_all_ready(address), False, refusals(text), text, numpy=_numpy(session), grpc=address)
        if not _accepts(address) and not _has_ended(Pod(session.pod())):
            raise SessionError("the connection to the pod broke, so the requests say nothing: repeat the command")


def _all_ready(address: str) -> bool:
    # The import of tritonclient takes a third of a second, and other commands don't need it.
    from kubectl_triton.trial.sender import GoneError, Sender

    with contextlib.closing(Sender(address)) as sender, contextlib.suppress(GoneError):
        return sender.all_ready()
    return False


def _accepts(address: str) -> bool:
    """Whether kubectl still listens at this address."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except OSError:
        return False
    return True


def _has_ended(pod: Pod) -> bool:
    return pod.has_ended or "terminated" in pod.container(names.CONTAINER_SERVER).get("state", {})


def _runs(pod: Pod) -> bool:
    """Whether the server's container runs, and waits for the repository."""
    return pod.is_alive and "running" in pod.container(names.CONTAINER_SERVER).get("state", {})


def _numpy(session: Session) -> str:
    with contextlib.suppress(SessionError):  # the image may have no Python
        return session.run(["python3", "-c", "import numpy; print(numpy.__version__)"], 60).strip()
    return ""


def _upload_seconds(size: int) -> float:
    return max(_MIN_UPLOAD_SECONDS, size / _SLOWEST_UPLOAD)


@contextlib.contextmanager
def _archive(repository: Path, configs: Mapping[str, str]) -> Iterator[tuple[IO[bytes], int]]:
    """Yields a tar archive of the repository with its size: or, with `configs`, of a view of it, and of itself."""
    with tempfile.TemporaryFile(prefix="triton-validate-") as file, tempfile.TemporaryDirectory() as folder:
        try:
            with tarfile.open(fileobj=file, mode="w") as archive:
                if configs:
                    view.write(repository, Path(folder), view.REPOSITORY, configs)
                    _add(archive, Path(folder), server_pod.MODELS)
                _add(archive, repository, server_pod.ORIGINAL if configs else server_pod.MODELS)
        except OSError as error:
            raise SessionError(f"can't copy the repository for the server: {error}") from None
        size = file.tell()
        file.seek(0)
        yield file, size


def _add(archive: tarfile.TarFile, folder: Path, name: str) -> None:
    """Adds the entries of a folder. Not the folder itself: the pod has it, and its owner is another user."""
    for entry in sorted(folder.iterdir()):
        archive.add(entry, f"{name}/{entry.name}", filter=_readable)


def _readable(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leaves out what no server can read, such as a pipe, and the users of this machine."""
    if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _say(text: str) -> None:
    """Shows progress on standard error, because standard output is for the findings."""
    click.echo(text, err=True)
