"""Which requests of a server count: the entrypoint's, and those that wait for it at the steps of an ensemble."""

from __future__ import annotations

import pytest

from triton_operator.api.servers import Counters, Sample, ServerCounters, Subject
from triton_operator.probe.samples import Samples

ENSEMBLE = Subject("m", frozenset({"first", "second", "not yet loaded"}), 2)


def waiting(subject: Subject, *seen: dict[str, Counters]) -> list[float]:
    """Returns the waiting requests of each sample. `seen`: the counters of the models every 2 s."""
    samples = Samples(subject, 60, 60)
    for number, models in enumerate(seen):
        samples.add(2.0 * number, ServerCounters(models))
    return [sample.waiting for sample in samples.known()]


def test_counts_the_requests_of_the_entrypoint() -> None:
    counters = ServerCounters({"m": Counters(100, 20, 3, 5e6), "other": Counters(7, 7, 7)}, 9, 4, 0.5)
    for name, sample in (("m", Sample(1, 120, 3, 9, 4, 0.5, 20, 5)), ("missing", Sample(1, 0, 0, 9, 4, 0.5))):
        samples = Samples(Subject(name), 60, 2)
        samples.add(1, counters)
        assert samples.known() == (sample,)


def test_of_an_ensemble_failures_count_half_and_its_steps_have_the_queue() -> None:
    samples = Samples(ENSEMBLE, 60, 2)
    samples.add(1, ServerCounters({"m": Counters(100, 20, 0, canceled=4), "first": Counters(100, 10, 5)}))
    assert samples.known() == (Sample(1, 110, 5, failed=10, canceled=2),)


def test_keeps_the_newest_samples_of_the_last_seconds() -> None:
    samples = Samples(ENSEMBLE, 6.5, 3)
    for at in range(5):
        samples.add(at, ServerCounters({}))
    assert [sample.at for sample in samples.known()] == [2, 3, 4]
    samples.add(10, ServerCounters({}))
    assert [sample.at for sample in samples.known()] == [4, 10]


def test_the_queues_of_the_steps_count_whichever_of_them_is_slow() -> None:
    """100 requests a second, 40 of them are answered."""
    first = [{"m": Counters(80 * n), "first": Counters(80 * n, 0, 120 * n), "second": Counters(80 * n)}
             for n in range(4)]  # fmt: skip
    second = [{"m": Counters(80 * n), "first": Counters(200 * n), "second": Counters(80 * n, 0, 120 * n)}
              for n in range(4)]  # fmt: skip
    assert waiting(ENSEMBLE, *first) == waiting(ENSEMBLE, *second) == [0, 120, 240, 360]


@pytest.mark.parametrize(
    "other",
    [Counters(1, 0, 60), Counters(600, 0, 60), Counters(0, 0, 600)],
    ids=["a private model with little load", "a step that others use, too", "a private model that serves nothing"],
)
def test_the_queue_of_another_model_s_requests_does_not_count(other: Counters) -> None:
    seen = [{"m": Counters(20.0 * n), "first": Counters(20.0 * n, 0, 2.0 * n),
             "second": Counters(other.success * n, 0, other.pending * n)}
            for n in range(20)]  # fmt: skip
    assert waiting(ENSEMBLE, *seen) == [2 * n for n in range(20)]


def test_a_burst_of_the_first_seconds_counts() -> None:
    """A batch of the first step is between the queues."""
    seen = [{}, {"m": Counters(3), "first": Counters(19, 0, 100), "second": Counters(3)}]
    assert waiting(ENSEMBLE, *seen) == [0, 100]
