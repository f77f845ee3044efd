"""Sends requests to an echo server at given times, whether earlier ones have been answered or not. Runs in a pod.

    send.py HOST FILE

FILE is a JSON list: the number of requests of each second. Each request has a connection of its own, so that kube-proxy
spreads them over all servers. Prints {"began": seconds since 1970} and then, at the end, the number of requests that
took more than a second, counted from when they were due, and the number that failed.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
import time
from pathlib import Path

SLOW_SECONDS, TIMEOUT_SECONDS = 1.0, 30.0
BODY = json.dumps({"inputs": [{"name": "INPUT", "shape": [1], "datatype": "INT32", "data": [7]}]}).encode()
HEAD = ("POST /v2/models/echo/infer HTTP/1.1", "Host: echo", "Connection: close", f"Content-Length: {len(BODY)}")
REQUEST = "\r\n".join((*HEAD, "", "")).encode() + BODY


async def ask(address: str, due: float, tally: dict[str, int]) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(address, 8000)
            try:
                writer.write(REQUEST)
                status = await reader.readline()
                await reader.read()
            finally:
                writer.close()
        if b" 200 " not in status:
            tally["failed"] += 1
    except (OSError, TimeoutError, ValueError):
        tally["failed"] += 1
    if time.monotonic() - due > SLOW_SECONDS:
        tally["slow"] += 1


async def run(address: str, numbers: list[int]) -> None:
    # The same moments for each engine.
    chance, tally = random.Random(1), {"sent": sum(numbers), "slow": 0, "failed": 0}
    moments = [second + m for second, n in enumerate(numbers) for m in sorted(chance.random() for _ in range(n))]
    print(json.dumps({"began": time.time()}), flush=True)
    start = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for moment in moments:
            await asyncio.sleep(max(0.0, start + moment - time.monotonic()))
            tasks.create_task(ask(address, start + moment, tally))
        await asyncio.sleep(max(0.0, start + len(numbers) - time.monotonic()))
    print(json.dumps(tally), flush=True)


def reached(host: str) -> str:
    """Returns the address of `host` after it has accepted a connection."""
    end = time.monotonic() + 60
    while True:
        try:
            address = socket.gethostbyname(host)
            socket.create_connection((address, 8000), timeout=2).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)
        else:
            return address


if __name__ == "__main__":
    asyncio.run(run(reached(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())))
