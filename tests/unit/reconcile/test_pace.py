"""Rate limits of one TritonModel's writes."""

from __future__ import annotations

from triton_operator.reconcile.pace import SPEC_BURST, SPEC_SECONDS, URGENT_BURST, URGENT_SECONDS, Pace


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_spec_that_changes_in_a_loop_waits_for_its_next_token() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert [pace.spend_spec("a/x") for _ in range(SPEC_BURST)] == [0] * SPEC_BURST
    assert pace.spend_spec("a/x") == SPEC_SECONDS
    clock.now += SPEC_SECONDS - 1
    assert pace.spend_spec("a/x") == 1
    clock.now += 1
    assert pace.spend_spec("a/x") == 0
    assert pace.spend_spec("a/x") == SPEC_SECONDS


def test_the_changes_of_one_tritonmodel_take_no_token_of_another() -> None:
    pace = Pace(Clock())
    for _ in range(SPEC_BURST + 1):
        pace.spend_spec("a/x")
    assert pace.spend_spec("a/y") == 0
    assert pace.spend_urgent("a/x")


def test_urgent_updates_of_a_flapping_tritonmodel_are_limited() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert [pace.spend_urgent("a/x") for _ in range(URGENT_BURST + 1)] == [True] * URGENT_BURST + [False]
    clock.now += URGENT_SECONDS
    assert pace.spend_urgent("a/x")
