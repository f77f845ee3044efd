"""What a wait of the tests says when it fails."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import kubernetes
import pytest
from urllib3.exceptions import HTTPError

from support import api
from support.api import Api, BusyError, RefusedError, UnansweredError, eventually, note, steady


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MIN_WAIT_SECONDS", 0.05)


def failure(wait: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as failed:
        wait()
    return str(failed.value)


def test_says_what_the_last_look_read() -> None:
    version = itertools.count(1)

    def look() -> bool:
        pod = {
            "metadata": {"name": "a", "resourceVersion": str(next(version)), "labels": {}},
            "status": {"phase": "Pending"},
        }
        note("GET /pods", {"items": [pod]})
        note("kubectl logs a", "no log yet\n")
        return False

    lines = failure(lambda: eventually(look, 0, "the pod to run", every=0.01)).splitlines()
    assert lines[0] == "not within 0.05 s: the pod to run"
    last = f'{{"name": "a", "resourceVersion": "{next(version) - 1}", "status": {{"phase": "Pending"}}}}'
    assert lines[1:] == [f"  GET /pods: {last}", "  kubectl logs a: no log yet"]


def test_says_the_last_value_if_it_says_something() -> None:
    assert failure(lambda: eventually(lambda: [], 0, "pods")).endswith(": pods\n  the last value was []")
    assert failure(lambda: eventually(lambda: False, 0, "pods")).endswith(": pods")


def test_a_wait_within_a_look_hides_nothing() -> None:
    def look() -> bool:
        note("GET /outer", "1")
        eventually(lambda: note("GET /inner", "2") or True, 0)
        note("GET /later", "3")
        return False

    assert failure(lambda: eventually(look, 0, "x")).splitlines()[1:] == ["  GET /outer: 1", "  GET /later: 3"]


def test_the_own_words_of_a_test_replace_the_readings() -> None:
    def look() -> bool:
        note("GET /pods", "none")
        return False

    assert failure(lambda: eventually(look, 0, lambda: "2 of 3 pods")) == "not within 0.05 s: 2 of 3 pods"


def test_looks_again_after_a_pause_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state may have come in a pause that lasts beyond the deadline."""
    clock: Iterator[float] = iter((0, 0, 100, 100))
    monkeypatch.setattr(api.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(api.time, "sleep", lambda _: None)
    states = iter((False, True))
    assert eventually(lambda: next(states), 60)


def test_steady_says_the_last_change() -> None:
    count = itertools.count()
    text = failure(lambda: steady(lambda: next(count), 10, 0.5, "the writes to stop"))
    former, _, last = text.removeprefix("the writes to stop; the last change was from ").partition(" to ")
    assert int(last) == int(former) + 1


class Answers(BaseHTTPRequestHandler):
    """Answers each request with the next of `codes`, and closes the connection without an answer for 0."""

    codes: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        code = self.codes.pop(0) if self.codes else 200
        if not code:
            self.close_connection = True
            return
        body = b'{"message": "a word"}'
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_DELETE = do_GET  # noqa: N815 - the name that http.server wants

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Api]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        configuration = kubernetes.client.Configuration(host=f"http://127.0.0.1:{http.server_port}")
        yield Api(kubernetes.client.ApiClient(configuration))
        http.shutdown()


@pytest.mark.parametrize("code", [0, 429, 500, 503, 504])
def test_a_read_that_a_busy_server_does_not_answer_is_not_yet(server: Api, code: int) -> None:
    Answers.codes = [code] * 3
    assert eventually(lambda: server.request("GET", "/"), 60, every=0) == {"message": "a word"}
    assert Answers.codes == []
    Answers.codes = [code] * 10_000
    error = "UnansweredError" if code == 0 else f"BusyError('{code}: a word')"
    for what in ("the pod", lambda: server.request("GET", "/")):
        text = failure(lambda w=what: eventually(lambda: server.request("GET", "/"), 0, w, every=0.02))
        assert "looks that met an error: " in text
        assert f"the last one {error}" in text


@pytest.mark.parametrize("code", [400, 403, 404, 409, 410, 422])
def test_a_refused_read_ends_a_wait(server: Api, code: int) -> None:
    Answers.codes = [code]
    with pytest.raises(RefusedError, match=f"{code}: a word"):
        eventually(lambda: server.request("GET", "/"), 0)
    assert Answers.codes == []


@pytest.mark.parametrize("code", [0, 429, 500])
def test_a_failed_write_ends_a_wait(server: Api, code: int) -> None:
    """Nobody knows whether the server made it."""
    Answers.codes = [code]
    with pytest.raises((RefusedError, HTTPError)) as failed:
        eventually(lambda: server.request("DELETE", "/"), 0)
    assert not isinstance(failed.value, (BusyError, UnansweredError))
    assert Answers.codes == []
