"""Measures how often the prober reads the metrics of one tenant's servers while another tenant's servers attack it.

The prober is the operator's, in a process of its own. Each attack has its own prober and its own servers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from support import bad_servers
from support.bad_servers import Behaviour
from triton_operator.api import names
from triton_operator.api.servers import Change, RunningServer, ServerCounters, Subject
from triton_operator.probe import counters, loads
from triton_operator.probe.prober import Prober

from . import elsewhere

HONEST = 20
"""TritonModels of the other tenant, with one server each."""
_HONEST = "127.0.10."
_LINE = 'nv_inference_request_success{{model="m{}",version="1"}} 1\n'
_PAGE = "".join(_LINE.format(n) for n in range(30)).encode()
_SUBJECT = Subject("m0")
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def address(number: int, *, honest: bool) -> str:
    return f"{_HONEST}{number + 1}" if honest else f"127.0.{20 + number // 250}.{number % 250 + 1}"


def _floods(begin: bytes, part: bytes) -> Behaviour:
    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(1 << 16)
        connection.sendall(begin)
        while not over.is_set():
            connection.sendall(part)

    return behave


def _waits(connection: socket.socket, over: threading.Event) -> None:
    """Sends 1 MiB less one byte of a page, and nothing more."""
    connection.recv(1 << 16)
    size = 1 << 20
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"#" * (size - 1))
    over.wait()


def _frame(kind: int, body: bytes, stream: int) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, 0]) + stream.to_bytes(4, "big") + body


ATTACKS: dict[str, tuple[int, int, Callable[[], Behaviour]]] = {
    "nothing": (0, names.PORTS["metrics"], lambda: bad_servers.hangs),
    "frames": (12, names.PORTS["grpc"], lambda: _floods(_frame(4, b"", 0), _frame(2, bytes(5), 1) * 1000)),
    "a line of 1 MiB": (
        200, names.PORTS["metrics"],
        lambda: bad_servers.answers((_LINE.format(0).partition("}")[0] + ',a="b"' * 150_000).encode() + b"} 1\n"),
    ),
    "2000 lines": (
        12, names.PORTS["metrics"], lambda: bad_servers.answers("".join(map(_LINE.format, range(2000))).encode()),
    ),
    "pages that wait": (256, names.PORTS["metrics"], lambda: _waits),
    "chunks of one byte": (12, names.PORTS["metrics"], lambda: _floods(_CHUNKED, b"1\r\n#\r\n" * 5000)),
    "interim responses": (12, names.PORTS["metrics"], lambda: _floods(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)),
}  # fmt: skip
"""The number of hostile servers, their port, and what they do there."""


def measure(attack: str, seconds: float) -> dict[str, float]:
    """Returns how often the honest servers were read, and what the process took: `polls_per_s`, `mib`, `cores`."""
    read: Counter[bool] = Counter()

    async def counting(client: Any, server: str, subject: Subject) -> ServerCounters:
        result = await counters.counters(client, server, subject)
        read[server.startswith(_HONEST)] += 1
        return result

    number, port, _ = ATTACKS[attack]
    prober = Prober(lambda _: None)
    prober.loads = loads.load_probes(lambda _: None, counting)
    with _servers(attack):
        prober.start()
        for n in range(number):
            server = RunningServer(f"hostile-{n}", "pod", address(n, honest=False), (0, True))
            if port == names.PORTS["grpc"]:
                prober.changes.start(f"hostile/{n}", server, Change(("m",), (), (), 3600), ("m",))
            else:
                prober.loads.track(f"hostile/{n}", [server], _SUBJECT)
        for n in range(HONEST):
            server = RunningServer(f"honest-{n}", "pod", address(n, honest=True), (0, True))
            prober.loads.track(f"honest/{n}", [server], _SUBJECT)
        time.sleep(2)
        read.clear()
        began, cpu = time.monotonic(), time.process_time()
        time.sleep(seconds)
        elapsed = time.monotonic() - began
        return {
            "polls_per_s": round(read[True] / elapsed, 2),
            "mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "cores": round((time.process_time() - cpu) / elapsed, 2),
        }


@contextlib.contextmanager
def _servers(attack: str) -> Iterator[None]:
    """Runs the servers of both tenants in another process, which would be on other machines."""
    command = [*elsewhere.COMMAND, sys.executable, "-m", "benchmarks.tenants.polls", "--serve", attack]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def serve(attack: str) -> None:
    """Serves until the end of stdin."""
    number, port, behaviour = ATTACKS[attack]
    behave = behaviour()
    honest = bad_servers.answers(_PAGE)
    with contextlib.ExitStack() as stack:
        for n in range(number):
            stack.enter_context(bad_servers.server(address(n, honest=False), behave, port))
        for n in range(HONEST):
            stack.enter_context(bad_servers.server(address(n, honest=True), honest, names.PORTS["metrics"]))
        print("ready", flush=True)
        sys.stdin.read()


def all_attacks(seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Returns the figures of each attack: `polls_ratio` is that to a prober without an attack."""
    figures: dict[str, Any] = {}
    for attack in ATTACKS:
        command = [sys.executable, "-m", "benchmarks.tenants.polls", "--attack", attack, "--seconds", str(seconds)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = json.loads(output.splitlines()[-1])
        rest = figures.get("nothing", found)["polls_per_s"]
        figures[attack] = {**found, "polls_ratio": round(found["polls_per_s"] / rest, 2)}
        say(f"{attack}: {figures[attack]}")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="polls", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="seconds of each attack")
    parser.add_argument("--attack", choices=ATTACKS, help="default: all, in processes of their own")
    parser.add_argument("--serve", choices=ATTACKS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
    elif options.attack:
        print(json.dumps(measure(options.attack, options.seconds)))
    else:
        print(json.dumps(all_attacks(options.seconds, lambda words: print(words, file=sys.stderr))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
