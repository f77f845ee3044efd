"""Connects to a port of a pod, as `kubectl port-forward` does."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterator
from typing import IO, cast

from triton_repository_check.text import one_line

_START_SECONDS = 20.0
_MESSAGE_MAX = 500
_READY = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")


class ServerError(Exception):
    """A server can't be reached, or it refuses a request. The message is one line for the user."""


@contextlib.contextmanager
def forward(namespace: str, pod: str, port: int, context: str | None = None) -> Iterator[str]:
    """Yields a local host:port that leads to this port of the pod. Raises ServerError.

    Uses kubectl, because it knows every way to log in and limits what it buffers. The connection ends with the context.
    """
    command = ["kubectl", "port-forward", f"--namespace={namespace}", "--address=127.0.0.1"]
    command += [*([f"--context={context}"] if context else []), f"pod/{pod}", f":{port}"]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise ServerError(f"kubectl can't be started: {error.strerror}") from None
    try:
        yield f"127.0.0.1:{_local_port(process, cast(IO[str], process.stdout))}"
    finally:
        process.kill()
        process.wait()


def _local_port(process: subprocess.Popen[str], output: IO[str]) -> int:
    """Returns the local port as soon as kubectl listens on it."""
    words, timer = "", threading.Timer(_START_SECONDS, process.kill)
    timer.start()
    try:
        while line := output.readline(_MESSAGE_MAX):
            if match := _READY.match(line):
                # kubectl prints a line for each connection. It would wait if nobody read them.
                threading.Thread(target=_drain, args=(output,), daemon=True).start()
                return int(match[1])
            words = (words + line)[-_MESSAGE_MAX:]
    finally:
        timer.cancel()
    raise ServerError(one_line(words.strip()).removeprefix("error: ") or f"no connection within {_START_SECONDS:g} s")


def _drain(output: IO[str]) -> None:
    with contextlib.suppress(OSError, ValueError), output:
        while output.read(4096):
            pass
