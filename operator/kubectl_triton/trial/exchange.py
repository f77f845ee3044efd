"""Sends the requests to one model, one after the other, and keeps what came of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from . import requests
from .outcome import Outcome, Target
from .requests import Choice, Request, Turn, made
from .sender import Sender
from .verdict import Sent, Step, is_answered

_AT_ONCE = 16
_AT_ONCE_STREAMS = 4
_AT_ONCE_SECONDS = 10.0
"""How long requests that are sent at once should take, if an instance works on them one after the other."""
_SLOW_SECONDS = 0.02
"""How long after its start a request is cancelled at least."""
_LONGER = 4
"""How much longer than one after the other several requests, or a batch, may take."""
_POSITIONS = ("the first of a sequence", "the second of a sequence", "the last of a sequence")


class LateError(Exception):
    """A request wasn't answered in time. Others to the model may wait for as long."""


class Exchange:
    """The requests to a version of a model.

    - `sent`: what was sent, in order.
    - `base`: a request that was answered; None without one. `other`: one with another batch or size.
    """

    def __init__(self, sender: Sender, target: Target, config: Any, seconds: float) -> None:
        self.target, self.config = target, config
        self.sent: list[Sent] = []
        self.base: Request | None = None
        self.other: Request | None = None
        self._sender, self._seconds = sender, seconds
        self._single = 0.0
        self._has_turns = config.HasField("sequence_batching")
        self._has_sequences = self._has_turns and not config.sequence_batching.iterative_sequence

    def run(self, given: Iterable[Request], *, makes: bool) -> None:
        """Sends the user's requests and, with `makes`, those made from the configuration. Raises LateError."""
        for request in given:
            self._keep(self._send(request))
        if makes:
            self._made()
        if self.base is not None:
            self._at_once(self.base)
            if self._has_sequences:
                self._sequences(self.base)

    def again(self, words: str) -> list[Sent]:
        """Sends a request that was answered, and returns it with what came of it; [] without one."""
        return [] if self.base is None else list(self._parts(self.base, Step.AGAIN, words, self._seconds))

    def interrupted(self) -> list[Sent]:
        """Sends a request that is cancelled, and one that times out, while the model works on it.

        Returns those that are sent after each. Leaves out models that are so fast that the server would be interrupted,
        not the model.
        """
        half = self._single / 2
        if self.base is None or half < _SLOW_SECONDS or self.target.streams or self._has_turns:
            return []
        self._sender.cancel(self.target, self.base, half)
        sent = self.again("after a cancelled one")
        if any(one.outcome.is_late for one in sent):
            return sent
        self._sender.send(self.target, [self.base], half)
        return [*sent, *self.again("after one that timed out")]

    def _made(self) -> None:
        answered: Choice | None = None
        optional: Sequence[Choice] = ()
        for choice in requests.choices(self.config):
            sent = self._send(self._of(choice))
            optional = optional or list(requests.absences(self.config, choice))
            if answered is None and self._keep(sent):
                answered = choice
        if answered is not None:
            optional = list(requests.absences(self.config, answered))
        for choice in optional:
            sent = self._send(self._of(choice), Step.OPTIONAL if answered is None else Step.FORM)
            if answered is None and self._keep(sent):
                answered = choice
        for choice in requests.batches(self.config, answered) if answered is not None else ():
            longer = max(self._seconds, _LONGER * self._single * (choice.batch or 1))
            sent = self._send(self._of(choice), Step.FORM, seconds=longer)
            if self.other is None and is_answered(sent):
                self.other = sent.request

    def _of(self, choice: Choice) -> Request:
        return made(self.config, choice, Turn(0) if self._has_turns else None)

    def _keep(self, sent: Sent) -> bool:
        """Keeps the first request that was answered. Returns whether this one was."""
        if not is_answered(sent):
            return False
        if self.base is None:
            self.base = replace(sent.request, turn=Turn(0) if self._has_turns else None)
            self._single = sent.outcome.seconds
        return True

    def _at_once(self, base: Request) -> None:
        if self._has_turns:
            return
        most = _AT_ONCE_STREAMS if self.target.streams else _AT_ONCE
        count = min(most, max(2, int(_AT_ONCE_SECONDS / max(self._single, 0.001))))
        seconds = max(self._seconds, _LONGER * self._single * count)
        together = [base, self.other or base] * (count // 2)
        outcomes = self._sender.send(self.target, together, seconds)
        words = f"at once with {len(together) - 1} others"
        self._append([Sent(r, o, Step.AGAIN, words) for r, o in zip(together, outcomes, strict=True)])

    def _sequences(self, base: Request) -> None:
        """Sends two sequences at once, and one of one request.

        A server with one slot starts the second sequence when the first has ended.
        """

        def one(number: int) -> list[tuple[Request, Outcome, str]]:
            results = []
            for position, words in enumerate(_POSITIONS):
                request = replace(base, turn=Turn(number, position == 0, position == len(_POSITIONS) - 1))
                results.append((request, self._sender.send(self.target, [request], self._seconds)[0], words))
                if results[-1][1].is_late:
                    break
            return results

        with ThreadPoolExecutor(2) as pool:
            for results in pool.map(one, (1, 2)):
                self._append([Sent(request, outcome, Step.AGAIN, words) for request, outcome, words in results])
        self._append([self._once(replace(base, turn=Turn(3)), Step.FORM, "the only one of a sequence", self._seconds)])

    def _send(self, request: Request, step: Step = Step.VALUES, *, seconds: float | None = None) -> Sent:
        """Sends a request, and returns it with what came of it. Raises LateError."""
        for sent in self._parts(request, step, "", seconds or self._seconds):
            self._append([sent])
        return self.sent[-1]

    def _parts(self, request: Request, step: Step, words: str, seconds: float) -> Iterator[Sent]:
        """Sends a request; one that would be alone in its sequence as the first and the last one of it."""
        if not self._has_sequences or request.turn != Turn(0):
            yield self._once(request, step, words, seconds)
            return
        first = self._once(replace(request, turn=Turn(0, end=False)), step, words, seconds)
        yield first
        if is_answered(first):  # so that the values of the last one are known to be answered
            yield self._once(replace(request, turn=Turn(0, start=False)), Step.FORM, words, seconds)

    def _once(self, request: Request, step: Step, words: str, seconds: float) -> Sent:
        return Sent(request, self._sender.send(self.target, [request], seconds)[0], step, words)

    def _append(self, sent: Sequence[Sent]) -> None:
        self.sent += sent
        if any(one.outcome.is_late for one in sent):
            raise LateError
