"""The engine Direct and the HorizontalPodAutoscaler together, in a simulation with loads that nobody has recorded."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from support.profiles import examples
from unit.scaling import simulation

CAPACITY, WINDOW = 100, 300
LOADS = st.lists(st.tuples(st.integers(2, 400), st.floats(0, 3000)), min_size=1, max_size=12).map(
    lambda parts: [rate for seconds, rate in parts for _ in range(seconds)]
)


@given(LOADS, st.sampled_from(simulation.PHASES), st.booleans())
@example([200.0] * 120 + ([900.0] * 20 + [200.0] * 20) * 30, 0, False)
@example(([900.0] * 320 + [100.0] * 320) * 3, 4, False)
@examples(20)
def test_removes_no_server_within_the_window_after_one_was_added(load: list[float], phase: int, predict: bool) -> None:
    load = [*load, *[load[-1]] * 600] if any(load) else [1.0, *load]
    numbers = simulation.run(load, CAPACITY, direct=True, phase=phase, predict=predict).numbers
    rose = -WINDOW
    for second, (before, after) in enumerate(itertools.pairwise(numbers)):
        if after > before:
            rose = second
        if after < before:
            assert second - rose >= WINDOW - simulation.PHASES[-1], (second, rose, numbers[rose : second + 2])
    assert min(numbers) >= simulation.LEAST
    assert max(numbers) <= simulation.MOST


@given(st.floats(50, 3000), st.sampled_from(simulation.PHASES))
@examples(15)
def test_a_constant_load_ends_with_a_constant_number(rate: float, phase: int) -> None:
    numbers = simulation.run([rate] * 1800, CAPACITY, direct=True, phase=phase).numbers
    assert len(set(numbers[900:])) == 1
