"""The interface of scheduler.py to Triton's Python backend."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from measures import TritonMeasures
from sampling import SamplingError, sampling_of
from scheduler import Failure, Generation, Pace, Scheduler
from transformer import WINDOW, Cache, load, tokens_of


class TritonClient:
    """Answers one request. See scheduler.Client."""

    def __init__(self, sender: Any) -> None:
        """Keeps the request's response sender."""
        self._sender = sender

    def send(self, text: str, *, final: bool) -> None:
        """Sends a response with text_output [1]."""
        tensor = pb_utils.Tensor("text_output", np.array([text.encode()], np.object_))
        self._respond(pb_utils.InferenceResponse([tensor]), final=final)

    def fail(self, failure: Failure) -> None:
        """Sends an error as the last response."""
        kinds = {
            Failure.STOPPING: pb_utils.TritonError.UNAVAILABLE,
            Failure.FAILED: pb_utils.TritonError.INTERNAL,
            Failure.LEFT: pb_utils.TritonError.CANCELLED,
        }
        self._fail(failure.value, kinds[failure])

    def refuse(self, message: str) -> None:
        """Sends the error that the request is wrong."""
        self._fail(message, pb_utils.TritonError.INVALID_ARG)

    def _fail(self, message: str, kind: int) -> None:
        self._respond(pb_utils.InferenceResponse(error=pb_utils.TritonError(message, kind)), final=True)

    def has_left(self) -> bool:
        """Returns whether the client has cancelled the request or has disconnected."""
        return bool(self._sender.is_cancelled())

    def _respond(self, response: Any, *, final: bool) -> None:
        self._sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if final else 0)


class TritonPythonModel:
    """Continues text_input [1] with text_output [1]: one response per character with stream, else one for all."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the weights and starts the scheduler."""
        parameters = json.loads(args["model_config"])["parameters"]
        settings = {name: value["string_value"] for name, value in parameters.items()}
        slots = int(_positive(settings, "max_num_seqs", whole=True))
        limit = _positive(settings, "tokens_per_second") if "tokens_per_second" in settings else None
        weights, self.vocabulary = load(Path(__file__).parent / "weights.npz")
        measures = TritonMeasures({"model": args["model_name"], "version": args["model_version"]})
        self.scheduler = Scheduler(Cache(weights, slots), self.vocabulary, slots, Pace(limit), measures)
        self.scheduler.start()

    def execute(self, requests: list[Any]) -> None:
        """Hands the requests to the scheduler. Its thread answers them."""
        for request in requests:
            client = TritonClient(request.get_response_sender())
            try:
                self.scheduler.submit(self._generation(request, client))
            except SamplingError as error:
                client.refuse(str(error))

    def finalize(self) -> None:
        """Ends the scheduler. Open requests get an error."""
        self.scheduler.stop()

    def _generation(self, request: Any, client: TritonClient) -> Generation:
        text = _text(request, "text_input") or ""
        if not text:
            raise SamplingError("text_input is empty; send the start of a text, at least one character")
        if len(text) > WINDOW:
            raise SamplingError(
                f"text_input has {len(text)} characters; the model reads at most {WINDOW}, so send the last ones only"
            )
        sampling = sampling_of(_text(request, "sampling_parameters"), request.parameters())
        stream = pb_utils.get_input_tensor_by_name(request, "stream")
        is_stream = stream is not None and bool(stream.as_numpy().flat[0])
        return Generation(tokens_of(text, self.vocabulary), sampling, client, stream=is_stream)


def _text(request: Any, name: str) -> str | None:
    """Returns the text of an input, None if the request doesn't have it. Raises SamplingError."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return None
    try:
        return str(tensor.as_numpy().flat[0].decode())
    except UnicodeDecodeError as error:
        raise SamplingError(f"{name} must be text in UTF-8: {error}") from None


def _positive(settings: dict[str, str], name: str, *, whole: bool = False) -> float:
    """Returns the parameter of config.pbtxt with this name. Raises ValueError, with which the model doesn't load."""
    text = settings.get(name, "")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf or (whole and number != int(number)):
        raise ValueError(
            f"the parameter {name} in config.pbtxt must be a {'whole ' if whole else ''}number above 0, not {text!r}"
        )
    return number
