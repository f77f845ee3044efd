"""Changes and faults of models that end no server: what fails to load, is unloaded or changes has no dead process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from server.python_models import CONFIG, PATH, Watched, asks, watched, write_repository
from support.api import eventually
from triton_operator.render import start

pytestmark = pytest.mark.server

ALL = ("one", "two", "three", "judge", "all")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def module_server(repository: Path, busybox: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(repository, busybox, tmp_path_factory.mktemp("server"), models=ALL) as server:
        yield server
        # Longer than for anything that the tests left.
        server.wait_for_looks(9)
        serves(server)


@pytest.fixture
def server(module_server: Watched) -> Iterator[Watched]:
    """A server that must serve all its models at the end."""
    yield module_server
    serves(module_server)


def serves(server: Watched) -> None:
    assert {model: server.infer(model) for model in ALL} == dict.fromkeys(ALL, 200)
    assert server.told == []
    assert start.DIED not in server.log()


def change(repository: Path, model: str) -> None:
    """Changes a file of the model, so that Triton doesn't take a load of it for done."""
    os.utime(repository / model / "1" / "model.py")


def set_instances(repository: Path, model: str, number: int) -> None:
    """Triton changes the number of processes without a reload if nothing else has changed."""
    (repository / model / "config.pbtxt").write_text(CONFIG % number)


def settled(server: Watched, model: str, number: int) -> list[str]:
    """Returns the processes of a model when there are as many: those that a load has replaced end after it."""
    eventually(lambda: len(server.processes(model)) == number, 60, lambda: server.processes(model))
    return server.processes(model)


def in_background(server: Watched, model: str) -> Future[int]:
    """Loads a model. The result is the status code."""
    executor = ThreadPoolExecutor(1)
    result = executor.submit(server.load, model)
    executor.shutdown(wait=False)
    return result


def test_a_model_that_is_unloaded(server: Watched) -> None:
    for _ in range(3):
        server.unload("two")
        assert server.load("two") == 200
    server.unload("two")
    server.wait_for_looks(5)
    assert server.load("two") == 200


@pytest.mark.parametrize("way", ["exits", "raises"])
def test_a_model_that_fails_to_load(way: str, server: Watched) -> None:
    """Triton waits for a process that has ended for up to 10 s."""
    server.unload("two")
    with server.asked("two", way):
        for _ in range(2):
            assert server.load("two") == 400
    assert server.load("two") == 200


@pytest.mark.parametrize("model", ["two", "judge"])
@pytest.mark.parametrize("way", ["exits", "raises"])
def test_a_reload_that_fails(way: str, model: str, server: Watched, repository: Path) -> None:
    """The model that serves stays. The index says READY all the time."""
    with server.asked(model, way):
        for _ in range(2):
            change(repository, model)
            assert server.load(model) == 400
            assert server.infer(model) == 200
    change(repository, model)
    assert server.load(model) == 200


def test_a_reload_that_is_killed(server: Watched, repository: Path) -> None:
    with server.asked("two", "waits"):
        serving = settled(server, "two", 1)
        change(repository, "two")
        waits = server.log().count("two waits")
        loading = in_background(server, "two")
        eventually(lambda: server.log().count("two waits") > waits, 60)
        server.wait_for_looks()
        (new,) = set(server.processes("two")) - set(serving)
        server.shell(f"kill -9 {new}")
        assert loading.result() == 400
        assert server.processes("two") == serving
    change(repository, "two")
    assert server.load("two") == 200


def test_more_instances_that_fail(server: Watched, repository: Path) -> None:
    before = settled(server, "two", 1)
    set_instances(repository, "two", 2)
    with server.asked("two", "exits"):
        assert server.load("two") == 400
    assert server.processes("two") == before
    set_instances(repository, "two", 1)
    assert server.load("two") == 200


def test_more_and_fewer_instances(server: Watched, repository: Path) -> None:
    before = settled(server, "two", 1)
    for number in (3, 1):
        set_instances(repository, "two", number)
        assert server.load("two") == 200
        after = settled(server, "two", number)
        assert set(before) & set(after), "the model was loaded again as a whole"
        before = after
        server.wait_for_looks(5)


def test_a_model_that_is_slow_to_start(server: Watched) -> None:
    server.unload("two")
    with server.asked("two", "waits"):
        loading = in_background(server, "two")
        eventually(lambda: server.processes("two"), 60)
        server.wait_for_looks(6)
    assert loading.result() == 200


def test_a_model_that_says_it_is_not_ready(server: Watched, repository: Path) -> None:
    with server.asked("judge", "unready"):
        server.wait_for_looks(6)
        with server.asked("judge", "exits"):
            change(repository, "judge")
            assert server.load("judge") == 400
    change(repository, "judge")
    assert server.load("judge") == 200


def test_processes_that_a_model_has_forked(server: Watched) -> None:
    """When the model is unloaded they become children of tritonserver, which leaves them as zombies."""
    before = zombies(server)
    server.unload("two")
    eventually(lambda: zombies(server) >= before + 2, 60, lambda: server.shell("ps -ef"))
    server.wait_for_looks(5)
    assert server.load("two") == 200


def zombies(server: Watched) -> int:
    """Returns the number of zombies that are children of tritonserver, and have the name of a Python model."""
    return int(server.shell("cat /proc/[0-9]*/stat 2>/dev/null | grep -c '(triton_python_b) Z 1 '; true"))


def is_live(server: Watched) -> bool:
    try:
        return server.get("/v2/health/live") == 200
    except OSError:  # it doesn't listen yet
        return False


@pytest.mark.parametrize("way", ["exits", "killed"])
def test_a_model_whose_process_ends_during_the_first_load(
    way: str, repository: Path, busybox: Path, tmp_path: Path
) -> None:
    """The server starts without it. It would not get a signal before, and the model would fail again."""
    (asks(tmp_path) / ("two-exits" if way == "exits" else "two-waits")).touch()
    with watched(repository, busybox, tmp_path, models=["one", "two"], ready=False) as server:
        if way == "killed":
            # Up to 25.07, Triton waits forever for a process that ends before its `initialize`.
            eventually(lambda: "two waits" in server.log(), 60, server.log)
            server.wait_for_looks()
            server.signal("two")
        eventually(lambda: is_live(server), 60, server.log)
        server.wait_for_looks(9)
        assert server.infer("one") == 200
        assert server.infer("two") in (400, 404)
        assert (server.told, "Signal (15)" in server.log()) == ([], False)
        # The watch continues.
        server.signal("one")
        server.wait()
        assert server.told == [PATH.format("one")]
