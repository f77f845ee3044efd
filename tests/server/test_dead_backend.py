"""A Python model's process dies. Triton never starts it again: each request to it fails until the server restarts."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from model_images.support import docker
from server.python_models import CONFIG, MODEL, PATH, Watched, asks, mark, watched, write_repository
from support.api import eventually
from triton_operator.render import start

pytestmark = pytest.mark.server

REAPS = (2, 64)
"""Servers from here on (25.12) look after a process whenever a client asks whether its model is ready."""
TWO = "/v2/models/two/ready"
"""What the readiness probe requests if the entrypoint is `two`."""
STRICT = (2, 68)
"""Servers from here on (26.04) aren't ready while a process is dead."""
WAITS = "the server restarts in 10 min"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_repository(tmp_path_factory.mktemp("repository"))


@contextmanager
def probed(server: Watched, path: str) -> Iterator[set[int]]:
    """Asks as probes do, but more often. Gives the status codes."""
    over, codes = threading.Event(), set[int]()

    def ask() -> None:
        while not over.wait(0.3):
            try:
                codes.add(server.get(path))
            except OSError:  # the server ends
                return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield codes
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(
    "path", ["/v2/health/live", "/v2/health/ready", "/v2/models/one/ready", "/v2/models/all/ready"]
)
def test_a_killed_process_ends_the_server(path: str, repository: Path, busybox: Path, tmp_path: Path) -> None:
    """Whatever the probes ask. Until the server ends, what it says of its health depends on its release."""
    with watched(repository, busybox, tmp_path) as server, probed(server, path) as codes:
        assert (server.infer("one"), server.infer("two")) == (200, 200)
        server.wait_for_looks()
        sees = server.version >= REAPS and path == "/v2/models/one/ready"
        server.signal("one")
        server.wait()
        assert server.told == [PATH.format("one")]
        assert (400 in codes) == sees or path == "/v2/health/ready"


def test_a_process_that_exits_by_itself_ends_the_server(repository: Path, busybox: Path, tmp_path: Path) -> None:
    with watched(repository, busybox, tmp_path) as server:
        server.wait_for_looks()
        assert server.infer("two", -1) == 500
        server.wait()
        assert server.told == [PATH.format("two")]


def test_a_stopped_process_ends_the_server(repository: Path, busybox: Path, tmp_path: Path) -> None:
    """Each request fails, as if it were dead, and all servers say that its model is ready."""
    with watched(repository, busybox, tmp_path) as server, probed(server, "/v2/models/two/ready") as codes:
        server.wait_for_looks()
        server.signal("two", "STOP")
        server.wait()
        assert (server.told, codes) == ([PATH.format("two")], {200})


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready"])
def test_a_dead_instance_of_several_ends_the_server(path: str, repository: Path, busybox: Path, tmp_path: Path) -> None:
    with watched(repository, busybox, tmp_path, models=["three"]) as server, probed(server, path):
        assert len(server.processes("three")) == 3
        server.wait_for_looks()
        server.signal("three")
        server.wait()
        assert server.told == [PATH.format("three")]


def test_a_process_that_dies_before_the_watch_has_seen_it_ends_the_server_later(
    repository: Path, busybox: Path, tmp_path: Path
) -> None:
    with watched(repository, busybox, tmp_path) as server, probed(server, "/v2/health/ready"):
        server.unload("two")
        assert server.load("two") == 200
        server.signal("two")
        assert server.infer("two") == 500
        server.wait()
        # Perhaps the watch has just seen it.
        assert server.told in (["a model that had just started"], [PATH.format("two")])


def test_a_process_that_dies_while_another_model_starts_ends_the_server(
    repository: Path, busybox: Path, tmp_path: Path
) -> None:
    """Not before the server listens: it would not get the signal."""
    (asks(tmp_path) / "two-waits").touch()
    with watched(repository, busybox, tmp_path, ready=False) as server:
        eventually(lambda: "successfully loaded 'one'" in server.log(), 60, server.log)
        server.wait_for_looks()
        server.signal("one")
        server.wait_for_looks(6)
        assert (server.told, start.DIED in server.log()) == ([], False)
        (asks(tmp_path) / "two-waits").unlink()
        server.wait()
        assert server.told == [PATH.format("one")]


def test_a_process_from_files_of_a_client_ends_the_server(repository: Path, busybox: Path, tmp_path: Path) -> None:
    """They are in a folder that doesn't have the name of the model."""
    config = {
        "backend": "python",
        "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}],
        "instance_group": [{"kind": "KIND_CPU"}],
    }
    with watched(repository, busybox, tmp_path) as server:
        code = base64.b64encode(MODEL.encode()).decode()
        assert server.load("sent", config, {"file:1/model.py": code}) == 200
        server.wait_for_looks()
        assert server.infer("sent", -1) == 500
        server.wait()
        assert server.told[0].endswith("/1/model.py")


def test_a_process_of_a_backend_in_python_ends_the_server(busybox: Path, tmp_path: Path) -> None:
    """Such as vLLM's: the code belongs to the backend, and the model has only its configuration."""
    backend, models = tmp_path / "backend", tmp_path / "repository"
    backend.mkdir()
    (backend / "model.py").write_text(MODEL)
    (models / "plain" / "1").mkdir(parents=True)
    (models / "plain" / "config.pbtxt").write_text((CONFIG % 1).replace('"python"', '"ours"'))
    limits = [f"--volume={backend}:/opt/tritonserver/backends/ours:ro"]
    with watched(models, busybox, tmp_path, models=["plain"], limits=limits) as server:
        assert server.infer("plain") == 200
        server.wait_for_looks()
        server.signal("plain")
        server.wait()
        assert server.told == [PATH.format("plain")]


@pytest.mark.parametrize("api", ["metadata", "model-repository"])
def test_a_server_that_tells_strangers_nothing_is_ended(
    api: str, repository: Path, busybox: Path, tmp_path: Path
) -> None:
    options = [f"--http-restricted-api={api}:key=secret"]
    with watched(repository, busybox, tmp_path, options=options) as server:
        server.wait_for_looks()
        server.signal("two")
        server.wait()
        assert server.told == [PATH.format("two")]


def test_says_only_what_died_where_repair_is_report(repository: Path, busybox: Path, tmp_path: Path) -> None:
    with watched(repository, busybox, tmp_path, repair="Report") as server:
        server.wait_for_looks()
        server.signal("one")
        eventually(lambda: f"{start.DIED} {PATH.format('one')}" in server.log(), 60, server.log)
        assert [server.infer("one") for _ in range(10)] == [500] * 10
        assert server.infer("two") == 200
        assert server.failures("one") == {"BACKEND": 10}
        assert [server.infer("all") for _ in range(10)] == [500] * 10
        # As docs/metrics.md says.
        assert (server.failures("one"), server.failures("all")) == ({"BACKEND": 20}, {"OTHER": 20})
        assert server.get("/v2/models/all/ready") == 200
        server.signal("two")
        eventually(lambda: f"{start.DIED} {PATH.format('two')}" in server.log(), 60, server.log)
        server.wait_for_looks(3)
        assert server.log().count(start.DIED) == 2
        assert server.told == []


def test_a_line_of_the_list_is_no_flag_beside_the_model(repository: Path, busybox: Path, tmp_path: Path) -> None:
    """Others may have written the list."""
    models = ["one", "two --log-verbose=1", "--log-verbose=2", "* --log-verbose=3"]
    with watched(repository, busybox, tmp_path, models=models, ready=False) as server:
        eventually(lambda: "Started HTTPService" in server.log(), 60, server.log)
        words = server.shell("tr '\\0' '\\n' </proc/1/cmdline").splitlines()
        assert [word for word in words if "verbose" in word or "load-model" in word] == [
            "--load-model=one", "--load-model=--log-verbose=2",
        ]  # fmt: skip
        assert server.infer("one") == 200


def test_changes_no_variable_of_the_users(repository: Path, busybox: Path, tmp_path: Path) -> None:
    with watched(repository, busybox, tmp_path, models=["one"]) as server:
        assert "server=mine" in server.shell("tr '\\0' '\\n' </proc/1/environ").splitlines()


# A server that has restarted because of dead processes


def dies(server: Watched, model: str) -> None:
    """Ends a process of the model. Returns when the server has reported it."""
    server.wait_for_looks()
    server.signal(model)
    eventually(lambda: f"{start.DIED} {PATH.format(model)}" in server.log(), 60, server.log)


def waits(server: Watched) -> None:
    """Returns when the server has said that it waits with the next restart."""
    eventually(lambda: start.DIED in server.log() and "the server restarts in" in server.log(), 60, server.log)


def marks(folder: Path) -> list[int]:
    """Returns the numbers of restarts for which there is a mark. `folder`: that of `watched`."""
    return [number for number in range(6) if mark(folder, number).exists()]


@contextmanager
def restarted(repository: Path, busybox: Path, folder: Path, *, restarts: int = 3, **options: Any) -> Iterator[Watched]:
    """Starts a server after so many that dead processes have ended. `options`: of `watched`."""
    mark(folder, restarts).mkdir(parents=True)
    with watched(repository, busybox, folder, **{"readiness": TWO, **options}) as server:
        yield server


def test_after_three_restarts_the_other_models_keep_answering(repository: Path, busybox: Path, tmp_path: Path) -> None:
    models = ["one", "two", "judge", "all"]
    for number in range(1, 4):
        with watched(repository, busybox, tmp_path, models=models, readiness=TWO) as server:
            dies(server, "one")
            server.wait()
            assert (server.told, WAITS in server.log()) == ([PATH.format("one")], False)
            assert marks(tmp_path) == [number]
    with watched(repository, busybox, tmp_path, models=models, readiness=TWO) as server:
        server.wait_for_looks()
        assert server.infer("one", -1) == 500
        eventually(lambda: WAITS in server.log(), 60, server.log)
        dies(server, "judge")
        server.wait_for_looks(6)
        assert (server.infer("two"), server.get(TWO), server.infer("one")) == (200, 200, 500)
        assert (server.log().count(start.DIED), server.log().count(WAITS)) == (2, 1)
        assert (server.told, "Signal (15)" in server.log(), marks(tmp_path)) == ([], False, [])


def test_a_process_that_is_still_dead_after_the_time_ends_the_server(
    repository: Path, busybox: Path, tmp_path: Path
) -> None:
    """Its termination message has all that are dead then."""
    with restarted(repository, busybox, tmp_path, models=["one", "two", "judge"], hold=40) as server:
        dies(server, "one")
        dies(server, "judge")
        waits(server)
        assert marks(tmp_path) == []
        server.wait()
        assert sorted(server.told) == [PATH.format("judge"), PATH.format("one")]
        assert marks(tmp_path) == [3]


@pytest.mark.parametrize("way", ["unloaded", "reloaded"])
def test_a_model_that_was_repaired_in_the_time_ends_no_server(
    way: str, repository: Path, busybox: Path, tmp_path: Path
) -> None:
    with restarted(repository, busybox, tmp_path, hold=20) as server:
        dies(server, "one")
        waits(server)
        server.unload("one")
        if way == "reloaded":
            assert server.load("one") == 200
        # Each look takes longer than a second.
        server.wait_for_looks(22)
        assert (server.infer("two"), server.told) == (200, [])
        dies(server, "two")
        server.wait()
        assert server.told == [PATH.format("two")]


def test_restarts_count_only_one_after_the_other(repository: Path, busybox: Path, tmp_path: Path) -> None:
    """The second server has served for the time, and the third one has ended for another reason."""
    with restarted(repository, busybox, tmp_path, restarts=2, hold=3) as server:
        server.wait_for_looks(4)
        dies(server, "one")
        server.wait()
        assert marks(tmp_path) == [1]
    with watched(repository, busybox, tmp_path, readiness=TWO) as server:
        eventually(lambda: marks(tmp_path) == [], 60)
        docker("stop", server.server.container)
        assert marks(tmp_path) == []


@pytest.mark.parametrize("what", ["a file", "a folder of a model"])
def test_whatever_is_in_the_place_of_the_mark_a_process_ends_the_server(
    what: str, repository: Path, busybox: Path, tmp_path: Path
) -> None:
    for number in (1, 2, 3):
        place = mark(tmp_path, number)
        (place / "more" if what == "a folder of a model" else place.parent).mkdir(parents=True, exist_ok=True)
        if what == "a file":
            place.touch()
    with watched(repository, busybox, tmp_path, readiness=TWO) as server:
        dies(server, "one")
        server.wait()
        assert (server.told, WAITS in server.log()) == ([PATH.format("one")], False)


@pytest.mark.parametrize(
    ("models", "readiness", "health", "since"),
    [
        (["one"], start.READY, "", (2,)),
        (["one", "two"], "/v2/models/one/ready", "", REAPS),
        (["one", "two"], start.READY, "", STRICT),
        (["one", "two"], TWO, "/v2/models/one", (2,)),
        (["one", "two", "all"], TWO, "/v2/models/all", (2,)),
        (["one", "two", "all"], TWO, "/v2/models/two", (9,)),
    ],
    ids=[
        "no other model",
        "the entrypoint is dead",
        "all models must be ready",
        "the health request fails",
        "the health request's pipeline fails",
        "the health request goes to another model",
    ],
)
def test_a_server_whose_other_models_get_no_requests_is_ended_at_once(
    models: list[str],
    readiness: str,
    health: str,
    since: tuple[int, ...],
    repository: Path,
    busybox: Path,
    tmp_path: Path,
) -> None:
    """`since`: the release from which on the readiness probe fails because of the dead process."""
    with restarted(repository, busybox, tmp_path, models=models, readiness=readiness, health=health) as server:
        fails = server.version >= since
        dies(server, "one")
        if fails:
            server.wait()
            assert (server.told, marks(tmp_path)) == ([PATH.format("one")], [3])
        else:
            waits(server)


def test_the_time_begins_when_the_server_listens(repository: Path, busybox: Path, tmp_path: Path) -> None:
    (asks(tmp_path) / "two-waits").touch()
    with restarted(repository, busybox, tmp_path, ready=False, hold=30) as server:
        eventually(lambda: "two waits" in server.log(), 60, server.log)
        # Each look takes longer than a second.
        server.wait_for_looks(30)
        (asks(tmp_path) / "two-waits").unlink()
        eventually(lambda: "Started HTTPService" in server.log(), 60, server.log)
        dies(server, "one")
        waits(server)
        assert server.told == []
