"""What failed tests leave, with a real pytest."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hack.world import settings

# The log of a server is gone after the test, as those of the control planes.
TESTS = """
import contextlib, time
import pytest
from support import evidence


@contextlib.contextmanager
def server(folder, words="ready"):
    log = folder / "server.log"
    log.write_text(words)
    try:
        with evidence.on_failure("server", evidence.of_file(log)):
            yield log
    finally:
        log.unlink()


@pytest.fixture
def running(tmp_path):
    with server(tmp_path) as log:
        yield log


def test_call(running):
    running.write_text("refused")
    assert 0


@pytest.fixture
def broken(tmp_path):
    with server(tmp_path, "no port"):
        raise OSError
        yield


def test_setup(broken):
    pass


@pytest.fixture
def ends_badly(running):
    yield
    running.write_text("still there")
    with evidence.collected():
        raise OSError


def test_teardown(ends_badly):
    pass


def test_own(tmp_path):
    with server(tmp_path, "own"):
        assert 0


def test_passes(running, tmp_path_factory):
    with pytest.raises(OSError), server(tmp_path_factory.mktemp("other"), "expected"):
        raise OSError


def test_is_skipped(running):
    pytest.skip()


def test_collectors(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "SECONDS", 0.5)
    monkeypatch.setattr(evidence, "SIZE", 3)
    with evidence.on_failure("gone", evidence.of_file(tmp_path / "gone.log")):
        with evidence.on_failure("stuck", lambda _: time.sleep(600)), server(tmp_path, "abcdef"):
            assert 0
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """Runs TESTS after a former run. Returns pytest's output, and the files that were left by path."""
    folder = tmp_path_factory.mktemp("tests")
    (folder / "test_it.py").write_text(TESTS)
    left = folder / "left"
    for name in ("test_call", "test_passes"):
        (left / f"test_it.py-{name}").mkdir(parents=True)
        (left / f"test_it.py-{name}" / "former.log").touch()
    env = {**os.environ, "EVIDENCE_FOLDER": str(left), "PYTHONPATH": f"{settings.ROOT / 'tests'}:{settings.ROOT}"}
    # Not the configuration of this project: the folder may be inside the checkout.
    own = ["-c", os.devnull, f"--rootdir={folder}"]
    command = [sys.executable, "-m", "pytest", *own, "-p", "support.evidence", "-p", "no:cacheprovider", "test_it.py"]
    result = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    files = {str(file.relative_to(left)): file.read_text() for file in left.rglob("*") if file.is_file()}
    return result.stdout + result.stderr, {name.removeprefix("test_it.py-"): text for name, text in files.items()}


def test_a_failure_leaves_files_before_fixtures_and_contexts_end(ran: tuple[str, dict[str, str]]) -> None:
    out, files = ran
    logs = {name: text for name, text in files.items() if not name.startswith("test_collectors/")}
    assert logs == {
        "test_call/server.log": "refused",
        "test_setup/server.log": "no port",
        "test_teardown/server.log": "still there",
        "test_own/server.log": "own",
    }, out


@pytest.mark.parametrize("test", ["call", "setup", "teardown", "own"])
def test_the_output_names_the_folder(ran: tuple[str, dict[str, str]], test: str) -> None:
    assert f"/left/test_it.py-test_{test}\n" in ran[0]


def test_a_collector_that_fails_or_hangs_hides_no_other(ran: tuple[str, dict[str, str]]) -> None:
    _, files = ran
    assert files["test_collectors/server.log"] == "def", "the end, in the allowed size"
    stuck, gone = files["test_collectors/not-collected.txt"].splitlines()
    assert stuck == "stuck: not within the time"
    assert gone.startswith("gone: FileNotFoundError: ")
