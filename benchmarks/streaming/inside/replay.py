"""Replays recorded requests of a language model as streams of the sample `language`. Runs in a pod.

    replay.py HOST FILE

Each line of FILE has the seconds since the beginning and the tokens of one request. They alternate between HTTP and
gRPC. Prints the result of streams.py when all streams have ended and /tmp/stop exists.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import streams

_MOST_OPEN = 256
_OPTIONS = argparse.Namespace(leave=False)


def main() -> None:
    host, file = sys.argv[1:]
    streams.separate_channels()
    requests = [(float(at), int(tokens)) for at, tokens in map(str.split, Path(file).read_text().splitlines())]
    readers = [streams.Reader(host, ("http", "grpc")[number % 2], _OPTIONS) for number in range(len(requests))]
    for reader in readers[:2]:
        reader.reach()
    began, start = time.time(), time.monotonic()
    print("started", flush=True)
    late = 0.0
    with ThreadPoolExecutor(_MOST_OPEN) as threads:
        for reader, (at, tokens) in zip(readers, requests, strict=True):
            pause = start + at - time.monotonic()
            late = max(late, -pause)
            time.sleep(max(0.0, pause))
            threads.submit(reader.read, tokens)
    ended = time.time()
    print("replayed", flush=True)
    while not streams.STOP.exists():
        time.sleep(0.1)
    print(json.dumps({**streams.summary(readers, began), "ended": ended, "late": late}), flush=True)


if __name__ == "__main__":
    main()
