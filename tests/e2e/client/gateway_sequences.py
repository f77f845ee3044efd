"""Keeps sequences open through a Gateway until a file exists, and prints what became of each. Runs in a pod.

Meanwhile another file has what became of them so far.

    gateway_sequences.py HOST HEADER NUMBER

It opens NUMBER sequences at once for each protocol: HTTP, gRPC with a stream, and gRPC without one. Each sends at least
five values. Without HEADER ("") no request names its sequence to the Gateway. A sequence that is lost starts again with
a new id.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np
import sequences
import tritonclient.grpc

STARTED, STOP, RECORDS = Path("/tmp/started"), Path("/tmp/stop"), Path("/tmp/records")
_VALUES = 5
_PAUSE_SECONDS = 0.3
_REACHED_SECONDS = 60
# Without this option the channels of a process share connections.
_OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


class Unary:
    """Sends each request of a sequence on its own over gRPC, without a stream."""

    def __init__(self, address: str, headers: dict[str, str] | None = None) -> None:
        self.client = tritonclient.grpc.InferenceServerClient(address, channel_args=_OWN_CONNECTION)
        self.headers = headers

    def send(self, value: int, flags: dict[str, object]) -> sequences.Answer:
        tensor = tritonclient.grpc.InferInput("VALUE", [1, 1], "INT64")
        tensor.set_data_from_numpy(np.array([[value]], np.int64))
        answer = self.client.infer(sequences.MODEL, [tensor], headers=self.headers, client_timeout=10, **flags)
        return sequences.Answer(int(answer.as_numpy("SUM")[0, 0]), answer.as_numpy("SERVER")[0, 0].decode())

    def close(self) -> None:
        self.client.close()


sequences.CONNECTIONS["unary"] = Unary
sequences.PORTS["unary"] = sequences.PORTS["grpc"]


def keep_open(address: str, protocol: str, header: str, records: list[dict[str, object]]) -> None:
    while True:
        # "time" is the last one at which the sequence was answered or lost.
        record = {"protocol": protocol, "sums": [], "servers": [], "lost": "", "time": 0.0}
        records.append(record)
        sequence = None
        try:
            sequence = sequences.Sequence([address], 1, protocol, header=header)
            answers, over = [sequence.first], False
            while True:
                record["sums"] = [answer.sum for answer in answers]
                record["servers"] = sorted({answer.server for answer in answers})
                record["time"] = time.time()
                if over:
                    return
                time.sleep(_PAUSE_SECONDS)
                over = STOP.exists() and len(answers) >= _VALUES - 1
                answers.append(sequence.send(1, end=over))
        except sequences.SequenceLostError as error:
            record["lost"], record["time"] = str(error), time.time()
        finally:
            if sequence:
                sequence.close()
        if STOP.exists():
            return
        time.sleep(_PAUSE_SECONDS)


def reach(address: str, protocol: str) -> None:
    """Waits until the Gateway forwards requests to servers."""
    deadline = time.monotonic() + _REACHED_SECONDS
    while True:
        try:
            sequences.run([address], [1], protocol, 0.0)
        except sequences.SequenceLostError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)
        else:
            return


def main() -> None:
    host, header, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    records: list[dict[str, object]] = []
    threads = []
    for protocol in sequences.CONNECTIONS:
        address = f"{host}:{sequences.PORTS[protocol]}"
        reach(address, protocol)
        threads += [
            threading.Thread(target=keep_open, args=(address, protocol, header, records)) for _ in range(number)
        ]
    for thread in threads:
        thread.start()
    while len(records) < len(threads) or not all(record["time"] for record in records):
        time.sleep(0.1)
    STARTED.touch()
    while any(thread.is_alive() for thread in threads):
        # Whole, for who reads it.
        RECORDS.with_suffix(".new").write_text(json.dumps(records))
        RECORDS.with_suffix(".new").rename(RECORDS)
        time.sleep(0.2)
    print(json.dumps(records), flush=True)


main()
