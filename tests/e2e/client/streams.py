"""Reads streams of the sample `language` and prints the results. Runs in a pod.

    streams.py HOST [--http READERS] [--grpc READERS] [--tokens LEAST MOST] [--pause SECONDS] [--leave]

Each reader reads one stream after another, with a pause of about SECONDS. It ends when /tmp/stop exists: after its
stream, or with --leave at once. Then the program prints one JSON object: when the first reader began, the number of
complete streams and of all tokens, the times of each complete stream, the number of streams that were left, and the
failures. A stream with fewer tokens than requested is a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import chat

STOP = Path("/tmp/stop")
# Without this option the channels of a process share connections, and so a server.
_OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
_REACHED_SECONDS = 60
_APART_SECONDS = 0.1
"""Between the first streams of two readers."""


class Reader:
    """Reads streams of one protocol, and keeps what became of them."""

    def __init__(self, host: str, protocol: str, options: argparse.Namespace) -> None:
        self._url, self.protocol, self._options = f"{host}:{chat.PORTS[protocol]}", protocol, options
        self.begun = threading.Event()
        """Set when the first stream has a token or has failed."""
        self.tokens, self.left = 0, 0
        self.times: list[dict[str, Any]] = []
        self.failures: list[dict[str, Any]] = []

    def reach(self) -> None:
        """Waits for a first token, because kube-proxy may not have the Service yet."""
        deadline = time.monotonic() + _REACHED_SECONDS
        while True:
            try:
                self.tokens += sum(map(len, self._pieces(1)))
            except chat.ChatError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def run(self) -> None:
        try:
            while not STOP.exists():
                self.read(random.randint(*self._options.tokens))
                time.sleep(random.uniform(0, 2 * self._options.pause))
        finally:
            self.begun.set()

    def _pieces(self, tokens: int) -> Any:
        return chat.STREAMS[self.protocol]("Once", {"max_tokens": tokens, "temperature": 0.8}, self._url)

    def read(self, total: int) -> None:
        """Reads one stream with this number of tokens."""
        began, start = time.time(), time.monotonic()
        last, tokens, first = start, 0, 0.0
        try:
            with contextlib.closing(self._pieces(total)) as pieces:
                for piece in pieces:
                    last, tokens = time.monotonic(), tokens + len(piece)
                    first = first or last - start
                    self.begun.set()
                    if self._options.leave and STOP.exists():
                        self.left += 1
                        return
            error = "" if tokens == total else "the stream has ended"
        except chat.ChatError as failure:
            error = str(failure)
        finally:
            self.tokens += tokens
            self.begun.set()
        now = time.monotonic()
        record = {"protocol": self.protocol, "tokens": tokens, "began": began, "seconds": now - start}
        if not error:
            self.times.append({**record, "first": first})
            return
        at = time.strftime("%H:%M:%S", time.gmtime())
        self.failures.append({"at": at, "error": error, "wanted": total, **record, "silent": now - last})
        # Now, because a test that fails doesn't wait for the result.
        print(self.failures[-1], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("--http", type=int, default=0)
    parser.add_argument("--grpc", type=int, default=0)
    parser.add_argument("--tokens", type=int, nargs=2, default=(50, 50))
    # Without a pause the model would use a whole core.
    parser.add_argument("--pause", type=float, default=0.3)
    parser.add_argument("--leave", action="store_true")
    options = parser.parse_args()
    if options.grpc:
        separate_channels()
    protocols = {"http": options.http, "grpc": options.grpc}
    readers = [Reader(options.host, p, options) for p, number in protocols.items() for _ in range(number)]
    for reader in {reader.protocol: reader for reader in readers}.values():
        reader.reach()
    began = time.time()
    with ThreadPoolExecutor(len(readers)) as threads:
        running = []
        for reader in readers:
            running.append(threads.submit(reader.run))
            time.sleep(_APART_SECONDS)
        for reader in readers:
            reader.begun.wait()
        print("started", flush=True)
        for future in running:
            future.result()
    print(json.dumps(summary(readers, began)), flush=True)


def separate_channels() -> None:
    """Gives each gRPC client a connection of its own, and so perhaps another server.

    gRPC's own resolver asks for IPv6 addresses, too, in all search domains, and waits for the last answer. Where the
    cluster's DNS has no upstream, that takes two to three seconds for each connection.
    """
    os.environ["GRPC_DNS_RESOLVER"] = "native"
    import tritonclient.grpc

    new = tritonclient.grpc.InferenceServerClient
    tritonclient.grpc.InferenceServerClient = functools.partial(new, channel_args=_OWN_CONNECTION)


def summary(readers: list[Reader], began: float) -> dict[str, Any]:
    """Returns the result of the program."""
    return {
        "began": began,
        "streams": sum(len(reader.times) for reader in readers),
        "tokens": sum(reader.tokens for reader in readers),
        "left": sum(reader.left for reader in readers),
        "failures": [failure for reader in readers for failure in reader.failures],
        "times": [record for reader in readers for record in reader.times],
    }


if __name__ == "__main__":
    main()
