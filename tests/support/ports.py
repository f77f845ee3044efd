"""Finds free ports for the programs that the tests start."""

from __future__ import annotations

import contextlib
import random
import socket


def free(count: int = 1) -> list[int]:
    """Returns `count` consecutive free ports of the loopback address.

    They are below Linux's range for outgoing connections: these could use the port before the program starts.
    """
    for first in random.sample(range(20_000, 32_000, count), 1000):
        ports = range(first, first + count)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in ports:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return list(ports)
    raise AssertionError(f"no {count} free ports")
