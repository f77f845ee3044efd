"""Sends requests to a server over gRPC, which alone has streams, deadlines and cancellation."""

from __future__ import annotations

import contextlib
import queue
import random
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from .outcome import Outcome, Output, Target
from .requests import Request
from .tensors import Tensor

READ_SECONDS = 20.0
_POLL_SECONDS = 0.1
_LATE = "StatusCode.DEADLINE_EXCEEDED"
_CHANNEL = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]
"""No proxy, and no limit for messages."""
READY = "READY"


class GoneError(Exception):
    """The server doesn't answer anymore."""


class Sender:
    """A connection to a server. Every method raises GoneError if the server doesn't answer."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = _client(address)
        self._first = random.randrange(1 << 40)  # noqa: S311 - to differ from the sequences of other clients

    def close(self) -> None:
        self._client.close()

    def all_ready(self) -> bool:
        """Returns whether each model that the server has been told to load is ready."""
        with self._asked():
            return bool(self._client.is_server_ready(client_timeout=READ_SECONDS))

    def ready(self) -> list[tuple[str, str]]:
        """Returns the models and versions that the server serves."""
        return [(m.name, m.version) for m in self._index() if m.state == READY]

    def config(self, model: str, version: str = "") -> Any:
        """Returns the configuration with which the server runs the model, a ModelConfig."""
        with self._asked():
            return self._client.get_model_config(model, version, client_timeout=READ_SECONDS).config

    def unload(self, model: str, seconds: float) -> str:
        """Unloads a model with the ensembles that contain it, and returns when it is gone. Returns why it isn't."""
        try:
            self._client.unload_model(model, client_timeout=seconds)
        except InferenceServerException as error:
            return self._words(error)
        return self._until(model, loaded=False, seconds=seconds)

    def load(self, model: str, seconds: float) -> str:
        """Loads a model. Returns Triton's words if that fails."""
        try:
            self._client.load_model(model, client_timeout=seconds)
        except InferenceServerException as error:
            late = str(error.status()) == _LATE
            return f"the load has no result after {seconds:g} s" if late else self._words(error)
        return ""

    def send(self, target: Target, requests: Sequence[Request], seconds: float) -> list[Outcome]:
        """Sends requests at once, and returns what came of each within `seconds`."""
        return (self._stream if target.streams else self._plain)(target, requests, seconds)

    def cancel(self, target: Target, request: Request, seconds: float) -> None:
        """Sends a request, and cancels it after `seconds`."""
        with contextlib.suppress(InferenceServerException):
            running = self._client.async_infer(**self._fields(target, request), callback=_ignore)
            time.sleep(seconds)
            running.cancel()

    def _plain(self, target: Target, requests: Sequence[Request], seconds: float) -> list[Outcome]:
        done = queue.SimpleQueue[tuple[int, Any, Any, float]]()
        for number, request in enumerate(requests):

            def keep(result: Any, error: Any, number: int = number, start: float = time.monotonic()) -> None:
                done.put((number, result, error, time.monotonic() - start))

            self._client.async_infer(**self._fields(target, request), callback=keep, client_timeout=seconds)
        outcomes = [Outcome(is_late=True, seconds=seconds)] * len(requests)
        # gRPC ends each by its deadline. The margin is for a machine that is busy.
        end = time.monotonic() + seconds + READ_SECONDS
        for _ in requests:
            with contextlib.suppress(queue.Empty):
                number, result, error, took = done.get(timeout=max(0.1, end - time.monotonic()))
                outcomes[number] = self._outcome([result] if result else [], error, took)
        return outcomes

    def _stream(self, target: Target, requests: Sequence[Request], seconds: float) -> list[Outcome]:
        """Each request has a stream of its own, so that one that never ends shows."""
        done = queue.SimpleQueue[tuple[int, Any, Any]]()
        start = time.monotonic()
        outcomes = [Outcome(is_late=True, seconds=seconds)] * len(requests)
        results: dict[int, list[Any]] = {number: [] for number in range(len(requests))}
        with contextlib.ExitStack() as stack:
            for number, request in enumerate(requests):
                client = _client(self._address)
                stack.callback(client.close)
                client.start_stream(lambda result, error, number=number: done.put((number, result, error)))
                stack.callback(_stop, client, number, results)
                client.async_stream_infer(**self._fields(target, request), enable_empty_final_response=True)
            while results and (left := start + seconds - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    number, result, error = done.get(timeout=left)
                    if number not in results:
                        continue
                    final = result is not None and result.get_response().parameters["triton_final_response"].bool_param
                    if result is not None and not (final and not result.get_response().outputs):
                        results[number].append(result)
                    if error is not None or final:
                        outcomes[number] = self._outcome(results.pop(number), error, time.monotonic() - start)
            for number, left_over in results.items():
                outcomes[number] = self._outcome(left_over, None, seconds, is_late=True)
        return outcomes

    def _fields(self, target: Target, request: Request) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model_name": target.model, "model_version": target.version, "inputs": [_input(t) for t in request.inputs],
        }  # fmt: skip
        if turn := request.turn:
            number = self._first + turn.number
            fields["sequence_id"] = f"sequence-{number}" if target.sequence_names else number
            fields |= {"sequence_start": turn.start, "sequence_end": turn.end}
        return fields

    def _outcome(self, results: Sequence[Any], error: Any, seconds: float, is_late: bool = False) -> Outcome:
        responses = tuple(tuple(_output(result, o) for o in result.get_response().outputs) for result in results)
        if error is None:
            return Outcome(responses, is_late=is_late, seconds=seconds)
        if str(error.status()) == _LATE:
            return Outcome(responses, is_late=True, seconds=seconds)
        return Outcome(responses, self._words(error), seconds=seconds)

    def _words(self, error: InferenceServerException) -> str:
        """Returns Triton's words. Raises GoneError if it isn't Triton who answers."""
        if str(error.status()) == "StatusCode.UNAVAILABLE":
            with self._asked():
                self._client.is_server_live(client_timeout=READ_SECONDS)
        return str(error.message() or "") or "no words"

    def _until(self, model: str, *, loaded: bool, seconds: float) -> str:
        end = time.monotonic() + seconds
        while any(m.name == model and m.state not in ("", "UNAVAILABLE") for m in self._index()) is not loaded:
            if time.monotonic() > end:
                return f"isn't unloaded after {seconds:g} s"
            time.sleep(_POLL_SECONDS)
        return ""

    def _index(self) -> Iterator[Any]:
        with self._asked():
            return iter(self._client.get_model_repository_index(client_timeout=READ_SECONDS).models)

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        try:
            yield
        except InferenceServerException as error:
            raise GoneError(str(error.message())) from None


def _client(address: str) -> Any:
    return tritonclient.grpc.InferenceServerClient(address, channel_args=_CHANNEL)


def _stop(client: Any, number: int, running: Collection[int]) -> None:
    """Ends a stream; cancels it only if it still runs.

    Servers of 2024 may keep a request forever whose stream is cancelled when it ends, and never unload its model.
    """
    client.stop_stream(cancel_requests=number in running)


def _ignore(result: Any, error: Any) -> None:
    """The answer to a request that is cancelled."""


def _input(tensor: Tensor) -> Any:
    item = tritonclient.grpc.InferInput(tensor.name, list(tensor.values.shape), tensor.kind)
    item.set_data_from_numpy(tensor.values)
    return item


def _output(result: Any, output: Any) -> Output:
    fault = ""
    try:
        result.as_numpy(output.name)
    except Exception as error:  # a broken server can send any content
        fault = f"{type(error).__name__}: {error}"
    return Output(output.name, output.datatype, tuple(output.shape), fault)
