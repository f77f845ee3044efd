"""Sends requests to the model `echo` through a Gateway that limits their rate. Runs in a pod.

    limited.py send HOST REQUESTS-PER-SECOND SECONDS [--over http,grpc] [--client NAME]
    limited.py watch HOST

`send` has the rate whatever becomes of the requests, as far as its threads are free, and prints one JSON object:
`accepted` (the seconds from the beginning until each accepted request was sent), `millis` (how long each of these
took), `rejected` (HTTP status or gRPC code → number), `answer` (the last rejected one, by protocol) and `failures`.
`watch` prints the time at which the header x-ratelimit-limit changed, and its value, until /tmp/stop exists.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

STOP = Path("/tmp/stop")
_THREADS = 48
_OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
_EVERY_SECONDS = 0.1
REJECTED = {429, "StatusCode.RESOURCE_EXHAUSTED", "StatusCode.UNAVAILABLE"}


class Http:
    """A client with one connection."""

    def __init__(self, host: str, headers: dict[str, str]) -> None:
        self._host, self._headers = host, headers
        self._connection = http.client.HTTPConnection(host, 8000, timeout=30)

    def ask(self) -> tuple[object, dict[str, str]]:
        """Returns the status, and the answer's headers and error."""
        body = {"inputs": [{"name": "INPUT", "shape": [1], "datatype": "INT32", "data": [1]}]}
        try:
            self._connection.request("POST", "/v2/models/echo/infer", json.dumps(body), self._headers)
            answer = self._connection.getresponse()
            text = answer.read().decode()
        except Exception:
            self._connection.close()
            raise
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, {**headers, **({"body": text} if answer.status != 200 else {})}


class Grpc:
    """A client with one channel."""

    def __init__(self, host: str, headers: dict[str, str]) -> None:
        self._client = tritonclient.grpc.InferenceServerClient(f"{host}:8001", channel_args=_OWN_CONNECTION)
        self._tensor = tritonclient.grpc.InferInput("INPUT", [1], "INT32")
        self._tensor.set_data_from_numpy(np.array([1], np.int32))
        self._headers = headers

    def ask(self) -> tuple[object, dict[str, str]]:
        try:
            self._client.infer("echo", [self._tensor], client_timeout=30, headers=self._headers)
        except InferenceServerException as error:
            return error.status(), {"message": error.message()}
        return 200, {}


_CLIENTS = {"http": Http, "grpc": Grpc}


def send(host: str, rate: float, seconds: float, protocols: list[str], client: str) -> dict[str, object]:
    headers = {"x-client": client} if client else {}
    ticks, lock = itertools.count(), threading.Lock()
    accepted: list[float] = []
    millis: list[float] = []
    rejected: Counter[str] = Counter()
    answers: dict[str, dict[str, str]] = {}
    failures: list[str] = []
    start = time.monotonic() + 0.5

    def run(number: int) -> None:
        protocol = protocols[number % len(protocols)]
        asker = _CLIENTS[protocol](host, headers)
        while True:
            with lock:
                due = start + next(ticks) / rate
            if due > start + seconds:
                return
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            try:
                status, answer = asker.ask()
            except Exception as error:  # every error counts as a failure
                status, answer = None, {"error": f"{type(error).__name__}: {error}"}
            took = time.monotonic() - began
            with lock:
                if status == 200:
                    accepted.append(round(began - start, 4))
                    millis.append(round(1000 * took, 2))
                elif status in REJECTED:
                    rejected[str(status)] += 1
                    answers[protocol] = answer
                else:
                    failures.append(f"{protocol} {status}: {answer}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "sent": len(accepted) + sum(rejected.values()) + len(failures), "accepted": sorted(accepted), "millis": millis,
        "rejected": rejected, "answer": answers, "failures": failures[:20], "failed": len(failures),
    }  # fmt: skip


def watch(host: str) -> None:
    asker, last = Http(host, {}), None
    while not STOP.exists():
        try:
            _, answer = asker.ask()
        except OSError:
            continue
        limit = answer.get("x-ratelimit-limit", "none").partition(",")[0]
        if limit != last:
            print(f"{time.time():.3f} {limit}", flush=True)
            last = limit
        time.sleep(_EVERY_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("send", "watch"))
    parser.add_argument("host")
    parser.add_argument("rate", type=float, nargs="?", default=0.0)
    parser.add_argument("seconds", type=float, nargs="?", default=0.0)
    parser.add_argument("--over", default="http,grpc")
    parser.add_argument("--client", default="")
    given = parser.parse_args()
    if given.what == "watch":
        watch(given.host)
    else:
        print(json.dumps(send(given.host, given.rate, given.seconds, given.over.split(","), given.client)))


if __name__ == "__main__":
    main()
