"""What a change of spec.server.loadModels does to a real Triton while clients send requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tritonclient.grpc

from model_images import support
from server.test_model_control import PIPE, Site, asking
from triton_operator.api.servers import Change, ChangeOutcome, RunningServer
from triton_operator.probe import fetch, model_control
from triton_operator.probe.triton import repository_index

pytestmark = pytest.mark.server


@dataclass(frozen=True)
class Published(RunningServer):
    """A server in Docker, whose ports have other numbers."""

    ports: support.Server | None = None

    @property
    def address(self) -> str:
        assert self.ports
        return self.ports.http

    @property
    def grpc(self) -> str:
        assert self.ports
        return self.ports.grpc


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Starts Triton with `echo` and `other`. Both pipes have the step `step`. `empty` has no model.py."""
    root = tmp_path_factory.mktemp("repository")
    root.parent.chmod(0o755)
    root.chmod(0o755)
    for name in ("echo", "other", "step", "raises", "empty"):
        Site(None, root).write(name, "v1", fails=name == "raises")  # type: ignore[arg-type]
    (root / "empty" / "1" / "model.py").unlink()
    for name in ("pipe", "pipe2"):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(PIPE.replace('"pipe"', f'"{name}"'))
    options = ["--model-control-mode=explicit", "--load-model=echo", "--load-model=other", "--exit-on-error=false"]
    # As the operator's, which ends each connection that is older than some seconds: before a load is done.
    options.append("--grpc-max-connection-age=1000")
    with support.serving(Path(root), options=options) as running:
        yield Published("uid", "pod", "", (0, True), running)


def make(
    server: RunningServer, load: str = "", unload: str = "", keep: str = "echo", seconds: float = 60
) -> ChangeOutcome:
    change = Change(tuple(load.split()), tuple(unload.split()), tuple(keep.split()), seconds)

    async def main() -> ChangeOutcome:
        client = fetch.HttpClient()
        return await model_control.make(client, server, change)

    return asyncio.run(main())


def ready(server: RunningServer) -> set[str]:
    async def main() -> set[str]:
        client = fetch.HttpClient()
        return {e.name for e in (await repository_index(client, server.address)).index if e.state == "READY"}

    return asyncio.run(main())


def test_changes_the_models_without_a_failed_request(server: RunningServer) -> None:
    with asking(server.grpc, tritonclient.grpc) as answers:
        assert make(server, "pipe pipe2", "other", "echo pipe pipe2") == ChangeOutcome(
            "Done", "", ("pipe", "pipe2"), ("other",)
        )
        assert ready(server) == {"echo", "pipe", "pipe2", "step"}
        refused = make(server, "other raises", "pipe2", "echo pipe other raises")
        assert (refused.state, refused.loaded, refused.unloaded) == ("Refused", ("other",), ())
        assert "raises: " in refused.message
        assert "never loads" in refused.message or "Error" in refused.message, refused.message
        assert make(server, "", "step", "echo pipe2").state == "Done"
        assert "step" in ready(server), "an ensemble needs it"
        assert make(server, "", "pipe other", "echo pipe2").state == "Done"
        assert ready(server) == {"echo", "pipe2", "step"}
        assert make(server, "", "pipe2", "echo").state == "Done"
        assert ready(server) == {"echo"}, "the step goes with the last ensemble that needs it"
        missing = make(server, "nothing", "echo", "nothing")
        assert missing.state == "Refused"
        assert ready(server) == {"echo"}
    assert answers.errors == []
    assert sum(answers.variants.values()) > 100


def test_a_model_that_stays_loading_is_stuck_and_nothing_is_unloaded(server: RunningServer) -> None:
    stuck = make(server, "empty", "echo", "empty", seconds=5)
    assert (stuck.state, stuck.unloaded) == ("Stuck", ()), stuck
    assert stuck.message == "empty is still LOADING after 5 s"
    assert "echo" in ready(server)


def test_a_server_without_grpc_is_unreachable(server: RunningServer) -> None:
    nobody = RunningServer("uid", "pod", "127.0.0.1", (0, True))
    assert make(nobody, "echo").state == "Unreachable"
