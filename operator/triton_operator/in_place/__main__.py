"""`python -m triton_operator.in_place`: changes the model repository of the server in this pod.

The termination message is for the operator: why the change was not made. The exit status is 0 if it was made.

The memory that the program takes counts for the pod: 12 MiB until it knows that there is more.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from triton_operator.api.text import one_line

from . import memory, pipe
from .compare import NewServersError

_MESSAGE_MAX = 800
"""The kubelet cuts the messages of a pod with many containers."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Waits for the new files, checks them, and loads the model that differs. Undoes everything if that fails."""
    options, expectations = _options(arguments)
    root, number = options.repositories, str(options.number)
    if _is_current(root, number) and (root / f"{number}.done").exists():
        # The node has lost the containers that have ended, and the kubelet starts them again.
        print("this change was made before")
        return 0
    try:
        if not memory.scarce(memory.read()):
            from . import change  # takes 50 MiB, and half a second in which the files arrive
        _wait_for(root, number, options.end - options.load_seconds)
        if why := memory.scarce(memory.read()):
            raise NewServersError(why)
        from . import change

        repository = change.checked(root / number, expectations)
        seconds = min(options.load_seconds, options.end - time.time())
        change.change(root, number, change.LOCAL, seconds, memory.read(), repository)
    except Exception as error:  # the operator must know of any failure, and the files must go
        text = str(error) if isinstance(error, NewServersError) else f"{type(error).__name__}: {error}"
        text = one_line(text)[:_MESSAGE_MAX]
        print(text, file=sys.stderr)
        _report(options.termination_log, text)
        if not _is_current(root, number):
            shutil.rmtree(root / number, ignore_errors=True)
        with contextlib.suppress(NewServersError):
            pipe.opened(root / f"{number}.pipe", 1.0).close()  # ends the container that copied the files
        return 1
    return 0


def _is_current(root: Path, number: str) -> bool:
    """Returns whether the server has the files of this change. Then they must stay."""
    try:
        return str((root / "current").readlink()) == number
    except OSError:
        return False


def _wait_for(root: Path, number: str, end: float) -> None:
    print("waiting for the new files")
    mark = root / f"{number}.complete"
    while not mark.exists():
        if (root / f"{number}.failed").exists():
            raise NewServersError("the new files could not be copied")
        if time.time() > end:
            raise NewServersError("the new files did not arrive in time")
        time.sleep(pipe.POLL_SECONDS)
    mark.unlink()


def _report(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"can't write {path}: {error.strerror}", file=sys.stderr)


def _options(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="triton_operator.in_place", description=main.__doc__, allow_abbrev=False)
    parser.add_argument("--repositories", type=Path, required=True, help="directory with the link `current`")
    parser.add_argument("--number", type=int, required=True, help="name of the directory with the new files")
    parser.add_argument("--end", type=int, required=True, help="latest end of the change, in seconds since 1970")
    parser.add_argument("--reference", default="", help="the model image, for the operator")
    parser.add_argument("--load-seconds", type=float, required=True, help="maximum time to load a model")
    parser.add_argument("--termination-log", type=Path, default=Path("/dev/termination-log"))
    return parser.parse_known_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
