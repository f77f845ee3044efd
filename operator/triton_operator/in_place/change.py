"""Checks the new model repository, and loads the model that differs.

Most of the memory of this program is for what this module imports, so `__main__` imports it last.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from triton_operator.api.servers import Change, Index, Server
from triton_operator.probe import fetch, model_control
from triton_operator.probe.fetch import FetchError
from triton_operator.probe.triton import READY, repository_index
from triton_operator.repository import check, collector
from triton_operator.repository.checks import judge
from triton_operator.repository.load import load
from triton_operator.repository.model import Repository

from . import memory, pipe
from .compare import NewServersError, difference
from .memory import Memory
from .obstacles import obstacle, users

_READER_SECONDS = 5.0
LOCAL = Server("", "the server", "127.0.0.1", (0, True))
"""The server in this pod."""


def checked(path: Path, arguments: Sequence[str]) -> Repository:
    """Returns the repository. Raises NewServersError with the errors of the repository check.

    `arguments`: the expectations of the check, as `render.expectations` passes them.
    """
    print("checking the new files")
    parser = argparse.ArgumentParser()
    check.add_options(parser)
    options = parser.parse_args(arguments)
    with collector.paused():
        repository, found = load(path)
        findings = judge(repository, found, check.expected(options))
    errors = [str(one) for one in findings if one.severity == "error"]
    if errors:
        raise NewServersError("; ".join(errors))
    return repository


def change(
    root: Path, number: str, server: Server, load_seconds: float, available: Memory | None, new: Repository
) -> None:
    """Moves the link `current` to the new files, whose repository is `new`, and loads the model that differs.

    Moves the link back if this fails, and raises NewServersError. `available`: the memory of the server.
    """
    current = root / "current"
    before = str(current.readlink())
    index = asyncio.run(_index(server))
    ready = _ready(index)
    found = difference(root / before, root / number, {entry.name for entry in index})
    if found.model:
        live = asyncio.run(_configuration(server, found.model)) if found.model in ready else {}
        if why := memory.shortage(available, found.growth) or obstacle(found.model, live, new, ready):
            raise NewServersError(why)
    if load_seconds <= 0:
        raise NewServersError("the new files arrived too late to load the model")
    with _begun(root / f"{number}.pipe", before):
        _link(current, number)
        changed = ""
        try:
            if found.model:
                print(f"loading {found.model}")
                _load(server, load_seconds, found.model)
                changed = found.model
                _still_ready(server, changed, users(changed, new, ready))
            (root / f"{number}.done").touch()
        except BaseException:
            _link(current, before)
            if changed:
                _restore(root / before, server, load_seconds, changed, users(changed, new, ready))
            raise
    print(f"changed {found.model or 'no loaded model'}")
    shutil.rmtree(root / before, ignore_errors=True)


def _still_ready(server: Server, model: str, names: set[str]) -> None:
    """Raises NewServersError if one of these models isn't READY: Triton unloads ensembles that a new step doesn't fit.

    It gives no reason, and the load of the step succeeds.
    """
    if lost := sorted(names - _ready(asyncio.run(_index(server)))):
        raise NewServersError(f"the new {model} doesn't fit the ensembles with it: {', '.join(lost)}")


def _restore(before: Path, server: Server, seconds: float, model: str, names: set[str]) -> None:
    """Loads the former model again, and the ensembles with it. Triton loads only files that are newer than before."""
    print(f"loading the former {model}")
    for directory, _, files in os.walk(before / model):
        for name in files:
            os.utime(Path(directory, name), follow_symlinks=False)
    try:
        _load(server, seconds, model, *sorted(names - {model}))
    except NewServersError as error:
        print(f"can't load it: {error}", file=sys.stderr)


@contextlib.contextmanager
def _begun(path: Path, before: str) -> Iterator[None]:
    """Keeps the pipe open, after it has written the name of the former directory into it.

    If the server ends, so does this program, without a chance to move the link back. The container that copied the
    files waits until the pipe is closed, and does it then (render/in_place.py).
    """
    with pipe.opened(path, _READER_SECONDS) as file:
        file.write(before)
        file.flush()
        yield


def _ready(index: Index) -> set[str]:
    return {entry.name for entry in index if entry.state == READY}


async def _index(server: Server) -> Index:
    """Returns the models that the server has loaded or tries to load."""
    try:
        async with fetch.session() as client:
            return (await repository_index(client, server.address)).index
    except FetchError as error:
        raise NewServersError(f"the server doesn't answer: {error}") from None


async def _configuration(server: Server, model: str) -> dict[str, Any]:
    """Returns the configuration with which the server runs the model."""
    url = f"http://{server.address}/v2/models/{quote(model, safe='')}/config"
    try:
        async with fetch.session() as client:
            found = orjson.loads(await fetch.fetch(client, "GET", url, fetch.Limits()))
    except (FetchError, ValueError) as error:
        raise NewServersError(f"the configuration of {model} can't be read: {error}") from None
    return found if isinstance(found, dict) else {}


def _load(server: Server, seconds: float, *models: str) -> None:
    async def make() -> None:
        async with fetch.session() as client:
            outcome = await model_control.make(client, server, Change(models, (), models, seconds))
        if outcome.state == "Unreachable":
            raise NewServersError(f"the server didn't answer while it loaded {models[0]}: {outcome.message}")
        if outcome.state != "Done":
            raise NewServersError(outcome.message)

    asyncio.run(make())


def _link(link: Path, target: str) -> None:
    """Points `link` to `target` in one step, so that the server always finds a repository."""
    new = link.with_name(f"{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.rename(link)
