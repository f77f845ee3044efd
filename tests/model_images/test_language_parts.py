"""The language model's parts without Triton: transformer, sampling, stop strings, pace and scheduler."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from sampling import MOST_TOKENS, Sampling, SamplingError, choose, sampling_of
from scheduler import CATCH_UP_SECONDS, CHECKS, Failure, Generation, Pace, Scheduler
from stops import StopFilter
from transformer import WINDOW, Cache, Weights, load, score, tokens_of

from model_images.support import LANGUAGE
from model_images.test_small_models import module
from support.api import eventually

WEIGHTS = LANGUAGE / "repository" / "language" / "1" / "weights.npz"
stories = module("language/training/stories")


@pytest.fixture(scope="module")
def trained() -> tuple[Weights, str]:
    return load(WEIGHTS)


def greedy(cache: Cache, slot: int, tokens: list[int], count: int) -> list[int]:
    out = [int(cache.read(slot, tokens).argmax())]
    while len(out) < count:
        out.append(int(cache.step([slot], out[-1:])[0].argmax()))
    return out


def test_the_file_is_small_and_knows_the_characters_of_the_stories(trained: tuple[Weights, str]) -> None:
    assert WEIGHTS.stat().st_size <= 2**20
    assert set(trained[1]) == set(stories.text(1, 300_000))


def test_the_stories_are_the_same_for_the_same_seed() -> None:
    text = stories.text(5, 5000)
    assert text == stories.text(5, 5000)
    assert text != stories.text(6, 5000)
    assert len(text) >= 5000
    assert text.endswith("\n\n")


def test_predicts_stories_that_it_has_not_seen(trained: tuple[Weights, str]) -> None:
    weights, vocabulary = trained
    tokens = np.array(tokens_of(stories.text(20_000, 3000)[:3000], vocabulary))
    losses = []
    for start in range(0, len(tokens) - WINDOW, WINDOW):
        part = tokens[start : start + WINDOW + 1]
        scores = score(weights, part[:-1]).astype(np.float64)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        losses.append(-logs[np.arange(len(part) - 1), part[1:]].mean())
    # Random weights have 4 nats, the frequencies of the characters 2.9.
    assert np.mean(losses) < 0.35


@pytest.mark.parametrize("start", ["Once there was a", "Good morning", '"', "Seven little ducks"])
def test_writes_words_of_the_stories_also_after_more_characters_than_it_can_see(
    trained: tuple[Weights, str], start: str
) -> None:
    weights, vocabulary = trained
    cache, rng = Cache(weights, 1), np.random.default_rng(1)
    scores, text = cache.read(0, tokens_of(start, vocabulary)), start
    for _ in range(3 * WINDOW):
        token = choose(scores, Sampling(temperature=0.5), rng)
        text += vocabulary[token]
        scores = cache.step([0], [token])[0]
    words = {word.strip('".,!?') for word in stories.text(1, 300_000).split()}
    written = [word.strip('".,!?') for word in text.split()[:-1]]
    assert sum(word in words for word in written) >= 0.95 * len(written), text


def test_the_cache_gives_the_scores_of_the_whole_text(trained: tuple[Weights, str]) -> None:
    weights, vocabulary = trained
    tokens = tokens_of(stories.text(3, 3 * WINDOW)[: 2 * WINDOW + 40], vocabulary)
    cache = Cache(weights, 2)
    read = 50
    scores = [cache.read(1, tokens[:read]), *(cache.step([1], [token])[0] for token in tokens[read:])]
    np.testing.assert_allclose(np.stack(scores), score(weights, np.array(tokens))[read - 1 :], atol=2e-3)


def test_a_full_window_can_be_read_at_once(trained: tuple[Weights, str]) -> None:
    weights, vocabulary = trained
    tokens = tokens_of(stories.text(3, WINDOW)[:WINDOW], vocabulary)
    np.testing.assert_allclose(Cache(weights, 1).read(0, tokens), score(weights, np.array(tokens))[-1], atol=2e-3)


def test_texts_of_different_lengths_do_not_change_each_other(trained: tuple[Weights, str]) -> None:
    weights, vocabulary = trained
    texts = [tokens_of(text, vocabulary) for text in ("One", "Good morning, Anna", "x" * 250)]
    alone = [greedy(Cache(weights, 1), 0, text, 20) for text in texts]
    cache = Cache(weights, 3)
    together = [[int(cache.read(slot, text).argmax())] for slot, text in enumerate(texts)]
    for _ in range(19):
        order = [2, 0, 1]
        for slot, scores in zip(order, cache.step(order, [together[slot][-1] for slot in order]), strict=True):
            together[slot].append(int(scores.argmax()))
    assert together == alone


def test_a_released_slot_forgets_its_text(trained: tuple[Weights, str]) -> None:
    weights, vocabulary = trained
    cache, tokens = Cache(weights, 2), tokens_of("Once", vocabulary)
    first = greedy(cache, 0, tokens, 30)
    assert cache.used() == pytest.approx(33 / (2 * WINDOW))
    cache.release(0)
    assert cache.used() == 0
    assert greedy(cache, 0, tokens, 30) == first


def test_unknown_characters_become_lower_case_or_a_space() -> None:
    assert [" abAB"[token] for token in tokens_of("aBCčB1", " abAB")] == ["a", "B", " ", " ", "B", " "]
    assert tokens_of("AB", " ab") == [1, 2]


SCORES = np.array([0.0, 2.0, 1.0, -3.0], np.float32)


def chosen(sampling: Sampling, count: int = 4000) -> Counter[int]:
    rng = np.random.default_rng(sampling.seed)
    return Counter(choose(SCORES, sampling, rng) for _ in range(count))


def test_chooses_tokens_with_the_probabilities_of_the_scores() -> None:
    for temperature in (0.5, 1.0, 2.0):
        shares = np.exp(SCORES / temperature) / np.exp(SCORES / temperature).sum()
        counts = chosen(Sampling(temperature=temperature, seed=1))
        assert [counts[token] / 4000 for token in range(4)] == pytest.approx(shares, abs=0.03)


def test_temperature_0_and_tiny_temperatures_take_the_best() -> None:
    for temperature in (0, 1e-3, 1e-300):
        assert chosen(Sampling(temperature=temperature, seed=1), 50) == {1: 50}


def test_top_k_chooses_among_the_best() -> None:
    assert set(chosen(Sampling(top_k=1, seed=1))) == {1}
    assert set(chosen(Sampling(top_k=2, temperature=2, seed=1))) == {1, 2}
    for unlimited in (0, -1, 4, 100):
        assert set(chosen(Sampling(top_k=unlimited, temperature=2, seed=1))) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, Sampling()),
        (
            {"max_tokens": 5, "temperature": 0.5, "top_k": 3, "seed": 7, "stop": ["a", "bc"]},
            Sampling(5, 0.5, 3, 7, ("a", "bc")),
        ),
        ({"stop": "end", "seed": None, "max_tokens": 5.0}, Sampling(max_tokens=5, stop=("end",))),
        ({"temperature": 0, "top_k": -1, "max_tokens": MOST_TOKENS}, Sampling(MOST_TOKENS, 0, -1)),
    ],
)
def test_reads_the_parameters(values: dict[str, object], expected: Sampling) -> None:
    assert sampling_of(json.dumps(values)) == expected
    assert sampling_of(None, json.dumps(values)) == expected
    assert isinstance(sampling_of(json.dumps(values)).max_tokens, int)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{max_tokens", r"^sampling_parameters is no JSON \(.*\); send an object such as"),
        ("[1]", r"^sampling_parameters must be a JSON object such as .*, not \[1\]$"),
        ('{"max_token": 1}', "^sampling_parameters has the unknown field 'max_token'; it can have max_tokens, temp"),
        ('{"max_tokens": 0}', "^sampling_parameters: max_tokens must be a whole number from 1 to 4096, not 0$"),
        ('{"max_tokens": 4097}', "max_tokens must be a whole number"),
        ('{"max_tokens": 1.5}', "max_tokens must be a whole number"),
        ('{"max_tokens": true}', "max_tokens must be a whole number"),
        ('{"max_tokens": "5"}', 'max_tokens must be a whole number from 1 to 4096, not "5"'),
        ('{"max_tokens": NaN}', "max_tokens must be a whole number"),
        ('{"top_k": -2}', "top_k must be a whole number from -1 to 4096, not -2"),
        ('{"seed": -1}', "seed must be a whole number from 0 to"),
        ('{"temperature": -0.1}', "temperature must be a number from 0 to 2, not -0.1"),
        ('{"temperature": "hot"}', 'temperature must be a number from 0 to 2, not "hot"'),
        ('{"temperature": false}', "temperature must be a number from 0 to 2, not false"),
        ('{"temperature": Infinity}', "temperature must be a number from 0 to 2"),
        ('{"stop": ""}', 'stop must be a string that isn\'t empty, or a list of up to 16 of them, not ""'),
        ('{"stop": ["a", 1]}', "stop must be a string"),
        (json.dumps({"stop": ["a"] * 17}), "stop must be a string"),
    ],
)
def test_refuses_wrong_parameters(text: str, message: str) -> None:
    with pytest.raises(SamplingError, match=message):
        sampling_of(text)


def test_a_requests_own_parameters_can_have_others_and_numbers_as_text() -> None:
    parameters = {"x-request-id": "7", "timeout": 3, "temperature": "0.5", "max_tokens": 9}
    assert sampling_of(None, json.dumps(parameters)) == Sampling(max_tokens=9, temperature=0.5)
    assert sampling_of(None, "") == Sampling()
    assert sampling_of("{}", json.dumps(parameters)) == Sampling()
    with pytest.raises(SamplingError, match=r"^parameters: max_tokens must be"):
        sampling_of(None, '{"max_tokens": 0}')


def filtered(text: str, stops: tuple[str, ...], size: int) -> tuple[str, bool]:
    """Returns what comes out of a filter that gets the text in pieces of this size, and whether it has stopped."""
    filtering, out = StopFilter(stops), ""
    for at in range(0, len(text), size):
        piece, is_stopped = filtering.push(text[at : at + size])
        out += piece
        if is_stopped:
            return out, True
    return out + filtering.rest(), False


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("abcdef", (), ("abcdef", False)),
        ("abcdef", ("cd",), ("ab", True)),
        ("abcdef", ("ef", "bc"), ("a", True)),
        ("abcdef", ("x", "de", "d"), ("abc", True)),
        ("aaab", ("aab",), ("a", True)),
        ("ababac", ("abac",), ("ab", True)),
        ("abcab", ("abx",), ("abcab", False)),
        ("abab", ("abc", "b"), ("a", True)),
    ],
)
def test_a_text_ends_before_its_first_stop_string(
    text: str, stops: tuple[str, ...], expected: tuple[str, bool]
) -> None:
    for size in (1, 2, 3, len(text)):
        assert filtered(text, stops, size) == expected, size


def test_holds_back_only_what_may_be_the_start_of_a_stop_string() -> None:
    filtering = StopFilter(("end",))
    assert [filtering.push(piece) for piece in ("a", "e", "n", "x", "e")] == [
        ("a", False), ("", False), ("", False), ("enx", False), ("", False),
    ]  # fmt: skip
    assert filtering.rest() == "e"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def tokens_in(pace: Pace, clock: Clock, seconds: float, each: int = 1, cost: float = 0.001) -> int:
    """Returns the tokens of a loop that makes `each` of them in a step that takes `cost` seconds."""
    end, tokens = clock.now + seconds, 0
    while clock.now < end:
        clock.now += max(pace.wait(), 0) + cost
        pace.spend(each)
        tokens += each
    return tokens


@pytest.mark.parametrize(("rate", "each"), [(10.0, 1), (100.0, 1), (100.0, 8), (400.0, 8)])
def test_the_pace_is_that_of_the_limit(rate: float, each: int) -> None:
    clock = Clock()
    assert tokens_in(Pace(rate, clock), clock, 10, each) == pytest.approx(10 * rate, rel=0.02, abs=each)


def test_without_a_limit_nothing_waits() -> None:
    clock = Clock()
    assert tokens_in(Pace(None, clock), clock, 1) == pytest.approx(1000, abs=2)


def test_catches_up_only_with_a_short_delay() -> None:
    clock = Clock()
    pace = Pace(100, clock)
    pace.spend(1)
    clock.now += 60
    assert tokens_in(pace, clock, 1) == pytest.approx(100 + 100 * CATCH_UP_SECONDS, abs=3)


def test_does_not_catch_up_with_a_time_without_requests() -> None:
    clock = Clock()
    pace = Pace(100, clock)
    pace.spend(1)
    clock.now += 60
    pace.rest()
    assert tokens_in(pace, clock, 1) == pytest.approx(100, abs=2)


class Recorder:
    """A client and its answers."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.failure: Failure | None = None
        self.is_final = False
        self.is_gone = self.is_broken = False
        self.done = threading.Event()

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def send(self, text: str, *, final: bool) -> None:
        if self.is_broken:
            raise RuntimeError("no way back")
        assert not self.is_final
        self.pieces.append(text)
        self.is_final = final
        if final:
            self.done.set()

    def fail(self, failure: Failure) -> None:
        assert not self.is_final
        self.failure, self.is_final = failure, True
        self.done.set()

    def has_left(self) -> bool:
        return self.is_gone


class Tally:
    """Adds up what the scheduler reports."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.states: list[tuple[int, int, float]] = []

    def prompt(self, tokens: int, waited: float) -> None:
        self.counts["prompt"] += tokens

    def step(self, tokens: int) -> None:
        self.counts["tokens"] += tokens

    def first_token(self, seconds: float) -> None:
        self.counts["first"] += 1

    def later_token(self, seconds: float) -> None:
        self.counts["later"] += 1

    def finished(self, prompt_tokens: int, tokens: int, seconds: float) -> None:
        self.counts["finished"] += 1

    def state(self, running: int, waiting: int, used: float) -> None:
        self.states.append((running, waiting, used))

    @property
    def state_now(self) -> tuple[int, int, float]:
        return self.states[-1]


class Desk:
    """A scheduler with two slots and the trained network."""

    def __init__(self, trained: tuple[Weights, str], limit: float | None = None) -> None:
        weights, self.vocabulary = trained
        self.cache, self.tally = Cache(weights, 2), Tally()
        self.scheduler = Scheduler(self.cache, self.vocabulary, 2, Pace(limit), self.tally)
        self.scheduler.start()

    def ask(self, text: str = "Once", *, stream: bool = True, **sampling: object) -> Recorder:
        client = Recorder()
        parameters = sampling_of(json.dumps(sampling))
        generation = Generation(tokens_of(text, self.vocabulary), parameters, client, stream=stream)
        self.scheduler.submit(generation)
        return client


@pytest.fixture
def desk(trained: tuple[Weights, str]) -> Iterator[Desk]:
    instance = Desk(trained)
    yield instance
    instance.scheduler.stop()


@pytest.fixture
def slow(trained: tuple[Weights, str]) -> Iterator[Desk]:
    """Ends no long request during a test: 4096 tokens take seven minutes."""
    instance = Desk(trained, 10)
    yield instance
    instance.scheduler.stop()


def ended(*clients: Recorder) -> list[str]:
    """Waits for the ends of these answers, and returns their texts."""
    for client in clients:
        eventually(client.done.is_set, 30)
        assert not client.failure
    return [client.text for client in clients]


def test_many_requests_get_the_answers_that_each_would_get_alone(desk: Desk) -> None:
    starts = ["Once", "One", "Good morning", "Seven", "She"]
    alone = [ended(desk.ask(start, seed=k, max_tokens=30 + k))[0] for k, start in enumerate(starts)]
    clients = [desk.ask(start, seed=k, max_tokens=30 + k) for k, start in enumerate(starts)]
    assert ended(*clients) == alone
    assert [len(client.pieces) for client in clients] == [30, 31, 32, 33, 34]
    assert max(running for running, _, _ in desk.tally.states) == 2
    assert max(waiting for _, waiting, _ in desk.tally.states) > 0
    assert desk.tally.state_now == (0, 0, 0)
    tokens = 2 * sum(map(len, alone))
    prompt = 2 * sum(map(len, starts))
    assert desk.tally.counts == {
        "prompt": prompt, "tokens": tokens, "first": 10, "later": tokens - 10, "finished": 10,
    }  # fmt: skip


def test_an_answer_without_stream_comes_in_one_piece(desk: Desk) -> None:
    whole, pieces = desk.ask(stream=False, seed=1), desk.ask(seed=1)
    assert ended(whole) == ended(pieces)
    assert (len(whole.pieces), len(pieces.pieces)) == (1, 64)


def test_a_stop_string_ends_the_answer_and_what_was_held_back_comes_with_the_last_token(desk: Desk) -> None:
    (text,) = ended(desk.ask(temperature=0))
    stop = text[20:24]
    end = text.index(stop)
    for stream in (True, False):
        assert ended(desk.ask(temperature=0, stop=["never", stop], stream=stream)) == [text[:end]]
    # The last tokens are the start of a stop string that doesn't come.
    assert ended(desk.ask(temperature=0, max_tokens=22, stop=f"{text[20:22]}#")) == [text[:22]]


def test_a_client_that_leaves_frees_its_slot_for_the_next(slow: Desk) -> None:
    first, second = slow.ask(max_tokens=4096), slow.ask(max_tokens=4096)
    third, fourth = slow.ask(max_tokens=4096), slow.ask(max_tokens=2)
    eventually(lambda: slow.tally.state_now[:2] == (2, 2), 30)
    third.is_gone = True
    eventually(lambda: slow.tally.state_now[:2] == (2, 1), 30)
    first.is_gone = True
    ended(fourth)
    assert not second.done.is_set()
    assert third.pieces == []
    assert first.failure == third.failure == Failure.LEFT


def test_clients_that_leave_a_long_queue_leave_no_request_in_it(slow: Desk) -> None:
    clients = [slow.ask(max_tokens=4096) for _ in range(2 + 3 * CHECKS)]
    eventually(lambda: slow.tally.state_now[:2] == (2, 3 * CHECKS), 30)
    for client in clients[3:]:
        client.is_gone = True
    eventually(lambda: slow.tally.state_now[:2] == (2, 1), 30)
    assert [client.failure for client in clients[:3]] == [None] * 3


def test_stop_ends_running_waiting_and_later_requests_with_an_error(slow: Desk) -> None:
    clients = [slow.ask(max_tokens=4096) for _ in range(3)]
    eventually(lambda: slow.tally.state_now[:2] == (2, 1), 30)
    slow.scheduler.stop()
    clients.append(slow.ask())
    assert [client.failure for client in clients] == [Failure.STOPPING] * 4
    assert slow.tally.state_now == (0, 0, 0)


def test_a_failed_step_fails_its_requests_and_no_later_ones(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(desk.cache, "step", lambda *_: 1 / 0)
        client = desk.ask()
        eventually(client.done.is_set, 30)
    assert client.failure == Failure.FAILED
    assert len(ended(desk.ask())[0]) == 64


def test_an_answer_that_cannot_be_sent_ends_only_its_request(desk: Desk) -> None:
    broken, other = Recorder(), desk.ask(max_tokens=500)
    broken.is_broken = True
    tokens = tokens_of("Once", desk.vocabulary)
    desk.scheduler.submit(Generation(tokens, Sampling(max_tokens=4096), broken, stream=True))
    assert len(ended(other)[0]) == 500
    eventually(lambda: desk.tally.state_now == (0, 0, 0), 30)
    assert len(ended(desk.ask())[0]) == 64
