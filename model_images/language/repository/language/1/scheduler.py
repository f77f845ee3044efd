"""Runs several requests at the same time: a thread that makes one step for all of them, again and again."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Protocol

import numpy as np
from sampling import Sampling, choose
from stops import StopFilter
from transformer import Cache

CHECK_SECONDS = 0.05
"""How often the scheduler asks whether clients have left. Each question is a message to the server process."""
CHECKS = 16
"""The most waiting requests that it asks about at a time, so that a long queue doesn't slow the running ones down."""
CATCH_UP_SECONDS = 0.25
"""After a delay of the machine, the tokens of at most this time follow faster than the limit."""


class Failure(Enum):
    """Why a request ends without its answer, as the client reads it."""

    STOPPING = "the model stops; send the request again"
    FAILED = "the model failed; the server's log has the reason"
    LEFT = "the client has left"


class Client(Protocol):
    """The way back to the client of one request."""

    def send(self, text: str, *, final: bool) -> None:
        """Sends a part of the text."""

    def fail(self, failure: Failure) -> None:
        """Sends an error as the last answer."""

    def has_left(self) -> bool:
        """Returns whether the client no longer waits."""


class Measures(Protocol):
    """What the scheduler reports."""

    def prompt(self, tokens: int, waited: float) -> None:
        """A request has left the queue after this number of seconds, and its prompt was read."""

    def step(self, tokens: int) -> None:
        """This number of tokens was generated."""

    def first_token(self, seconds: float) -> None:
        """A request has its first token this number of seconds after its arrival."""

    def later_token(self, seconds: float) -> None:
        """A request has another token this number of seconds after the one before."""

    def finished(self, prompt_tokens: int, tokens: int, seconds: float) -> None:
        """A request is complete this number of seconds after its arrival."""

    def state(self, running: int, waiting: int, used: float) -> None:
        """The number of requests that run and that wait, and the share of the cache that is in use, 0 to 1."""


class Generation:
    """One request. Only the scheduler's thread changes it."""

    def __init__(self, prompt: list[int], sampling: Sampling, client: Client, *, stream: bool) -> None:
        """Starts now. The client gets the text in pieces with `stream`, else in one."""
        self.prompt, self.sampling, self.client, self._stream = prompt, sampling, client, stream
        self.rng = np.random.default_rng(sampling.seed)
        self.arrived = self.last_time = time.monotonic()
        self.tokens, self.slot, self.last_token = 0, -1, -1
        self._stops, self._unsent = StopFilter(sampling.stop), ""
        self.is_complete = False

    def add(self, token: int, character: str) -> None:
        """Adds a token and its character to the text."""
        self.tokens, self.last_token = self.tokens + 1, token
        text, is_stopped = self._stops.push(character)
        self._unsent += text
        self.is_complete = is_stopped or self.tokens == self.sampling.max_tokens
        if self.is_complete and not is_stopped:
            self._unsent += self._stops.rest()

    def send(self) -> None:
        """Sends what the client should have by now."""
        if self.is_complete or (self._stream and self._unsent):
            text, self._unsent = self._unsent, ""
            self.client.send(text, final=self.is_complete)


class Pace:
    """Limits tokens per second."""

    def __init__(self, tokens_per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Without a limit for None."""
        self._seconds = 1 / tokens_per_second if tokens_per_second else 0.0
        self._clock = clock
        self._due = clock()

    def spend(self, tokens: int) -> None:
        """Counts tokens that were just generated."""
        self._due = max(self._due, self._clock() - CATCH_UP_SECONDS) + tokens * self._seconds

    def wait(self) -> float:
        """Returns the seconds until the next tokens may come; 0 or less is now."""
        return self._due - self._clock() if self._seconds else 0.0

    def rest(self) -> None:
        """Starts over after a time without requests: it isn't a delay to catch up with."""
        self._due = max(self._due, self._clock())


class Scheduler:
    """Up to `slots` requests run, the others wait in the order of their arrival."""

    def __init__(self, cache: Cache, vocabulary: str, slots: int, pace: Pace, measures: Measures) -> None:
        """Doesn't start the thread yet."""
        self._cache, self._vocabulary, self._pace, self._measures = cache, vocabulary, pace, measures
        self._free = list(range(slots))[::-1]
        self._running: list[Generation] = []
        self._waiting: deque[Generation] = deque()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._next_check, self._next_waiting = 0.0, 0
        self._last_state = (-1, -1, -1.0)
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._report_state()
        self._thread.start()

    def submit(self, generation: Generation) -> None:
        """Puts a request into the queue."""
        with self._changed:
            if not self._is_stopping:
                self._waiting.append(generation)
                self._changed.notify()
                return
        _fail(generation, Failure.STOPPING)

    def stop(self) -> None:
        """Ends the thread after its current step. All requests get an error."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread.ident:
            self._thread.join()

    def _run(self) -> None:
        while self._has_work():
            try:
                self._drop_left()
                if self._pace.wait() <= 0:
                    self._step()
                self._report_state()
            except Exception:
                logging.exception("a step failed")
                self._fail_all(Failure.FAILED)
        self._fail_all(Failure.STOPPING)
        self._report_state()

    def _has_work(self) -> bool:
        """Waits until there is something to do. Returns False when the scheduler stops."""
        with self._changed:
            if not (self._running or self._waiting):
                self._changed.wait_for(lambda: self._waiting or self._is_stopping)
                self._pace.rest()
            else:
                pause = min(self._pace.wait(), CHECK_SECONDS)
                if pause > 0:
                    self._changed.wait_for(lambda: self._is_stopping, pause)
            return not self._is_stopping

    def _step(self) -> None:
        """Gives each running request one more token, and starts requests that wait if there are free slots.

        Reports before it sends: a client that has an answer finds it in the metrics.
        """
        stepped = list(self._running)
        rows = []
        if stepped:
            slots, last = [g.slot for g in stepped], [g.last_token for g in stepped]
            rows += list(self._cache.step(slots, last))
        for generation in self._admitted():
            stepped.append(generation)
            rows.append(self._cache.read(generation.slot, generation.prompt))
        self._pace.spend(len(stepped))
        self._measures.step(len(stepped))
        now = time.monotonic()
        for generation, scores in zip(stepped, rows, strict=True):
            token = choose(scores, generation.sampling, generation.rng)
            generation.add(token, self._vocabulary[token])
            self._measure(generation, now)
        try:
            for generation in stepped:
                if generation.is_complete:
                    self._release(generation)
            self._report_state()
        finally:
            for generation in stepped:
                self._send(generation)

    def _admitted(self) -> list[Generation]:
        """Returns the waiting requests that now have a slot."""
        out = []
        with self._changed:
            while self._waiting and self._free:
                generation = self._waiting.popleft()
                generation.slot = self._free.pop()
                out.append(generation)
        self._running += out
        for generation in out:
            self._measures.prompt(len(generation.prompt), time.monotonic() - generation.arrived)
        return out

    def _measure(self, generation: Generation, now: float) -> None:
        seconds, generation.last_time = now - generation.last_time, now
        (self._measures.first_token if generation.tokens == 1 else self._measures.later_token)(seconds)
        if generation.is_complete:
            self._measures.finished(len(generation.prompt), generation.tokens, now - generation.arrived)

    def _send(self, generation: Generation) -> None:
        try:
            generation.send()
        except Exception:
            logging.exception("an answer can't be sent")
            self._release(generation)

    def _release(self, generation: Generation) -> None:
        """Frees the slot of a request. It can come twice for a request."""
        if generation in self._running:
            self._running.remove(generation)
            self._cache.release(generation.slot)
            self._free.append(generation.slot)

    def _drop_left(self) -> None:
        """Ends the requests whose clients have left."""
        if time.monotonic() < self._next_check:
            return
        with self._changed:
            waiting = list(self._waiting)
        if self._next_waiting >= len(waiting):
            self._next_waiting = 0
        part = waiting[self._next_waiting : self._next_waiting + CHECKS]
        self._next_waiting += CHECKS
        for generation in [*self._running, *part]:
            if generation.client.has_left():
                self._release(generation)
                with self._changed:
                    if generation in self._waiting:
                        self._waiting.remove(generation)
                _fail(generation, Failure.LEFT)
        self._next_check = time.monotonic() + CHECK_SECONDS

    def _fail_all(self, failure: Failure) -> None:
        """Ends all requests with an error."""
        with self._changed:
            generations = [*self._running, *self._waiting]
            self._waiting.clear()
        for generation in generations:
            self._release(generation)
            _fail(generation, failure)

    def _report_state(self) -> None:
        state = len(self._running), len(self._waiting), round(self._cache.used(), 3)
        if state != self._last_state:
            self._last_state = state
            self._measures.state(*state)


def _fail(generation: Generation, failure: Failure) -> None:
    try:
        generation.client.fail(failure)
    except Exception:
        logging.exception("an error can't be sent")
