"""Samples of the counters of one server, and its history from them."""

from __future__ import annotations

from array import array
from collections import deque

from triton_operator.api.servers import Counters, History, Sample, ServerCounters, Subject

_MICROSECONDS = 1e6
_TOLERANCE = 1.1
"""That of the recording rules, which compare the same rates (render/rules/recording.py)."""
_EXECUTING = 32
"""Requests of a step that may be neither answered by the ensemble nor in a queue: a batch in each instance."""


class Samples:
    """The samples of one server of the last `seconds`, at most `length`. Not thread-safe.

    Each sample is one array of numbers, because many servers have many samples: the time, the entrypoint's successes,
    failures, microseconds and canceled requests, tokens, streams, cache, and then the successes and waiting requests of
    each model with a queue.
    """

    def __init__(self, subject: Subject, seconds: float, length: int) -> None:
        self._subject, self._seconds = subject, seconds
        self._queues = sorted(subject.steps) or [subject.entrypoint]
        self._arrays: deque[array[float]] = deque(maxlen=length)

    def add(self, at: float, counters: ServerCounters) -> None:
        """Adds the counters that were read `at` this time, and forgets those from too long before."""
        models, none = counters.models, Counters()
        entry = models.get(self._subject.entrypoint, none)
        sample = array("d", (at, entry.success, entry.failure, entry.microseconds, entry.canceled))
        sample.extend((counters.tokens, counters.streams, counters.cache))
        for name in self._queues:
            queue = models.get(name, none)
            sample.extend((queue.success, queue.pending))
        self._arrays.append(sample)
        while self._arrays[0][0] < at - self._seconds:
            self._arrays.popleft()

    def known(self) -> History:
        """Returns the history. Only queues of the ensemble's own requests count in it."""
        own = self._own_queues()
        per_request = self._subject.failures_per_request
        return tuple(
            Sample(
                at,
                success + failure / per_request,
                sum(numbers[2 * n + 1] for n in own),
                tokens,
                streams,
                cache,
                failure / per_request,
                microseconds / _MICROSECONDS,
                canceled / per_request,
            )
            for at, success, failure, microseconds, canceled, tokens, streams, cache, *numbers in self._arrays
        )

    def _own_queues(self) -> list[int]:
        """Returns which of the queues have the entrypoint's requests alone, by what happened in all samples.

        A model that serves more than the ensemble answers and keeps in the queues of its other steps is used by others,
        too. A model that serves less is no step. The recording rules leave out both (`_own_queues` there).
        """
        if not self._subject.steps or not self._arrays:
            return list(range(len(self._queues)))
        first, last = self._arrays[0], self._arrays[-1]
        _, success, failure, _, _, _, _, _, *grown = (after - before for before, after in zip(first, last, strict=True))
        queued = [max(0.0, waiting) for waiting in grown[1::2]]
        requests = success + failure / self._subject.failures_per_request + sum(queued)
        return [
            n
            for n, (served, waiting) in enumerate(zip(grown[::2], queued, strict=True))
            if served + _TOLERANCE * waiting <= _TOLERANCE * requests + _EXECUTING
            and _TOLERANCE * served + _EXECUTING >= success
        ]
