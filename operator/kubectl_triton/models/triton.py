"""Reads and changes the models of one Triton server over gRPC.

Over gRPC, because requests stall for seconds while a server loads a model over HTTP (decision 24).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from tritonclient.grpc import model_config_pb2, service_pb2

from kubectl_triton.forward import ServerError
from triton_operator.api import names
from triton_operator.probe.fetch import FetchError
from triton_operator.probe.grpc_call import Channel, StatusError
from triton_repository_check.text import one_line

Config = model_config_pb2.ModelConfig
READ_SECONDS = 20.0
MAX_ROWS = 2000
"""Maximum number of models of a server, as in the prober."""
_MAX_BYTES = 4 << 20
"""Protobuf needs up to 45 times as much memory for a message of many empty ones."""
_WORD_MAX, _MESSAGE_MAX = 256, 2000
_POLL_SECONDS = 0.2
_SERVICE = "/inference.GRPCInferenceService/"
_RELOADED = f"{names.GROUP}/reloaded"
READY, UNLOADING = "READY", "UNLOADING"


@dataclass(frozen=True)
class Row:
    """One version of a model on one server, as one line of printable characters each.

    - `instances`: number of instances; None if it isn't known, or for an ensemble, which has none.
    - `memory`: bytes that the backend reports; None if it reports none.
    - `steps`: the models of an ensemble.
    """

    name: str
    version: str
    state: str
    reason: str = ""
    instances: int | None = None
    memory: int | None = None
    steps: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Listing:
    """The models of a server that aren't just files. `left_out`: number of models beyond MAX_ROWS."""

    rows: tuple[Row, ...]
    left_out: int = 0


class Triton:
    """A server. Every answer is limited in time and size; every method raises ServerError."""

    def __init__(self, channel: Channel, loop: asyncio.Runner) -> None:
        self._channel, self._loop = channel, loop

    def models(self) -> Listing:
        """Returns the models that are loaded, or that were loaded or failed to load since the server started."""
        deadline = time.monotonic() + READ_SECONDS
        entries = (m for m in self._index() if m.state)
        memory = self._memory()
        rows = []
        for model in itertools.islice(entries, MAX_ROWS):
            config = None
            if model.state == READY and time.monotonic() < deadline:
                with contextlib.suppress(ServerError):  # the model was unloaded in the meantime
                    config = self.config(model.name, model.version, max(0.1, deadline - time.monotonic()))
            rows.append(_row(model, config, memory.get((model.name, model.version))))
        return Listing(tuple(rows), sum(1 for _ in entries))

    def config(self, name: str, version: str = "", seconds: float | None = None) -> Any:
        """Returns the configuration with which the server runs the model, a model_config_pb2.ModelConfig."""
        request = service_pb2.ModelConfigRequest(name=name, version=version)
        return self._ask("ModelConfig", request, service_pb2.ModelConfigResponse(), seconds).config

    def load(self, name: str, seconds: float) -> None:
        """Loads the model. Returns when the server serves it.

        Triton loads a loaded model again only if its files have changed.
        """
        self._load(service_pb2.RepositoryModelLoadRequest(model_name=name), seconds)

    def reload(self, name: str, seconds: float) -> None:
        """Loads the model again, also if its files haven't changed. Returns when the server serves the new one.

        The old one serves until then, and goes on if the new one doesn't load.
        """
        deadline = time.monotonic() + seconds
        # Reads the changed files, if there are any. Otherwise Triton does nothing.
        self.load(name, seconds)
        # With another configuration Triton loads the model again. No backend reads this entry: Triton itself looks up
        # compute capabilities such as 8.6 in it.
        config = self.config(name)
        config.cc_model_filenames[_RELOADED] = str(time.time_ns())
        text = json.dumps(json_format.MessageToDict(config, preserving_proto_field_name=True))
        request = service_pb2.RepositoryModelLoadRequest(model_name=name)
        request.parameters["config"].string_param = text
        self._load(request, max(0.1, deadline - time.monotonic()))

    def unload(self, name: str, seconds: float) -> None:
        """Unloads the model. Returns when it is gone. The server finishes running requests first."""
        deadline = time.monotonic() + seconds
        request = service_pb2.RepositoryModelUnloadRequest(model_name=name)
        self._ask("RepositoryModelUnload", request, service_pb2.RepositoryModelUnloadResponse(), seconds)
        # Triton answers before the model is gone.
        while any(m.name == name and m.state in (READY, UNLOADING) for m in self._index()):
            if time.monotonic() > deadline:
                raise ServerError(f"the model isn't unloaded after {seconds:g} s")
            time.sleep(_POLL_SECONDS)

    def state(self, name: str) -> str:
        """Returns the state of the model's versions, such as READY; "" if the server doesn't know the model."""
        return ", ".join(sorted({_word(m.state) for m in self._index() if m.name == name and m.state}))

    def _load(self, request: Message, seconds: float) -> None:
        self._ask("RepositoryModelLoad", request, service_pb2.RepositoryModelLoadResponse(), seconds)

    def _index(self) -> Iterable[Any]:
        request, answer = service_pb2.RepositoryIndexRequest(), service_pb2.RepositoryIndexResponse()
        models: Iterable[Any] = self._ask("RepositoryIndex", request, answer).models
        return models

    def _memory(self) -> dict[tuple[str, str], int]:
        """Returns the bytes that each model uses, where its backend reports them."""
        request, answer = service_pb2.ModelStatisticsRequest(), service_pb2.ModelStatisticsResponse()
        statistics = self._ask("ModelStatistics", request, answer).model_stats
        return {(m.name, m.version): sum(u.byte_size for u in m.memory_usage) for m in statistics}

    def _ask(self, method: str, request: Message, answer: Message, seconds: float | None = None) -> Any:
        """Returns `answer` with what the server answers. `seconds`: the timeout; None for READ_SECONDS."""
        seconds = READ_SECONDS if seconds is None else seconds
        message = request.SerializeToString()
        try:
            answer.ParseFromString(self._loop.run(self._channel.call(f"{_SERVICE}{method}", message, seconds)))
        except TimeoutError:
            raise ServerError(f"no answer within {seconds:g} s") from None
        except (StatusError, FetchError) as error:
            raise ServerError(one_line(str(error)[:_MESSAGE_MAX])) from None
        except DecodeError:
            raise ServerError("the answer isn't one of Triton's") from None
        return answer


@contextlib.contextmanager
def connect(address: str) -> Iterator[Triton]:
    """Yields a client of the server at host:port. Sends no request."""
    channel = Channel(address, _MAX_BYTES)
    with asyncio.Runner() as loop:
        try:
            yield Triton(channel, loop)
        finally:
            loop.run(channel.aclose())


def _row(model: service_pb2.RepositoryIndexResponse.ModelIndex, config: Any, memory: int | None) -> Row:
    steps = frozenset(step.model_name for step in config.ensemble_scheduling.step) if config else frozenset()
    reason = "" if model.state == READY else one_line(model.reason[:_MESSAGE_MAX])
    return Row(
        _word(model.name), _word(model.version), _word(model.state), reason, instances(config), memory or None, steps
    )


def _word(text: str) -> str:
    return one_line(text[:_WORD_MAX])


def instances(config: Any) -> int | None:
    """Returns the number of instances of a model; None if the configuration is unknown or an ensemble's."""
    if config is None or config.HasField("ensemble_scheduling"):
        return None
    return int(sum(group.count * max(1, len(group.gpus)) for group in config.instance_group))
