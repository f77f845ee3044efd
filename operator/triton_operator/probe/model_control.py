"""Loads and unloads the models of one Triton server, over gRPC: over HTTP a load stalls other requests (decision 24).

Two messages with one field each don't need Triton's generated code, whose import takes more memory than all of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import orjson

from triton_operator.api.servers import Change, ChangeOutcome, RunningServer
from triton_repository_check.text import one_line

from . import grpc_call
from .fetch import FetchError, HttpClient, Limits, fetch
from .triton import repository_index

_WORDS_MAX = 2000
_STEPS_MAX = 500
"""Maximum number of models whose configuration is read before an unload."""
_UNLOAD_POLL_SECONDS = 1.0
_SERVICE = "/inference.GRPCInferenceService/"
_LOAD, _UNLOAD = f"{_SERVICE}RepositoryModelLoad", f"{_SERVICE}RepositoryModelUnload"


class RefusedError(Exception):
    """The server refuses the change, with the words in the message."""


class StuckError(Exception):
    """A model is still LOADING after the maximum time."""


async def make(client: HttpClient, server: RunningServer, change: Change) -> ChangeOutcome:
    """Makes the change, and returns how it ended. Unloads nothing before every new model is ready. Never Running."""
    loaded: list[str] = []
    unloaded: list[str] = []

    def ended(state: Any, message: str = "") -> ChangeOutcome:
        return ChangeOutcome(state, message, tuple(loaded), tuple(unloaded))

    try:
        for name in change.load:
            await _load(client, server, name, change.seconds)
            loaded.append(name)
        if change.unload:
            needed = await _needed(client, server, change.keep)
            for name in change.unload:
                # A model that was never loaded can't be unloaded.
                if name not in needed and await _states(client, server, name):
                    await _unload(client, server, name, change.seconds)
                unloaded.append(name)
    except RefusedError as error:
        return ended("Refused", str(error))
    except StuckError as error:
        return ended("Stuck", str(error))
    except FetchError as error:
        return ended("Unreachable", one_line(str(error))[:_WORDS_MAX])
    return ended("Done")


async def _load(client: HttpClient, server: RunningServer, name: str, seconds: float) -> None:
    """Returns when the server serves the model. Raises RefusedError, StuckError or FetchError."""
    try:
        await _call(server, _LOAD, name, seconds)
    except TimeoutError:
        states = await _states(client, server, name)
        if "LOADING" in states:
            raise StuckError(f"{name} is still LOADING after {seconds:g} s") from None
        raise FetchError(f"no answer to the load of {name} within {seconds:g} s") from None


async def _unload(client: HttpClient, server: RunningServer, name: str, seconds: float) -> None:
    """Returns when the model is gone, with the steps that only it needs. Triton finishes running requests first."""
    try:
        async with asyncio.timeout(seconds):
            await _call(server, _UNLOAD, name, seconds, _WITH_STEPS)
            # Triton answers before the model is gone.
            while {"READY", "UNLOADING"} & await _states(client, server, name):
                await asyncio.sleep(_UNLOAD_POLL_SECONDS)
    except TimeoutError:
        raise FetchError(f"{name} isn't unloaded after {seconds:g} s") from None


async def _states(client: HttpClient, server: RunningServer, name: str) -> set[str]:
    answer = await repository_index(client, server.address)
    return {entry.state for entry in answer.index if entry.name == name}


async def _needed(client: HttpClient, server: RunningServer, roots: Sequence[str]) -> set[str]:
    """Returns `roots` and the steps of the ensembles among them, on this server. Raises FetchError or RefusedError."""
    needed, todo = set(roots), list(roots)
    while todo:
        if len(needed) > _STEPS_MAX:
            raise RefusedError(f"nothing is unloaded: more than {_STEPS_MAX} models are loaded")
        name = todo.pop()
        body = await fetch(client, "GET", f"http://{server.address}/v2/models/{quote(name, safe='')}/config", Limits())
        for step in steps(body):
            if step not in needed:
                needed.add(step)
                todo.append(step)
    return needed


def steps(body: bytes) -> list[str]:
    """Returns the models of an ensemble from its configuration; none for other models. Raises RefusedError."""
    try:
        config = orjson.loads(body)
        entries = (config.get("ensemble_scheduling") or {}).get("step") or []
        names = [step["model_name"] for step in entries]
    except (ValueError, AttributeError, TypeError, KeyError):
        names = [None]
    if not all(isinstance(name, str) for name in names):
        raise RefusedError("nothing is unloaded: the configuration of a model can't be read")
    return names


_WITH_STEPS = (
    # parameters {key: "unload_dependents" value {bool_param: true}}: field 3, a map entry
    b"\x1a\x17\x0a\x11unload_dependents\x12\x02\x08\x01"
)


async def _call(server: RunningServer, method: str, name: str, seconds: float, parameters: bytes = b"") -> None:
    """Sends a RepositoryModelLoadRequest or UnloadRequest. Raises TimeoutError, RefusedError or FetchError."""
    text = name.encode()
    message = b"\x12" + _varint(len(text)) + text + parameters  # field 2: model_name
    try:
        await grpc_call.call(server.grpc, method, message, seconds)
    except grpc_call.StatusError as error:
        raise RefusedError(f"{name}: {one_line(str(error)[:_WORDS_MAX])}") from None


def _varint(number: int) -> bytes:
    """Returns a length as protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
