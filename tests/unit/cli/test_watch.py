"""`kubectl triton status --watch`: the progress, the outcome, the exit codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kubectl_triton import cluster
from kubectl_triton.main import main
from kubectl_triton.status import progress, watch
from support import fleet, gen
from triton_operator.pods import Pod

ESCAPE = "\x1b]0;owned\x07\x9b31m"
DONE = gen.raw(fleet.status())


def printed(model: Any, pods: Sequence[Any] = (), events: Any = None) -> list[str]:
    return [str(line) for line in progress.lines(model, [Pod(pod) for pod in pods], events or {})]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (gen.unschedulable("no node"), "✗ server detection-abc-1: □□□□□□ Unschedulable: no node"),
        (gen.waiting("tools", "PodInitializing"), "… server detection-abc-1: ■□□□□□ pulling images and preparing"),
        (gen.state("fetch", state={"running": {}}), "… server detection-abc-1: ■■□□□□ fetching the model repository"),
        (gen.state("check", state={"running": {}}), "… server detection-abc-1: ■■■□□□ checking the model repository"),
        (gen.state("triton", state={"running": {}}), "… server detection-abc-1: ■■■■□□ the server is starting and lo"),
        (gen.not_ready, "… server detection-abc-1: ■■■■■□ the server has started, but the entrypoint doesn't answer"),
        (gen.injected("proxy", state={"running": {}}), "… server detection-abc-1: ■■■■■■ the server is ready, but its"),
        (gen.waiting("fetch", "ErrImagePull", "not found"), "✗ server detection-abc-1: ■■□□□□ ImagePullFailed: model"),
        (lambda _: None, "✓ server detection-abc-1: ■■■■■■ serving"),
    ],
)
def test_each_step_of_a_server_is_shown(change: gen.Modifier, expected: str) -> None:
    assert any(line.startswith(expected) for line in printed(DONE, [gen.pod(change)])), printed(DONE, [gen.pod(change)])


def test_an_image_that_is_being_pulled_is_named() -> None:
    pod = gen.pod(gen.state("fetch", state={"waiting": {"reason": "PodInitializing"}}))
    pulling = fleet.event("Pulling", 'Pulling image "registry.example.com/detection:v1"', 2)
    events = [fleet.event("Scheduled", "assigned", 1), pulling]
    assert any('Pulling image "registry.' in line for line in printed(DONE, [pod], {pod["metadata"]["name"]: events}))
    pulled = [pulling, fleet.event("Pulled", "pulled", 2)]
    assert not any("Pulling" in line for line in printed(DONE, [pod], {pod["metadata"]["name"]: pulled}))


def test_models_are_shown_one_by_one_with_tritons_reason() -> None:
    models = [{"name": "a", "version": "1", "state": "READY", "pods": "1/1"},
              {"name": "b", "state": "LOADING", "pods": "0/1"},
              {"name": "c", "state": "UNAVAILABLE", "reason": "no such file", "pods": "0/1"}]  # fmt: skip
    lines = printed(gen.raw(fleet.status(models=models, readyReplicas=1)))
    assert "✓ model a version 1: READY on 1/1 servers" in lines
    assert "… model b: LOADING on 0/1 servers" in lines
    assert "✗ model c: UNAVAILABLE on 0/1 servers: no such file" in lines
    assert "… ready servers: 1/2" in lines


def test_only_servers_with_the_newest_template_are_progress() -> None:
    old = gen.pod(gen.put("metadata.creationTimestamp", "2026-01-01T00:00:00Z"), name="old", template="1")
    new = gen.pod(
        gen.put("metadata.creationTimestamp", "2026-01-02T00:00:00Z"), gen.not_ready, name="new", template="2"
    )
    assert [p.name for p in progress.current([Pod(old), Pod(new)])] == ["new"]
    assert progress.current([Pod(gen.pod(gen.deleting))]) == []


def test_outcome_needs_the_status_of_the_current_spec() -> None:
    assert progress.outcome(DONE).ready  # type: ignore[union-attr]
    assert progress.outcome(gen.modified(DONE, gen.put("metadata.generation", 2))) is None
    assert progress.outcome(gen.raw()) is None
    assert progress.outcome(gen.modified(DONE, fleet.condition("Progressing", "True", "RollingOut"))) is None


def test_no_terminal_escape_is_shown() -> None:
    pods = [gen.pod(gen.waiting("fetch", "ErrImagePull", ESCAPE), name="a"), gen.pod(gen.not_ready, name="b")]
    model = gen.modified(DONE, fleet.condition("Progressing", "False", "ModelLoadFailed", ESCAPE))
    model["status"]["models"][0] |= {"reason": ESCAPE, "state": ESCAPE}
    lines = printed(model, pods, {"b": [fleet.event("Pulling", ESCAPE)]})
    assert all(line.isprintable() for line in lines), lines
    assert sum("owned" in line for line in lines) == 4
    assert str(progress.outcome(model)).isprintable()


class Connection:
    """A cluster whose TritonModel changes with each read; the last state stays."""

    namespace = gen.NAMESPACE

    def __init__(self, *states: Any, pods: Any = ()) -> None:
        self.states, self._pods, self.reads = list(states), pods, 0

    def model(self, name: str) -> Any:
        self.reads += 1
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return state

    def pods(self, model: Any, most: int | None = None) -> Any:
        if isinstance(self._pods, Exception):
            raise self._pods
        return list(map(Pod, self._pods))

    def events(self, regarding: Any, most: int) -> Any:
        return []


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Returns a function that runs the command without a real clock."""
    now = [0.0]
    monkeypatch.setattr(watch.follow, "__defaults__", (lambda: now[0], lambda s: now.__setitem__(0, now[0] + s)))

    def go(connection: Connection, *arguments: str) -> Result:
        monkeypatch.setattr(cluster, "connect", lambda *_: connection)
        return CliRunner().invoke(main, ["status", "detection", "--watch", *arguments])

    return go


STARTING = gen.modified(DONE, fleet.condition("Progressing", "True", "RollingOut", "loading"))
BROKEN = gen.modified(DONE, fleet.condition("Progressing", "False", "RepositoryInvalid", "a:1: TR101"))


def test_watch_prints_a_line_for_each_change_and_ends_with_ready(run: Run) -> None:
    result = run(Connection(STARTING, STARTING, STARTING, DONE, pods=[gen.pod()]))
    assert result.exit_code == 0, result.output
    assert result.output.count("rollout: ") == 2
    assert result.output.count("server detection-abc-1") == 1
    assert "    3s ✓ rollout: Complete" in result.output
    assert result.output.endswith("detection is Ready: detection answers\n")


def test_watch_fails_with_the_reason_after_the_problem_has_lasted(run: Run) -> None:
    connection = Connection(STARTING, BROKEN)
    result = run(connection)
    assert result.exit_code == 1
    assert result.output.endswith("detection fails: RepositoryInvalid: a:1: TR101\n")
    assert connection.reads == 2 + watch.SETTLE_SECONDS


def test_watch_goes_on_after_a_problem_that_ends(run: Run) -> None:
    assert run(Connection(BROKEN, BROKEN, STARTING, DONE)).exit_code == 0


def test_watch_ends_with_2_after_the_timeout(run: Run) -> None:
    connection = Connection(STARTING)
    result = run(connection, "--timeout", "20")
    assert result.exit_code == 2
    assert result.output.endswith("detection isn't Ready after 20 s: RollingOut: loading\n")
    assert connection.reads == 21


def test_watch_waits_for_a_node(run: Run) -> None:
    waiting = gen.modified(DONE, fleet.condition("Progressing", "False", "Unschedulable", "no node"))
    assert run(Connection(*[waiting] * 60, DONE)).exit_code == 0


def test_watch_ends_at_once_without_servers(run: Run) -> None:
    connection = Connection(gen.raw(fleet.status("False", "ScaledToZero", "the Deployment is scaled to 0")))
    result = run(connection)
    assert (result.exit_code, connection.reads) == (1, 1)
    assert "ScaledToZero" in result.output


def test_watch_goes_on_while_the_api_server_does_not_answer(run: Run) -> None:
    result = run(Connection(cluster.UnreachableError("no answer"), cluster.UnreachableError("no answer"), DONE))
    assert result.exit_code == 0
    assert "✗ API server: no answer" in result.output


@pytest.mark.parametrize("code", [401, 403, 404])
def test_watch_ends_if_the_api_server_refuses(run: Run, code: int) -> None:
    result = run(Connection(STARTING, cluster.UnreachableError(f"refused{ESCAPE}", code=code)))
    assert result.exit_code == 1
    assert "refused" in result.output
    assert "\x1b" not in result.output


def test_watch_needs_no_permission_for_pods(run: Run) -> None:
    result = run(Connection(STARTING, DONE, pods=cluster.UnreachableError("forbidden", code=403)))
    assert result.exit_code == 0
