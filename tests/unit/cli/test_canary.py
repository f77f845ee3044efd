"""`kubectl triton promote` and `abort`, with a cluster that records what is sent."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from kubectl_triton import canary as commands
from kubectl_triton import cluster
from kubectl_triton.main import main
from support import gen
from triton_operator.cluster.errors import ApiError

CANARY: dict[str, Any] = {"modelImage": {"reference": "r:2"}, "weight": 10}
REMOVED = [{"op": "test", "path": "/spec/canary", "value": CANARY}, {"op": "remove", "path": "/spec/canary"}]
ESCAPE = "\x1b]0;owned\x07"


class Connection:
    """A cluster with one TritonModel. `sent`: the steps of the last JSON patch. `refusal`: the API server's answer.

    `later`: what becomes of the TritonModel, one after the other.
    """

    def __init__(self, model: Any, refusal: ApiError | None = None, later: tuple[Any, ...] = ()) -> None:
        self._model, self._refusal, self._later = model, refusal, [*later]
        self.api, self.sent = self, list[Any]()

    def model(self, _: str) -> Any:
        if isinstance(self._model, Exception):
            raise self._model
        return self._model

    def wait(self, _: float) -> None:
        """Goes on to the next state."""
        self._model = self._later.pop(0)

    def patch(self, live: Any, _: Any, *steps: Any) -> None:
        assert live is self._model
        if self._refusal:
            raise self._refusal
        self.sent = list(steps)


def model(
    canary: Any = CANARY, status: str = "True", reason: str = "Weighted", seen: int = 2, verdict: str = "Good",
    **spec: Any,
) -> Any:  # fmt: skip
    tried = {"tried": "a-b", "weight": 10, "step": "1/1", "verdict": verdict}
    said = {"type": "Canary", "status": status, "reason": reason, "message": f"m{ESCAPE}", "observedGeneration": seen}
    fields = {**spec, **({"canary": canary} if canary else {})}
    return gen.raw(
        gen.put("metadata.generation", 2), gen.put("status", {"conditions": [said], "canary": tried}), **fields
    )


def run(monkeypatch: pytest.MonkeyPatch, connection: Connection, *arguments: str) -> Result:
    monkeypatch.setattr(cluster, "connect", lambda *_: connection)
    return CliRunner().invoke(main, [arguments[0], gen.NAME, *arguments[1:]])


def test_promote_puts_what_the_canary_sets_into_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(model())
    result = run(monkeypatch, connection, "promote")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("the canary is the spec now. If a GitOps tool writes it")
    image = {"op": "replace", "path": "/spec/modelImage/reference", "value": "r:2"}
    assert connection.sent == [image, *REMOVED]


def test_promote_takes_servers_and_models_too(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [{"name": "a", "config": {}}]
    connection = Connection(model({"server": {"image": "s:2"}, "models": models, "weight": 10}))
    assert run(monkeypatch, connection, "promote").exit_code == 0
    assert connection.sent[:2] == [
        {"op": "add", "path": "/spec/server/image", "value": "s:2"},
        {"op": "add", "path": "/spec/models", "value": models},
    ]


def test_abort_changes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(model(status="False", reason="CanaryNotReady"))
    result = run(monkeypatch, connection, "abort")
    assert (result.exit_code, result.output.partition(".")[0]) == (0, "the canary is removed")
    assert connection.sent == REMOVED


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (model(status="False", reason="CanaryNotReady"), "the canary isn't tried: CanaryNotReady: m"),
        (model(reason="NoRequests"), "the canary isn't tried: NoRequests"),
        (model(seen=1), "the operator hasn't processed the latest change"),
        (model(verdict="Undecided"), "the canary hasn't been found good: m"),
    ],
)
def test_a_canary_that_nobody_has_tried_needs_force(monkeypatch: pytest.MonkeyPatch, there: Any, words: str) -> None:
    connection = Connection(there)
    result = run(monkeypatch, connection, "promote")
    assert result.exit_code == 1
    assert words in result.output
    assert "add --force" in result.output
    assert "\x1b" not in result.output
    assert not connection.sent
    assert run(monkeypatch, connection, "promote", "--force").exit_code == 0
    assert connection.sent


@pytest.mark.parametrize(("end", "sent"), [("Good", True), ("Worse", False)])
def test_waits_until_the_canary_is_judged(monkeypatch: pytest.MonkeyPatch, end: str, sent: bool) -> None:
    last = model(verdict=end) if sent else model(verdict=end, status="False", reason="CanaryWorse")
    busy = ApiError(503, "ServiceUnavailable", "try again")
    states = (model(verdict="Undecided"), busy, model(seen=1, verdict=end), model(verdict="Undecided"), last)
    connection = Connection(model(verdict="Undecided"), later=states)
    monkeypatch.setattr(commands.time, "sleep", connection.wait)
    result = run(monkeypatch, connection, "promote", "--wait")
    assert bool(connection.sent) == sent
    assert (result.exit_code == 0) == sent, result.output
    assert result.output.count("Weighted: m") == 2, "what hasn't changed is printed once"
    assert "try again" in result.output
    assert "\x1b" not in result.output
    if not sent:
        assert "CanaryWorse: m" in result.output


def test_does_not_wait_for_a_canary_without_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(model(verdict="Undecided", reason="NoRequests"))
    result = run(monkeypatch, connection, "promote", "--wait")
    assert (result.exit_code, "the canary isn't tried: NoRequests" in result.output) == (1, True)


def test_waiting_and_forcing_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Connection(model()), "promote", "--wait", "--force")
    assert (result.exit_code, "exclude each other" in result.output) == (2, True)


@pytest.mark.parametrize("command", ["promote", "abort"])
def test_without_a_canary_nothing_is_changed(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    result = run(monkeypatch, Connection(model(None)), command)
    assert (result.exit_code, "has no canary" in result.output) == (1, True)


def test_the_api_servers_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Connection(model(), ApiError(403, "Forbidden", f"no{ESCAPE}")), "promote")
    assert (result.exit_code, "Error: no" in result.output, "\x1b" in result.output) == (1, True, False)
