"""How a command that has made something, such as a pod, takes signals."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

_Handler = Callable[[int, FrameType | None], object] | signal.Handlers
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def as_interrupt() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the command like Ctrl-C, so that what it has made is deleted."""

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with _handled(_ENDING, stop):
        yield


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """Makes signals not end the command, for use while it deletes what it has made: a second Ctrl-C, for example."""
    with _handled((signal.SIGINT, *_ENDING), signal.SIG_IGN):
        yield


@contextlib.contextmanager
def _handled(
    numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], object] | signal.Handlers
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only that one gets signals
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
