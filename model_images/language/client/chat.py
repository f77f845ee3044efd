#!/usr/bin/env python3
"""Sends the start of a text to the model `language` and shows how it continues, character by character.

    chat.py "Once there was a fox"
    chat.py --grpc --max-tokens 300 --temperature 0.5 --stop "went to bed" "Good morning, Anna"

At the end it prints the time to the first token and the tokens per second; a token is a character. Over HTTP it needs
only Python, with --grpc tritonclient[grpc]. Ctrl-C leaves, and the server stops at once.
"""

import argparse
import contextlib
import http.client
import json
import queue
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

MODEL = "language"
PORTS = {"http": 8000, "grpc": 8001}
SECONDS = 120.0
"""The longest time without a token."""


class ChatError(Exception):
    """The server can't be reached or answers with an error. The message has its address and its reason."""


class Summary(NamedTuple):
    """The figures of an answer."""

    tokens: int
    first_seconds: float
    """From the request to the first token."""
    seconds: float
    """From the request to the end."""

    def __str__(self) -> str:
        """Returns the figures in one line. The rate is of the tokens after the first."""
        line = f"{self.tokens} tokens, the first after {self.first_seconds * 1000:.0f} ms"
        later = self.seconds - self.first_seconds
        return f"{line}, then {(self.tokens - 1) / later:.1f} tokens/s" if self.tokens > 1 and later > 0 else line


def stream_http(text: str, sampling: dict[str, Any], url: str, model: str = MODEL) -> Iterator[str]:
    """Yields the text in the pieces in which it comes, from the endpoint generate_stream. Raises ChatError."""
    body = json.dumps({"text_input": text, "stream": True, "sampling_parameters": json.dumps(sampling)})
    connection = http.client.HTTPConnection(url, timeout=SECONDS)
    try:
        # Triton reads a body without a type as a form.
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/v2/models/{model}/generate_stream", body, headers)
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            raise ChatError(f"{url}: {response.status}: {_reason(response.read().decode())}")
        for line in _lines(response):
            # Server-sent events: a line `data: {…}` and an empty line for each.
            if line.startswith(b"data:"):
                event = json.loads(line.removeprefix(b"data:"))
                if "error" in event:
                    raise ChatError(f"{url}: {event['error']}")
                yield event["text_output"]
    except http.client.IncompleteRead as error:
        raise ChatError(f"{url}: the answer has broken off") from error
    except (OSError, http.client.HTTPException) as error:
        raise ChatError(f"{url}: {error or type(error).__name__}") from error
    finally:
        connection.close()


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yields lines when they come. Raises IncompleteRead if the answer breaks off; reading by lines hides that."""
    rest = b""
    while block := response.read1():
        *lines, rest = (rest + block).split(b"\n")
        yield from lines


def _reason(body: str) -> str:
    """Returns the error in Triton's answer, which may be an event. A Gateway's isn't JSON, and is returned as it is."""
    try:
        return str(json.loads(body.removeprefix("data:"))["error"])
    except (ValueError, KeyError, TypeError):
        return body


def stream_grpc(text: str, sampling: dict[str, Any], url: str, model: str = MODEL) -> Iterator[str]:
    """Yields the text in the pieces in which it comes, from a gRPC stream. Raises ChatError."""
    import numpy as np
    import tritonclient.grpc as triton
    from tritonclient.utils import InferenceServerException

    tensors = []
    for name, kind, value in (
        ("text_input", "BYTES", np.array([text.encode()], np.object_)),
        ("stream", "BOOL", np.array([True])),
        ("sampling_parameters", "BYTES", np.array([json.dumps(sampling).encode()], np.object_)),
    ):
        tensor = triton.InferInput(name, [1], kind)
        tensor.set_data_from_numpy(value)
        tensors.append(tensor)
    answers, is_final = queue.Queue[Any](), False
    client = triton.InferenceServerClient(url)
    try:
        client.start_stream(lambda result, error: answers.put(error or result))
        client.async_stream_infer(model, tensors, enable_empty_final_response=True)
        while not is_final:
            answer = answers.get(timeout=SECONDS)
            if isinstance(answer, InferenceServerException):
                is_final = True
                raise ChatError(f"{url}: {answer.message()}")
            is_final = answer.get_response().parameters["triton_final_response"].bool_param
            output = answer.as_numpy("text_output")
            if output is not None:
                yield output[0].decode()
    except queue.Empty:
        raise ChatError(f"{url}: no answer within {SECONDS:g} s") from None
    except InferenceServerException as error:
        # The callback has the reason why the stream is broken.
        reason = error if answers.empty() else answers.get()
        raise ChatError(f"{url}: {reason.message()}") from error
    finally:
        # Triton 2.51 sometimes keeps a request that is cancelled after its end, and then can't unload the model.
        client.stop_stream(cancel_requests=not is_final)
        client.close()


STREAMS: dict[str, Callable[..., Iterator[str]]] = {"http": stream_http, "grpc": stream_grpc}


def chat(pieces: Iterator[str], show: Callable[[str], object]) -> Summary:
    """Shows each piece when it comes. Returns the figures. Raises ChatError."""
    started = time.monotonic()
    first, tokens = 0.0, 0
    for piece in pieces:
        if piece and not tokens:
            first = time.monotonic() - started
        tokens += len(piece)
        show(piece)
    return Summary(tokens, first, time.monotonic() - started)


def main() -> int:
    """Runs the command line. Returns 1 after an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="the start of the text, at most 256 characters")
    parser.add_argument("--url", help="host:port; by default localhost:8000, with --grpc localhost:8001")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--grpc", action="store_true", help="use a gRPC stream instead of HTTP")
    parser.add_argument("--max-tokens", type=int, help="maximum number of characters")
    parser.add_argument("--temperature", type=float, help="0 always takes the most likely character")
    parser.add_argument("--top-k", type=int, help="choose from this number of most likely characters")
    parser.add_argument("--seed", type=int, help="the same seed gives the same text")
    parser.add_argument("--stop", action="append", help="end before this string; can be repeated")
    arguments = parser.parse_args()
    names = ("max_tokens", "temperature", "top_k", "seed", "stop")
    sampling = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    protocol = "grpc" if arguments.grpc else "http"
    url = arguments.url or f"localhost:{PORTS[protocol]}"
    pieces = STREAMS[protocol](arguments.text, sampling, url, arguments.model)
    print(arguments.text, end="", flush=True)
    try:
        # Closing the stream tells the server that nobody reads it any more.
        with contextlib.closing(pieces):  # type: ignore[type-var]
            summary = chat(pieces, lambda piece: print(piece, end="", flush=True))
    except ChatError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print()
        return 130
    print(f"\n{summary}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
