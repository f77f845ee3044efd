"""Leaves streams of the sample `language`, and measures when their slots are free. Runs in a pod.

    leave.py HOST ROUNDS

In each round a few streams are open. They are closed one after the other, each when the server has freed the slot of
the one before. The server must have no other streams. Prints {protocol: seconds of each stream} when /tmp/stop exists.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import sys
import time
from pathlib import Path

import chat

STOP = Path("/tmp/stop")
_STREAMS = 4
_EVERY_SECONDS = 0.005
_TIMEOUT_SECONDS = 60
_LONG = {"max_tokens": 4096, "temperature": 0.8}


def wait_until_open(metrics: http.client.HTTPConnection, number: int) -> None:
    """Waits until the server has this number of open streams, by its own gauge."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        metrics.request("GET", "/metrics")
        text = metrics.getresponse().read().decode()
        gauge = re.search(r"^vllm:num_requests_running\{.*\} (\S+)$", text, re.MULTILINE)
        if gauge and float(gauge[1]) == number:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{number} open streams; the gauge is {gauge and gauge[1]}")
        time.sleep(_EVERY_SECONDS)


def leave(host: str, protocol: str) -> list[float]:
    """Opens streams and leaves them. Returns the seconds until each slot was free."""
    out = []
    with contextlib.closing(http.client.HTTPConnection(host, 8002, timeout=_TIMEOUT_SECONDS)) as metrics:
        streams = [chat.STREAMS[protocol]("Once", _LONG, f"{host}:{chat.PORTS[protocol]}") for _ in range(_STREAMS)]
        for stream in streams:
            next(stream)
        wait_until_open(metrics, _STREAMS)
        for others, stream in reversed(list(enumerate(streams))):
            start = time.monotonic()
            stream.close()
            wait_until_open(metrics, others)
            out.append(time.monotonic() - start)
    return out


def reach(host: str) -> None:
    """Waits for a first answer, because kube-proxy may not have the Service yet."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        try:
            list(chat.stream_http("Once", {"max_tokens": 1}, f"{host}:{chat.PORTS['http']}"))
        except chat.ChatError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def main() -> None:
    host, rounds = sys.argv[1], int(sys.argv[2])
    reach(host)
    print("started", flush=True)
    seconds = {protocol: [s for _ in range(rounds) for s in leave(host, protocol)] for protocol in chat.STREAMS}
    while not STOP.exists():
        time.sleep(0.1)
    print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
