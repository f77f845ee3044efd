"""Finds free ports for the programs that the tests start."""

from __future__ import annotations

import contextlib
import fcntl
import random
import socket
from collections.abc import Sequence
from typing import BinaryIO

from hack.world import settings

# Below Linux's range for outgoing connections: these could use a port before the program starts.
RANGE = (20_000, 32_000)
# Byte N is locked while a test process owns port N. A lock ends when its process does.
LOCKS = settings.HOME / "ports"
_owned: set[int] = set()
_locks: list[BinaryIO] = []


def free(count: int = 1) -> list[int]:
    """Returns `count` consecutive free ports of the loopback address.

    The calling process owns them until it ends: a program binds its port seconds after the call, and may be killed and
    started again. No other test process, of this clone or another, gets them.
    """
    places = range(*RANGE, count)
    for first in random.sample(places, len(places)):
        ports = range(first, first + count)
        if _is_free(ports) and _own(ports):
            return list(ports)
    raise AssertionError(f"no {count} free ports")


def _is_free(ports: Sequence[int]) -> bool:
    """Returns whether nothing listens on the ports, such as a program that isn't one of the tests."""
    with contextlib.ExitStack() as stack:
        try:
            for port in ports:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _own(ports: Sequence[int]) -> bool:
    """Locks the ports. Returns False if a process owns one of them."""
    # A lock is the process's: a second one by the same process would be granted.
    if not _owned.isdisjoint(ports):
        return False
    if not _locks:
        LOCKS.parent.mkdir(parents=True, exist_ok=True)
        # The file stays open: to close it would end all locks of the process.
        _locks.append(LOCKS.open("ab"))
    try:
        fcntl.lockf(_locks[0], fcntl.LOCK_EX | fcntl.LOCK_NB, len(ports), ports[0])
    except OSError:
        return False
    _owned.update(ports)
    return True
