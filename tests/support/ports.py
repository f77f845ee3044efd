"""Free ports for what the tests start."""

from __future__ import annotations

import contextlib
import random
import socket


def free(count: int = 1) -> list[int]:
    """Consecutive ports of the loopback address that nothing listens on.

    They lie below the range that Linux gives to outgoing connections: a port of that range can be taken between this
    call and the start of the program that it is for.
    """
    for first in random.sample(range(20_000, 32_000, count), 1000):
        ports = range(first, first + count)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in ports:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return list(ports)
    raise AssertionError(f"no {count} free ports")
