"""A limit of CPU time for commands that read untrusted files."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CPU_SECONDS = 300.0
"""More than a repository of 100 GiB in compressed layers needs."""


class BudgetError(BaseException):
    """The CPU time is used up. The message is for the user.

    It isn't an Exception, because code that reads untrusted files catches all of those.
    """


@contextmanager
def limited(seconds: float = CPU_SECONDS) -> Iterator[None]:
    """Raises BudgetError after `seconds` of the process's CPU time, and again each second if that is lost.

    Does nothing outside of the main thread, which alone gets signals, and where the system has no such timer.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def end(_: int, __: FrameType | None) -> None:
        raise BudgetError(f"not finished after {seconds:g} s of CPU time: the files are too large, or made to be slow")

    handler = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
