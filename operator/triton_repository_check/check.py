"""`python -m triton_repository_check.check /models`: the repository check that the pod runs before the server."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from triton_repository_check import garbage_collection, overrides, view
from triton_repository_check.check_table import judge
from triton_repository_check.expected import OPTIONS, Expected, Option
from triton_repository_check.formats import text
from triton_repository_check.load import load
from triton_repository_check.needs import MAX_NUMPY_THREADS
from triton_repository_check.report import USUAL_CONTAINERS, limit, render, report
from triton_repository_check.server_flags import ServerFlags
from triton_repository_check.text import one_line

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the check only reads its size


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks a model repository. Prints the findings; exits with 1 if there are errors."""
    options = _options(arguments)
    expected = _expected(options)
    with garbage_collection.paused():
        repository, findings = load(
            options.path,
            dict(options.model),
            expected.config_name,
            measured=expected.storage is not None,
            request=expected.health_request,
        )
        findings = judge(repository, findings, expected)
        whole = report(repository, findings, expected)
        print(text(options.path, repository, findings), end="")
    if whole.ok and options.view is not None:
        try:
            view.write(Path(options.path), options.view, options.links_to, overrides.texts(repository))
        except OSError as problem:  # such as a full disk
            message = f"can't write config.pbtxt with the fields of spec.models: {one_line(str(problem))}"
            print(message, file=sys.stderr)
            if options.termination_log is not None:
                _write(options.termination_log, message)
            return 1
    if options.termination_log is not None:
        _write(options.termination_log, render(whole, limit(options.containers)))
    return 0 if whole.ok else 1


def _lines(path: Path | None) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path is not None else []


def _expected(options: argparse.Namespace) -> Expected:
    """Returns what the pod expects. What isn't said and can be measured here is measured."""
    threads = min(os.cpu_count() or 1, MAX_NUMPY_THREADS)
    values: dict[str, Any] = {"shared_memory": _mounted(), "numpy_threads": threads, "flags": ServerFlags()}
    for option in OPTIONS:
        if (value := getattr(options, option.name)) is not None:
            values[option.name] = option.read(value) if option.many else value
    listed = (*values.get("load_models", ()), *_lines(options.load_models_file))
    return Expected(**{**values, "load_models": listed})


def _typed(option: Option) -> Callable[[str], Any]:
    """Returns `option.read` with its error message."""

    def read(text: str) -> Any:
        try:
            return option.read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="triton_repository_check.check", description=main.__doc__)
    parser.add_argument("path", help="the model repository")
    for option in OPTIONS:
        how = {"action": "append"} if option.many else {"type": _typed(option)}
        parser.add_argument(option.flag, dest=option.name, metavar=option.metavar, help=option.help, **how)
    parser.add_argument("--load-models-file", type=Path, metavar="FILE", help="file with a model of that list per line")
    parser.add_argument(
        "--model", type=_model, action="append", default=[], metavar="JSON", help="an item of spec.models"
    )
    parser.add_argument(
        "--view", type=Path, metavar="DIR", help="directory that becomes the repository with the fields of spec.models"
    )
    parser.add_argument("--links-to", metavar="DIR", help="where the server has the model repository, for --view")
    parser.add_argument("--termination-log", type=Path, metavar="FILE", help="file for the report")
    parser.add_argument(
        "--containers",
        type=int,
        default=USUAL_CONTAINERS,
        help="number of all containers of the pod, which share the maximum size of termination messages",
    )
    return parser.parse_args(arguments)


def _model(text: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and the fields in an item of spec.models."""
    item = json.loads(text)
    return item["name"], item["config"]


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
