"""A pod of the user in the cluster: creates it, runs commands in it, and deletes it."""

from __future__ import annotations

import contextlib
import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, cast

import kubernetes
import kubernetes.stream
import websocket
from urllib3.exceptions import HTTPError

from kubectl_triton import signals
from kubectl_triton.cluster import Cluster
from triton_operator.api import kinds, names
from triton_operator.cluster.errors import ApiError
from triton_operator.pods import Pod
from triton_operator.pods.problems import problem_of, step_of
from triton_repository_check.text import one_line

Object = dict[str, Any]
RUN = f"{names.GROUP}/run"
"""The annotation with the run's id. A pod with another id belongs to another run."""
MAX_OUTPUT = 1 << 20
"""Maximum number of bytes that a command prints."""
_POLL_SECONDS = 1.0
_PATIENCE = {"Unschedulable": math.inf, "ImagePullFailed": 120.0, "ContainerNotStarted": 120.0}
"""Problems that may pass without a change of the pod, and for how many seconds they are worth waiting."""
_CHUNK = 1 << 16
Say = Callable[[str], None]


class SessionError(Exception):
    """The command can't continue with its pod. The message is for the user."""


@dataclass(frozen=True)
class Purpose:
    """What a pod is for.

    - `what`: e.g. calibration. `container`: in which commands run.
    - `rights`: a sentence about the permissions that the user needs.
    """

    what: str
    container: str
    rights: str

    def refused(self, error: ApiError) -> SessionError:
        """Returns the API server's error for the user, with the needed permissions if one is missing."""
        return SessionError(one_line(error.message) + (f" ({self.rights})" if error.code == 403 else ""))


@contextlib.contextmanager
def running(
    connection: Cluster,
    pod: Object,
    purpose: Purpose,
    seconds: float,
    say: Say,
    until: Callable[[Pod], bool] = lambda pod: pod.is_ready,
) -> Iterator[Session]:
    """Creates the pod, waits up to `seconds` until it is ready, and deletes it at the end of the context.

    `until`: what to wait for instead. Raises SessionError.
    """
    run = uuid.uuid4().hex
    metadata = {**pod["metadata"], "annotations": {**pod["metadata"]["annotations"], RUN: run}}
    session = Session(connection, metadata["namespace"], metadata["name"], purpose)
    try:
        _create(connection, {**pod, "metadata": metadata}, purpose)
        session.wait(seconds, say, until)
        yield session
    finally:
        _delete(connection, metadata, run, say)


def _create(connection: Cluster, pod: Object, purpose: Purpose) -> None:
    """Creates the pod. Replaces the pod of an earlier run that has ended, but none that still runs."""
    metadata, api = pod["metadata"], connection.api
    where = metadata["namespace"], metadata["name"]
    try:
        try:
            api.create(kinds.POD, metadata["namespace"], pod)
        except ApiError as error:
            if error.code != 409:
                raise
            other = api.get(kinds.POD, *where)
            if not Pod(other).has_ended:
                raise SessionError(f"another {purpose.what} runs: wait for it, or delete the pod {where[1]}") from None
            api.delete(kinds.POD, *where, other["metadata"]["uid"])
            api.create(kinds.POD, metadata["namespace"], pod)
    except ApiError as error:
        raise purpose.refused(error) from None


def _delete(connection: Cluster, metadata: Object, run: str, say: Say) -> None:
    """Deletes the pod of this run if it exists. A second Ctrl-C doesn't interrupt it."""
    where = metadata["namespace"], metadata["name"]
    with signals.ignored():
        try:
            pod = connection.api.get(kinds.POD, *where)
            if pod["metadata"].get("annotations", {}).get(RUN) != run:
                return
            connection.api.delete(kinds.POD, *where, pod["metadata"]["uid"])
            say(f"deleted the pod {where[1]}")
        except ApiError as error:
            # 403: the user may not even read pods, so this command has created none.
            if error.code not in (403, 404):
                say(one_line(f"could not delete the pod {where[1]}, which ends by itself: {error.message}"))


@dataclass(frozen=True)
class Session:
    """The pod of a running command."""

    connection: Cluster
    namespace: str
    name: str
    purpose: Purpose

    def pod(self) -> Object:
        """Returns the pod. Raises SessionError if it is gone or can't be read."""
        try:
            return self.connection.api.get(kinds.POD, self.namespace, self.name)
        except ApiError as error:
            raise self.purpose.refused(error) from None

    def wait(self, seconds: float, say: Say, until: Callable[[Pod], bool] = lambda pod: pod.is_ready) -> None:
        """Waits until the pod is ready, or `until` is true, and says each of its steps. Raises SessionError."""
        end, previous, since = time.monotonic() + seconds, "", 0.0
        while True:
            pod = Pod(self.pod())
            if until(pod):
                return
            trouble = problem_of(pod)
            now = trouble or step_of(pod)
            text = one_line(f"{now.reason}: {now.message}")
            if now.reason != previous.partition(":")[0]:
                since = time.monotonic()
            lasts = time.monotonic() - since
            if not pod.is_alive or (trouble and lasts >= _PATIENCE.get(trouble.reason, 0)):
                raise SessionError(f"the server doesn't start: {text}")
            if text != previous:
                say(text)
                previous = text
            if time.monotonic() > end:
                raise SessionError(f"the server isn't ready after {seconds:.0f} s: {text}")
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raises SessionError if the server has ended."""
        pod = Pod(self.pod())
        trouble = problem_of(pod)
        if trouble or not pod.is_alive:
            why = f": {trouble.reason}: {trouble.message}" if trouble else ""
            raise SessionError(one_line(f"the server has ended{why}"))

    def upload(self, content: bytes, file: str) -> None:
        """Writes `content` into a file in the container. Raises SessionError."""
        self._execute(["sh", "-c", f"head -c {len(content)} >{file}"], 120, _chunks(content))

    def feed(self, source: IO[bytes], size: int, command: str, seconds: float) -> None:
        """Gives `size` bytes of `source` to a shell command in the container. Raises SessionError."""
        chunks = iter(lambda: source.read(_CHUNK), b"")
        self._execute(["sh", "-c", f"set -e; head -c {size} | {command}"], seconds, chunks)

    def run(self, command: Sequence[str], seconds: float) -> str:
        """Runs a command in the container and returns its output. Raises SessionError."""
        return self._execute(command, seconds)

    def log(self, most: int) -> str:
        """Returns the container's log, at most its first `most` bytes. Raises SessionError."""
        core = kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(self.connection.configuration))
        try:
            response = core.read_namespaced_pod_log(
                self.name, self.namespace, container=self.purpose.container, limit_bytes=most, _preload_content=False
            )
            return bytes(cast(Any, response).data).decode(errors="replace")
        except kubernetes.client.ApiException as error:
            raise self.purpose.refused(
                ApiError(error.status or 0, "", f"can't read the log of the pod: {error.reason}")
            ) from None

    def _execute(self, command: Sequence[str], seconds: float, stdin: Iterable[bytes] = ()) -> str:
        # `stream` changes its client, so it gets one of its own.
        core = kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(self.connection.configuration))
        try:
            channel = kubernetes.stream.stream(
                core.connect_get_namespaced_pod_exec, self.name, self.namespace, container=self.purpose.container,
                command=list(command), stdin=stdin != (), stdout=True, stderr=True, tty=False, _preload_content=False,
            )  # fmt: skip
        except kubernetes.client.ApiException as error:
            raise self.purpose.refused(
                ApiError(error.status or 0, "", f"can't run {command[0]} in the pod: {error.reason}")
            ) from None
        output = error_output = ""
        end = time.monotonic() + seconds
        try:
            for chunk in stdin:
                channel.update(timeout=0)
                if not channel.is_open():  # the command has ended, and its words say why
                    break
                channel.write_stdin(chunk)
            open_ = True
            while open_ and time.monotonic() < end:
                channel.update(timeout=1)
                open_ = channel.is_open()  # before the reads, so that the last ones come after the end
                output += channel.read_stdout(timeout=0) if channel.peek_stdout(timeout=0) else ""
                error_output += channel.read_stderr(timeout=0) if channel.peek_stderr(timeout=0) else ""
                if len(output) > MAX_OUTPUT:
                    raise SessionError(f"{command[0]} printed more than {MAX_OUTPUT} bytes")
                error_output = error_output[-MAX_OUTPUT:]
            if open_:
                raise SessionError(f"{command[0]} took longer than {seconds:.0f} s")
            code = channel.returncode
        except (websocket.WebSocketException, HTTPError, OSError) as error:
            raise SessionError(one_line(f"the connection to the pod broke: {error}")) from None
        finally:
            channel.close()
        if code:
            words = one_line((error_output or output).strip())[-500:]
            raise SessionError(f"{command[0]} failed in the pod: {words or f'exit code {code}'}")
        return output


def _chunks(content: bytes) -> Iterator[bytes]:
    return (content[start : start + _CHUNK] for start in range(0, len(content), _CHUNK))
