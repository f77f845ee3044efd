#!/usr/bin/env python3
"""Sends sequences of numbers to the model `accumulator` and prints the sums of each sequence as JSON.

    sequences.py --host accumulator-headless --sequences 4 --pause 1 1 2 3
    sequences.py --host GATEWAY --header x-sequence --sequences 4 --pause 1 1 2 3

Each sequence stays on one server: the client resolves the headless Service and connects to one of the pods. With
--header, a Gateway chooses the server by the id in this header. Over gRPC each sequence has a stream of its own; with
--http, a connection. Needs tritonclient[grpc].
"""

import argparse
import json
import queue
import random
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple

import numpy as np
from tritonclient.utils import InferenceServerException

MODEL = "accumulator"
PORTS = {"http": 8000, "grpc": 8001}
SECONDS = 10.0


class SequenceLostError(Exception):
    """The server that has the state of the sequence no longer answers. The client must start the sequence again."""


class Answer(NamedTuple):
    """The sum of the sequence so far, and the name of the server."""

    sum: int
    server: str


def addresses(host: str, port: int) -> list[str]:
    """Returns host:port of each pod of a headless Service, in random order. Pods that terminate aren't in the DNS."""
    ips = {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    ordered = [f"[{ip}]:{port}" if ":" in str(ip) else f"{ip}:{port}" for ip in sorted(map(str, ips))]
    random.shuffle(ordered)
    return ordered


class _Grpc:
    """One stream to one server."""

    def __init__(self, address: str, headers: dict[str, str] | None = None) -> None:
        import tritonclient.grpc as triton

        self.triton, self.answers = triton, queue.Queue[Any]()
        self.client = triton.InferenceServerClient(address)
        self.client.start_stream(lambda result, error: self.answers.put(error or result), headers=headers)

    def send(self, value: int, flags: dict[str, Any]) -> Answer:
        tensor = self.triton.InferInput("VALUE", [1, 1], "INT64")
        tensor.set_data_from_numpy(np.array([[value]], np.int64))
        self.client.async_stream_infer(MODEL, [tensor], **flags)
        try:
            answer = self.answers.get(timeout=SECONDS)
        except queue.Empty:
            raise OSError(f"no answer within {SECONDS:g} s") from None
        if isinstance(answer, Exception):
            raise answer
        return Answer(int(answer.as_numpy("SUM")[0, 0]), answer.as_numpy("SERVER")[0, 0].decode())

    def close(self) -> None:
        self.client.stop_stream(cancel_requests=True)
        self.client.close()


class _Http:
    """One connection to one server. It connects to the same server again if the connection breaks."""

    def __init__(self, address: str, headers: dict[str, str] | None = None) -> None:
        self.connection, self.headers = HTTPConnection(address, timeout=SECONDS), headers or {}

    def send(self, value: int, flags: dict[str, Any]) -> Answer:
        tensor = {"name": "VALUE", "shape": [1, 1], "datatype": "INT64", "data": [value]}
        body = json.dumps({"parameters": flags, "inputs": [tensor]})
        self.connection.request("POST", f"/v2/models/{MODEL}/infer", body, self.headers)
        response = self.connection.getresponse()
        text = response.read().decode()
        if response.status != HTTPStatus.OK:
            raise InferenceServerException(_words(text), str(response.status))
        outputs = {output["name"]: output["data"][0] for output in json.loads(text)["outputs"]}
        return Answer(outputs["SUM"], outputs["SERVER"])

    def close(self) -> None:
        self.connection.close()


def _words(answer: str) -> str:
    """Returns the error in Triton's answer. The answer of a Gateway isn't JSON, and is returned as it is."""
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return answer


CONNECTIONS: dict[str, Any] = {"grpc": _Grpc, "http": _Http}


class Sequence:
    """A sequence on one server. Close it, because an open stream or connection delays the end of the server.

    Starts on the first server that accepts it. Raises SequenceLostError if none does. With `header`, a Gateway chooses
    the server by the id in this header.
    """

    def __init__(
        self, servers: list[str], value: int, protocol: str = "grpc", *, end: bool = False, header: str = ""
    ) -> None:
        # The id must be unique on the server, among all its clients.
        self.id, self.refused = random.getrandbits(63) | 1, ""
        for self.address in servers:
            self.connection = CONNECTIONS[protocol](self.address, {header: str(self.id)} if header else None)
            try:
                self.first = self._send(value, start=True, end=end)
            except SequenceLostError as error:
                # A server that stops refuses new sequences.
                self.refused = str(error)
                self.connection.close()
            else:
                return
        raise SequenceLostError(f"no server accepts the sequence: {self.refused or 'the Service has no pods'}")

    def send(self, value: int, *, end: bool = False) -> Answer:
        """Sends the next value. Raises SequenceLostError."""
        return self._send(value, start=False, end=end)

    def _send(self, value: int, *, start: bool, end: bool) -> Answer:
        try:
            return self.connection.send(value, {"sequence_id": self.id, "sequence_start": start, "sequence_end": end})
        except (InferenceServerException, OSError, HTTPException) as error:
            raise SequenceLostError(f"{self.address}: {error}") from error

    def close(self) -> None:
        """Closes the connection. A sequence without its end stays open until max_sequence_idle_microseconds."""
        self.connection.close()


def run(servers: list[str], values: list[int], protocol: str, pause: float, header: str = "") -> dict[str, Any]:
    """Sends one sequence. Returns its sums and the server."""
    last = len(values) - 1
    sequence = Sequence(servers, values[0], protocol, end=last == 0, header=header)
    try:
        answers = [sequence.first]
        for number, value in enumerate(values[1:], 1):
            time.sleep(pause)
            answers.append(sequence.send(value, end=number == last))
    finally:
        sequence.close()
    return {"sequence": sequence.id, "server": answers[-1].server, "sums": [answer.sum for answer in answers]}


def main() -> int:
    """Runs the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("values", type=int, nargs="+")
    parser.add_argument("--host", default="localhost", help="name of the headless Service, or of a Gateway")
    parser.add_argument("--header", default="", help="send the sequence's id in this header, for a Gateway")
    parser.add_argument("--port", type=int, help="by default 8001, with --http 8000")
    parser.add_argument("--http", action="store_true", help="use HTTP instead of gRPC")
    parser.add_argument("--sequences", type=int, default=1, help="number of sequences at the same time")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two values")
    arguments = parser.parse_args()
    protocol = "http" if arguments.http else "grpc"
    port, failed = arguments.port or PORTS[protocol], False

    def servers() -> list[str]:
        # A Gateway routes by the host name, which an address doesn't have.
        return [f"{arguments.host}:{port}"] if arguments.header else addresses(arguments.host, port)

    with ThreadPoolExecutor(arguments.sequences) as threads:
        sent = [
            threads.submit(run, servers(), arguments.values, protocol, arguments.pause, arguments.header)
            for _ in range(arguments.sequences)
        ]
    for future in sent:
        try:
            print(json.dumps(future.result()))
        except SequenceLostError as error:
            print(error, file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
