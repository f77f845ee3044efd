"""Sends requests to an echo server and prints the results. Runs in a pod, to use the cluster's DNS.

    load.py HOST REQUESTS-PER-SECOND

Half of the requests use HTTP, each with a new connection. The other half uses gRPC, with channels that stay open. The
channels start one after another, so that the server closes them at different times. After the first answers there are
no retries: each failed request counts as a failure. It ends when /tmp/stop exists, and prints one JSON object.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import tritonclient.grpc

STOP = Path("/tmp/stop")
_CHANNELS = 8
_APART_SECONDS = 1.0
# Without this option the channels of a process share connections.
_OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
_REACHED_SECONDS = 60


class Tally:
    """The results of the requests of one protocol. Prints the protocol and each new version that answers."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.versions: Counter[str] = Counter()
        self.failures: list[str] = []
        self.slowest = 0.0
        self._lock = threading.Lock()

    def ask(self, sender, number: int) -> None:
        start = time.monotonic()
        try:
            output, version = sender(number)
            failure = "" if output == number else f"sent {number}, got {output}"
        except Exception as error:  # every error counts as a failure
            failure, version = f"{type(error).__name__}: {error}", ""
        seconds = time.monotonic() - start
        with self._lock:
            self.slowest = max(self.slowest, seconds)
            if failure:
                self.failures.append(f"{time.strftime('%H:%M:%S')} {failure} after {seconds:.2f} s")
                # Now, because a test that fails doesn't wait for the result.
                print(self.failures[-1], file=sys.stderr, flush=True)
            else:
                if version not in self.versions:
                    print(f"{self.protocol}: {version}", flush=True)
                self.versions[version] += 1

    def summary(self) -> dict[str, object]:
        return {"versions": self.versions, "failures": self.failures, "slowest_s": round(self.slowest, 3)}


def over_http(host: str):
    def ask(number: int) -> tuple[int, str]:
        inputs = [{"name": "INPUT", "shape": [1], "datatype": "INT32", "data": [number]}]
        connection = http.client.HTTPConnection(host, 8000, timeout=10)
        try:
            connection.request("POST", "/v2/models/echo/infer", json.dumps({"inputs": inputs}))
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {body.decode()}")
        outputs = {o["name"]: o["data"][0] for o in json.loads(body)["outputs"]}
        return outputs["OUTPUT"], outputs["VERSION"]

    return ask


def over_grpc(host: str):
    client = tritonclient.grpc.InferenceServerClient(f"{host}:8001", channel_args=_OWN_CONNECTION)

    def ask(number: int) -> tuple[int, str]:
        tensor = tritonclient.grpc.InferInput("INPUT", [1], "INT32")
        tensor.set_data_from_numpy(np.array([number], np.int32))
        answer = client.infer("echo", [tensor], client_timeout=10)
        return int(answer.as_numpy("OUTPUT")[0]), answer.as_numpy("VERSION")[0].decode()

    return ask


def reach(sender) -> None:
    """Waits for a first answer, because kube-proxy may not have the Service and its endpoints yet."""
    deadline = time.monotonic() + _REACHED_SECONDS
    while True:
        try:
            sender(0)
        except Exception:  # usually a refused connection or an unknown name
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def pace(tally: Tally, sender, interval: float, delay: float) -> None:
    time.sleep(delay)
    number, due = 0, time.monotonic()
    while not STOP.exists():
        number += 1
        tally.ask(sender, number)
        due = max(due + interval, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> int:
    host, rate = sys.argv[1], float(sys.argv[2])
    tallies = {protocol: Tally(protocol) for protocol in ("http", "grpc")}
    interval = 2 * _CHANNELS / rate
    threads = []
    for protocol, factory in (("http", over_http), ("grpc", over_grpc)):
        senders = [factory(host) for _ in range(_CHANNELS)]
        reach(senders[0])
        threads += [
            threading.Thread(target=pace, args=(tallies[protocol], sender, interval, i * _APART_SECONDS))
            for i, sender in enumerate(senders)
        ]
    for thread in threads:
        thread.start()
    print("started", flush=True)
    for thread in threads:
        thread.join()
    print(json.dumps({name: tally.summary() for name, tally in tallies.items()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
