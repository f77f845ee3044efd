"""Commands in a pod: their output, errors and limits."""

from __future__ import annotations

import io
import math
from collections import deque
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import kubernetes
import pytest
import websocket

from kubectl_triton import pod_session
from kubectl_triton.cluster import Cluster
from kubectl_triton.pod_session import MAX_OUTPUT, Purpose, Session, SessionError
from support import gen

PURPOSE = Purpose("calibration", "load", "it needs get and create on pods/exec")
SESSION = Session(
    Cluster(None, "vision", kubernetes.client.Configuration()),  # type: ignore[arg-type]
    "vision",
    "m-calibration",
    PURPOSE,
)


class Channel:
    """A connection to a container that delivers one message per update: (stdout, stderr). It closes after the last."""

    def __init__(self, messages: list[tuple[str, str]], code: int = 0, stays_open: bool = False) -> None:
        self._messages, self.returncode, self._stays_open = deque(messages), code, stays_open
        self._waiting = ["", ""]
        self.written, self.closed = b"", False

    def is_open(self) -> bool:
        return bool(self._messages) or self._stays_open

    def update(self, timeout: float) -> None:
        if self._messages:
            self._waiting = [old + new for old, new in zip(self._waiting, self._messages.popleft(), strict=True)]

    def peek_stdout(self, timeout: float) -> str:
        return self._waiting[0]

    def peek_stderr(self, timeout: float) -> str:
        return self._waiting[1]

    def read_stdout(self, timeout: float) -> str:
        text, self._waiting[0] = self._waiting[0], ""
        return text

    def read_stderr(self, timeout: float) -> str:
        text, self._waiting[1] = self._waiting[1], ""
        return text

    def write_stdin(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True


def connected(monkeypatch: pytest.MonkeyPatch, channel: Any) -> list[dict[str, Any]]:
    """Makes the client connect to this channel. Returns the options of the calls."""
    calls: list[dict[str, Any]] = []

    def stream(*_arguments: Any, **options: Any) -> Any:
        calls.append(options)
        if isinstance(channel, Exception):
            raise channel
        return channel

    monkeypatch.setattr("kubernetes.stream.stream", stream)
    return calls


def test_returns_the_whole_output(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel([('{"a"', "."), (": 1}", "..")])
    calls = connected(monkeypatch, channel)
    assert SESSION.run(["measure", "x"], 5) == '{"a": 1}'
    assert channel.closed
    assert (calls[0]["command"], calls[0]["container"], calls[0]["stdin"]) == (["measure", "x"], "load", False)


def test_a_command_that_fails_shows_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    connected(monkeypatch, Channel([("out", "bad\x1b[31m\nthing")], code=2))
    with pytest.raises(SessionError, match=r"measure failed in the pod: bad\?\[31m thing"):
        SESSION.run(["measure"], 5)


def test_a_command_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel([], stays_open=True)
    connected(monkeypatch, channel)
    with pytest.raises(SessionError, match="took longer than 0 s"):
        SESSION.run(["measure"], 0.05)
    assert channel.closed


def test_a_command_that_prints_too_much_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel([("x" * MAX_OUTPUT, ""), ("x", "")], stays_open=True)
    connected(monkeypatch, channel)
    with pytest.raises(SessionError, match="printed more than"):
        SESSION.run(["measure"], 60)
    assert channel.closed


def test_an_upload_sends_every_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel([("", "")] * 8)
    calls = connected(monkeypatch, channel)
    content = bytes(range(256)) * 1000
    SESSION.upload(content, "/tmp/input.json")
    assert channel.written == content
    assert calls[0]["command"] == ["sh", "-c", "head -c 256000 >/tmp/input.json"]
    assert calls[0]["stdin"] is True


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (kubernetes.client.ApiException(status=403, reason="Forbidden"), "get and create on pods/exec"),
        (kubernetes.client.ApiException(status=0, reason="Handshake status 500"), "can't run measure in the pod"),
    ],
)
def test_a_refused_command_is_an_error_for_the_user(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    connected(monkeypatch, error)
    with pytest.raises(SessionError, match=words):
        SESSION.run(["measure"], 5)


def test_a_broken_connection_is_an_error_for_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel([("a", "")], stays_open=True)
    connected(monkeypatch, channel)

    def broken(timeout: float) -> None:
        raise websocket.WebSocketConnectionClosedException("gone")

    monkeypatch.setattr(channel, "update", broken)
    with pytest.raises(SessionError, match="the connection to the pod broke: gone"):
        SESSION.run(["measure"], 5)
    assert channel.closed


def test_a_command_that_ends_before_it_has_read_everything_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel([("", "no space left on device")], code=2)
    connected(monkeypatch, channel)
    with pytest.raises(SessionError, match="sh failed in the pod: no space left on device"):
        SESSION.feed(io.BytesIO(bytes(1 << 20)), 1 << 20, "tar -x", 5)
    assert len(channel.written) < 1 << 20


@pytest.mark.parametrize(("patience", "polls"), [(0.0, 1), (math.inf, 3)])
def test_an_image_that_cant_be_pulled_is_waited_for_only_so_long(
    patience: float, polls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = [gen.pod(gen.not_ready, gen.waiting("triton", "ErrImagePull", "no such image"))] * 2 + [gen.pod()]
    seen, said = iter(pods), list[str]()
    taken: list[Any] = []
    api = SimpleNamespace(get=lambda *_: taken.append(pod := next(seen)) or pod)
    session = replace(SESSION, connection=replace(SESSION.connection, api=api))
    monkeypatch.setattr(pod_session, "_POLL_SECONDS", 0)
    monkeypatch.setitem(pod_session._PATIENCE, "ImagePullFailed", patience)
    if polls == 1:
        with pytest.raises(SessionError, match="can't be pulled: no such image"):
            session.wait(60, said.append)
    else:
        session.wait(60, said.append)
        assert [text.partition(":")[0] for text in said] == ["ImagePullFailed"]
    assert len(taken) == polls
