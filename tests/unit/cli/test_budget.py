"""The limit of CPU time: it ends what takes too long, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import signal
import threading
import time

import pytest

from kubectl_triton.validate import budget


def busy(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_ends_what_takes_too_long() -> None:
    with pytest.raises(budget.BudgetError, match=r"not finished after 0\.2 s of CPU time"), budget.limited(0.2):
        busy(60)


def test_ends_code_that_catches_every_exception() -> None:
    with pytest.raises(budget.BudgetError), budget.limited(0.2), contextlib.suppress(Exception):
        busy(60)


def test_raises_again_what_a_destructor_loses() -> None:
    caught = 0
    with budget.limited(0.2):
        while caught < 2:
            try:
                busy(60)
            except budget.BudgetError:
                caught += 1


def test_waiting_costs_nothing_and_nothing_is_left() -> None:
    before = signal.getsignal(signal.SIGPROF)
    with budget.limited(0.2):
        time.sleep(0.5)
    assert signal.getsignal(signal.SIGPROF) == before
    busy(0.3)


def test_does_nothing_in_another_thread() -> None:
    ends = list[bool]()

    def work() -> None:
        with budget.limited(0.05):
            busy(0.2)
        ends.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ends == [True]
