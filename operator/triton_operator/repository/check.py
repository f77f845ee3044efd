"""`python -m triton_operator.repository.check /models`: the repository check that the pod runs before the server."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from triton_operator.repository import collector, versions
from triton_operator.repository.checks import Expected, judge
from triton_operator.repository.formats import text
from triton_operator.repository.load import load
from triton_operator.repository.report import USUAL_CONTAINERS, limit, render, report

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the check only reads its size


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks a model repository. Prints the findings; exits with 1 if there are errors."""
    options = _options(arguments)
    wanted = expected(options)
    with collector.paused():
        repository, found = load(options.path)
        findings = judge(repository, found, wanted)
        whole = report(repository, findings, wanted)
        print(text(options.path, repository, findings), end="")
    if options.termination_log is not None:
        _write(options.termination_log, render(whole, limit(options.containers)))
    return 0 if whole.ok else 1


def expected(options: argparse.Namespace) -> Expected:
    """Returns the values of the options that `add_options` has added."""
    return Expected(
        entrypoint=options.entrypoint,
        load_models=tuple(options.load_models),
        shared_memory=_mounted() if options.shared_memory is None else options.shared_memory,
        gpus=options.gpus,
        cpus=options.cpus,
        response_cache=options.response_cache,
        server=options.server_version,
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `render.expectations` passes."""
    parser.add_argument("--entrypoint", type=lambda text: text or None, help="spec.entrypoint")
    parser.add_argument(
        "--load-models",
        type=lambda text: [name for name in text.split(",") if name],
        default=[],
        metavar="A,B",
        help="spec.server.loadModels; default: all models",
    )
    parser.add_argument(
        "--shared-memory",
        type=int,
        metavar="BYTES",
        help=f"the server's shared memory; default: size of {SHARED_MEMORY}",
    )
    parser.add_argument("--gpus", type=int, help="number of GPUs that the server sees; default: unknown")
    parser.add_argument("--cpus", type=float, metavar="CORES", help="the server's CPU limit; default: unknown")
    parser.add_argument(
        "--response-cache",
        action=argparse.BooleanOptionalAction,
        help="whether the server has a response cache; default: unknown",
    )
    parser.add_argument(
        "--server-version", type=_version, metavar="2.51|24.10", help="the server's version; default: unknown"
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="triton_operator.repository.check", description=main.__doc__)
    parser.add_argument("path", help="the model repository")
    add_options(parser)
    parser.add_argument("--termination-log", type=Path, metavar="FILE", help="file for the report")
    parser.add_argument(
        "--containers",
        type=int,
        default=USUAL_CONTAINERS,
        help="number of all containers of the pod, which share the maximum size of termination messages",
    )
    return parser.parse_args(arguments)


def _version(text: str) -> versions.Version:
    """Like `versions.parse`, but keeps its error message."""
    try:
        return versions.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _mounted() -> int | None:
    """Returns the size of /dev/shm in bytes; None if it doesn't exist."""
    try:
        stat = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    return stat.f_frsize * stat.f_blocks


def _write(path: Path, text: str) -> None:
    """Writes the report. Only prints an error if it fails: the exit status is the result of the check."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        print(f"can't write the report to {path}: {problem.strerror}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
