"""The order of requests to the models of a server, with a server that can do what no real one does on demand."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from kubectl_triton.trial import run as trial
from kubectl_triton.trial.outcome import Outcome, Output, Target
from kubectl_triton.trial.requests import Request
from kubectl_triton.trial.sender import GoneError

NUMBERS = 'input [{name: "X", data_type: TYPE_FP32, dims: [2]}] output [{name: "Y", data_type: TYPE_FP32, dims: [2]}]'
ENSEMBLE = NUMBERS + ' ensemble_scheduling { step [{model_name: "a"}, {model_name: "b"}] }'
GOOD = Outcome(((Output("Y", "FP32", (2,)),),), seconds=0.001)
SLOW = Outcome(GOOD.responses, seconds=1.0)
LATE = Outcome(is_late=True, seconds=20.0)
FAILS = Outcome(error="Failed to process the request(s) for model 'a_0', message: ValueError: no\n\nAt:\n"
                      "  /models/a/1/model.py(7): execute\n")  # fmt: skip


class Server:
    """Stands for the Sender. Each model has one outcome for all requests; `ends` is the call at which it ends.

    - `late_at`: which send isn't answered, from 1; 0 for none.
    - `sent`: target, requests and seconds of each send.
    """

    def __init__(self, configs: dict[str, str], outcomes: dict[str, Outcome] | None = None) -> None:
        self.configs = {name: text_format.Parse(text, model_config_pb2.ModelConfig()) for name, text in configs.items()}
        self.outcomes = outcomes or {}
        self.ends = self.unload_says = self.load_says = ""
        self.calls: list[str] = []
        self.late_at = 0
        self.sent: list[tuple[Target, list[Request], float]] = []

    def __call__(self, _address: str) -> Server:
        return self

    def close(self) -> None:
        self.calls.append("close")

    def ready(self) -> list[tuple[str, str]]:
        return [(name, "1") for name in self.configs]

    def config(self, model: str, _version: str) -> model_config_pb2.ModelConfig:
        return self.configs[model]

    def _call(self, call: str) -> None:
        self.calls.append(call)
        if call == self.ends:
            raise GoneError("Socket closed")

    def send(self, target, requests, seconds):
        self._call(f"send {target.model}")
        self.sent.append((target, requests, seconds))
        if len(self.sent) == self.late_at:
            return [LATE] * len(requests)
        return [self.outcomes.get(target.model, GOOD)] * len(requests)

    def cancel(self, target, request, seconds):
        self._call(f"cancel {target.model}")

    def unload(self, model, seconds):
        self._call(f"unload {model}")
        return self.unload_says

    def load(self, model, seconds):
        self._call(f"load {model}")
        return self.load_says


@pytest.fixture
def judged(monkeypatch):
    def run(server: Server, **plan) -> list[str]:
        monkeypatch.setattr(trial, "Sender", server)
        found = trial.run("address", trial.Plan(list(server.configs), **plan), lambda _: None)
        assert server.calls[-1] == "close"
        return [str(finding).split(" — ")[0] for finding in found]

    return run


def sent(server: Server) -> list[str]:
    return list(dict.fromkeys(call.partition(" ")[2] for call in server.calls if call.startswith("send")))


def test_a_good_model_is_loaded_again_and_has_no_finding(judged):
    server = Server({"a": NUMBERS})
    assert judged(server) == []
    assert server.calls[-4:] == ["unload a", "load a", "send a", "close"]


def test_each_model_is_loaded_again_but_ensembles_which_have_no_program(judged):
    server = Server({"whole": ENSEMBLE, "a": NUMBERS, "b": NUMBERS})
    assert judged(server) == []
    changes = [call for call in server.calls if call.startswith(("unload", "load"))]
    assert changes == ["unload a", "load a", "unload b", "load b"]


@pytest.mark.parametrize(
    ("seconds", "decoupled", "count"), [(0.001, False, 16), (2.0, False, 4), (9.0, False, 2), (0.001, True, 4)]
)
def test_requests_are_sent_at_once_but_fewer_to_slow_models_and_streams(judged, seconds, decoupled, count):
    text = NUMBERS + " model_transaction_policy { decoupled: true }" * decoupled
    server = Server({"a": text}, {"a": replace(GOOD, seconds=seconds)})
    assert judged(server, reloads=False) == []
    assert max(len(requests) for _, requests, _ in server.sent) == count


def test_batches_and_requests_without_optional_inputs_are_sent(judged):
    text = 'input [{name: "O", data_type: TYPE_FP32, dims: [1], optional: true}] max_batch_size: 4 ' + NUMBERS
    server = Server({"a": text.replace("dims: [2]", "dims: [-1]")}, {"a": Outcome(error="refused")})
    judged(server, reloads=False)
    absent = [request.words for _, (request, *_), _ in server.sent if "without" in request.words]
    assert absent == ["zeros, 8 in each variable dimension, batch size 1, without O"]
    server = Server({"a": text}, {"a": Outcome(((Output("Y", "FP32", (1, 2)),),), seconds=0.001)})
    judged(server, reloads=False)
    forms = [request.words for _, (request, *rest), _ in server.sent if not rest][-3:]
    assert forms == ["zeros, batch size 1, without O", "zeros, batch size 2", "zeros, batch size 4"]


def test_two_sequences_are_sent_at_once_and_one_of_a_single_request(judged):
    both = threading.Barrier(2)

    class Slots(Server):
        def send(self, target, requests, seconds):
            if (turn := requests[0].turn) and turn.number in (1, 2):
                both.wait(10)  # raises if one sequence waits for the end of the other
            return super().send(target, requests, seconds)

    server = Slots({"a": NUMBERS + " sequence_batching {}"})
    assert judged(server, reloads=False) == []
    turns = {number: [(t.start, t.end) for _, [r], _ in server.sent if (t := r.turn) and t.number == number]
             for number in (1, 2, 3)}  # fmt: skip
    three = [(True, False), (False, False), (False, True)]
    assert turns == {1: three, 2: three, 3: [(True, True)]}


def test_a_decoupled_model_gets_streams_which_must_end(judged):
    text = NUMBERS + " model_transaction_policy { decoupled: true }"
    server = Server({"a": text, "b": NUMBERS})
    assert judged(server) == []
    assert {(target.model, target.streams) for target, *_ in server.sent} == {("a", True), ("b", False)}
    (finding,) = judged(Server({"a": text}, {"a": replace(LATE, responses=GOOD.responses)}))
    assert finding.startswith("a: error TR906: 1 of 1 requests (zeros): its stream has not ended: no response was the")


@pytest.mark.parametrize(
    ("outcome", "plan", "expected"),
    [
        (GOOD, {}, ["whole"]),
        (GOOD, {"each_step": True}, ["whole", "a", "b"]),
        # The steps after the one that fails are tried, too.
        (FAILS, {}, ["whole", "a", "b"]),
        (GOOD, {"only": ["b"]}, ["b"]),
    ],
)
def test_steps_get_requests_of_their_own_if_their_ensemble_answers_none(judged, outcome, plan, expected):
    server = Server({"whole": ENSEMBLE, "a": NUMBERS, "b": NUMBERS}, {"whole": outcome})
    judged(server, **plan, reloads=False)
    assert sent(server) == expected


def test_a_model_that_does_not_answer_gets_no_more_requests_and_is_not_unloaded(judged):
    server = Server({"a": NUMBERS, "b": NUMBERS}, {"a": LATE})
    assert judged(server) == ["a: error TR906: 1 of 1 requests (zeros): there is no answer after 20 s"]
    assert server.calls.count("send a") == 1
    assert "unload a" not in server.calls
    assert "unload b" in server.calls


@pytest.mark.parametrize("late_at", range(1, 9))
def test_after_a_request_that_is_not_answered_a_model_gets_no_others(judged, late_at):
    """The first ones have values, then one has no optional input, two have batches, one is sent at once, one again."""
    text = NUMBERS.replace("dims: [2]}]", "dims: [2], optional: true}]", 1) + " max_batch_size: 4"
    server = Server({"a": text}, {"a": replace(SLOW, responses=((Output("Y", "FP32", (1, 2)),),))})
    server.late_at = late_at
    assert [finding for finding in judged(server) if "TR906" in finding]
    assert server.calls.count("send a") == late_at
    assert "cancel a" not in server.calls
    assert ("unload a" in server.calls) is (late_at == 8)


def test_after_a_cancelled_request_one_that_is_not_answered_is_the_last(judged):
    server = Server({"a": NUMBERS}, {"a": SLOW})
    judged(server)
    server.late_at = len(server.sent) - 2
    again = Server(dict.fromkeys("a", NUMBERS), {"a": SLOW})
    again.late_at = server.late_at
    assert "TR906" in judged(again)[0]
    assert again.calls[-3:] == ["cancel a", "send a", "close"]


def test_a_sequence_ends_with_a_request_that_is_not_answered(judged):
    server = Server({"a": NUMBERS + " sequence_batching {}"})
    server.late_at = 8
    judged(server)
    turns = [requests[0].turn.number for _, requests, _ in server.sent]
    late = turns[server.late_at - 1]
    assert late in (1, 2)
    assert turns[server.late_at :].count(late) == 0


def test_a_request_may_take_the_seconds_of_the_plan(judged):
    server = Server({"a": NUMBERS})
    judged(server, seconds=7.0)
    assert {seconds for *_, seconds in server.sent} == {7.0}
    assert trial.Plan([]).seconds == 20


def test_a_model_that_is_not_unloaded_is_a_warning(judged):
    server = Server({"a": NUMBERS})
    server.unload_says = "isn't unloaded after 20 s"
    assert judged(server) == ["a: warning TR909: after the requests: can't be unloaded: isn't unloaded after 20 s"]
    assert "load a" not in server.calls


def test_a_model_that_can_not_be_loaded_again_is_an_error_with_its_line(judged):
    server = Server({"a": NUMBERS})
    server.load_says = (
        "load failed for model 'a': version 1: Internal: OSError: exists\n\nAt:\n  /models/a/1/model.py(9): f\n"
    )
    (finding,) = judged(server)
    assert finding.startswith("a/1/model.py:9: error TR909: after the requests: can't be loaded again: load failed for")


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ("send a", "a: error TR907: the requests: the server ends, or doesn't answer anymore: Socket closed"),
        ("unload a", "a: warning TR909: after the requests: can't be unloaded: the server ends: Socket closed"),
        ("load a", "a: warning TR909: after the requests: can't be unloaded: the server ends: Socket closed"),
        ("cancel a", "a: warning TR907: a cancelled request: the server ends: Socket closed"),
    ],
)
def test_a_server_that_ends_is_an_error_only_for_a_plain_request(judged, ends, expected):
    server = Server({"a": NUMBERS}, {"a": SLOW})
    server.ends = ends
    assert judged(server) == [expected]


def test_only_slow_models_get_requests_that_are_cancelled(judged):
    slow, fast = Server({"a": NUMBERS}, {"a": SLOW}), Server({"a": NUMBERS})
    assert judged(slow) == judged(fast) == []
    assert "cancel a" in slow.calls
    assert "cancel a" not in fast.calls


def test_one_more_is_sent_after_a_cancelled_request_and_after_one_that_timed_out(judged):
    server = Server({"a": NUMBERS}, {"a": SLOW})
    assert judged(server) == []
    assert server.calls[-6:] == ["send a", "cancel a", "send a", "send a", "send a", "close"]
    assert [seconds for *_, seconds in server.sent[-3:]] == [20, SLOW.seconds / 2, 20]


def test_a_failure_after_a_cancelled_request_is_an_error(judged):
    class Spoilt(Server):
        def cancel(self, target, request, seconds):
            self.outcomes = {"a": FAILS}

    (finding,) = judged(Spoilt({"a": NUMBERS}, {"a": SLOW}))
    assert finding == (
        "a/1/model.py:7: error TR904: each request (zeros, after a cancelled one): fails: ValueError: no"
    )


def test_a_model_without_values_is_a_note(judged):
    text = 'input [{name: "X", data_type: TYPE_INT32, dims: [1], is_shape_tensor: true}]'
    (finding,) = judged(Server({"a": text}), reloads=False)
    assert finding.startswith("a: note TR910: requests: none can be made: the input X has the shape of another one")


INPUTS = json.dumps({"data": [{"X": [1, 2]}]}).encode()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"": ("in.json", INPUTS)}, []),
        ({"b": ("in.json", INPUTS)}, []),
        ({"c": ("in.json", INPUTS)}, [".: the server doesn't serve c"]),
        ({"": ("in.json", b"{}")}, [".: not perf_analyzer's JSON format, which is {\"data\": [{\"INPUT\": […]}, …]}"]),
        ({"": ("in.json", INPUTS.replace(b"X", b"Z"))}, [".: no model has the inputs Z"]),
        ({"a": ("in.json", INPUTS.replace(b"2", b'"x"'))}, ["a: entry 1: X: could not convert string to float: 'x'"]),
    ],
)  # fmt: skip
def test_a_file_of_a_user_goes_to_its_model(judged, files, expected):
    server = Server({"a": NUMBERS, "b": NUMBERS})
    found = judged(server, files=files, reloads=False)
    assert [text.replace(" error TR910: the requests of in.json: can't be sent:", "") for text in found] == expected


def test_the_values_of_a_user_and_the_health_request_are_sent_first(judged):
    body = json.dumps({"inputs": [{"name": "X", "datatype": "FP32", "shape": [2], "data": [3, 4]}]}).encode()
    server = Server({"a": NUMBERS})
    judged(server, files={"": ("in.json", INPUTS)}, health={"a": ("a/health.json", body)}, reloads=False)
    assert [requests[0].words for _, requests, _ in server.sent[:3]] == [
        "the values of in.json, entry 1", "the body in a/health.json", "zeros",
    ]  # fmt: skip
    assert [requests[0].inputs[0].values.tolist() for _, requests, _ in server.sent[:2]] == [[1, 2], [3, 4]]


def test_a_health_request_that_fails_is_an_error(judged):
    body = json.dumps({"inputs": [{"name": "X", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}).encode()
    server = Server({"a": NUMBERS.replace("FP32, dims: [2]", "STRING, dims: [2]", 1)}, {"a": FAILS})
    plan = {"health": {"a": ("a/health.json", body)}, "reloads": False}
    errors = [finding for finding in judged(server, **plan) if "error" in finding]
    assert errors == ["a/1/model.py:7: error TR904: 1 of 6 requests (the body in a/health.json): fails: ValueError: no"]
