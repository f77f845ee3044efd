"""Keeps sequences open with the sample client until a file exists, and prints their sums. Runs in a pod.

    open_sequences.py HOST

Half of the sequences use gRPC, half HTTP. After the sequences it sends short ones, which must reach another server.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import sequences

STOP = Path("/tmp/stop")
_SEQUENCES = 4
_REACHED_SECONDS = 60


def reached(host: str, protocol: str) -> list[str]:
    """Returns the servers. Waits for them, because the cluster's DNS may not know them yet."""
    deadline = time.monotonic() + _REACHED_SECONDS
    while True:
        try:
            return sequences.addresses(host, sequences.PORTS[protocol])
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def main() -> None:
    entries: list[tuple[str, sequences.Sequence]] = []
    try:
        keep_open(sys.argv[1], entries)
    finally:
        # An open stream has a thread, which would keep the process alive.
        for _, sequence in entries:
            sequence.close()


def keep_open(host: str, entries: list[tuple[str, sequences.Sequence]]) -> None:
    for number in range(_SEQUENCES):
        protocol = ("grpc", "http")[number % 2]
        servers = reached(host, protocol)
        # In the same order each time, so that every server has sequences of both protocols.
        servers = sorted(servers)[number // 2 :] + sorted(servers)[: number // 2]
        entries.append((protocol, sequences.Sequence(servers, 1, protocol)))
    print("started", flush=True)
    results = [{"protocol": p, "sums": [o.first.sum], "servers": {o.first.server}, "lost": ""} for p, o in entries]
    while True:
        is_last = STOP.exists()
        for result, (_, sequence) in zip(results, entries, strict=True):
            if result["lost"]:
                continue
            try:
                answer = sequence.send(1, end=is_last)
                result["sums"].append(answer.sum)
                result["servers"].add(answer.server)
            except sequences.SequenceLostError as error:
                result["lost"] = f"{time.strftime('%H:%M:%S')} {error}"
        if is_last:
            break
        time.sleep(0.3)
    new_results = [sequences.run(reached(host, p), [1, 2], p, 0.0) for p in ("grpc", "http")]
    for result in results:
        result["servers"] = sorted(result["servers"])
    print(json.dumps({"open": results, "new": new_results}))


main()
