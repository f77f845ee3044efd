"""Runs the servers of the hostile tenant. They answer the operator and Prometheus. Runs as a separate process."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import socket
import sys
import threading

from support import bad_servers
from support.bad_servers import Behaviour
from triton_operator.api import names

ENTRY = "detection"


def address(number: int) -> str:
    """Returns the address of the server of a hostile TritonModel."""
    return f"127.0.9.{number + 1}"


def _in_turn(*behaviours: Behaviour) -> Behaviour:
    """Returns a server that uses the next behaviour for each connection."""
    order = itertools.cycle(behaviours)
    return lambda connection, over: next(order)(connection, over)


def _index(entries: int, state: str, reason: str = "") -> Behaviour:
    index = [{"name": f"{n}", "version": "1", "state": state, "reason": reason} for n in range(entries)]
    return bad_servers.answers(json.dumps(index, separators=(",", ":")).encode())


def answers() -> list[Behaviour]:
    """Returns the answers of hostile servers to requests for the repository index."""
    return [
        bad_servers.answers(b"[" + b'{"name":"a"},' * 147_000 + b'{"name":"a"}]'),
        _in_turn(_index(1900, "READY"), _index(1900, "UNAVAILABLE", "x\x1b[2J" * 10)),
        _in_turn(_index(40, "READY"), _index(40, "UNAVAILABLE", "é" * 4000)),
        bad_servers.answers(b"[" * 200_000),
        bad_servers.hangs,
        bad_servers.trickles,
        bad_servers.trickles_a_head,
        bad_servers.floods,
        bad_servers.floods_a_head,
        bad_servers.always_continues,
        bad_servers.compresses,
        bad_servers.redirects("/"),
    ]


def pages() -> list[Behaviour]:
    """Returns the metrics pages of hostile servers."""
    forged = (
        f'triton_operator_threshold{{namespace="others-0",tritonmodel="steady-0",kind="max-qps"}} 1e9\n'
        f'tritonmodel:threshold:effective{{kind="max-qps"}} 1e9\nup 0\n'
        f'nv_inference_request_success{{model="{ENTRY}",version="\\"}} or up{{x=\\""}} 1\n'
    )
    long = "".join(f'nv_made_up{{a="{n}{"x" * 400}"}} 1\n' for n in range(2000))
    return [
        _new_series(100_000),
        _new_series(4000),
        _random_models(2900),
        bad_servers.answers(forged.encode()),
        bad_servers.answers(long.encode()),
        bad_servers.floods,
        bad_servers.trickles,
    ]


def _new_series(series: int) -> Behaviour:
    """Returns a page with new series at each scrape."""
    turns = itertools.count()
    lines = [f'",n="{n}"}} 1\n' for n in range(series)]

    def behave(connection: socket.socket, over: threading.Event) -> None:
        begin = f'nv_made_up{{model="{ENTRY}",turn="{next(turns)}'
        bad_servers.answers("".join(begin + line for line in lines).encode())(connection, over)

    return behave


def _random_models(series: int) -> Behaviour:
    """Returns a page with Triton's own names and new models at each scrape, within the limit of samples."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        models = (f"{random.getrandbits(64):x}" for _ in range(series))
        page = "".join(f'nv_inference_request_success{{model="{model}",version="1"}} 1\n' for model in models)
        bad_servers.answers(page.encode())(connection, over)

    return behave


def main(size: str) -> int:
    """Prints the port of the rogue Prometheus and reads commands.

    `on` and `off` start and stop all servers. `counts` prints the number of requests to the rogue Prometheus.
    """
    with bad_servers.server("127.0.0.1", bad_servers.compresses, 0) as rogue:
        print(rogue.address.rpartition(":")[2], flush=True)
        serving = contextlib.ExitStack()
        for line in map(str.strip, sys.stdin):
            if line == "on":
                for number, answer, page in zip(
                    range(int(size)), itertools.cycle(answers()), itertools.cycle(pages()), strict=False
                ):
                    serving.enter_context(bad_servers.server(address(number), answer))
                    serving.enter_context(bad_servers.server(address(number), page, names.PORTS["metrics"]))
            elif line == "off":
                serving.close()
            print(rogue.connections if line == "counts" else line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
