"""`python -m triton_operator.in_place`: changes the model repository of the server in this pod.

The termination message is for the operator: why the change was not made. The exit status is 0 if it was made.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from triton_operator.api.servers import Change, Server
from triton_operator.api.text import one_line
from triton_operator.probe import fetch, model_control
from triton_operator.probe.fetch import FetchError
from triton_operator.probe.triton import repository_index
from triton_operator.repository import check, collector
from triton_operator.repository.checks import judge
from triton_operator.repository.load import load

from . import memory
from .compare import NewServersError, difference
from .memory import Memory

_POLL_SECONDS, _READER_SECONDS = 0.1, 5.0
_MESSAGE_MAX = 800
"""The kubelet cuts the messages of a pod with many containers."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Waits for the new files, checks them, and loads the model that differs. Undoes everything if that fails."""
    options = _options(arguments)
    root, number = options.repositories, str(options.number)
    try:
        _wait_for(root / f"{number}.complete", options.end - options.load_seconds)
        _check(root / number, options)
        server = Server("", "the server", "127.0.0.1", (0, True))
        change(root, number, server, min(options.load_seconds, options.end - time.time()), memory.read())
    except NewServersError as error:
        text = one_line(str(error))[:_MESSAGE_MAX]
        print(text, file=sys.stderr)
        _report(options.termination_log, text)
        shutil.rmtree(root / number, ignore_errors=True)
        with contextlib.suppress(NewServersError):
            _opened(root / f"{number}.pipe", 1.0).close()  # ends the container that copied the files
        return 1
    return 0


def _wait_for(mark: Path, end: float) -> None:
    print("waiting for the new files")
    while not mark.exists():
        if time.time() > end:
            raise NewServersError("the new files did not arrive in time")
        time.sleep(_POLL_SECONDS)
    mark.unlink()


def _check(path: Path, options: argparse.Namespace) -> None:
    """Raises NewServersError with the errors of the repository check."""
    print("checking the new files")
    with collector.paused():
        repository, found = load(path)
        findings = judge(repository, found, check.expected(options))
    errors = [str(one) for one in findings if one.severity == "error"]
    if errors:
        raise NewServersError("; ".join(errors))


def change(root: Path, number: str, server: Server, load_seconds: float, available: Memory | None) -> None:
    """Moves the link `current` to the new files and loads the model that differs.

    Moves the link back if this fails, and raises NewServersError. `available`: the memory of the server.
    """
    current = root / "current"
    before = str(current.readlink())
    found = difference(root / before, root / number, asyncio.run(_loaded(server)))
    if found.model and (why := memory.shortage(available, found.growth)):
        raise NewServersError(why)
    if load_seconds <= 0:
        raise NewServersError("the new files arrived too late to load the model")
    with _begun(root / f"{number}.pipe", before):
        _link(current, number)
        try:
            if found.model:
                print(f"loading {found.model}")
                _load(server, found.model, load_seconds)
            (root / f"{number}.done").touch()
        except BaseException:
            _link(current, before)
            raise
    print(f"changed {found.model or 'no loaded model'}")
    shutil.rmtree(root / before, ignore_errors=True)


@contextlib.contextmanager
def _begun(pipe: Path, before: str) -> Iterator[None]:
    """Keeps `pipe` open, after it has written the name of the former directory into it.

    If the server ends, so does this program, without a chance to move the link back. The container that copied the
    files waits until the pipe is closed, and does it then (render/in_place.py).
    """
    with _opened(pipe, _READER_SECONDS) as file:
        file.write(before)
        file.flush()
        yield


def _opened(pipe: Path, seconds: float) -> TextIO:
    """Opens the pipe for writing. Raises NewServersError if nobody reads it within `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return os.fdopen(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), "w", encoding="utf-8")
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.ENOENT) or time.monotonic() > deadline:
                raise NewServersError(f"the container that copied the files has ended: {error.strerror}") from None
        time.sleep(_POLL_SECONDS)


async def _loaded(server: Server) -> set[str]:
    """Returns the models that the server has loaded or tries to load."""
    try:
        async with fetch.session() as client:
            return {entry.name for entry in (await repository_index(client, server.address)).index}
    except FetchError as error:
        raise NewServersError(f"the server doesn't answer: {error}") from None


def _load(server: Server, model: str, seconds: float) -> None:
    async def make() -> None:
        async with fetch.session() as client:
            outcome = await model_control.make(client, server, Change((model,), (), (model,), seconds))
        if outcome.state == "Unreachable":
            raise NewServersError(f"the server didn't answer while it loaded {model}: {outcome.message}")
        if outcome.state != "Done":
            raise NewServersError(outcome.message)

    asyncio.run(make())


def _link(link: Path, target: str) -> None:
    """Points `link` to `target` in one step, so that the server always finds a repository."""
    new = link.with_name(f"{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.rename(link)


def _report(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"can't write {path}: {error.strerror}", file=sys.stderr)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="triton_operator.in_place", description=main.__doc__)
    parser.add_argument("--repositories", type=Path, required=True, help="directory with the link `current`")
    parser.add_argument("--number", type=int, required=True, help="name of the directory with the new files")
    parser.add_argument("--end", type=int, required=True, help="latest end of the change, in seconds since 1970")
    parser.add_argument("--reference", default="", help="the model image, for the operator")
    parser.add_argument("--load-seconds", type=float, required=True, help="maximum time to load a model")
    parser.add_argument("--termination-log", type=Path, default=Path("/dev/termination-log"))
    check.add_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
